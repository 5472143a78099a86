"""Choosing tokens: draws follow the model's probabilities, and rounding does not change a choice called certain."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from attnscope.attention.choice import Drawn, Greedy, Logits, draw, limits, noise
from attnscope.study.sampling import Sample

LOGITS = np.array([2.0, 1.0, 0.5, -1.0, 0.0, 3.0, -4.0])
SAMPLES = [
    Sample(),
    Sample(temperature=0.5),
    Sample(top_k=3),
    Sample(top_p=0.7),
    Sample(temperature=2, top_k=5, top_p=0.8),
    Sample(top_p=1, top_k=100),
]


def expected(logits: Logits, sample: Sample) -> Logits:
    """The probabilities of transformers' own sampling."""
    scores = torch.tensor(logits)[None]
    ids = torch.zeros(1, 1, dtype=torch.long)
    scores = TemperatureLogitsWarper(sample.temperature)(ids, scores)
    if sample.top_k is not None:
        scores = TopKLogitsWarper(sample.top_k)(ids, scores)
    if sample.top_p is not None and sample.top_p < 1:
        scores = TopPLogitsWarper(sample.top_p)(ids, scores)
    probabilities: Logits = scores.softmax(-1)[0].numpy()
    return probabilities


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_draws_have_the_probabilities_of_transformers_sampling(sample: Sample) -> None:
    count, want = 20_000, expected(LOGITS, sample)
    tokens = [draw(LOGITS, sample, noise(seed, 3, len(LOGITS)), 1e-9)[0] for seed in range(count)]
    shares = np.bincount(tokens, minlength=len(LOGITS)) / count
    assert not shares[want == 0].any()
    error = np.sqrt(want * (1 - want) / count)
    assert (np.abs(shares - want) <= 4.5 * error).all()


@given(
    st.lists(st.floats(-20, 20), min_size=2, max_size=40),
    st.sampled_from(SAMPLES),
    st.integers(0, 2**64),
    st.integers(0, 2**32),
)
def test_a_certain_draw_does_not_change_with_rounding(
    values: list[float], sample: Sample, seed: int, other: int
) -> None:
    logits, slack = np.array(values), 1e-3
    random = noise(seed, 0, len(logits))
    token, certain = draw(logits, sample, random, slack)
    assert expected(logits, sample)[token] > 0 or not certain
    if certain:
        moved = logits + np.random.default_rng(other).uniform(-slack / 2, slack / 2, len(logits))
        assert draw(moved, sample, random, slack)[0] == token


@pytest.mark.parametrize("sample", SAMPLES, ids=str)
def test_nearly_all_draws_are_certain_where_nothing_is_close(sample: Sample) -> None:
    certain = [draw(LOGITS, sample, noise(seed, 0, len(LOGITS)), 1e-6)[1] for seed in range(500)]
    assert sum(certain) > 495


def test_ties_are_never_certain() -> None:
    tied = torch.tensor([[1.0, 3.0, 3.0]])
    assert Greedy().choose(tied, [0], 0, [1e-6])[0][1] is False
    assert Drawn(Sample(top_k=1), [5]).choose(tied, [0], 0, [1e-6])[0][1] is False


def test_one_candidate_is_the_likeliest() -> None:
    rows = torch.tensor(np.random.default_rng(0).normal(size=(50, 97)))
    greedy = Greedy().choose(rows, range(50), 0, [1e-6] * 50)
    assert Drawn(Sample(top_k=1), range(50)).choose(rows, range(50), 0, [1e-6] * 50) == greedy
    assert Drawn(Sample(top_p=1e-9), range(50)).choose(rows, range(50), 0, [1e-6] * 50) == greedy
    assert [token for token, _ in greedy] == rows.argmax(-1).tolist()


def test_without_limits_every_token_may_be_drawn() -> None:
    assert limits(LOGITS, Sample(), 0.1) == (-np.inf, -np.inf, -np.inf)


def test_steps_and_seeds_have_noise_of_their_own_that_is_the_same_each_time() -> None:
    first = noise(2**100, 0, 50)
    np.testing.assert_array_equal(first, noise(2**100, 0, 50))
    for other in (noise(2**100, 1, 50), noise(2**100 + 1, 0, 50)):
        assert abs(np.corrcoef(first, other)[0, 1]) < 0.6
