"""Lines aligned by a segment are what the run's own arrays give, prompt by prompt and token by token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import transformers

from attnscope.analysis.effects import effects
from attnscope.analysis.lines import Line, shared_tokens
from attnscope.analysis.received import HeadChoice, head_along
from attnscope.analysis.run import Run
from attnscope.errors import AttnscopeError
from attnscope.figures.validation import options_of
from attnscope.figures.write import figure_of
from attnscope.study.schema import FigureSpec
from tests.analysis.conftest import performed
from tests.handmade import exported
from tests.models import tiny
from tests.runs.conftest import CHAT, save_tiny
from tests.tolerances import SUMMED

LAYER, HEAD = 1, 2
FILLER = {"name": "filler", "insert": {"repeat": "/"}, "tokens": 5, "before": "question"}
TURNED = {"name": "turned", "order": {"of": "passages", "by": "reversed"}}
WITHOUT = {"name": "without", "delete": "question"}
PLACE = {"model": "one", "layer": LAYER, "head": HEAD}


def items(count: int = 9) -> list[dict[str, Any]]:
    """Prompts whose parts all differ in length; the passage that counts stands first, second or third, or is none."""
    made = []
    for number in range(count):
        roles = ["gold" if number % 4 == place else "other" for place in range(3)]
        passages = [
            {"text": f"{'ab cd '[: 3 + (number * 5 + k * 7) % 11]}.", "role": role} for k, role in enumerate(roles)
        ]
        made.append({"intro": "x" * (number % 5 + 1), "passages": passages, "question": "What?" + "!" * (number % 4)})
    return made


def content(models: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    return {
        "seed": 2,
        "models": models,
        "prompts": {"items": items(), "chat": "{intro}\n{passages}\n{question}"},
        "conditions": ["none", FILLER, TURNED, WITHOUT],
        "measure": {"queries": ["last", "all"]},
    } | changes


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    home = tmp_path_factory.mktemp("aligned")
    return performed(content([{"label": "one", "source": str(save_tiny(home / "one", 1))}]), home)


def drawn(run: Run, **options: Any) -> pl.DataFrame:
    return figure_of(run, figure(**options)).table


def figure(**options: Any) -> FigureSpec:
    return FigureSpec.model_validate({"name": "f", "kind": "lines", "panels": [PLACE], **options})


def by_token(run: Run, condition: str, queries: str) -> dict[int, list[dict[str, Any]]]:
    """By prompt, the tokens with what each receives, mean over the queries that see it; straight from the arrays."""
    received = exported(run).filter(layer=LAYER, head=HEAD, queries=queries, condition=condition)
    arrays = dict(received.select("prompt", "received").iter_rows())
    tokens = run.table("tokens").filter(pl.col("condition") == condition).sort("prompt", "position").collect()
    prompts: dict[int, list[dict[str, Any]]] = {}
    for row in tokens.iter_rows(named=True):
        mine = arrays[row["prompt"]]
        seen = 1.0 if queries == "last" else 1 - row["position"] / len(mine)  # a token is seen by those after it
        value = mine[row["position"]] / seen
        prompts.setdefault(row["prompt"], []).append({**row, "value": value})
    return prompts


def chosen(run: Run, condition: str, prompt: int, segment: str) -> set[str]:
    """The segments' names: one's own, or the passage with the role gold."""
    if segment != "passages[role=gold]":
        return {segment}
    spans = run.table("prompts").filter(condition=condition, prompt=prompt).collect()["spans"][0]
    return {span["segment"] for span in spans if span["role"] == "gold"}


def aligned(tokens: list[dict[str, Any]], segments: set[str], by: str, place: str) -> dict[int, float]:
    """Values by position from the segment's end; empty if there is none. place: the column with positions."""
    mine = [token for token in tokens if token["segment"] in segments]
    if not mine:
        return {}
    anchor = mine[0 if by == "start" else -1][place]
    return {token[place] - anchor: token["value"] for token in tokens if token[place] is not None}


def means(prompts: list[dict[int, float]]) -> dict[int, tuple[int, float]]:
    """By position, as far as half of the prompts reach: how many do, and the mean."""
    every = {position for prompt in prompts for position in prompt}
    values = {position: [prompt[position] for prompt in prompts if position in prompt] for position in every}
    most = max(map(len, values.values()))
    return {at: (len(each), float(np.mean(each))) for at, each in values.items() if len(each) >= most / 2}


def same(line: pl.DataFrame, want: dict[int, tuple[int, float]], column: str = "position") -> None:
    assert line[column].to_list() == sorted(want)
    assert line["n"].to_list() == [want[at][0] for at in sorted(want)]
    np.testing.assert_allclose(line["attention"], [want[at][1] for at in sorted(want)], atol=SUMMED)


@pytest.mark.parametrize("queries", ["last", "all"])
@pytest.mark.parametrize("segment", ["question", "passages[role=gold]"])
@pytest.mark.parametrize("by", ["start", "end"])
def test_whole_prompts_are_aligned_by_their_own_tokens(run: Run, by: str, segment: str, queries: str) -> None:
    conditions = ["none", "filler", "turned"]
    table = drawn(run, align={by: segment}, form="full", queries=queries, conditions=conditions)
    for condition in conditions:
        prompts = by_token(run, condition, queries)
        lines = [
            aligned(each, chosen(run, condition, number, segment), by, "position") for number, each in prompts.items()
        ]
        line = table.filter(series=condition)
        same(line, means([each for each in lines if each]))
        assert set(line["lacking"]) == {sum(not each for each in lines)}
    assert (table["lacking"][0] > 0) == (segment != "question")
    assert table["position"].min() < 0 < table["position"].max()  # type: ignore[operator]


@pytest.mark.parametrize("segment", ["question", "passages[role=gold]"])
@pytest.mark.parametrize("by", ["start", "end"])
def test_shared_tokens_are_aligned_where_the_base_prompt_has_them(run: Run, by: str, segment: str) -> None:
    conditions = ["none", "filler", "turned"]
    table = drawn(run, align=f"{by}:{segment}", form="shared", conditions=conditions)
    whole = {name: by_token(run, name, "last") for name in conditions}
    anchors: dict[int, int | None] = {}
    for number, tokens in whole["none"].items():
        names = chosen(run, "none", number, segment)
        places = [token["position"] for token in tokens if token["segment"] in names]
        anchors[number] = (places[0] if by == "start" else places[-1]) if places else None
    lines: dict[str, list[dict[int, float]]] = {name: [] for name in conditions}
    for number, anchor in anchors.items():
        if anchor is None:
            continue
        values = {
            name: {t["base_position"]: t["value"] for t in whole[name][number] if t["base_position"] is not None}
            for name in conditions
        }
        common = set.intersection(*(set(each) for each in values.values()))
        for name in conditions:
            lines[name].append({place - anchor: values[name][place] for place in common})
    for name in conditions:
        same(table.filter(series=name), means(lines[name]))
    prompts = len(lines["none"])
    apart = np.full((prompts, 600), np.nan)
    for row, (one, two) in enumerate(zip(lines["none"], lines["filler"], strict=True)):
        for place in one:
            apart[row, place + 300] = two[place] - one[place]
    shown = table.filter(series="filler")
    tested = effects(apart[:, np.array(shown["position"].to_list()) + 300], seed=2)
    np.testing.assert_allclose(shown["difference"], tested.mean, atol=SUMMED)
    np.testing.assert_allclose(shown["q"].to_numpy(), tested.q, atol=1e-6)


def test_within_a_segment_every_prompt_counts_once_in_each_bin(run: Run) -> None:
    bins = 7
    table = drawn(run, align={"within": "passages[role=gold]", "bins": bins}, conditions=["none", "turned"])
    assert table["form"].unique().to_list() == ["shared"]
    for condition in ("none", "turned"):
        prompts = by_token(run, condition, "last")
        binned: list[dict[int, float]] = []
        for number, tokens in prompts.items():
            names = chosen(run, condition, number, "passages[role=gold]")
            inside = [token["value"] for token in tokens if token["segment"] in names]
            if inside:
                fine = np.repeat(inside, bins).reshape(bins, len(inside)).mean(1)
                binned.append(dict(enumerate(fine.tolist())))
        line = table.filter(series=condition)
        same(line, means(binned))
        np.testing.assert_allclose(line["relative"], (np.arange(bins) + 0.5) / bins)
        assert set(line["n"]) == {len(binned)}


def test_what_edits_alone_change_is_not_tested_whatever_lines_are_aligned_by(run: Run) -> None:
    """Of all queries, inserted ones among them: tokens before the insertion are seen by more queries than before."""
    for align in ("start:question", {"within": "passages[role=gold]", "bins": 4}):
        table = drawn(run, align=align, form="shared", queries="all", conditions=["none", "filler"])
        line = table.filter(series="filler")
        before = line.filter(pl.col("position") < 0) if isinstance(align, str) else line
        assert len(before)
        assert before["difference"].is_not_null().all()
        assert before["q"].is_null().all()
    after = drawn(run, align="start:question", form="shared", queries="all", conditions=["none", "filler"]).filter(
        pl.col("position") > 0, series="filler"
    )
    assert after["q"].is_not_null().any()


def test_a_condition_without_the_segment_keeps_its_shared_line_and_the_caption_says_what_is_missing(run: Run) -> None:
    made = figure_of(run, figure(align="start:question", conditions=["none", "without"]))
    assert set(made.table.filter(form="shared")["series"]) == {"none", "without"}
    assert set(made.table.filter(form="full")["series"]) == {"none"}
    assert "No line for without (whole sequence): no prompt has question there." in made.look.caption
    gold = figure_of(run, figure(align="end:passages[role=gold]", conditions=["none"]))
    assert "Left out: 2 prompts without passages[role=gold]." in gold.look.caption
    assert "aligned at the last token of passages[role=gold]" in gold.look.caption


def test_a_figure_says_how_many_prompts_reach_each_position(run: Run) -> None:
    made = figure_of(run, figure(form="full", conditions=["none"]))
    line = made.table
    n, at = line["n"].to_list(), line["position"].to_list()
    assert n[0] == 9
    assert n[-1] < 9
    assert "positions that fewer than half of them reach are not shown" in made.look.caption
    half = len(n) // 2
    words = f"prompts that reach a position: {n[0]} at {at[0]}, {n[half]} at {at[half]} and {n[-1]} at {at[-1]}."
    assert words in made.alt
    assert "Gray strip at the top" in made.legend
    assert f"{min(n)} to 9 prompts" in str(made.chart)
    within = figure_of(run, figure(align="within:question", conditions=["none"]))
    assert "Gray strip" not in within.legend
    assert " prompts'" not in str(within.chart)
    assert "average attention weight per token" in within.look.y
    assert "mean over 9 prompts, each cut into 20 bins from the start of question to its end" in within.look.caption


def test_by_position_is_what_it_is_without_being_asked_for(run: Run) -> None:
    assert drawn(run, align="position").equals(drawn(run))


def test_a_segment_that_the_compared_tokens_do_not_have_is_refused(run: Run) -> None:
    with pytest.raises(AttnscopeError, match=r"no prompt has a token of 'question' to align lines by \(one, without\)"):
        drawn(run, align="start:question", conditions=["without", "none"], form="shared")
    with pytest.raises(AttnscopeError, match=r"no prompt has a token of 'passages\[role=golden\]'"):
        drawn(run, align="start:passages[role=golden]")


@pytest.mark.parametrize(
    ("align", "words"),
    [
        ("start:qestion", "no segment 'qestion'"),
        ("middle:question", "aligned by one thing.*in short start:SEGMENT"),
        ("question", "aligned by one thing"),
        ({"start": "question", "end": "question"}, "aligned by one thing"),
        ({"start": "question", "bins": 5}, "only lines within a segment have bins"),
        ({"within": "question", "bins": 1}, "bins"),
        ({"within": "passages[rol=gold]"}, "'rol=gold' is neither role=NAME nor place=NUMBER"),
        ({"at": "question"}, "aligned by one thing|unknown key 'at'"),
        ({"start": 3}, "a segment is named by text"),
        ("start:inserted", "inserted text is not among the tokens that conditions share.*form: full"),
        (7, "align"),
    ],
)
def test_mistakes_in_align_are_refused_in_words(run: Run, align: Any, words: str) -> None:
    with pytest.raises(AttnscopeError, match=words):
        drawn(run, align=align)


def test_inserted_text_itself_can_be_aligned_in_the_whole_sequence(run: Run) -> None:
    table = drawn(run, align="start:inserted", form="full", conditions=["none", "filler"])
    assert set(table["series"]) == {"filler"}
    inserted = table.filter(pl.col("inserted") == 1)["position"].to_list()
    assert inserted == list(range(5))


def test_a_study_with_aligned_lines_is_the_same_after_it_was_stored(tmp_path: Path) -> None:
    one = {"label": "one", "source": str(save_tiny(tmp_path / "one", 1))}
    figures = [
        {"name": "a", "kind": "lines", "align": "start:question"},
        {"name": "b", "kind": "lines", "align": {"within": "passages", "bins": 9}},
        {"name": "c", "kind": "lines", "align": "position"},
    ]
    finished = performed(content([one], figures=figures), tmp_path)
    for name, align in (("a", "start:question"), ("b", "within:passages"), ("c", None)):
        table = pl.read_csv(finished.path / "figures" / f"{name}.csv")
        assert table["align"].unique().to_list() == [align]
    stored = [options_of(each).model_dump().get("align") for each in Run(finished.path).study.figures]
    assert stored[0] == {"start": "question", "end": None, "within": None, "bins": None}
    assert stored[1:] == [{"start": None, "end": None, "within": "passages", "bins": 9}, None]


# models whose attention is known


def save_planted(folder: Path, strength: float) -> Path:
    """A llama whose first layer looks at "@" wherever it stands, and at nothing in particular with strength 0."""
    size: dict[str, Any] = {"num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 32, "rope_theta": 1e30}
    config = tiny.llama_config(max_position_embeddings=512, attention_bias=True, num_hidden_layers=1, **size)
    model: Any = transformers.LlamaForCausalLM(config)
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = CHAT
    attention = model.model.layers[0].self_attn
    with torch.no_grad():
        for weight in (attention.q_proj.weight, attention.k_proj.weight, attention.q_proj.bias, attention.k_proj.bias):
            weight.zero_()
        attention.q_proj.bias[15] = strength  # of a pair that positions hardly turn
        attention.k_proj.weight[15, 0] = 1.0
        embeddings = model.get_input_embeddings().weight
        embeddings.zero_()
        embeddings[:, 1] = 1.0
        embeddings[tokenizer.convert_tokens_to_ids("@")] = torch.eye(32)[0]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def known(tmp_path: Path, strength: float) -> tuple[Run, dict[str, Any]]:
    source = save_planted(tmp_path / "model", strength)
    prompts = [{"intro": "x" * (3 * number), "question": "@" + "y" * (number % 3 + 4)} for number in range(1, 8)]
    told = {
        "models": [{"label": "one", "source": str(source)}],
        "prompts": {"items": prompts, "chat": "{intro}\n{question}"},
        "measure": {"queries": ["last"]},
    }
    return performed(told, tmp_path), {"panels": [{"model": "one", "layer": 0, "head": 0}], "form": "full"}


def test_a_peak_at_the_start_of_a_segment_stands_at_0_only_if_lines_are_aligned_by_it(tmp_path: Path) -> None:
    finished, options = known(tmp_path, 20.0)
    start = drawn(finished, align="start:question", **options)
    at_zero = start.filter(position=0)["attention"].item()
    assert at_zero > 0.95
    assert start.filter(pl.col("position") != 0)["attention"].max() < 0.01  # type: ignore[operator]
    by_position = drawn(finished, **options)
    assert by_position["attention"].max() < 0.5  # type: ignore[operator]  # it stands somewhere else in every prompt
    end = drawn(finished, align="end:question", **options)
    assert end["attention"].max() < 0.5  # type: ignore[operator]
    within = drawn(finished, align={"within": "question", "bins": 4}, **options)["attention"].to_list()
    assert within[0] > 10 * max(within[1:])


def test_uniform_attention_is_flat_within_a_segment(tmp_path: Path) -> None:
    finished, options = known(tmp_path, 0.0)
    lengths = finished.table("prompts").collect()["tokens"].to_numpy()
    within = drawn(finished, align={"within": "question", "bins": 6}, **options)
    np.testing.assert_allclose(within["attention"], (1 / lengths).mean(), atol=SUMMED)
    start = drawn(finished, align="start:question", **options)
    np.testing.assert_allclose(start.filter(position=0)["attention"], (1 / lengths).mean(), atol=SUMMED)


def test_lines_of_two_tokenizers_are_aligned_by_the_first_models_segment(tmp_path: Path) -> None:
    text = "Which of the two is the larger of the two?"
    folder = tmp_path / "two"
    wordy = tiny.wordy_tokenizer(text)
    size = {"vocab_size": len(wordy), "max_position_embeddings": 512, "initializer_range": 0.3}
    tiny.save_model(folder, tiny.llama_config(**size), seed=5)
    wordy.chat_template = "Please read.\n" + CHAT
    wordy.save_pretrained(folder)
    models = [{"label": "one", "source": str(save_tiny(tmp_path / "one", 1))}, {"label": "two", "source": str(folder)}]
    prompts = [{"intro": "x" * number, "question": text[: 20 + number]} for number in range(1, 8)]
    told = content(models, prompts={"items": prompts, "chat": "{intro}\n{question}"}, conditions=["none"])
    finished = performed(told, tmp_path)
    panel = {**PLACE, "also": [{**PLACE, "model": "two"}]}
    table = drawn(finished, panels=[panel], align="start:question", conditions=["none"])
    assert table["panel"][0] == "one and two Layer 1 Head 2"
    assert table["form"].unique().to_list() == ["shared"]
    lines = [Line(name, HeadChoice(name, "last", (LAYER,), (HEAD,)), "none") for name in ("one", "two")]
    axis = shared_tokens(finished, tuple(line.place for line in lines))
    placed = axis.placed([head_along(finished, line.heads, "none") for line in lines])
    tokens = finished.table("tokens").filter(model="one", segment="question").collect()
    starts: dict[int, int] = dict(tokens.group_by("prompt").agg(pl.col("position").min()).iter_rows())
    for line, values in zip(lines, placed, strict=True):
        by_place = [
            {place - starts[number]: float(value) for place, value in enumerate(row) if not np.isnan(value)}
            for number, row in zip(axis.prompts.tolist(), values, strict=True)
        ]
        same(table.filter(series=line.series), means(by_place))
    assert table.filter(series="two", position=0)["n"].item() == 7
