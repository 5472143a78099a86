"""What a backend promises."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from attnscope.attention.ask import Ask
from attnscope.attention.call import AnyCall
from attnscope.attention.view import View


@dataclass(frozen=True)
class Result:
    """What a backend computed of one call."""

    values: dict[str, Tensor]
    """By measure: (B, H, m) or, for measures with one number per key, (B, H, m, Sk)."""
    output: Tensor | None
    """(B, Sq, H, Dv), the layout transformers wants; None if it was not asked for."""


class Backend:
    """Computes attention for one call. Subclass it, set `name` and `priority`, and define one instance in a module."""

    name: str
    priority: int = 0
    """Of the backends that support a call, the one with the highest priority computes it."""

    def unsupported(self, call: AnyCall, view: View, ask: Ask) -> str | None:
        """Why this backend can't compute the call; None if it can. Depends on nothing else."""
        raise NotImplementedError

    def attend(self, call: AnyCall, view: View, ask: Ask) -> Result:
        """The output of all queries if `ask.output`, and every measure of the rows in `ask.rows`."""
        raise NotImplementedError
