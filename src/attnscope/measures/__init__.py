"""Measures: statistics over attention rows, each declared once, in one module of this package or of a plugin.

A plugin offers its own under the entry points `attnscope.measures`:

    [project.entry-points."attnscope.measures"]
    distance = "my_package:distance"

No module here imports torch: the functions of a declaration get tensors and use their methods.
"""

from __future__ import annotations

from attnscope.measures.measure import HEAD, KEY, Measure, Pairs, TokenIds
from attnscope.registry import Registry

MEASURES: Registry[Measure] = Registry(
    "measure",
    package="attnscope.measures",
    group="attnscope.measures",
    is_member=lambda thing: isinstance(thing, Measure),
)

__all__ = ["HEAD", "KEY", "MEASURES", "Measure", "Pairs", "TokenIds"]
