"""attnscope measures where language models look.

    lens = attnscope.load("smollm2-135m-instruct")
    reading = lens.measure("Solve: ...", queries=["last", "all"], layers=[0, 16])
    reading.mass({"hash": "#", "star": "*"})

Importing this module loads no model library; `load` does.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from attnscope.errors import AttnscopeError

if TYPE_CHECKING:
    from attnscope.attention.reading import Reading
    from attnscope.lens import Lens, load
    from attnscope.notebook import Run
    from attnscope.studies import run_study

__all__ = ["AttnscopeError", "Lens", "Reading", "Run", "load", "run_study"]
__version__ = version("attnscope")


def __getattr__(name: str) -> Any:
    if name in ("Lens", "load"):
        from attnscope import lens

        return getattr(lens, name)
    if name == "Reading":
        from attnscope.attention.reading import Reading

        return Reading
    if name == "Run":
        from attnscope.notebook import Run

        return Run
    if name == "run_study":
        from attnscope.studies import run_study

        return run_study
    raise AttributeError(f"module 'attnscope' has no attribute '{name}'")
