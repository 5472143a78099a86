"""Threads: those that share a model take turns, and it stays what it was."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import transformers as tf

import attnscope
from tests.attention import architectures, reference
from tests.attention.running import NEW, hooks, prompt, written
from tests.models import tiny
from tests.tolerances import LOGITS, SHALLOW


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
    before = hooks(model)
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
    assert hooks(model) == before


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


def test_two_threads_with_two_models_do_not_see_each_other() -> None:
    models = [architectures.tiny("llama"), architectures.tiny("qwen2")]
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(4):
                with attnscope.record(models[number], queries=["last", "all"]) as record:
                    whole = written(models[number], prompt(1, 10 + number, seed=turn))
                assert len(record) == NEW
                rows = reference.eager(models[number], {"input_ids": whole}).attentions[2][0, :, -2]
                got = record.received[-1].at(prompt=0, layer=2, queries="last").values
                np.testing.assert_allclose(got, rows[:, : got.shape[-1]], atol=SHALLOW)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_a_model_that_another_thread_runs_is_recorded() -> None:
    model = architectures.tiny("llama")
    with attnscope.record(model) as record:  # as with a streamer that yields text while generate runs elsewhere
        thread = threading.Thread(target=written, args=(model, prompt()))
        thread.start()
        thread.join()
    assert len(record) == NEW


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_a_lens_in_one_thread_leaves_the_forwards_of_another_alone(implementation: str) -> None:
    config = tf.LlamaConfig(**{**architectures.GROUPED, "vocab_size": len(tiny.VOCABULARY)})
    model: Any = tf.LlamaForCausalLM._from_config(config, attn_implementation=implementation).eval()
    ids = prompt(1, 37)
    lens = attnscope.Lens(model, tiny.tokenizer())
    stop, failures = threading.Event(), []
    with torch.no_grad():
        want = model(ids).logits

    def forwards() -> None:
        while not stop.is_set():
            try:
                with torch.no_grad():
                    torch.testing.assert_close(model(ids).logits, want, atol=LOGITS, rtol=0)
                    if implementation == "eager":
                        assert len(model(ids, output_attentions=True).attentions) == 3
            except Exception as error:
                failures.append(error)

    # once: the proof works on the model's own weights in a wider format
    expected = lens.measure_tokens(list(range(5, 20)), layers=[0], queries="all").received.values
    thread = threading.Thread(target=forwards)
    thread.start()
    try:
        for _ in range(30):
            again = lens.measure_tokens(list(range(5, 20)), layers=[0], queries="all").received.values
            np.testing.assert_array_equal(again, expected)
    finally:
        stop.set()
        thread.join()
    assert not failures, failures[0]


def test_a_forward_that_ends_with_its_thread_gives_its_turn_away() -> None:
    model, ids = architectures.tiny("llama"), prompt()

    def leave(*_given: Any) -> None:
        raise SystemExit

    with attnscope.record(model) as record:
        handle = model.model.layers[1].register_forward_hook(leave)
        thread = threading.Thread(target=lambda: model(ids))
        thread.start()
        thread.join()
        handle.remove()
        model(ids)
    assert len(record) == 1


def test_steps_after_an_interrupt_are_recorded() -> None:
    model, ids = architectures.tiny("llama"), prompt()

    def interrupt(*_given: Any) -> None:
        raise KeyboardInterrupt

    with attnscope.record(model) as record:
        handle = model.model.layers[1].register_forward_hook(interrupt)
        with pytest.raises(KeyboardInterrupt):
            model(ids)
        handle.remove()
        model(ids)
        model(ids)
        assert together([lambda: model(ids)]) == []
    assert len(record) == 3
