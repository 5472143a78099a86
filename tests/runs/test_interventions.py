"""A study's interventions: the table of outcomes is what eager attention gives with the changes made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import yaml

from attnscope.analysis.run import Run
from attnscope.errors import AttnscopeError
from attnscope.lens import Lens, load
from attnscope.studies import perform_request, request_study
from tests.attention.intervened import ByHand, changed
from tests.runs.conftest import save_tiny

TIER = "command"
EXACT = 1e-5

ITEMS: list[dict[str, Any]] = [
    {"context": "Tom has 12 red cups.", "question": "How many?", "solution": " 12", "wrong": [" 7", " cups"]},
    {"context": "There is no figure.", "question": "And now?", "solution": " No", "wrong": [" Tom", " 12"]},
    {"context": "7 and 8 and 9; then 70.", "question": "Which is it?", "solution": " 8, then", "wrong": [" 9", " 70"]},
]
STUDY: dict[str, Any] = {
    "prompts": {"items": ITEMS, "plain": "{context}\n{question}\nAnswer:"},
    "conditions": ["none", {"name": "asked", "replace": {"segment": "question", "with": {"text": "What?"}}}],
    "classes": {"digits": "re:[0-9]", "context": "segment:context", "question": "segment:question"},
    "also": {"whole context": "segment:context"},
    "measure": {"queries": ["last"]},
    "interventions": [
        "none",
        {"name": "no digits", "hide": {"keys": "digits", "from": "last", "layers": [0, 1]}},
        {"name": "no context", "hide": {"keys": "whole context", "layers": {"depths": [0.5, 1]}}},
        {"name": "no question", "hide": {"keys": "segment:question", "from": "all", "layers": [1]}},
        {"name": "zeroed", "hide": {"keys": "whole context", "how": "zero"}},
        {"name": "off", "ablate": {1: [0, 2]}},
        {"name": "best", "ablate": {"heads": "top 2 by context"}},
        {"name": "matched", "matched": "like best"},
        {"name": "near", "matched": "like no question"},
        {"name": "mean", "ablate": {"heads": {1: [0, 2]}, "how": "mean"}},
        {"name": "resampled", "ablate": {"heads": {0: [1]}, "how": "resample"}},
        {"name": "patched", "patch": {"heads": {0: [0, 1], 1: [3]}, "from": "asked"}},
        {"name": "by layer", "sweep": {"hide": {"keys": "question"}, "over": "layers"}},
        {"name": "by head", "sweep": {"ablate": {}, "over": "heads"}},
        {"name": "by class", "sweep": {"hide": {"from": "last"}, "over": "classes"}},
    ],
    "outcome": {"answer": "solution", "choices": "wrong", "scores": ["logprob", "accuracy", "flips", "kl"]},
}
HEADS = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "one", 1)


@pytest.fixture(scope="module")
def lens(model: Path) -> Lens:
    return load(model)


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("run")
    return performed(folder, model, STUDY)


def performed(folder: Path, model: Path, study: dict[str, Any]) -> Run:
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump({"models": [{"label": "m", "source": str(model)}], **study}, sort_keys=False))
    perform_request(request_study(path), folder / "run")
    return Run(folder / "run")


def outcomes(run: Run) -> pl.DataFrame:
    return run.table("outcomes").collect()


def row(run: Run, intervention: str, prompt: int, condition: str = "none", **place: Any) -> dict[str, Any]:
    at = {"intervention": intervention, "prompt": prompt, "condition": condition, **place}
    rows = outcomes(run).filter(pl.col(key) == value for key, value in at.items())
    assert len(rows) == 1
    return rows.row(0, named=True)


def ids_of(lens: Lens, prompt: int, answer: str) -> tuple[list[int], int]:
    item = ITEMS[prompt]
    before = [token.id for token in lens.tokenize(f"{item['context']}\n{item['question']}\nAnswer:")]
    more = lens.tokenizer(answer, add_special_tokens=False)["input_ids"]
    return [*before, *more], len(before)


def by_hand(lens: Lens, prompt: int, answer: str, hand: ByHand) -> float:
    ids, start = ids_of(lens, prompt, answer)
    with changed(lens.model, hand), torch.no_grad():
        logits = lens.model(input_ids=torch.tensor([ids])).logits
    rows = logits[0, start - 1 : -1].double().log_softmax(-1)
    return float(rows.gather(-1, torch.tensor(ids[start:])[:, None]).sum())


def square(ids: list[int], rows: list[int], keys: list[int]) -> torch.Tensor:
    hidden = torch.zeros(1, len(ids), len(ids), dtype=torch.bool)
    hidden[0, torch.tensor(rows)[:, None], torch.tensor(keys)] = True
    return hidden


def keys_of(lens: Lens, prompt: int, segment: str) -> list[int]:
    item = ITEMS[prompt]
    text = f"{item['context']}\n{item['question']}\nAnswer:"
    start = text.index(item[segment])
    end = start + len(item[segment])
    tokens = lens.tokenize(text)
    inside = [max(0, min(token.end, end) - max(token.start, start)) for token in tokens]
    return [
        t.position for t, part in zip(tokens, inside, strict=True) if t.end > t.start and part / (t.end - t.start) > 0.5
    ]


@pytest.mark.parametrize("prompt", range(3))
def test_hiding_keys_in_a_study_is_what_eager_attention_gives_with_that_mask(run: Run, lens: Lens, prompt: int) -> None:
    answer = ITEMS[prompt]["solution"]
    ids, start = ids_of(lens, prompt, answer)
    writing = list(range(start - 1, len(ids) - 1))
    context, question = keys_of(lens, prompt, "context"), keys_of(lens, prompt, "question")
    assert row(run, "none", prompt)["logprob"] == pytest.approx(by_hand(lens, prompt, answer, ByHand()), abs=EXACT)
    wanted = {
        "no context": ByHand(masks={1: square(ids, writing, context)}),
        "zeroed": ByHand(zeros=dict.fromkeys((0, 1), square(ids, writing, context))),
        "off": ByHand(outputs={(1, 0): torch.zeros_like, (1, 2): torch.zeros_like}),
    }
    for name, hand in wanted.items():
        found = row(run, name, prompt)
        assert found["logprob"] == pytest.approx(by_hand(lens, prompt, answer, hand), abs=EXACT), name
        assert found["logprob"] != pytest.approx(row(run, "none", prompt)["logprob"], abs=1e-4), name
    for layer in range(2):
        hand = ByHand(masks={layer: square(ids, writing, question)})
        assert row(run, "by layer", prompt, layer=layer)["logprob"] == pytest.approx(
            by_hand(lens, prompt, answer, hand), abs=EXACT
        )
        for head in range(HEADS):
            hand = ByHand(outputs={(layer, head): torch.zeros_like})
            assert row(run, "by head", prompt, layer=layer, head=head)["logprob"] == pytest.approx(
                by_hand(lens, prompt, answer, hand), abs=EXACT
            )


def outputs_of(lens: Lens, text: str, answer: str = "") -> dict[tuple[int, int], torch.Tensor]:
    """What every head gives at each token, from a hook in eager attention."""
    more = lens.tokenizer(answer, add_special_tokens=False)["input_ids"] if answer else []
    ids = [*(token.id for token in lens.tokenize(text)), *more]
    found: dict[tuple[int, int], torch.Tensor] = {}

    def keep(layer: int, head: int) -> Any:
        def noted(output: torch.Tensor) -> torch.Tensor:
            found[layer, head] = output[0].clone()
            return output

        return noted

    hand = ByHand(outputs={(layer, head): keep(layer, head) for layer in range(2) for head in range(HEADS)})
    with changed(lens.model, hand), torch.no_grad():
        lens.model(input_ids=torch.tensor([ids]))
    return found


def text_of(prompt: int, question: str | None = None) -> str:
    item = ITEMS[prompt]
    return f"{item['context']}\n{question or item['question']}\nAnswer:"


@pytest.mark.parametrize("prompt", range(3))
def test_a_mean_is_over_the_tokens_of_all_the_studys_prompts(run: Run, lens: Lens, prompt: int) -> None:
    every = [outputs_of(lens, text_of(number)) for number in range(3)]
    means = {head: torch.cat([outputs[1, head] for outputs in every]).mean(0) for head in (0, 2)}
    hand = ByHand(outputs={(1, head): mean.expand_as for head, mean in means.items()})
    answer = ITEMS[prompt]["solution"]
    assert row(run, "mean", prompt)["logprob"] == pytest.approx(by_hand(lens, prompt, answer, hand), abs=EXACT)


@pytest.mark.parametrize("prompt", range(3))
def test_a_patch_takes_each_token_that_both_conditions_have(run: Run, lens: Lens, prompt: int) -> None:
    """The question is another one under `asked`: its tokens keep their own output, and those around it are patched."""
    answer = ITEMS[prompt]["solution"]
    ids, start = ids_of(lens, prompt, answer)
    other = outputs_of(lens, text_of(prompt, "What?"), answer)
    question = set(keys_of(lens, prompt, "question"))
    after = max(question) + 1
    length = len(other[0, 0])
    places = {at: at if at < min(question) else at - len(ids) + length for at in range(len(ids)) if at not in question}
    assert after in places
    assert start in places

    def patched(layer: int, head: int) -> Any:
        def change(output: torch.Tensor) -> torch.Tensor:
            new = output.clone()
            for at, place in places.items():
                new[0, at] = other[layer, head][place]
            return new

        return change

    hand = ByHand(outputs={each: patched(*each) for each in ((0, 0), (0, 1), (1, 3))})
    assert row(run, "patched", prompt)["logprob"] == pytest.approx(by_hand(lens, prompt, answer, hand), abs=EXACT)
    at = {"intervention": "patched", "condition": "asked"}
    assert not len(outcomes(run).filter(pl.col(key) == value for key, value in at.items()))


def test_resampled_heads_change_the_answer_and_are_drawn_alike_every_time(run: Run) -> None:
    for prompt in range(3):
        none, resampled = (row(run, name, prompt)["logprob"] for name in ("none", "resampled"))
        assert none != pytest.approx(resampled, abs=1e-4)


def test_a_prompt_without_the_hidden_class_has_no_row_of_that_intervention(run: Run) -> None:
    table = outcomes(run).filter(pl.col("condition") == "none")
    with_digits = table.filter(pl.col("intervention") == "no digits")["prompt"].to_list()
    assert sorted(with_digits) == [0, 2]
    swept = table.filter((pl.col("intervention") == "by class") & (pl.col("token_class") == "digits"))
    assert sorted(swept["prompt"].to_list()) == [0, 2]


def test_a_control_changes_as_much_as_what_it_is_a_control_for(run: Run) -> None:
    table = outcomes(run)
    for spec in run.study.interventions:
        if spec.like is None:
            continue
        keys = ["condition", "prompt", "layer", "head", "token_class"]
        mine = table.filter(pl.col("intervention") == spec.name)
        other = table.filter(pl.col("intervention") == spec.like)
        both = mine.join(other, on=keys, nulls_equal=True)
        assert len(mine) == len(both), spec.name
        too_little_else = spec.like in ("no context", "zeroed")  # the context is most of the prompt
        assert len(mine) or too_little_else or spec.redraws is not None, spec.name
        assert (both["edited"] == both["edited_right"]).all(), spec.name


def test_the_heads_that_look_most_are_chosen_and_named_in_the_manifest(run: Run) -> None:
    mass = run.table("mass").filter(
        (pl.col("condition") == "none") & (pl.col("token_class") == "context") & (pl.col("measure") == "received")
    )
    means = mass.group_by("layer", "head").agg(pl.col("mass").mean()).sort("mass", descending=True).collect()
    best = sorted(means.select("layer", "head").rows()[:2])
    named = run.manifest.ranked["m"]["best"]
    assert sorted((layer, head) for layer, heads in named.items() for head in heads) == best


@pytest.mark.parametrize("prompt", range(3))
def test_a_choice_is_the_likeliest_of_the_answers(run: Run, lens: Lens, prompt: int) -> None:
    item = ITEMS[prompt]
    answers = [item["solution"], *item["wrong"]]
    scores = [by_hand(lens, prompt, each, ByHand()) for each in answers]
    found = row(run, "none", prompt)
    assert found["choice"] == answers[int(np.argmax(scores))]
    assert found["right"] == (int(np.argmax(scores)) == 0)
    assert found["tokens"] == len(ids_of(lens, prompt, item["solution"])[0]) - ids_of(lens, prompt, item["solution"])[1]
    assert found["kl"] == 0.0
    assert found["edited"] == 0


def test_conditions_are_edited_before_attention_is(run: Run) -> None:
    table = outcomes(run)
    for prompt in range(3):
        one, two = (row(run, "none", prompt, condition)["logprob"] for condition in ("none", "asked"))
        assert one != pytest.approx(two, abs=1e-4)
    assert table.filter(pl.col("intervention") == "none").group_by("condition").len()["len"].to_list() == [3, 3]


def test_a_changed_intervention_runs_trials_again_and_measures_nothing(model: Path, tmp_path: Path) -> None:
    study = {**STUDY, "interventions": STUDY["interventions"][:2]}
    first = performed(tmp_path, model, study)
    shards = {shard.sha256 for shard in first.manifest.shards}
    study["interventions"] = [*study["interventions"], {"name": "off", "ablate": {0: [1]}}]
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump({"models": [{"label": "m", "source": str(model)}], **study}, sort_keys=False))
    outcome = perform_request(request_study(path), tmp_path / "run")
    assert (outcome.measured, outcome.scored) == (0, 6)
    assert shards & {shard.sha256 for shard in Run(tmp_path / "run").manifest.shards}
    assert perform_request(request_study(path), tmp_path / "run").unchanged


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"outcome": None}, "nothing says what interventions are judged by"),
    ({"outcome": {"scores": ["logprob"]}}, "an outcome needs an answer"),
    ({"outcome": {"answer": "solutoin"}}, "solution"),
    ({"interventions": [{"name": "x", "hide": {"keys": "diggits", "from": "last"}}]}, "digits"),
    ({"interventions": [{"name": "x", "hide": {"keys": "digits", "from": "lsat"}}]}, "last"),
    ({"interventions": [{"name": "x", "hide": {"keys": "digits", "form": "last"}}]}, "from"),
    ({"interventions": [{"name": "x", "hide": {"keys": "segment:kontext"}}]}, "context"),
    ({"interventions": [{"name": "x", "hide": {"keys": "digits", "layers": [7]}}]}, "layer 7"),
    ({"interventions": [{"name": "x", "ablate": {1: [9]}}]}, "head 9"),
    ({"interventions": [{"name": "x", "ablate": {"heads": "top 2 by contxt"}}]}, "context"),
    ({"interventions": [{"name": "x", "ablate": {"heads": "top 99 by context"}}]}, "at most 8"),
    (
        {"interventions": [{"name": "x", "sweep": {"hide": {"keys": "digits"}, "over": "layers", "window": 0}}]},
        "1 or more",
    ),
    ({"interventions": [{"name": "x", "sweep": {"hide": {"keys": "digits"}, "over": "layers", "window": 3}}]}, "wider"),
    ({"interventions": [{"name": "x", "random": "like y"}]}, "no intervention 'y'"),
    ({"interventions": [{"name": "x"}]}, "changes nothing"),
    ({"interventions": [{"name": "x", "hide": {"from": "last"}}]}, "hide names no keys"),
    ({"interventions": [{"name": "x", "ablate": {"how": "mean"}}]}, "ablate names no heads"),
    ({"interventions": [{"name": "x", "patch": {"from": "asked"}}]}, "patch names no heads"),
    ({"interventions": [{"name": "x", "ablate": {"heads": "best 3 by context"}}]}, "top 10 by NAME"),
    ({"interventions": [{"name": "x", "sweep": {"ablate": {"layers": [9]}, "over": "heads"}}]}, "no layer 9"),
    (
        {"interventions": [{"name": "x", "hide": {"keys": "digits", "layers": {"depths": [0.9, 0.1]}}}]},
        "beyond the second",
    ),
    (
        {"interventions": [{"name": "x", "hide": {"keys": "removed"}}], "without": ["first"]},
        "no class or set 'removed'",
    ),
    (
        {
            "interventions": [
                {"name": "x", "hide": {"keys": "digits"}},
                {"name": "c", "hide": {"keys": "#"}, "random": "x"},
            ]
        },
        "a control changes the same",
    ),
    (
        {
            "interventions": [
                {"name": "x", "ablate": {0: [1]}, "hide": {"keys": "digits"}},
                {"name": "c", "random": "x"},
            ]
        },
        "several changes",
    ),
    ({"interventions": [{"name": "x", "patch": {"heads": {0: [1]}}}]}, "which condition"),
    ({"interventions": [{"name": "x", "patch": {"heads": {0: [1]}, "from": "askd"}}]}, "asked"),
    ({"interventions": [{"name": "x", "hide": {"keys": "re:[Q]"}}]}, "in no prompt"),
    ({"interventions": [{"name": "x", "hide": {"keys": "re:.", "from": "all"}}]}, "hides all keys"),
]


@pytest.mark.parametrize(("change", "words"), WRONG)
def test_nonsense_is_refused_in_one_line_before_anything_is_measured(
    change: dict[str, Any], words: str, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(AttnscopeError, match=words) as caught:
        performed(tmp_path, model, {**STUDY, **change})
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_ties_and_random_draws_do_not_depend_on_the_run(run: Run, model: Path, tmp_path: Path) -> None:
    again = performed(tmp_path, model, STUDY)
    assert outcomes(again).equals(outcomes(run))


def one_prompt(model: Path, folder: Path, interventions: list[Any], **more: Any) -> Run:
    """A run of the first two prompts."""
    study = {**STUDY, "interventions": interventions, "conditions": ["none"], **more}
    study["prompts"] = {**STUDY["prompts"], "items": ITEMS[:2], **more.get("prompts", {})}
    return performed(folder, model, study)


def test_tokens_of_the_answer_are_hidden_only_by_name(model: Path, lens: Lens, tmp_path: Path) -> None:
    hide = [{"name": "no digits", "hide": {"keys": "digits"}}, {"name": "own", "hide": {"keys": "segment:answer"}}]
    run = one_prompt(model, tmp_path, hide)
    ids, start = ids_of(lens, 0, " 12")
    tokens = lens.tokenize(text_of(0))
    digits = [token.position for token in tokens if token.text.strip().isdigit()]
    hand = ByHand(masks=dict.fromkeys((0, 1), square(ids, list(range(start - 1, len(ids) - 1)), digits)))
    assert row(run, "no digits", 0)["logprob"] == pytest.approx(by_hand(lens, 0, " 12", hand), abs=EXACT)
    assert row(run, "no digits", 0)["edited"] == len(digits)


def test_a_prompt_too_short_for_an_intervention_keeps_the_others(model: Path, lens: Lens, tmp_path: Path) -> None:
    lengths = [len(ids_of(lens, number, ITEMS[number]["solution"])[0]) for number in range(2)]
    assert lengths[0] != lengths[1]
    late = {"name": "late", "hide": {"keys": [1, 2], "from": [min(lengths)]}, "control": "none"}
    run = one_prompt(model, tmp_path, [late, {"name": "off", "ablate": {1: [0]}}])
    counts = dict(outcomes(run).group_by("intervention").len().iter_rows())
    assert (counts["none"], counts["off"], counts["late"]) == (2, 2, 1)


def test_queries_may_be_those_of_a_rule_of_the_study(model: Path, tmp_path: Path) -> None:
    rule = {"match": "[0-9]+", "name": "numbers"}
    measure = {"queries": ["last", rule]}
    hide = [{"name": "x", "hide": {"keys": "re:Hello", "from": "numbers", "layers": [0]}, "control": "none"}]
    items = {"items": [{**item, "context": f"Hello there. {item['context']} 5 ."} for item in ITEMS[:2]]}
    run = one_prompt(model, tmp_path, hide, measure=measure, prompts=items)
    assert len(outcomes(run).filter(pl.col("intervention") == "x")) == 2


def test_a_second_draw_that_can_only_be_the_first_is_left_out(model: Path, tmp_path: Path) -> None:
    run = one_prompt(model, tmp_path, [{"name": "off", "ablate": {1: [0, 2]}}])
    names = set(outcomes(run)["intervention"])
    assert "off (control)" in names
    assert "off (control) (placebo)" not in names


def test_the_heads_of_all_changes_are_in_the_manifest(model: Path, tmp_path: Path) -> None:
    changes = [{"ablate": {"heads": "top 2 by context"}}, {"hide": {"keys": "question", "layers": [1]}}]
    run = one_prompt(model, tmp_path, [{"name": "x", "changes": changes}])
    assert sum(map(len, run.manifest.ranked["m"]["x"].values())) == 2


def test_a_sweep_reaches_the_deepest_layer(model: Path, tmp_path: Path) -> None:
    sweep = {"hide": {"keys": "question"}, "over": "layers", "step": 5}
    run = one_prompt(model, tmp_path, [{"name": "x", "sweep": sweep, "control": "none"}])
    layers = outcomes(run).filter(pl.col("intervention") == "x")["layer"].unique().sort().to_list()
    assert layers == [0, 1]


def test_a_patch_from_a_condition_has_the_answer_that_is_scored(model: Path, tmp_path: Path) -> None:
    """Each condition has an answer of its own; heads that give what they give with this answer change nothing."""
    same = {"name": "again", "replace": {"segment": "question", "with": {"field": "question"}}}
    study = {
        **STUDY,
        "conditions": ["none", same],
        "prompts": {**STUDY["prompts"], "items": ITEMS[:2], "answer": {"generate": 3}},
        "interventions": [{"name": "p", "patch": {"heads": {0: [0, 1], 1: [1]}, "from": "again"}, "control": "none"}],
        "outcome": {"scores": ["logprob"]},
    }
    run = performed(tmp_path, model, study)
    for prompt in range(2):
        assert row(run, "p", prompt)["logprob"] == pytest.approx(row(run, "none", prompt)["logprob"], abs=EXACT)


def test_outcomes_of_a_study_that_has_none_any_more_are_removed(model: Path, tmp_path: Path) -> None:
    one_prompt(model, tmp_path, [{"name": "off", "ablate": {1: [0]}}])
    assert (tmp_path / "run" / "outcomes.parquet").exists()
    study = {key: value for key, value in STUDY.items() if key not in ("interventions", "outcome")}
    performed(tmp_path, model, {**study, "prompts": {**STUDY["prompts"], "items": ITEMS[:2]}})
    assert not (tmp_path / "run" / "outcomes.parquet").exists()
