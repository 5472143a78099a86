"""A backend: the full matrix, for short prompts."""

from __future__ import annotations

from attnscope.attention.ask import Ask
from attnscope.attention.backends import BACKENDS, Backend, Result
from attnscope.attention.call import AnyCall
from attnscope.attention.view import View

MOST = 64  # keys


class Careful(Backend):
    """Leaves the work to the reference, and takes it on only where the matrix is small."""

    name = "careful"
    priority = 100

    def unsupported(self, call: AnyCall, view: View, ask: Ask) -> str | None:
        if call.keys > MOST:
            return f"more than {MOST} keys"
        return BACKENDS.built_in["reference"].unsupported(call, view, ask)

    def attend(self, call: AnyCall, view: View, ask: Ask) -> Result:
        return BACKENDS.built_in["reference"].attend(call, view, ask)


CAREFUL = Careful()
