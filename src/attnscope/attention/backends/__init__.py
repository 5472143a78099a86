"""Backends: ways to compute one attention call. Each module here defines one; a plugin can add others.

Which one computes a call is a pure function of the call, the view and what is asked: the supporting backend with the
highest priority. Whatever is chosen is compared with the model's own eager attention before its first reading.
"""

from __future__ import annotations

from attnscope.attention.ask import Ask
from attnscope.attention.backends.backend import Backend, Result
from attnscope.attention.call import AnyCall
from attnscope.attention.view import View
from attnscope.errors import AttnscopeError
from attnscope.registry import Registry

BACKENDS: Registry[Backend] = Registry(
    "backend",
    package="attnscope.attention.backends",
    group="attnscope.backends",
    is_member=lambda thing: isinstance(thing, Backend) and type(thing) is not Backend,
)

__all__ = ["BACKENDS", "Backend", "Result", "choose"]


def choose(call: AnyCall, view: View, ask: Ask) -> Backend:
    """The backend for a call."""
    reasons = {}
    for backend in sorted(BACKENDS.members.values(), key=lambda each: (-each.priority, each.name)):
        reason = backend.unsupported(call, view, ask)
        if reason is None:
            return backend
        reasons[backend.name] = reason
    raise AttnscopeError(
        "no backend can compute this attention call",
        where=view.kind,
        allowed="; ".join(f"{name}: {reason}" for name, reason in reasons.items()),
        todo="measure other layers, or another model",
    )
