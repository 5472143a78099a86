"""What a measure does wrong is said of the measure, not of the model it was measured on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import attnscope
from attnscope import AttnscopeError, Lens
from attnscope.errors import PluginError
from attnscope.measures import KEY, MEASURES, Measure
from attnscope.measures.measure import TAKEN
from attnscope.measures.names import OF_INSERTIONS, SCORES
from attnscope.records import HEAD_AXES, KEY_AXES, SEEN, VIEW
from attnscope.runs.columns import EXPORTS, TABLES
from tests.attention.test_proof import lens_on, llama, some_ids

IDS = some_ids(40)


@pytest.fixture(scope="module")
def lens() -> Lens:
    return lens_on(llama())


def row_sums(weights: Any, *_: Any) -> Any:
    return weights.sum(-1)


def pairs_of(queries: Any, keys: Any) -> dict[str, Any]:
    return {"pairs": lambda ids: (queries, keys)}


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "block raises": ({"block": lambda *_: 1 // 0, "reference": row_sums}, "fails with ZeroDivisionError.*its block"),
    "reference raises": ({"block": row_sums, "reference": lambda _: [][1]}, "fails with IndexError.*its reference"),
    "reference in numpy": (
        {"block": row_sums, "reference": lambda matrix: matrix.sum(-1).numpy()},
        "returns a ndarray.*its reference",
    ),
    "reference of one head": (
        {"block": row_sums, "reference": lambda matrix: matrix.sum(-1)[:1]},
        r"returns a tensor of shape \(1, \d+\).*its reference.*a tensor of shape \(4, \d+\)",
    ),
    "reference of another rank": (
        {"block": row_sums, "reference": lambda matrix: matrix},
        "returns a tensor of shape.*its reference",
    ),
    "block of another rank": (
        {"block": lambda weights, q, k: weights, "reference": row_sums},
        "returns a tensor of shape.*its block",
    ),
    "two different numbers": (
        {"block": row_sums, "reference": lambda matrix: 2 * matrix.sum(-1)},
        "has a block and a reference that differ by 1.0e",
    ),
    "not a number": (
        {"block": lambda weights, q, k: weights.sum(-1) * float("nan"), "reference": row_sums},
        "gives numbers that are not finite",
    ),
    "uniform not a number": (
        {
            "block": row_sums,
            "reference": row_sums,
            "uniform": lambda weights, q, k: weights.sum(-1) * float("nan"),
        },
        "not finite for uniform attention.*its uniform",
    ),
    "uniform raises": (
        {"block": row_sums, "reference": row_sums, "uniform": lambda *_: 1 // 0},
        "fails with ZeroDivisionError.*its uniform",
    ),
    "unsettled of one head": (
        {
            "block": row_sums,
            "reference": row_sums,
            "unsettled": lambda matrix, rounding: matrix[:1, :, 0] < 0,
        },
        "returns a tensor of shape.*its unsettled",
    ),
    "pairs raise": ({"pairs": lambda ids: 1 // 0}, "fails with ZeroDivisionError.*its pairs"),
    "pairs are None": ({"pairs": lambda ids: None}, "fails with TypeError.*its pairs"),
    "more keys than queries": (pairs_of(np.array([1]), np.array([0, 1])), "returns arrays of shapes"),
    "pairs beyond the prompt": (pairs_of(np.array([1]), np.array([4000])), "returns positions outside the prompt"),
    "pairs before the prompt": (pairs_of(np.array([1]), np.array([-1])), "returns positions outside the prompt"),
    "half a position": (pairs_of(np.array([1.5]), np.array([0])), "returns positions of type"),
    "a pair twice": (pairs_of(np.array([5, 5, 9]), np.array([0, 0, 1])), "returns the same pair twice"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_of_a_measure_is_named_as_its_own(name: str, lens: Lens, monkeypatch: pytest.MonkeyPatch) -> None:
    parts, words = WRONG[name]
    monkeypatch.setitem(MEASURES.members, "odd", Measure(name="odd", meaning="x", **parts))
    with pytest.raises(AttnscopeError, match=f"^the measure 'odd' .*{words}") as refusal:
        lens.measure_tokens(IDS, ["all"], measures=["odd"])
    assert "can't be read" not in str(refusal.value)
    with (
        pytest.raises(AttnscopeError, match=r"^the measure 'odd' "),
        attnscope.record(lens.model, queries="all", measures="odd"),
    ):
        lens.model(input_ids=torch.tensor([IDS]))


@pytest.mark.parametrize("queries", ["last", "all"])
def test_a_measure_that_fails_only_on_long_prompts_is_named(
    queries: str, lens: Lens, monkeypatch: pytest.MonkeyPatch
) -> None:
    def block(weights: Any, q: Any, k: Any) -> Any:
        return weights.sum(-1) * (1 if int(q[-1]) < 100 else 1 // 0)

    def not_a_number(weights: Any, q: Any, k: Any) -> Any:
        return weights.sum(-1) * (1 if int(q[-1]) < 100 else float("nan"))

    for rule, words in ((block, "fails with ZeroDivisionError"), (not_a_number, "gives numbers that are not finite")):
        measure = Measure(name="odd", meaning="x", block=rule, reference=row_sums, uniform=row_sums)
        monkeypatch.setitem(MEASURES.members, "odd", measure)
        lens.measure_tokens(IDS, queries, measures=["odd"])
        with pytest.raises(AttnscopeError, match=f"the measure 'odd' {words}"):
            lens.measure_tokens(some_ids(180), queries, measures=["odd"])


def test_a_built_in_measure_is_not_blamed_for_a_bug_of_attnscope() -> None:
    with pytest.raises(ZeroDivisionError), MEASURES.blamed("entropy", "block"):
        raise ZeroDivisionError
    with pytest.raises(PluginError, match="fails with ZeroDivisionError"), MEASURES.blamed("odd", "block"):
        raise ZeroDivisionError
    with pytest.raises(KeyboardInterrupt), MEASURES.blamed("odd", "block"):
        raise KeyboardInterrupt


@pytest.mark.parametrize("name", [*sorted(TAKEN), "", "two words", "a.b", "a/b", "Upper", "1st"])
def test_a_measure_cannot_have_a_name_that_means_something_else(name: str) -> None:
    with pytest.raises(ValueError, match=f"measure '{name}'"):
        Measure(name=name, meaning="x", block=row_sums, reference=row_sums)


def test_every_word_that_stands_beside_measures_is_taken() -> None:
    columns = [column.name for table in (TABLES["mass"], TABLES["heads"], *EXPORTS.values()) for column in table]
    words = {*columns, *HEAD_AXES, *KEY_AXES, SEEN, VIEW, *SCORES, *OF_INSERTIONS}
    assert words - set(MEASURES.built_in) <= TAKEN
    assert not TAKEN & set(MEASURES.built_in)


def test_uniform_attention_of_rows_that_nobody_reads_does_not_count(
    lens: Lens, monkeypatch: pytest.MonkeyPatch
) -> None:
    def block(weights: Any, q: Any, k: Any) -> Any:
        return weights / (q != 1)[:, None]  # not a number or infinite in a row that is neither measured nor compared

    odd = Measure(
        name="row1", meaning="x", axes=KEY, block=lambda weights, q, k: weights, uniform=block, reference=torch.clone
    )
    monkeypatch.setitem(MEASURES.members, "row1", odd)
    record = lens.measure_tokens(IDS, "last", measures=["row1"])
    np.testing.assert_allclose(record.uniform("row1").values, record.uniform().values, atol=1e-6)
