"""What can be said of a list of discoveries, against closed testing written out, and what few prompts can't show."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnscope.analysis.discoveries import discoveries, needed, true_at_least
from attnscope.analysis.effects import effects
from attnscope.analysis.halves import halves
from attnscope.analysis.power import MANY, Reach, clusters_needed, power, size_reached, targets


def rejected(p: list[float]) -> bool:
    """Simes' test."""
    return any(each * len(p) <= 0.05 * rank for rank, each in enumerate(sorted(p), 1))


def bound(p: list[float], chosen: set[int]) -> int:
    """By closed testing over all subsets: the chosen minus the largest part of them that may hold nothing but nulls."""
    tests = range(len(p))
    subsets = [set(each) for size in range(1, len(p) + 1) for each in combinations(tests, size)]
    alive = [each for each in subsets if not rejected([p[place] for place in each])]
    return len(chosen) - max((len(chosen & each) for each in alive), default=0)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([0.0001, 0.002, 0.004, 0.01, 0.02, 0.03, 0.04, 0.2, 0.6, 1.0]), min_size=1, max_size=7),
    st.integers(0, 127),
)
def test_the_bound_is_that_of_closed_testing(p: list[float], bits: int) -> None:
    chosen = {place for place in range(len(p)) if bits >> place & 1}
    flags = np.array([place in chosen for place in range(len(p))])
    assert true_at_least(np.array(p), flags) == bound(p, chosen)


def test_the_bound_holds_for_lists_chosen_after_looking() -> None:
    wrong = []
    for seed in range(300):
        chance = np.random.default_rng(seed)
        p = np.concatenate([chance.uniform(size=60), chance.uniform(size=20) ** 8])
        chosen = discoveries(p) < 0.05
        wrong.append(true_at_least(p, chosen) > chosen[60:].sum())
    assert np.mean(wrong) <= 0.05


def test_few_prompts_need_many_heads_at_once() -> None:
    smallest = 2.0**-5  # six prompts
    count = needed(smallest, 1350)
    assert count == 844  # 62 % of them
    p = np.ones(1350)
    p[:843] = smallest
    assert not (discoveries(p) < 0.05).any()
    p[:844] = smallest
    assert (discoveries(p) < 0.05).sum() == 844
    assert Reach(6, 1350).smallest_q == 1.0
    assert Reach(6, 1350).together == 844
    assert Reach(20, 1350).together == 1
    assert not Reach(5, 1350).testable


@pytest.mark.parametrize(("size", "clusters", "level"), [(0.5, 30, 0.01), (0.8, 15, 0.01), (1.2, 40, 3e-5)])
def test_the_chance_to_find_an_effect_is_how_often_one_is_found(size: float, clusters: int, level: float) -> None:
    values = np.random.default_rng([clusters, 1]).normal(size, 1, (clusters, 1500))
    assert float((effects(values).p <= level).mean()) == pytest.approx(power(size, clusters, level), abs=0.06)


def test_the_chance_goes_on_smoothly_where_it_is_not_simulated() -> None:
    for level in (0.01, 3e-5):
        assert power(0.35, MANY + 1, level) == pytest.approx(power(0.35, MANY, level), abs=0.08)


def test_chance_alone_gives_a_pilot_no_sizes_and_a_real_one_stays() -> None:
    def table(size: float) -> pl.DataFrame:
        found = effects(np.random.default_rng(2).normal(size, 1, (12, 400)))
        return pl.DataFrame({"difference": found.mean, "error": found.error, "clusters": found.clusters})

    assert size_reached(table(0.0), 0.9) <= 0.1  # the largest tenth of 400 sizes is above 0.5 by chance
    assert size_reached(table(0.8), 0.5) == pytest.approx(0.8, abs=0.1)


def test_the_clusters_needed_are_the_fewest() -> None:
    for target in targets(270, 5):
        least = clusters_needed(0.8, target.level)
        assert least is not None
        assert power(0.8, least, target.level) >= 0.8
        assert power(0.8, round(0.8 * least), target.level) < 0.8
    assert clusters_needed(0.0, 0.05) is None


def test_heads_chosen_on_one_half_hold_on_the_other_if_they_are_real() -> None:
    chance = np.random.default_rng(0)
    values = chance.normal(0, 1, (60, 400))
    values[:, :20] += 1.5
    split = halves(values, np.arange(60), seed=1)
    assert split is not None
    assert split.chosen[:20].all()
    assert split.held[:20].all()
    assert (split.held <= split.chosen).all()
    null = halves(chance.normal(0, 1, (60, 400)), np.arange(60), seed=1)
    assert null is not None
    assert null.held.sum() == 0
    assert halves(values[:11], np.arange(11), seed=1) is None  # five in a half: no test


def test_a_half_never_splits_a_cluster() -> None:
    from attnscope.analysis.halves import first_half

    clusters = np.random.default_rng(3).integers(0, 20, 100)
    first = first_half(clusters, 4)
    assert first is not None
    assert not set(clusters[first]) & set(clusters[~first])
