"""Statistics on simulated data whose truth is known, and against scipy on the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from attnscope.analysis.effects import FEWEST, FLIPS, effects, interval_of_mean, sign_flip_p, unpaired_effects
from tests.tolerances import EXACT

SIMULATIONS = 2000


def drawn(kind: str, shape: tuple[int, int], seed: int = 0) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Differences whose mean is zero."""
    chance = np.random.default_rng(seed)
    if kind == "normal":
        return chance.normal(0, 0.01, shape)
    if kind == "heavy tails":
        return 0.01 * chance.standard_t(4, shape)
    return 0.01 * (chance.exponential(1, shape) - chance.exponential(1, shape) * 0.5 - 0.5)  # skewed


@pytest.mark.parametrize("kind", ["normal", "heavy tails", "skewed"])
@pytest.mark.parametrize("n", [20, 40, 100])
def test_the_interval_holds_the_true_mean_as_often_as_it_says(kind: str, n: int) -> None:
    values = drawn(kind, (n, SIMULATIONS), seed=n)
    low, high = interval_of_mean(values)
    held = float(((low <= 0) & (high >= 0)).mean())
    assert 0.93 <= held <= 0.97
    low, high = interval_of_mean(values + 0.02)  # wherever the mean is
    assert float(((low <= 0.02) & (high >= 0.02)).mean()) == pytest.approx(held, abs=0.002)


def test_without_any_effect_discoveries_are_rarely_made() -> None:
    def nothing(seed: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        arms = np.random.default_rng(seed).gamma(0.7, 0.02, (2, 40, 100))  # skewed, as masses are
        return np.asarray(arms[1] - arms[0])

    families = [effects(nothing(seed)).q for seed in range(400)]
    assert np.mean([(q < 0.05).any() for q in families]) < 0.055 + 2 * (0.05 * 0.95 / 400) ** 0.5


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
    assert found.p[77] < 1 / FLIPS


def test_intervals_are_scipys() -> None:
    values = drawn("skewed", (30, 6))
    low, high = interval_of_mean(values, seed=5, resamples=999, widened=False)
    for column in range(6):
        want = stats.bootstrap(
            (values[:, column],), np.mean, n_resamples=999, method="percentile", rng=np.random.default_rng(5)
        ).confidence_interval
        assert (low[column], high[column]) == pytest.approx((want.low, want.high), rel=EXACT)


def test_p_values_are_scipys_where_all_sign_patterns_are_counted_and_near_them_where_not() -> None:
    values = drawn("skewed", (11, 5)) + 0.004
    exact = [
        stats.permutation_test(
            (column,), lambda x, axis: x.mean(axis), permutation_type="samples", n_resamples=np.inf, vectorized=True
        ).pvalue
        for column in values.T
    ]
    assert sign_flip_p(values) == pytest.approx(exact, rel=EXACT)
    assert sign_flip_p(values, flips=1999) == pytest.approx(exact, abs=4 * 0.5 / 1999**0.5)


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
    assert (found.mean[1], found.low[1], found.p[1]) == (alone.mean[0], alone.low[0], alone.p[0])
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
    assert found.p[0] == 2 / 2**10
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


def test_without_pairs_the_interval_holds_the_true_difference_and_p_is_scipys() -> None:
    chance = np.random.default_rng(11)
    one, two = chance.exponential(1.0, (24, 2000)), chance.normal(1.5, 2.0, (30, 2000))
    found = unpaired_effects(one, two)
    covered = float(((found.low <= 0.5) & (found.high >= 0.5)).mean())
    assert 0.93 <= covered <= 0.97
    for column in range(5):
        want = stats.permutation_test(
            (two[:, column], one[:, column]),
            lambda a, b, axis: a.mean(axis) - b.mean(axis),
            vectorized=True,
            n_resamples=9999,
            rng=np.random.default_rng(1),
        ).pvalue
        assert found.p[column] == pytest.approx(want, abs=0.02)
    nothing = unpaired_effects(chance.normal(size=(20, 2000)), chance.normal(size=(15, 2000)))
    assert float((nothing.p < 0.05).mean()) <= 0.06
    few = unpaired_effects(one[:4], two)
    assert np.isnan(few.p).all()
    assert few.mean == pytest.approx(two.mean(0) - one[:4].mean(0))


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
