"""Backends: ways to compute one attention call. Each module here defines one; a plugin can add others.

Which one computes a call is a pure function of the call, the view and what is asked: the supporting backend with the
highest priority. Whatever is chosen is compared with the model's own eager attention before its first reading; weights
that the model made itself are therefore the reference's alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from reprlib import repr as short
from typing import Any

import torch
from torch import Tensor

from attnscope.attention.ask import Ask
from attnscope.attention.backends.backend import Backend, Result
from attnscope.attention.backends.reference import REFERENCE
from attnscope.attention.blame import shaped
from attnscope.attention.call import AnyCall, Call, MatrixCall
from attnscope.attention.view import View
from attnscope.errors import AttnscopeError
from attnscope.measures import KEY
from attnscope.models.memory import is_out_of_memory
from attnscope.registry import Registry

BACKENDS: Registry[Backend] = Registry(
    "backend",
    package="attnscope.attention.backends",
    group="attnscope.backends",
    is_member=lambda thing: isinstance(thing, Backend) and type(thing) is not Backend,
)

__all__ = ["BACKENDS", "Backend", "Result", "attend", "choose"]


def choose(call: AnyCall, view: View, ask: Ask) -> Backend:
    """The backend for a call."""
    reasons = {}
    for backend in [REFERENCE] if isinstance(call, MatrixCall) else _by_priority():
        with BACKENDS.blamed(backend.name, "unsupported", excused=is_out_of_memory):
            reason: Any = backend.unsupported(call, view, ask)
        if reason is None:
            return backend
        if not isinstance(reason, str) or not reason:
            allowed = "None, or why it can't compute the call"
            raise BACKENDS.mistake(backend.name, "unsupported", f"returns {short(reason)}", allowed)
        reasons[backend.name] = reason
    raise AttnscopeError(
        "no backend can compute this attention call",
        where=view.kind,
        allowed="; ".join(f"{name}: {reason}" for name, reason in reasons.items()),
        todo="measure other layers, or another model",
    )


def _by_priority() -> Sequence[Backend]:
    return sorted(BACKENDS.members.values(), key=lambda each: (-_priority(each), each.name))


def _priority(backend: Backend) -> int:
    with BACKENDS.blamed(backend.name, "priority"):
        priority: Any = backend.priority
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise BACKENDS.mistake(backend.name, "priority", f"has the priority {short(priority)}", "a whole number")
    return priority


def attend(backend: Backend, call: AnyCall, view: View, ask: Ask) -> Result:
    """What a backend computes of a call, if it is what was asked for. Whether it is right, the proof shows."""
    with BACKENDS.blamed(backend.name, "attend", excused=is_out_of_memory):
        result = backend.attend(call, view, ask)
        _refuse_unasked(backend.name, result, call, ask)
    return result


def _refuse_unasked(name: str, result: Any, call: AnyCall, ask: Ask) -> None:
    """By names and shapes."""
    if not isinstance(result, Result):
        raise BACKENDS.mistake(name, "attend", f"returns {short(result)}", "a Result")
    wanted = {each.name for each in ask.measures}
    if set(result.values) != wanted:
        what = f"returns values of {_listed(result.values)}"
        raise BACKENDS.mistake(name, "attend", what, f"values of {_listed(wanted)}")
    shape = (call.batch, call.heads, ask.groups)
    for each in ask.measures:
        size = torch.Size((*shape, call.keys) if each.axes == KEY else shape)
        _refuse_odd(
            name, each.name, shaped(BACKENDS, name, f"attend: {each.name}", result.values[each.name], size), call
        )
    if ask.output and isinstance(call, Call):
        size = torch.Size((call.batch, call.queries, call.heads, call.value.shape[-1]))
        output = shaped(BACKENDS, name, "attend: output", result.output, size)
        _refuse_odd(name, "output", output, call)
        if output.dtype != call.query.dtype:
            raise BACKENDS.mistake(
                name, "attend: output", f"returns {output.dtype}", f"{call.query.dtype}, as the queries"
            )
    elif result.output is not None:
        raise BACKENDS.mistake(name, "attend", "returns an output", "None where none was asked for")


def _refuse_odd(name: str, what: str, values: Tensor, call: AnyCall) -> None:
    odd = not values.is_floating_point() or values.layout != torch.strided or values.requires_grad
    if odd or values.device != call.device:
        kind = (
            f"{values.dtype}, {values.layout}, on {values.device}{', with gradients' if values.requires_grad else ''}"
        )
        allowed = f"floating-point numbers in a plain tensor on {call.device}, without gradients"
        raise BACKENDS.mistake(name, f"attend: {what}", f"returns {kind}", allowed)


def _listed(names: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, names))) or "nothing"
