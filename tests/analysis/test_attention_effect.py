"""Attention against effect: a planted relation is found, none in noise, and what does not vary has no correlation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnscope.analysis.attention_effect import HeadPairs, correlations, head_pairs
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side, masses
from attnscope.analysis.spread import mean_of_seen
from tests.analysis.planted import PROMPTS, outcome_rows, swept
from tests.handmade import with_outcomes

TIER = "command"

SWEEP = {"name": "heads", "sweep": {"ablate": {}, "over": "heads"}}


def pairs(attention: Any, effect: Any) -> HeadPairs:
    attention, effect = np.asarray(attention, dtype=float), np.asarray(effect, dtype=float)
    heads = tuple((0, head) for head in range(attention.shape[1]))
    return HeadPairs(heads, np.arange(len(attention)), attention, effect)


def drawn(seed: int, relation: float, prompts: int = 30, heads: int = 40) -> HeadPairs:
    chance = np.random.default_rng(seed)
    attention = chance.uniform(0, 0.5, heads)
    effect = relation * attention**3
    noise = chance.normal(0, 1, (2, prompts, heads))
    return pairs(attention + 0.02 * noise[0], effect + 0.02 * noise[1])


def test_a_monotone_relation_is_found_by_ranks_first() -> None:
    found = correlations(drawn(0, -4.0), np.arange(30), seed=1)
    spearman, pearson = found["spearman"], found["pearson"]
    assert spearman.value is not None
    assert pearson.value is not None
    assert spearman.value < -0.9
    assert pearson.value < -0.7
    for each in (spearman, pearson):
        assert -1 <= (each.low or 0) <= (each.value or 0) <= (each.high or 0) < 0


def test_where_attention_and_effect_have_nothing_in_common_the_interval_has_zero() -> None:
    inside = 0
    for seed in range(40):
        each = correlations(drawn(seed, 0.0), np.arange(30), seed=1)["spearman"]
        assert each.low is not None
        assert each.high is not None
        inside += each.low <= 0 <= each.high
    assert inside >= 35


def test_the_same_prompts_many_times_say_no_more_than_once() -> None:
    one = drawn(3, -0.3, prompts=10)
    many = pairs(np.repeat(one.attention, 4, 0), np.repeat(one.effect, 4, 0))
    widths = []
    for each, clusters in ((one, np.arange(10)), (many, np.repeat(np.arange(10), 4)), (many, np.arange(40))):
        found = correlations(each, clusters, seed=1)["spearman"]
        widths.append((found.high or 0) - (found.low or 0))
    assert widths[1] == pytest.approx(widths[0], abs=1e-9)
    assert widths[2] < 0.7 * widths[0]


@pytest.mark.parametrize("constant", [0.0, 0.1])
def test_what_does_not_vary_correlates_with_nothing(constant: float) -> None:
    chance = np.random.default_rng(0).normal(0, 1, (20, 5))
    for one, two in ((chance, np.full((20, 5), constant)), (np.full((20, 5), constant), chance)):
        for each in correlations(pairs(one, two), np.arange(20)).values():
            assert (each.value, each.low, each.high) == (None, None, None)


def test_two_heads_and_five_prompts_are_too_few() -> None:
    few = correlations(drawn(0, -4.0, heads=2), np.arange(30))["spearman"]
    assert few.value is None
    few = correlations(drawn(0, -4.0, prompts=5), np.arange(5))["spearman"]
    assert few.value is not None
    assert few.low is few.high is None


def test_gaps_are_left_out_of_both(measured: Run) -> None:
    whole = drawn(1, -4.0)
    chance = np.random.default_rng(5).uniform(0, 1, whole.effect.shape) < 0.2
    gaps = pairs(np.where(chance, np.nan, whole.attention), np.where(chance, np.nan, whole.effect))
    found = correlations(gaps, np.arange(30), seed=1)["spearman"]
    assert found.value == pytest.approx(correlations(whole, np.arange(30))["spearman"].value, abs=0.05)
    assert found.low is not None


def test_attention_and_effect_are_of_the_same_prompts_and_heads(measured: Run, tmp_path: Path) -> None:
    side = Side(measured, "one", "none")
    attention = mean_of_seen(masses(measured, "one", "none", "last").of(["question"])[0], 0)
    layers, heads = measured.layers("one"), measured.heads("one")
    effects = {
        (layer, head): -10.0 * float(attention[row, column])
        for row, layer in enumerate(layers)
        for column, head in enumerate(heads)
    }
    some = PROMPTS[5:]
    rows = [*outcome_rows(PROMPTS, {}), *swept("heads", some, effects, "layer", "head", noise=0.01)]
    run = with_outcomes(measured, tmp_path / "made", ["none", SWEEP], rows)
    side = Side(run, "one", "none")
    found = head_pairs(side, "heads", "logprob", "last", ["question"], enrichment=False, where="here")
    assert found.prompts.tolist() == some
    assert found.heads == tuple(effects)
    for place, (layer, head) in enumerate(found.heads):
        known = masses(run, "one", "none", "last").of(["question"])[0][5:, layers.index(layer), heads.index(head)]
        assert found.attention[:, place] == pytest.approx(known)
        assert found.effect[:, place].mean() == pytest.approx(effects[layer, head], abs=0.02)
    spearman = correlations(found, run.clusters(found.prompts), seed=1)["spearman"]
    assert spearman.value is not None
    assert spearman.value < -0.8
