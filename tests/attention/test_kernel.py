"""The blocked backend, on any sizes: rows sum to one, and neither blocks, batch nor threads change the numbers."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from attnscope.attention import workers
from attnscope.attention.ask import Ask
from attnscope.attention.backends import Result, blocks
from attnscope.attention.backends.blocked import BLOCKED
from attnscope.attention.backends.reference import REFERENCE
from attnscope.attention.call import Call
from attnscope.attention.uniform import view_numbers
from attnscope.attention.view import View, look
from attnscope.measures import MEASURES
from tests.tolerances import NATS, ONE_LAYER, softmaxes

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


EVERY = tuple(MEASURES.members[name] for name in ("received", "entropy", "top1", "distance", "concentration"))


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    weights: Tensor,
    *,
    seen: Tensor | None = None,
    block: int | None = None,
    scale: float = 0.3,
    names: tuple[str, ...] = ("received",),
    open_view: bool = False,
    **more: Any,
) -> tuple[Result, View, Ask]:
    """The blocked backend's result; without `seen`, every query sees itself and what is before it."""
    values = key if value is None else value
    call = Call(query, key, values, seen, seen is None and not open_view, scale, **more)
    rows = torch.arange(query.shape[2])
    view = look(call, rows, block=block)
    ask = Ask(weights, rows, value is not None, tuple(MEASURES.members[name] for name in names))
    return BLOCKED.attend(call, view, ask), view, ask


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
    with mock.patch.object(torch, "get_num_threads", return_value=threads):  # rows are cut so that all have some
        result, _, _ = attend(query, key, value, weights, block=block)
    received, output = plainly(query, key, value, weights, causal(length), 0.3)
    got_received = result.values["received"]
    torch.testing.assert_close(got_received.sum(-1), torch.ones(got_received.shape[:-1]), atol=ONE_LAYER, rtol=0)
    largest = 0.3 * float(query.norm(dim=-1).max() * key.norm(dim=-1).max())
    limit = softmaxes(largest)
    torch.testing.assert_close(got_received.double(), received, atol=limit, rtol=0)
    got = result.output
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
    result, _, _ = attend(query, key, value, weights, seen=seen, block=block)
    received, output = plainly(query, key, value, weights, seen, 0.3)
    torch.testing.assert_close(result.values["received"].double(), received, atol=ONE_LAYER, rtol=0)
    sighted = seen.any(-1).expand(batch, kv_heads * group, length).transpose(1, 2)
    got = result.output
    assert got is not None
    assert got.isfinite().all()
    torch.testing.assert_close(
        got[sighted].double(), output[sighted], atol=ONE_LAYER * max(1.0, float(value.abs().max())), rtol=0
    )


@settings(deadline=None, max_examples=40)
@given(sizes=SIZES, seed=st.integers(0, 99), block=st.integers(1, 17))
def test_uniform_attention_is_what_a_query_of_zeros_gives(
    sizes: tuple[int, int, int, int, int], seed: int, block: int
) -> None:
    batch, _, _, length, _ = sizes
    query, key, _, weights = tensors(sizes, seed, 1.0)
    seen = torch.rand(batch, 1, length, length, generator=torch.Generator().manual_seed(seed)) < 0.5
    weights = weights * seen.any(-1)
    names = ("received", "entropy", "distance", "concentration")
    result, view, ask = attend(torch.zeros_like(query), key, None, weights, seen=seen, block=block, names=names)
    numbers = view_numbers(view, ask, length)
    for name in names:
        limit = (NATS if name == "entropy" else length) * ONE_LAYER
        got = numbers[f"{name}.uniform"][:, :1]
        torch.testing.assert_close(got, result.values[name][:, :1].to(got.dtype), atol=limit, rtol=0)


@settings(deadline=None, max_examples=40)
@given(sizes=SIZES, seed=st.integers(0, 99), block=st.integers(1, 17), amplitude=st.sampled_from([0.5, 4.0]))
def test_every_measure_is_what_its_reference_says_of_the_whole_matrix(
    sizes: tuple[int, int, int, int, int], seed: int, block: int, amplitude: float
) -> None:
    query, key, value, weights = tensors(sizes, seed, amplitude)
    names = tuple(each.name for each in EVERY)
    result, view, ask = attend(query, key, value, weights, block=block, names=names)
    whole = REFERENCE.attend(Call(query, key, value, None, True, 0.3), view, ask)
    largest = 0.3 * float(query.norm(dim=-1).max() * key.norm(dim=-1).max())
    for name in names:
        scale = sizes[3] if name == "distance" else NATS
        limit = scale * softmaxes(largest)
        torch.testing.assert_close(result.values[name], whole.values[name], atol=limit, rtol=0)
    assert result.output is not None
    assert whole.output is not None
    limit = softmaxes(largest) * max(1.0, float(value.abs().max()))
    torch.testing.assert_close(result.output, whole.output, atol=limit, rtol=0)


def big(length: int = 700, amplitude: float = 1.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return tensors((2, 2, 3, length, 8), 5, amplitude)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("amplitude", [1.0, 30.0])
@pytest.mark.parametrize("names", [("received",), ("received", "entropy")])
def test_a_crew_of_workers_finds_what_torchs_own_threads_find(
    amplitude: float, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    query, key, value, weights = big(amplitude=amplitude)
    alone, _, _ = attend(query, key, value, weights, block=64, names=names)
    monkeypatch.setattr(workers, "SHORT_PASS", 0)
    with torch_threads(3):
        crew, again = (attend(query, key, value, weights, block=64, names=names)[0] for _ in range(2))
    for name in names:
        assert torch.equal(crew.values[name], again.values[name])
        limit = NATS * ONE_LAYER if name == "entropy" else ONE_LAYER
        torch.testing.assert_close(alone.values[name], crew.values[name], atol=limit, rtol=0)
    torch.testing.assert_close(alone.output, crew.output, atol=NATS * ONE_LAYER, rtol=0)


def test_a_worker_that_fails_is_heard_of_and_threads_are_as_before() -> None:
    before = torch.get_num_threads()

    def fail(worker: int) -> None:
        raise ValueError(f"worker {worker}")

    with pytest.raises(ValueError, match="worker"):
        workers.run_workers(fail, 4, 2)
    assert torch.get_num_threads() == before


def test_a_worker_that_is_late_does_not_change_the_threads_of_what_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_pools", {})
    prepare, prepared = workers._prepare, []

    def late() -> None:
        prepared.append(1)
        time.sleep(0.2 * (len(prepared) - 1))
        prepare()

    monkeypatch.setattr(workers, "_prepare", late)
    found: list[int] = []
    with torch_threads(3):
        workers.run_workers(lambda _: None, 4, 2)
        time.sleep(0.3)
        thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
        thread.start()
        thread.join()
    assert found == [3]


def test_plain_python_and_compiled_loops_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value, weights = big(90)
    more: dict[str, Any] = {"softcap": 5.0, "sinks": torch.linspace(-1, 1, 6)}
    assert blocks.compiled()[1] is None, "TorchScript refuses the loop"
    fast, _, _ = attend(query, key, value, weights, block=32, **more)
    monkeypatch.setattr(blocks, "compiled", lambda: (blocks.run_tasks, "not tried"))
    slow, _, _ = attend(query, key, value, weights, block=32, **more)
    torch.testing.assert_close(fast.values["received"], slow.values["received"])
    torch.testing.assert_close(fast.output, slow.output)


def test_a_loop_that_can_not_be_compiled_is_reported_and_runs_as_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_function: object) -> None:
        raise RuntimeError("no TorchScript here")

    blocks.compiled.cache_clear()
    monkeypatch.setattr(torch.jit, "script", refuse)
    try:
        loop, reason = blocks.compiled()
        assert loop is blocks.run_tasks
        assert reason == "RuntimeError: no TorchScript here"
    finally:
        blocks.compiled.cache_clear()


def test_known_answers_uniform_and_one_key() -> None:
    weights = torch.full((1, 1, 6), 1 / 6)
    names = ("received", "entropy", "top1", "distance", "concentration")
    query, key = torch.zeros(1, 1, 6, 4), torch.randn(1, 1, 6, 4)
    flat = attend(query, key, None, weights, scale=1.0, names=names, open_view=True, block=4)[0].values
    torch.testing.assert_close(flat["received"], torch.full((1, 1, 1, 6), 1 / 6))
    torch.testing.assert_close(flat["entropy"], torch.full((1, 1, 1), 6.0).log())
    torch.testing.assert_close(flat["concentration"], torch.full((1, 1, 1), 1 / 6))
    torch.testing.assert_close(flat["distance"], torch.full((1, 1, 1), 70 / 36))  # of all |q - k| among 6
    key = torch.zeros(1, 1, 6, 4)
    key[0, 0, 2, 0] = 1000.0
    sharp = attend(torch.ones(1, 1, 6, 4), key, None, weights, scale=1.0, names=names, open_view=True)[0].values
    torch.testing.assert_close(sharp["received"][0, 0, 0], torch.eye(6)[2])
    torch.testing.assert_close(sharp["top1"][0, 0, 0], torch.eye(6)[2])
    torch.testing.assert_close(sharp["entropy"], torch.zeros(1, 1, 1))
    torch.testing.assert_close(sharp["concentration"], torch.ones(1, 1, 1))
    torch.testing.assert_close(sharp["distance"], torch.full((1, 1, 1), (2 + 1 + 0 + 1 + 2 + 3) / 6))


@settings(deadline=None, max_examples=40)
@given(
    sizes=SIZES,
    seed=st.integers(0, 99),
    block=st.integers(1, 17),
    groups=st.integers(8, 40),
    names=st.sampled_from([("received",), ("received", "entropy", "top1")]),
)
def test_many_groups_that_have_few_rows_each_are_what_the_definition_says(
    sizes: tuple[int, int, int, int, int], seed: int, block: int, groups: int, names: tuple[str, ...]
) -> None:
    query, key, value, _ = tensors(sizes, seed, 1.0)
    generator = torch.Generator().manual_seed(seed)
    of_rows = torch.randint(-1, groups, (sizes[0], sizes[3]), generator=generator)  # -1: in no group
    weights = (of_rows[:, None] == torch.arange(groups)[:, None]).float()
    weights[:, 3] += torch.rand(sizes[0], sizes[3], generator=generator)  # and one that has them all
    result, view, ask = attend(query, key, value, weights, block=block, names=names)
    received, _ = plainly(query, key, value, weights, causal(sizes[3]), 0.3)
    limit = softmaxes(0.3 * float(query.norm(dim=-1).max() * key.norm(dim=-1).max())) * sizes[3]
    torch.testing.assert_close(result.values["received"].double(), received, atol=limit, rtol=0)
    whole = REFERENCE.attend(Call(query, key, value, None, True, 0.3), view, ask)
    for name in names:
        torch.testing.assert_close(result.values[name], whole.values[name], atol=NATS * limit, rtol=0)
