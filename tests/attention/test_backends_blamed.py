"""What a backend does wrong is said of the backend, or shown by the proof; never of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import transformers as tf

import attnscope
from attnscope import AttnscopeError, Lens
from attnscope.attention.backends import BACKENDS, Backend, Result
from attnscope.errors import NoRoomError, PluginError
from tests.attention.test_proof import SIZES, lens_on, llama, sharp, some_ids

IDS = some_ids(40)


def computed(call: Any, view: Any, ask: Any) -> Result:
    """What the built-in backends make of a call."""
    ranked = sorted(BACKENDS.built_in.values(), key=lambda each: -each.priority)
    return next(each for each in ranked if each.unsupported(call, view, ask) is None).attend(call, view, ask)


class Odd(Backend):
    """A backend of a package: it supports everything, comes first and is right, unless told otherwise."""

    name = "odd"
    priority: Any = 1000

    def __init__(self, *, attend: Callable[..., Any] = computed, unsupported: Callable[..., Any] = lambda *_: None):
        self._attend, self._unsupported = attend, unsupported

    def unsupported(self, *given: Any) -> Any:
        return self._unsupported(*given)

    def attend(self, *given: Any) -> Any:
        return self._attend(*given)


Install = Callable[..., Odd]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    def put(**parts: Any) -> Odd:
        odd = Odd(**parts)
        monkeypatch.setitem(BACKENDS.members, "odd", odd)
        return odd

    return put


@pytest.fixture
def lens() -> Lens:
    return lens_on(llama())


def stop(*_: Any) -> None:
    raise SystemExit(0)


def changed(**parts: Callable[[Result], Any]) -> Callable[..., Result]:
    """A backend's attend: the right result, with some of its parts replaced."""

    def attend(*given: Any) -> Result:
        result = computed(*given)
        return replace(result, **{name: part(result) for name, part in parts.items()})

    return attend


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unsupported raises": ({"unsupported": lambda *_: 1 // 0}, "fails with ZeroDivisionError.*its unsupported"),
    "unsupported exits": ({"unsupported": stop}, "fails with SystemExit.*its unsupported"),
    "unsupported is True": ({"unsupported": lambda *_: True}, "returns True.*its unsupported"),
    "unsupported is False": ({"unsupported": lambda *_: False}, "returns False.*its unsupported"),
    "unsupported is 0": ({"unsupported": lambda *_: 0}, "returns 0.*its unsupported"),
    "unsupported is empty": ({"unsupported": lambda *_: ""}, "returns ''.*its unsupported"),
    "attend raises": ({"attend": lambda *_: 1 // 0}, "fails with ZeroDivisionError.*its attend"),
    "attend exits": ({"attend": stop}, "fails with SystemExit.*its attend"),
    "no result": ({"attend": lambda *_: None}, "returns None.*its attend.*a Result"),
    "no values": ({"attend": changed(values=lambda _: {})}, "returns values of nothing.*values of received"),
    "values as a list": ({"attend": changed(values=lambda _: ["received"])}, "fails with TypeError.*its attend"),
    "one value more": (
        {"attend": changed(values=lambda result: {**result.values, "more": result.values["received"]})},
        "returns values of more, received.*its attend",
    ),
    "not a tensor": (
        {"attend": changed(values=lambda result: {"received": result.values["received"].tolist()})},
        "returns a list.*its attend: received",
    ),
    "one head": (
        {"attend": changed(values=lambda result: {"received": result.values["received"][:, :1]})},
        r"returns a tensor of shape \(1, 1, .*its attend: received.*a tensor of shape \(1, 4, ",
    ),
    "no output": ({"attend": changed(output=lambda _: None)}, "returns a NoneType.*its attend: output"),
    "output by heads": (
        {"attend": changed(output=lambda result: None if result.output is None else result.output.transpose(1, 2))},
        "returns a tensor of shape.*its attend: output",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_of_a_backend_is_named_as_its_own(name: str, lens: Lens, install: Install) -> None:
    parts, words = WRONG[name]
    install(**parts)
    with pytest.raises(PluginError, match=f"^the backend 'odd' .*{words}"):
        lens.measure_tokens(IDS, ["all"])
    with pytest.raises(PluginError, match=r"^the backend 'odd' "), attnscope.record(lens.model, queries="all"):
        lens.model(input_ids=torch.tensor([IDS]))


@pytest.mark.parametrize("priority", [None, True, "high", 1.5])
def test_a_priority_that_is_no_whole_number_is_the_backends_mistake(
    priority: Any, lens: Lens, install: Install
) -> None:
    install().priority = priority
    with pytest.raises(PluginError, match=r"^the backend 'odd' has the priority .*its priority.*a whole number"):
        lens.measure_tokens(IDS)


def test_an_output_that_nobody_asked_for_is_refused(lens: Lens, install: Install) -> None:
    lens.measure_tokens(IDS)
    unasked = changed(output=lambda result: torch.zeros(1) if result.output is None else result.output)
    install(attend=unasked)
    with pytest.raises(PluginError, match=r"the backend 'odd' returns an output .*None where none was asked for"):
        lens.measure_tokens(IDS)


def test_memory_that_runs_out_and_refusals_are_not_the_backends_mistake(lens: Lens, install: Install) -> None:
    def full(*_: Any) -> None:
        raise MemoryError

    def refuse(*_: Any) -> None:
        raise AttnscopeError("no", where="here", allowed="nothing", todo="stop")

    odd = install()
    lens.measure_tokens(IDS, "all")
    odd._attend = full
    with pytest.raises(NoRoomError, match="not enough memory"):
        lens.measure_tokens(IDS, "all")
    odd._attend = refuse
    with pytest.raises(AttnscopeError, match=r"^no \(here\)"):
        lens.measure_tokens(IDS, "all")


def test_a_backend_that_fails_beside_the_layers_that_are_read_is_named(install: Install) -> None:
    """Where a softcap or sinks keep torch's own attention from computing the output, a backend does."""
    config = tf.Gemma2Config(**SIZES, attn_logit_softcapping=5.0)
    lens = lens_on(sharp(tf.Gemma2ForCausalLM(config)))
    lens.measure_tokens(IDS, "all", layers=[1])

    def attend(call: Any, view: Any, ask: Any) -> Result:
        return computed(call, view, ask) if ask.measures else 1 // 0  # type: ignore[return-value]

    install(attend=attend)
    with pytest.raises(PluginError, match="the backend 'odd' fails with ZeroDivisionError"):
        lens.measure_tokens(IDS, "all", layers=[1])


def uniform(call: Any, view: Any, ask: Any) -> Result:
    """Every key receives the same, whatever the model attends to."""
    result = computed(call, view, ask)
    return replace(result, values={name: torch.full_like(each, 1 / call.keys) for name, each in result.values.items()})


def halved(*given: Any) -> Result:
    result = computed(*given)
    return replace(result, values={name: each / 2 for name, each in result.values.items()})


@pytest.mark.parametrize("queries", ["last", "all"])
@pytest.mark.parametrize("wrong", [uniform, halved])
def test_a_backend_that_is_wrong_is_not_compared_with_itself(
    wrong: Any, queries: str, lens: Lens, install: Install
) -> None:
    install(attend=wrong)
    with pytest.raises(AttnscopeError, match=r"the backend 'odd' is .* off eager attention"):
        lens.measure_tokens(IDS, queries)


@pytest.mark.parametrize("wrong", [uniform, halved])
def test_weights_that_a_model_made_itself_go_to_no_backend_of_a_package(wrong: Any, install: Install) -> None:
    sizes = {key: SIZES[key] for key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")}
    lens = lens_on(sharp(tf.FalconForCausalLM(tf.FalconConfig(**sizes))))
    want = lens.measure_tokens(IDS, "all")
    assert set(want.evidence["check"]["backends"].values()) == {"reference"}
    install(attend=wrong)
    again = lens_on(lens.model).measure_tokens(IDS, "all")
    assert (again.received.values == want.received.values).all()
    assert again.evidence["check"]["backends"] == want.evidence["check"]["backends"]


def test_an_output_that_is_wrong_in_the_last_layer_alone_is_noticed(lens: Lens, install: Install) -> None:
    calls: list[int] = []
    layers = lens.model.config.num_hidden_layers

    def attend(*given: Any) -> Result:
        calls.append(1)
        result = computed(*given)
        last = len(calls) % layers == 0
        return replace(result, output=result.output * 2) if last and result.output is not None else result

    install(attend=attend)
    with pytest.raises(PluginError, match=r"the backend 'odd' has an output with which .* ends"):
        lens.log_probs("He moves", " on")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda values: values.long(), r"returns torch\.int64"),
        (lambda values: values.to_sparse(), "sparse"),
        (lambda values: values.clone().requires_grad_(), "with gradients"),
        (lambda values: values.to("meta"), "on meta"),
    ],
)
def test_values_of_another_kind_are_the_backends_mistake(
    change: Callable[[Any], Any], words: str, lens: Lens, install: Install
) -> None:
    def attend(*given: Any) -> Result:
        result = computed(*given)
        with torch.inference_mode(False):
            return replace(result, values={name: change(each.clone()) for name, each in result.values.items()})

    install(attend=attend)
    with pytest.raises(PluginError, match=f"the backend 'odd' returns .*{words}|{words}"):
        lens.measure_tokens(IDS, "all")
