"""Answers in a run: batched, drawn with seeds of their own, the same bytes from any engine and after any stop."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import LlamaForCausalLM

from attnscope.errors import AttnscopeError
from attnscope.runs import batches as batches_module
from attnscope.runs.batches import WRITTEN, Budget, batches
from attnscope.runs.cells import Cell
from attnscope.runs.measuring import CellMeasurer
from attnscope.runs.plan import look_up_models, plan_model
from attnscope.studies import perform_request, request_study, run_study
from attnscope.text import patterns
from attnscope.text.classes import membership
from tests.runs.test_engines import Backwards, backwards
from tests.runs.test_runs import contents

TIER = "command"

__all__ = ["backwards"]

STUDY = """\
seed: {seed}
models: [{{label: one, source: {model}}}]
prompts:
  items: {items}
  id: name
  chat: "{{question}}"
  answer: {answer}
conditions:
  - none
  - {{name: filler, insert: {{repeat: "/"}}, tokens: 9, before: question}}
measure: {{queries: [last, answer]}}
"""
ITEMS = [
    {"name": "a", "question": "What # is *?"},
    {"name": "b", "question": "Where?"},
    {"name": "c", "question": "Which of the two signs # # and * is there more often?"},
    {"name": "d", "question": "What # is *?"},
]
SAMPLED = "{generate: 7, sample: {temperature: 1.5, top_p: 0.99}}"


def write(path: Path, model: Path, *, answer: str = SAMPLED, seed: int = 3, items: list[dict[str, str]] = ITEMS) -> str:
    path.write_text(STUDY.format(seed=seed, model=model, items=items, answer=answer), encoding="utf-8")
    return str(path)


def answers(folder: Path) -> dict[tuple[str, str], list[int]]:
    """The tokens of each answer, by the name of the prompt and the condition."""
    tokens = pl.read_parquet(folder / "tokens.parquet").filter(segment="answer").sort("position")
    names = pl.read_parquet(folder / "prompts.parquet").unique(["condition", "prompt"])
    joined = tokens.join(names.select("condition", "prompt", "name"), on=["condition", "prompt"])
    return {
        (name, condition): part["token_id"].to_list()
        for (name, condition), part in joined.group_by("name", "condition", maintain_order=True)
    }


def test_a_sampled_answer_depends_on_its_prompt_its_condition_and_the_seed_alone(
    tiny_models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, model = tmp_path / "study.yaml", tiny_models[0]
    first = answers(run_study(write(file, model), tmp_path / "first").path)
    assert len(first) == 8
    assert first["a", "none"] != first["d", "none"]  # the same text, another prompt
    assert first["a", "none"] != first["a", "filler"]
    fewer = answers(run_study(write(file, model, items=[ITEMS[2], ITEMS[0]]), tmp_path / "fewer").path)
    assert fewer == {key: ids for key, ids in first.items() if key[0] in "ac"}
    monkeypatch.setitem(batches_module.ENOUGH, "cpu", 1)
    assert answers(run_study(write(file, model), tmp_path / "alone").path) == first
    assert answers(run_study(write(file, model, seed=4), tmp_path / "seed").path) != first
    again = SAMPLED.replace("generate: 7", "generate: 7, seed: 3")
    assert answers(run_study(write(file, model, answer=again, seed=4), tmp_path / "own").path) == first


def test_what_was_drawn_is_kept_and_another_way_to_draw_is_drawn_anew(
    tiny_models: tuple[Path, Path], tmp_path: Path
) -> None:
    file, folder, model = tmp_path / "study.yaml", tmp_path / "run", tiny_models[0]
    assert perform_request(request_study(write(file, model)), folder).measured == 8
    assert perform_request(request_study(write(file, model)), folder).unchanged
    more = [*ITEMS, {"name": "e", "question": "More?"}]
    outcome = perform_request(request_study(write(file, model, items=more)), folder)
    assert (outcome.measured, outcome.reused) == (2, 8)
    for other in ("{generate: 7}", "{generate: 7, sample: true}", "{generate: 6, sample: true}"):
        assert perform_request(request_study(write(file, model, answer=other)), folder).measured == 8
    assert perform_request(request_study(write(file, model, seed=9)), folder).measured == 8


@pytest.mark.parametrize("answer", ["{generate: 7}", SAMPLED])
def test_every_engine_stores_the_same_bytes_also_after_a_stop(
    answer: str,
    tiny_models: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    backwards: Backwards,
) -> None:
    file = write(tmp_path / "study.yaml", tiny_models[0], answer=answer)
    monkeypatch.setitem(batches_module.ENOUGH, "cpu", 160)
    perform_request(request_study(file), tmp_path / "local")
    perform_request(request_study(file, engine="backwards"), tmp_path / "backwards")
    assert 1 < len(backwards.seen) < 8
    measure, calls = CellMeasurer.__call__, 0

    def stopped(self: CellMeasurer, batch: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return measure(self, batch)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(CellMeasurer, "__call__", stopped)
        with pytest.raises(KeyboardInterrupt):
            perform_request(request_study(file), tmp_path / "stopped")
    assert perform_request(request_study(file), tmp_path / "stopped").reused > 0
    assert contents(tmp_path / "local") == contents(tmp_path / "backwards") == contents(tmp_path / "stopped")


def test_an_empty_answer_is_reported_and_the_others_are_not_written_again(
    tiny_models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "study.yaml", tiny_models[0], answer="{generate: 7}")
    first = answers(run_study(file, tmp_path / "first").path)
    end = first["b", "none"][0]  # let this token end an answer
    model = LlamaForCausalLM.from_pretrained(tiny_models[0])
    model.generation_config.eos_token_id = end
    changed = tmp_path / "model"
    model.save_pretrained(changed)
    for path in tiny_models[0].iterdir():
        if not (changed / path.name).exists():
            (changed / path.name).write_bytes(path.read_bytes())
    shapes: list[tuple[int, ...]] = []
    generate = LlamaForCausalLM.generate

    def counted(self: object, ids: object, **more: object) -> object:
        shapes.append(tuple(ids.shape))  # type: ignore[attr-defined]
        return generate(self, ids, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(LlamaForCausalLM, "generate", counted)
    run = run_study(write(tmp_path / "study.yaml", changed, answer="{generate: 7}"), tmp_path / "run")
    cut = {key: ids[: ids.index(end)] if end in ids else ids for key, ids in first.items()}
    assert answers(run.path) == {key: ids for key, ids in cut.items() if ids}
    assert {each.reason.split(" (")[0] for each in run.manifest.dropped} == {"the answer is empty"}
    assert len(run.manifest.dropped) == sum(not ids for ids in cut.values())
    assert max(rows for rows, _ in shapes) >= 4
    assert len(shapes) < 8


@given(st.lists(st.integers(1, 300), max_size=80), st.integers(1, 1000))
def test_batches_that_are_written_to_may_be_half_padding(lengths: list[int], tokens: int) -> None:
    for batch in batches(lengths, Budget(tokens, WRITTEN)):
        longest = max(lengths[number] for number in batch)
        padded = longest * len(batch)
        assert len(batch) == 1 or padded <= tokens
        assert padded - sum(lengths[number] for number in batch) <= WRITTEN * padded


def test_answers_and_their_cache_count_towards_a_batch() -> None:
    assert batches_module.bytes_in_cache(heads=3, width=64, layers=30, size=4) == 2 * 3 * 64 * 30 * 4
    small = batches_module.budget(10**8, 10**5, "cpu", WRITTEN)
    assert small == Budget(500, WRITTEN)


ENDLESS = r"(?s)(.|..)+\Z."
"""Quick on a short prompt, endless with an answer after it."""
REFUSED_LATE = """\
models: ['{model}']
prompts: {{items: [{{q: ab cd ef gh}}, {{q: zzc}}], plain: '{{q}}', answer: {{generate: 60}}}}
{key}
"""


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        (f"classes: {{x: 're:{ENDLESS}'}}", "a class takes too long"),
        (f"also: {{x: 're:{ENDLESS}'}}", "a class takes too long"),
        (f"without: ['re:{ENDLESS}']", "a class takes too long"),
        (f"measure: {{queries: [{{match: '{ENDLESS}'}}]}}", "a query group takes too long"),
        (
            "measure: {queries: [{match: qqqqq, of: answer, name: none}]}",
            "no prompt could be measured: query group 'none'",
        ),
    ],
)
def test_what_is_refused_once_answers_are_written_leaves_nothing_behind(
    tiny_models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, problem: str
) -> None:
    monkeypatch.setattr(patterns, "SECONDS", 0.2)
    file = tmp_path / "study.yaml"
    file.write_text(REFUSED_LATE.format(model=tiny_models[1], key=key), encoding="utf-8")
    (tmp_path / "empty").mkdir()
    for folder in ("new", "empty"):
        with pytest.raises(AttnscopeError, match=problem):
            run_study(file, tmp_path / folder)
    assert not (tmp_path / "new").exists()
    assert [path.name for path in (tmp_path / "empty").iterdir()] in ([], [".lock"])


def test_what_was_measured_before_a_refusal_stays_and_is_used(
    tiny_models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patterns, "SECONDS", 0.2)
    monkeypatch.setitem(batches_module.ENOUGH, "cpu", 1)
    file, folder = tmp_path / "study.yaml", tmp_path / "run"
    key = f"classes: {{x: 're:zz{ENDLESS}'}}"
    file.write_text(REFUSED_LATE.format(model=tiny_models[1], key=key), encoding="utf-8")
    with pytest.raises(AttnscopeError, match="a class takes too long"):
        run_study(file, folder)
    file.write_text(REFUSED_LATE.format(model=tiny_models[1], key="classes: {x: 're:zz'}"), encoding="utf-8")
    outcome = perform_request(request_study(str(file)), folder)
    assert (outcome.measured, outcome.reused) == (1, 1)


def answered(tmp_path: Path, model: Path, ids: list[int]) -> Cell:
    """The first prompt with these token ids as the answer that the model wrote."""
    file = tmp_path / "study.yaml"
    text = Path(write(file, model, answer="{generate: 7}")).read_text(encoding="utf-8")
    queries = "queries: [last, answer, writing, {each: writing}]"
    file.write_text(text.replace("queries: [last, answer]", queries), encoding="utf-8")
    request = request_study(file)
    ((spec, description),) = look_up_models(request)
    plan = plan_model(request, spec, description)
    return plan.maker.answered(plan.cells[0], ids)


@pytest.mark.parametrize("ids", [[0, 40, 41], [40, 0, 41], [40, 41, 0], [0], [0, 0], [200, 0, 201]])
def test_special_tokens_that_a_model_writes_are_part_of_its_answer(
    ids: list[int], tiny_models: tuple[Path, Path], tmp_path: Path
) -> None:
    cell = answered(tmp_path, tiny_models[0], ids)
    first = len(cell.tokens) - len(ids)
    assert cell.ids[first:] == ids
    assert cell.tokens[first + ids.index(0)].special
    assert list(cell.rows["answer"]) == list(range(first, first + len(ids)))
    assert list(cell.rows["writing"]) == list(range(first - 1, first - 1 + len(ids)))
    assert [cell.rows[f"token {number + 1} of writing"] for number in range(len(ids))] == [
        (first - 1 + number,) for number in range(len(ids))
    ]
    special = membership({"special": "special:"}, cell.text.text, cell.tokens, cell.text.spans)[0]
    assert [special[first + place] == 1 for place in range(len(ids))] == [each == 0 for each in ids]


def test_a_special_token_that_is_typed_in_a_given_answer_is_template(
    tiny_models: tuple[Path, Path], tmp_path: Path
) -> None:
    items = [{"name": "a", "question": "Where?", "reply": "ab<s>cd"}]
    request = request_study(write(tmp_path / "study.yaml", tiny_models[0], answer="{field: reply}", items=items))
    ((spec, description),) = look_up_models(request)
    segments = plan_model(request, spec, description).cells[0].segments
    assert segments[-5:] == ("answer", "answer", "template", "answer", "answer")
