"""attnscope measures where language models look.

    lens = attnscope.load("smollm2-135m-instruct")
    record = lens.measure("Solve: ...", queries=["last", "all"], layers=[0, 16])
    record.mass({"hash": "#", "star": "*"})

Importing this module loads no model library; `load`, `Lens`, `record` and
`TrainerCallback` do.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from attnscope.errors import AttnscopeError

if TYPE_CHECKING:
    from attnscope.attention.recording import Recording
    from attnscope.lens import Answer, Lens, load, record
    from attnscope.measures import Measure
    from attnscope.notebook import Run
    from attnscope.records import Labelled, Outcome, Record
    from attnscope.studies import run_study
    from attnscope.study.sampling import Sample
    from attnscope.training import TrainerCallback

__all__ = [
    "Answer",
    "AttnscopeError",
    "Labelled",
    "Lens",
    "Measure",
    "Outcome",
    "Record",
    "Recording",
    "Run",
    "Sample",
    "TrainerCallback",
    "load",
    "record",
    "run_study",
]
__version__ = version("attnscope")

_HOMES = {
    "Answer": "attnscope.lens",
    "Labelled": "attnscope.records",
    "Lens": "attnscope.lens",
    "Measure": "attnscope.measures",
    "Outcome": "attnscope.records",
    "Record": "attnscope.records",
    "Recording": "attnscope.attention.recording",
    "Run": "attnscope.notebook",
    "Sample": "attnscope.study.sampling",
    "TrainerCallback": "attnscope.training",
    "load": "attnscope.lens",
    "record": "attnscope.lens",
    "run_study": "attnscope.studies",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'attnscope' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)
