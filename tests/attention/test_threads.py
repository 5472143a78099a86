"""Threads: those that share a model take turns, and it stays what it was."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

import attnscope
from tests.attention import architectures


def together(works: list[Callable[[], None]]) -> list[BaseException]:
    """Run them at the same time; what they raised."""
    raised: list[BaseException] = []

    def safely(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=safely, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread waits for a turn that never comes"
    return raised


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_threads_that_record_the_same_model_leave_it_as_it_was(dtype: torch.dtype) -> None:
    model: Any = copy.deepcopy(architectures.tiny("llama"))
    model.to(dtype)
    ids = torch.randint(3, architectures.VOCAB, (2, 12), generator=torch.Generator().manual_seed(1))
    alone = model(ids).logits
    tensors = {name: (id(each), each.dtype) for name, each in [*model.named_parameters(), *model.named_buffers()]}
    steps: list[int] = []

    def work() -> None:
        for _ in range(3):
            with attnscope.record(model) as record, torch.no_grad():
                assert torch.equal(model(ids).logits, alone)
            steps.append(len(record))

    assert together([work] * 3) == []
    assert len(steps) == 9
    assert min(steps) >= 1  # a recording hears every thread
    after = {name: (id(each), each.dtype) for name, each in [*model.named_parameters(), *model.named_buffers()]}
    assert after == tensors
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in model.modules())


def test_a_forward_that_fails_gives_its_turn_to_the_next_thread() -> None:
    model, ids = architectures.tiny("llama"), torch.arange(3, 15)[None]

    def failing() -> None:
        for _ in range(5):
            with pytest.raises(IndexError), attnscope.record(model):
                model(torch.full((1, 4), 10**6))

    def working() -> None:
        for _ in range(5):
            with attnscope.record(model) as record:
                model(ids)
            assert len(record) >= 1

    assert together([failing, working]) == []
