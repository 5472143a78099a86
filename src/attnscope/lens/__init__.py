"""The public face of one model: a lens that measures it, and a recording of other code that runs it."""

from __future__ import annotations

from attnscope.lens.answer import Answer
from attnscope.lens.lens import Lens, load
from attnscope.lens.loader import Loader
from attnscope.lens.recorded import record

__all__ = ["Answer", "Lens", "Loader", "load", "record"]
