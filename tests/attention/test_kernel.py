"""The kernel, on any sizes: rows sum to one, and neither blocks, batch nor threads change what is found."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attnscope.attention import walk, workers
from attnscope.attention.kernel import attend
from attnscope.attention.visibility import Plan, causal_plan, mask_plan, open_plan, uniform_gaze
from tests.tolerances import NATS, ONE_LAYER, SUMMED, softmaxes

SIZES = st.tuples(
    st.integers(1, 3),  # batch
    st.integers(1, 3),  # kv heads
    st.integers(1, 3),  # query heads to a kv head
    st.integers(1, 40),  # length
    st.sampled_from([4, 8]),  # width
)


def tensors(
    sizes: tuple[int, int, int, int, int], seed: int, amplitude: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, kv_heads, group, length, width = sizes
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float32)

    query = amplitude * normal(batch, kv_heads * group, length, width)
    weights = torch.rand(batch, 2, length, generator=generator)
    return (
        query,
        amplitude * normal(batch, kv_heads, length, width),
        normal(batch, kv_heads, length, width + 2),
        weights / weights.sum(-1, keepdim=True),
    )


def plainly(
    query: Tensor, key: Tensor, value: Tensor, weights: Tensor, seen: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Received and output by the definition, in float64."""
    repeats = query.shape[1] // key.shape[1]
    key, value = (each.repeat_interleave(repeats, 1).double() for each in (key, value))
    scores = (query.double() @ key.transpose(-1, -2)) * scale
    attention = scores.masked_fill(~seen, float("-inf")).softmax(-1).nan_to_num()
    return weights.double()[:, None] @ attention, (attention @ value).transpose(1, 2)


def causal(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).tril()


def plans_for(seen: Tensor, block: int, batch: int) -> list[Plan]:
    rows = torch.arange(seen.shape[-2])
    return [mask_plan(seen[b if len(seen) > 1 else 0], rows, dtype=torch.float32, block=block) for b in range(batch)]


@settings(deadline=None, max_examples=60)
@given(
    sizes=SIZES,
    seed=st.integers(0, 99),
    block=st.integers(1, 17),
    amplitude=st.sampled_from([0.5, 2.0, 12.0]),
    threads=st.integers(1, 4),
)
def test_rows_sum_to_one_and_match_the_definition(
    sizes: tuple[int, int, int, int, int], seed: int, block: int, amplitude: float, threads: int
) -> None:
    query, key, value, weights = tensors(sizes, seed, amplitude)
    length = sizes[3]
    plan = causal_plan(torch.arange(length), length, dtype=torch.float32, block=block)
    with mock.patch.object(torch, "get_num_threads", return_value=threads):  # rows are cut so that all have some
        gaze = attend(query, key, value, plans=[plan] * sizes[0], weights=weights, scale=0.3)
    received, output = plainly(query, key, value, weights, causal(length), 0.3)
    torch.testing.assert_close(gaze.received.sum(-1), torch.ones(gaze.received.shape[:-1]), atol=ONE_LAYER, rtol=0)
    largest = 0.3 * float(query.norm(dim=-1).max() * key.norm(dim=-1).max())
    limit = softmaxes(largest)
    torch.testing.assert_close(gaze.received.double(), received, atol=limit, rtol=0)
    got = gaze.output
    assert got is not None
    torch.testing.assert_close(got.double(), output, atol=limit * max(1.0, float(value.abs().max())), rtol=0)


@settings(deadline=None, max_examples=60)
@given(sizes=SIZES, seed=st.integers(0, 99), block=st.integers(1, 17), per_head=st.booleans())
def test_any_mask_is_honoured_and_a_row_that_sees_nothing_does_no_harm(
    sizes: tuple[int, int, int, int, int], seed: int, block: int, per_head: bool
) -> None:
    batch, kv_heads, group, length, _ = sizes
    query, key, value, weights = tensors(sizes, seed, 1.0)
    generator = torch.Generator().manual_seed(seed)
    heads = kv_heads * group if per_head else 1
    seen = torch.rand(batch, heads, length, length, generator=generator) < 0.4
    weights = weights * seen.any(-1).all(1)[:, None]  # no group looks through a blind row
    gaze = attend(query, key, value, plans=plans_for(seen, block, batch), weights=weights, scale=0.3)
    received, output = plainly(query, key, value, weights, seen, 0.3)
    torch.testing.assert_close(gaze.received.double(), received, atol=ONE_LAYER, rtol=0)
    sighted = seen.any(-1).expand(batch, kv_heads * group, length).transpose(1, 2)
    got = gaze.output
    assert got is not None
    assert got.isfinite().all()
    torch.testing.assert_close(
        got[sighted].double(), output[sighted], atol=ONE_LAYER * max(1.0, float(value.abs().max())), rtol=0
    )


@settings(deadline=None, max_examples=40)
@given(sizes=SIZES, seed=st.integers(0, 99), block=st.integers(1, 17))
def test_uniform_gaze_is_what_a_query_of_zeros_gives(
    sizes: tuple[int, int, int, int, int], seed: int, block: int
) -> None:
    batch, _, _, length, _ = sizes
    query, key, _, weights = tensors(sizes, seed, 1.0)
    seen = torch.rand(batch, 1, length, length, generator=torch.Generator().manual_seed(seed)) < 0.5
    weights = weights * seen.any(-1)
    plans = plans_for(seen, block, batch)
    gaze = attend(torch.zeros_like(query), key, None, plans=plans, weights=weights, scale=1.0)
    for prompt, plan in enumerate(plans):
        found = uniform_gaze(plan, weights[prompt], length)
        torch.testing.assert_close(found, gaze.received[prompt, :1], atol=SUMMED, rtol=0)


def big(length: int = 700, amplitude: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return tensors((2, 2, 3, length, 8), 5, amplitude)


@pytest.mark.parametrize("amplitude", [1.0, 30.0])
def test_a_crew_of_workers_finds_what_torchs_own_threads_find(
    amplitude: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, key, value, weights = big(amplitude=amplitude)
    plans = [causal_plan(torch.arange(700), 700, dtype=torch.float32, block=64)] * 2
    alone = attend(query, key, value, plans=plans, weights=weights, scale=0.3, entropy=True)
    monkeypatch.setattr(workers, "SHORT_PASS", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    crew = attend(query, key, value, plans=plans, weights=weights, scale=0.3, entropy=True)
    again = attend(query, key, value, plans=plans, weights=weights, scale=0.3, entropy=True)
    assert torch.equal(crew.received, again.received)
    torch.testing.assert_close(alone.received, crew.received, atol=ONE_LAYER, rtol=0)
    torch.testing.assert_close(alone.output, crew.output, atol=NATS * ONE_LAYER, rtol=0)
    torch.testing.assert_close(alone.entropy, crew.entropy, atol=NATS * ONE_LAYER, rtol=0)


def test_a_worker_that_fails_is_heard_of_and_threads_are_as_before() -> None:
    before = torch.get_num_threads()

    def fail(worker: int) -> None:
        raise ValueError(f"worker {worker}")

    with pytest.raises(ValueError, match="worker"):
        workers.run_workers(fail, 2)
    assert torch.get_num_threads() == before


def test_plain_python_and_compiled_loops_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value, weights = big(90)
    plans = [causal_plan(torch.arange(90), 90, dtype=torch.float32, block=32)] * 2
    options: dict[str, Any] = {"plans": plans, "weights": weights, "scale": 0.3, "entropy": True}
    options |= {"softcap": 5.0, "sinks": torch.linspace(-1, 1, 6)}
    fast = attend(query, key, value, **options)
    monkeypatch.setattr("attnscope.attention.kernel.compiled", lambda: walk.walk)
    slow = attend(query, key, value, **options)
    torch.testing.assert_close(fast.received, slow.received)
    torch.testing.assert_close(fast.output, slow.output)
    torch.testing.assert_close(fast.entropy, slow.entropy)
    assert not isinstance(walk.compiled(), type(walk.walk))


def test_known_answers_uniform_and_one_key() -> None:
    plan = open_plan(torch.arange(6), 6, block=4)
    weights = torch.full((1, 1, 6), 1 / 6)
    flat = attend(
        torch.zeros(1, 1, 6, 4), torch.randn(1, 1, 6, 4), None, plans=[plan], weights=weights, scale=1.0, entropy=True
    )
    torch.testing.assert_close(flat.received, torch.full((1, 1, 1, 6), 1 / 6))
    torch.testing.assert_close(flat.entropy, torch.full((1, 1, 1), 6.0).log())
    key = torch.zeros(1, 1, 6, 4)
    key[0, 0, 2, 0] = 1000.0
    sharp = attend(torch.ones(1, 1, 6, 4), key, None, plans=[plan], weights=weights, scale=1.0, entropy=True)
    torch.testing.assert_close(sharp.received[0, 0, 0], torch.eye(6)[2])
    torch.testing.assert_close(sharp.entropy, torch.zeros(1, 1, 1))
