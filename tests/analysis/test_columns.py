"""Lines of prompts of any length, aligned: what stands in a column is what each prompt has there."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attnscope.analysis.columns import Align, FromAnchor, InBins, columns_of, ends_of
from tests.tolerances import EXACT

PROMPTS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=6)
"""Of each prompt: tokens before the segment, within it, after it."""


def laid(prompts: list[tuple[int, int, int]], seed: int) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Random values (prompts, places), NaN beyond a prompt; the segment's places; where it starts, -1 without it."""
    width = max(map(sum, prompts))
    chance = np.random.default_rng(seed)
    values, inside, starts = np.full((len(prompts), width), np.nan), np.zeros((len(prompts), width), bool), []
    for row, (before, within, after) in enumerate(prompts):
        values[row, : before + within + after] = chance.random(before + within + after)
        inside[row, before : before + within] = True
        starts.append(before if within else -1)
    return values, inside, starts


def columns(by: str, inside: np.ndarray, bins: int = 1):  # type: ignore[no-untyped-def]
    rows, places = np.indices(inside.shape).reshape(2, -1)
    ends = ends_of(inside.ravel(), rows, places, len(inside))
    return columns_of(Align(by, "question", bins), inside, *ends)  # type: ignore[arg-type]


@given(prompts=PROMPTS, seed=st.integers(0, 9), by=st.sampled_from(["start", "end"]))
def test_column_0_has_each_prompts_own_end_of_the_segment(
    prompts: list[tuple[int, int, int]], seed: int, by: str
) -> None:
    values, inside, starts = laid(prompts, seed)
    aligned = columns(by, inside)
    means = aligned.means(values)
    kept = [row for row, start in enumerate(starts) if start >= 0]
    assert aligned.rows.tolist() == [start >= 0 for start in starts]
    assert means.shape == (len(kept), len(aligned.positions))
    for place, row in enumerate(kept):
        before, within, after = prompts[row]
        anchor = before if by == "start" else before + within - 1
        for column, position in enumerate(aligned.positions.tolist()):
            there = anchor + position
            want = values[row, there] if 0 <= there < before + within + after else np.nan
            np.testing.assert_equal(means[place, column], want)
    flags = aligned.some(~np.isnan(values))
    np.testing.assert_array_equal(flags, ~np.isnan(means))


@given(prompts=PROMPTS, seed=st.integers(0, 9), bins=st.integers(2, 12))
def test_a_bin_has_the_mean_of_the_parts_of_tokens_that_lie_in_it(
    prompts: list[tuple[int, int, int]], seed: int, bins: int
) -> None:
    values, inside, starts = laid(prompts, seed)
    aligned = columns("within", inside, bins)
    means = aligned.means(values)
    kept = [row for row, start in enumerate(starts) if start >= 0]
    assert not np.isnan(means).any()
    for place, row in enumerate(kept):
        tokens = values[row, inside[row]]
        fine = np.repeat(tokens, bins)  # as many equal parts as make whole tokens and whole bins
        np.testing.assert_allclose(means[place], fine.reshape(bins, len(tokens)).mean(1), atol=EXACT)
        np.testing.assert_allclose(means[place].mean(), tokens.mean(), atol=EXACT)  # nothing is lost or counted twice
        if len(tokens) == bins:
            np.testing.assert_allclose(means[place], tokens, atol=EXACT)


@given(count=st.integers(1, 30), bins=st.integers(2, 20), value=st.floats(0, 1))
def test_what_is_the_same_everywhere_is_the_same_in_every_bin(count: int, bins: int, value: float) -> None:
    inside = np.ones((1, count), dtype=bool)
    np.testing.assert_allclose(InBins(inside, bins).means(np.full((1, count), value)), value, atol=EXACT)


@given(values=arrays(np.float64, st.tuples(st.just(1), st.integers(1, 12)), elements=st.floats(0, 1)), data=st.data())
def test_a_token_without_a_value_does_not_count_in_its_bins(values: np.ndarray, data: st.DataObject) -> None:
    count = values.shape[1]
    gone = data.draw(st.sets(st.integers(0, count - 1), max_size=count))
    values[0, list(gone)] = np.nan
    bins = data.draw(st.integers(2, 12))
    aligned = InBins(np.ones((1, count), dtype=bool), bins)
    fine = np.repeat(values[0], bins).reshape(bins, count)
    flags = aligned.some(np.isnan(values))[0]
    for number, (mean, parts) in enumerate(zip(aligned.means(values)[0], fine, strict=True)):
        assert flags[number] == np.isnan(parts).any()
        left = parts[~np.isnan(parts)]
        np.testing.assert_allclose(mean, left.mean() if len(left) else np.nan, atol=EXACT)


def test_without_any_anchor_there_are_no_columns() -> None:
    aligned = FromAnchor(np.array([-1, -1]), 7)
    assert not aligned.rows.any()
    assert aligned.means(np.ones((2, 7))).shape == (0, 0)


def test_the_ends_of_a_segment_are_those_of_the_order_of_the_text_wherever_they_stand() -> None:
    """A segment's tokens may stand elsewhere on the axis, or nowhere: then that end has no place."""
    inside = np.array([False, True, True, True, False, True, True])
    rows = np.array([0, 0, 0, 0, 1, 1, -1])
    places = np.array([0, 5, 3, 4, 0, -1, 2])
    first, last = ends_of(inside, rows, places, 3)
    assert first.tolist() == [5, -1, -1]
    assert last.tolist() == [4, -1, -1]
