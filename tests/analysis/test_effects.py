"""Statistics on simulated data whose truth is known, and against scipy on the same numbers."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from attnscope.analysis.bootstrap import DRAWS, Sample
from attnscope.analysis.effects import effects, unpaired_effects
from attnscope.analysis.means import mean_over_prompts
from attnscope.study.independence import FEWEST
from tests.tolerances import EXACT

SIMULATIONS = 2000
NOISE = 0.01  # two standard errors of a share of 95 % in so many simulations


def drawn(kind: str, shape: tuple[int, int], seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Differences whose mean is zero."""
    chance = np.random.default_rng(seed)
    if kind == "normal":
        return chance.normal(0, 0.01, shape)
    if kind == "exponential":  # skewness 2
        return 0.01 * (chance.exponential(1, shape) - 1)
    if kind == "heavy tails":
        return 0.01 * chance.standard_t(4, shape)
    return 0.01 * (chance.exponential(1, shape) - chance.exponential(1, shape) * 0.5 - 0.5)  # skewed


@pytest.mark.parametrize("kind", ["normal", "heavy tails", "skewed", "exponential"])
@pytest.mark.parametrize("n", [8, 12, 20, 40])
def test_the_interval_holds_the_true_mean_as_often_as_it_says(kind: str, n: int) -> None:
    values = drawn(kind, (n, SIMULATIONS), seed=n)
    found = effects(values)
    held = float(((found.low <= 0) & (found.high >= 0)).mean())
    assert 0.93 - NOISE <= held <= 0.975 + NOISE
    shifted = effects(values + 0.02)  # wherever the mean is
    assert float(((shifted.low <= 0.02) & (shifted.high >= 0.02)).mean()) == pytest.approx(held, abs=0.002)


@pytest.mark.parametrize("n", [8, 20])
def test_the_interval_holds_for_skewed_heads_that_hardly_change_among_others_that_do(n: int) -> None:
    chance = np.random.default_rng(n)
    spreads = np.where(np.arange(SIMULATIONS) % 2, 1.0, 0.04)
    values = (chance.exponential(1, (n, SIMULATIONS)) - 1) * spreads
    found = effects(values)
    held = (found.low <= 0) & (found.high >= 0)
    assert float(held[spreads < 1].mean()) >= 0.93 - NOISE


@pytest.mark.parametrize("n", [6, 7, 10, 25, 60])
def test_the_interval_and_the_test_never_disagree_about_zero(n: int) -> None:
    values = np.random.default_rng(n).gamma(0.6, 1, (n, 500)) - np.linspace(0.1, 1.2, 500)
    found = effects(values)
    excludes = (found.low > 0) | (found.high < 0)
    assert np.array_equal(excludes & (found.smallest < 0.05), found.p < 0.05)
    assert 40 < excludes.sum() < 450


def test_the_bootstrap_is_the_one_written_out() -> None:
    """One column after the other, draw by draw."""
    values = drawn("exponential", (9, 4), seed=3) + 0.004
    found = effects(values, seed=7)
    rows = np.random.default_rng(7).integers(0, 9, (DRAWS, 9))
    typical = np.median(values.std(0, ddof=1) / 3)
    for column in range(4):
        x = values[:, column]
        t = []
        for row in rows:
            y = x[row]
            error = (y.var() / 8) ** 0.5
            shift = y.mean() - x.mean()
            t.append(shift / error if error > 1e-12 * abs(x).max() else np.inf if shift >= 0 else -np.inf)
        ordered, far = np.sort(t), np.sort(np.abs(t))
        error = (x.var(ddof=1) / 9 + (0.03 * typical) ** 2) ** 0.5
        skewed = abs(stats.skew(x)) > 0.5
        tail, tails = (37, 74) if skewed else (74, 149)  # of 3,000: 2.5 % in each tail, 5 % in both; half if skewed
        upper, lower, both = ordered[-tail], ordered[tail - 1], far[-tails]
        assert found.low[column] == pytest.approx(x.mean() - max(upper, both) * error, rel=1e-6)
        assert found.high[column] == pytest.approx(x.mean() + max(-lower, both) * error, rel=1e-6)
        actual = x.mean() / error
        one_way = 2 * min(np.sum(np.array(t) >= actual) + 1, np.sum(np.array(t) <= actual) + 1)
        p = (2 if skewed else 1) * max(one_way, np.sum(far >= abs(actual)) + 1) / (DRAWS + 1)
        assert found.p[column] == pytest.approx(max(min(p, 1), 2.0**-8), rel=0.02)


def test_without_any_effect_discoveries_are_rarely_made() -> None:
    def nothing(seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        values = np.random.default_rng(seed).gamma(0.4, 0.02, (20, 100)) - 0.4 * 0.02  # skewed, as masses are
        return np.asarray(values)

    families = [effects(nothing(seed)).q for seed in range(200)]
    assert np.mean([(q < 0.05).any() for q in families]) < 0.055 + 2 * (0.05 * 0.95 / 200) ** 0.5


def test_false_discoveries_stay_under_their_rate_and_real_effects_are_found() -> None:
    wrong, found = [], []
    real = np.arange(200) < 60
    for seed in range(100):
        values = drawn("normal", (40, 200), seed=seed) + np.where(real, 0.007, 0)  # 0.7 standard deviations
        called = effects(values, seed=seed).q < 0.05
        wrong.append((called & ~real).sum() / max(1, called.sum()))
        found.append((called & real).sum() / real.sum())
    assert np.mean(wrong) < 0.055
    assert np.mean(found) > 0.95  # the power at this size of effect and 40 prompts


def test_a_lone_effect_among_thousands_is_found() -> None:
    values = drawn("normal", (40, 8000))
    values[:, 77] += 0.02
    found = effects(values)
    assert found.q[77] < 0.05
    assert (found.q < 0.05).sum() <= 2
    assert found.p[77] < 1 / DRAWS


def test_q_is_scipys_benjamini_hochberg_and_the_one_by_hand() -> None:
    found = effects(drawn("normal", (12, 50)) + 0.004)
    assert found.q == pytest.approx(stats.false_discovery_control(found.p))
    order = np.argsort(found.p)
    by_hand = np.minimum.accumulate((found.p[order] * 50 / np.arange(1, 51))[::-1])[::-1]
    assert found.q[order] == pytest.approx(np.minimum(by_hand, 1))


def test_prompts_without_a_pair_are_left_out_of_their_column_alone() -> None:
    values = drawn("normal", (20, 3))
    values[4, 1] = np.nan
    found, alone = effects(values), effects(np.delete(values, 4, 0)[:, 1:2])
    assert found.n.tolist() == [20, 19, 20]
    assert found.mean[1] == alone.mean[0]
    assert found.low[1] == pytest.approx(alone.low[0], rel=0.01)  # columns lend each other a little of their error
    assert found.mean[0] == pytest.approx(values[:, 0].mean())


def test_with_too_few_prompts_nothing_is_made_up() -> None:
    one = effects(np.array([[0.3, np.nan]]))
    assert one.n.tolist() == [1, 0]
    assert one.mean[0] == 0.3
    assert np.isnan([one.low[0], one.high[0], one.p[0], one.q[0], one.size[0], one.mean[1]]).all()
    few = effects(drawn("normal", (FEWEST - 1, 2)))
    assert np.isnan([few.low, few.high, few.p, few.q]).all()
    assert not np.isnan(few.size).any()


def test_differences_that_are_all_the_same_have_an_interval_of_no_width() -> None:
    found = effects(np.full((10, 1), 0.3))
    assert (found.low[0], found.high[0]) == (found.mean[0], found.mean[0])
    assert found.mean[0] == pytest.approx(0.3)
    assert np.isnan(found.size[0])  # beyond all measure
    assert found.p[0] == found.smallest[0] == 2 / 2**10
    zero = effects(np.zeros((10, 1)))
    assert (zero.low[0], zero.high[0], zero.p[0], zero.size[0]) == (0, 0, 1, 0)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 25), st.integers(1, 6), st.integers(0, 10**6), st.floats(1e-8, 1e6))
def test_an_effect_turned_round_is_the_same_effect(n: int, columns: int, seed: int, scale: float) -> None:
    values = scale * np.random.default_rng(seed).normal(0.3, 1, (n, columns))
    one, two = effects(values), effects(-values)
    assert one.p == pytest.approx(two.p, nan_ok=True)
    assert one.size == pytest.approx(-two.size)
    if n >= FEWEST:
        assert ((one.low <= one.mean) & (one.mean <= one.high)).all()
        assert one.low == pytest.approx(-two.high, rel=0.02, abs=1e-3 * scale)


def test_without_pairs_the_interval_holds_the_true_difference() -> None:
    chance = np.random.default_rng(11)
    one, two = chance.exponential(1.0, (24, 2000)), chance.normal(1.5, 2.0, (30, 2000))
    found = unpaired_effects(one, two)
    covered = float(((found.low <= 0.5) & (found.high >= 0.5)).mean())
    assert 0.93 - NOISE <= covered <= 0.97 + NOISE
    few = unpaired_effects(one[:4], two)
    assert np.isnan(few.p).all()
    assert few.mean == pytest.approx(two.mean(0) - one[:4].mean(0))


@pytest.mark.parametrize(("sizes", "spreads"), [((8, 40), (3, 1)), ((40, 8), (3, 1)), ((20, 15), (1, 1))])
def test_without_pairs_unequal_sets_are_not_called_different(sizes: tuple[int, int], spreads: tuple[int, int]) -> None:
    chance = np.random.default_rng(sizes)
    one, two = (chance.normal(0, spread, (n, SIMULATIONS)) for n, spread in zip(sizes, spreads, strict=True))
    assert float((unpaired_effects(one, two).p < 0.05).mean()) <= 0.06 + NOISE


def test_copies_of_prompts_are_no_more_prompts() -> None:
    values = drawn("normal", (8, SIMULATIONS), seed=2)
    copied, clusters = np.repeat(values, 5, axis=0), np.repeat(np.arange(8), 5)
    found, alone = effects(copied, clusters=clusters), effects(values)
    assert (found.n[0], found.clusters[0]) == (40, 8)
    assert found.mean == pytest.approx(alone.mean)
    assert found.low == pytest.approx(alone.low)
    assert found.p == pytest.approx(alone.p)
    naive = effects(copied)
    assert float(((naive.low <= 0) & (naive.high >= 0)).mean()) < 0.7  # what it would be if they counted as prompts
    two = effects(np.repeat(drawn("normal", (2, 5)), 10, axis=0), clusters=np.repeat([0, 1], 10))
    assert np.isnan(two.p).all()
    assert two.clusters.tolist() == [2] * 5


@pytest.mark.parametrize(("groups", "copies", "own"), [(20, 2, 0.7), (12, 5, 0.3), (17, 4, 0.5)])
def test_clusters_are_covered_as_often_as_the_interval_says(groups: int, copies: int, own: float) -> None:
    chance, clusters = np.random.default_rng(groups), np.repeat(np.arange(groups), copies)
    common = chance.normal(0, (1 - own) ** 0.5, (groups, SIMULATIONS))[clusters]
    values = common + chance.normal(0, own**0.5, (groups * copies, SIMULATIONS))
    found = effects(values, clusters=clusters)
    assert 0.93 - NOISE <= float(((found.low <= 0) & (found.high >= 0)).mean()) <= 0.975 + NOISE


def test_clusters_of_different_sizes_are_covered_too() -> None:
    chance = np.random.default_rng(1)
    clusters = np.repeat(np.arange(17), [8, 8, 7, 7, 6, 6, 5, 5, 4, 4, 4, 3, 3, 2, 2, 2, 2])  # as a set of problems has
    values = chance.normal(0, 0.6, (17, SIMULATIONS))[clusters] + chance.normal(0, 0.8, (78, SIMULATIONS))
    found = effects(values, clusters=clusters)
    assert found.mean == pytest.approx(values.mean(0))  # over prompts, not over clusters
    assert 0.93 - NOISE <= float(((found.low <= 0) & (found.high >= 0)).mean()) <= 0.975 + NOISE


@pytest.mark.parametrize("sizes", [[20] + [2] * 19, [9, 9] + [3] * 10, [16, 8, 4, 2, 1] * 3])
def test_a_large_cluster_does_not_hide_how_far_it_could_be_off(sizes: list[int]) -> None:
    chance, clusters = np.random.default_rng(2), np.repeat(np.arange(len(sizes)), sizes)
    values = chance.normal(0, 1, (len(sizes), SIMULATIONS))[clusters]
    found = effects(values + chance.normal(0, 1, values.shape), clusters=clusters)
    assert np.isfinite(found.low).all()
    assert float(((found.low <= 0) & (found.high >= 0)).mean()) >= 0.93 - NOISE


@pytest.mark.parametrize("sizes", [[13] * 5 + [12], [2] * 5 + [1], [30, *[12] * 5, 10], [64, 32, 16, 8, 4, 2, 1] * 2])
def test_clusters_of_nearly_one_size_are_tested(sizes: list[int]) -> None:
    chance, clusters = np.random.default_rng(2), np.repeat(np.arange(len(sizes)), sizes)
    values = chance.normal(0, 1, (len(sizes), SIMULATIONS))[clusters]
    found = effects(values + chance.normal(0, 1, values.shape), clusters=clusters)
    assert float(((found.low <= 0) & (found.high >= 0)).mean()) >= 0.94
    assert float((found.p < 0.05).mean()) <= 0.06


@pytest.mark.parametrize("sizes", [[20, 20] + [1] * 10, [64, 32, 16, 8, 4, 2, 1], [12] + [1] * 12])
def test_where_few_clusters_have_most_of_the_prompts_nothing_is_tested(sizes: list[int]) -> None:
    clusters = np.repeat(np.arange(len(sizes)), sizes)
    found = effects(np.random.default_rng(3).normal(1, 1, (len(clusters), 4)), clusters=clusters)
    assert np.isnan(found.p).all()
    assert np.isfinite(found.mean).all()


@pytest.mark.parametrize("seen", [1, 2, 3])
def test_an_interval_is_finite_where_few_prompts_have_any_difference(seen: int) -> None:
    values = np.zeros((12, 6))
    values[:seen, :3] = 0.02
    values[:, 3:] = np.random.default_rng(0).normal(0, 1, (12, 3))
    for found in (effects(values), unpaired_effects(values, np.random.default_rng(1).normal(0, 1, (14, 6)))):
        for each in (found.low, found.high, found.size_low, found.size_high):
            assert np.isfinite(each).all()
        assert (found.p[:3] > 0.05).all()


def test_a_mean_that_is_one_clusters_is_not_tested() -> None:
    clusters = np.repeat(np.arange(12), [40, *[1] * 11])
    found = effects(np.random.default_rng(3).normal(1, 1, (51, 4)), clusters=clusters)
    assert np.isfinite(found.mean).all()
    for none in (found.low, found.high, found.p, found.q):
        assert np.isnan(none).all()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_the_names_and_the_order_of_clusters_do_not_matter(seed: int) -> None:
    chance = np.random.default_rng(seed)
    values, clusters = chance.normal(0.2, 1, (30, 3)), chance.integers(0, 9, 30)
    sample, renamed = Sample.of(values, clusters), Sample.of(values, 100 - clusters)
    assert sample.mean == pytest.approx(renamed.mean)
    assert sample.variance == pytest.approx(renamed.variance)
    order = chance.permutation(30)
    assert Sample.of(values[order], clusters[order]).variance == pytest.approx(sample.variance)


@pytest.mark.parametrize("n", [20, 40])
@pytest.mark.parametrize("size", [0.5, 1.5])
@pytest.mark.parametrize("skew", [0, 1, -1])
def test_a_size_has_an_interval_that_holds_the_true_one(n: int, size: float, skew: int) -> None:
    chance = np.random.default_rng(4)
    shape = (n, SIMULATIONS)
    values = skew * (chance.exponential(1, shape) - 1) if skew else chance.normal(0, 1, shape)
    found = effects(values + size)
    assert float(((found.size_low <= size) & (found.size_high >= size)).mean()) >= 0.92 - NOISE
    assert (found.size_low < found.size).all()


@pytest.mark.parametrize("n", [8, 20, 40])
def test_heads_with_strong_skew_are_covered_also_where_their_spread_is_large(n: int) -> None:
    covered = []
    for seed in range(12):
        chance = np.random.default_rng([n, seed])
        values = chance.normal(0, 0.3, (n, 300))
        values[:, :100] = chance.lognormal(0, 0.8, (n, 100)) - np.exp(0.32)  # of skew 3.7
        found = effects(values, seed=seed)
        covered.append(((found.low <= 0) & (found.high >= 0))[:100])
    assert 0.93 - NOISE <= float(np.mean(covered)) <= 0.965 + NOISE


def test_error_bars_allow_for_clusters_of_any_size() -> None:
    clusters = np.repeat(np.arange(9), [9, 2, 2, 3, 1, 4, 4, 2, 2])
    values = np.random.default_rng(0).normal(0.4, 0.1, len(clusters))
    rows = pl.DataFrame({"bar": "a", "prompt": np.arange(len(clusters)), "mass": values})
    (bar,) = mean_over_prompts(rows, ["bar"], "mass", dict(enumerate(clusters.tolist()))).iter_rows(named=True)
    whole, left = values.mean(), []
    for cluster in range(9):  # the jackknife, written out
        rest = clusters != cluster
        left.append(values[rest].mean() - whole)
    error = (8 / 9 * sum((each * 1) ** 2 for each in left)) ** 0.5
    assert bar["mass"] == pytest.approx(whole)
    assert bar["high"] - whole == pytest.approx(stats.t.ppf(0.975, 8) * error, rel=1e-9)
    few = np.repeat(np.arange(6), [40, 1, 1, 1, 1, 1])
    rows = pl.DataFrame({"bar": "a", "prompt": np.arange(45), "mass": np.linspace(0, 1, 45)})
    (bar,) = mean_over_prompts(rows, ["bar"], "mass", dict(enumerate(few.tolist()))).iter_rows(named=True)
    assert (bar["low"], bar["high"]) == (None, None)  # one cluster has most of the prompts


def test_no_change_is_shown_only_within_the_margin() -> None:
    chance = np.random.default_rng(6)
    inside = effects(chance.normal(0.0, 0.01, (30, 400)), margin=0.02)
    at_the_edge = effects(chance.normal(0.02, 0.01, (30, SIMULATIONS)), margin=0.02)
    assert float((inside.same < 0.05).mean()) > 0.99
    assert float((at_the_edge.same < 0.05).mean()) <= 0.05 + NOISE
    skewed = effects(chance.exponential(0.01, (20, SIMULATIONS)) + 0.01, margin=0.02)  # its long tail points outwards
    assert float((skewed.same < 0.05).mean()) <= 0.05 + NOISE
    assert np.isnan(effects(chance.normal(0, 1, (30, 3))).same).all()
    mixed = effects(chance.normal(0.01, 0.03, (30, 400)), margin=0.02)
    within = (mixed.low > -0.02) & (mixed.high < 0.02)
    assert (within == (mixed.same < 0.05)).all()


def test_a_column_whose_large_values_are_missing_is_not_taken_as_exact() -> None:
    """Rare large values that few prompts have: without them, a column looks far more exact than it is."""
    found = []
    for seed in range(80):
        chance = np.random.default_rng(seed)
        values = chance.normal(0, 1, (20, 300))
        rare = chance.random((20, 60)) < 0.05
        values[:, :60] = np.where(rare, 0.19, -0.01) + chance.normal(0, 1e-4, (20, 60))  # their mean is 0
        found.append(bool((effects(values, seed=seed).q < 0.05).any()))
    assert np.mean(found) <= 0.06 + 2 * (0.06 * 0.94 / 80) ** 0.5


SKEWED_NULLS = {
    "of different spread": lambda chance, shape: (
        (chance.exponential(1, shape) - 1) * chance.lognormal(0, 1.5, shape[1])
    ),
    "mostly nothing": lambda chance, shape: (
        np.where(chance.random(shape) < 0.2, chance.exponential(1, shape), 0.0) - 0.2 + chance.normal(0, 0.02, shape)
    ),
}


@pytest.mark.parametrize("kind", SKEWED_NULLS)
def test_heads_without_an_effect_are_not_found_where_few_prompts_carry_their_means(kind: str) -> None:
    found = []
    for seed in range(60):
        values = SKEWED_NULLS[kind](np.random.default_rng(seed), (20, 150))
        result = effects(values, seed=seed)
        found.append(bool((result.q < 0.05).any()))
        assert np.array_equal((result.low > 0) | (result.high < 0), result.p < 0.05)
    assert np.mean(found) <= 0.06 + 2 * (0.06 * 0.94 / 60) ** 0.5


def test_a_class_with_a_long_tail_does_not_hide_the_effects_of_another() -> None:
    chance = np.random.default_rng(5)
    steady = chance.normal(0.9, 1, (20, 200))
    odd = SKEWED_NULLS["mostly nothing"](chance, (20, 200))
    classes = ["steady"] * 200 + ["odd"] * 200
    apart = effects(np.concatenate([steady, odd], 1), pools=classes)
    assert (apart.q[:200] < 0.05).mean() > 0.6
    assert (apart.q[200:] < 0.05).sum() < 0.1 * (apart.q < 0.05).sum()
    order = np.random.default_rng(1).permutation(400)  # by key, wherever a column stands
    moved = effects(np.concatenate([steady, odd], 1)[:, order], pools=[classes[place] for place in order])
    assert moved.q == pytest.approx(apart.q[order], rel=1e-9)


def test_constant_columns_among_others_get_a_width() -> None:
    values = np.random.default_rng(3).normal(0, 1, (12, 40))
    values[:, 0], values[:, 1] = 0.02, 0.0
    found = effects(values)
    assert found.low[0] < 0.02 < found.high[0]
    assert (found.p[1], found.mean[1]) == (1.0, 0.0)
    assert not np.isnan(found.p).any()
    assert np.array_equal((found.low > 0) | (found.high < 0), found.p < 0.05)


def test_strong_skew_is_reported() -> None:
    chance = np.random.default_rng(8)
    values = np.stack([chance.lognormal(0, 1.2, 60), -chance.lognormal(0, 1.2, 60), chance.normal(0, 1, 60)], 1)
    skew = effects(values).skew
    assert skew == pytest.approx(stats.skew(values), rel=EXACT)
    assert skew[0] > 1.5 > -1.5 > skew[1]


def test_a_lone_effect_is_found_with_a_gap_and_without_pairs_too() -> None:
    values = drawn("normal", (40, 1350))
    values[:, 7] += 0.05
    values[3, 7] = np.nan
    assert effects(values).q[7] < 0.05
    one, two = drawn("normal", (30, 1350), seed=1), drawn("normal", (30, 1350), seed=2)
    two[:, 7] += 0.05
    two[3, 7] = np.nan
    found = unpaired_effects(one, two)
    assert found.q[7] < 0.05
    assert found.n[7] == 29
