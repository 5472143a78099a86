"""Kinds of figure: each declared once, in one package of `kinds` or in a plugin.

A plugin offers its own under the entry points `attnscope.figures`:

    [project.entry-points."attnscope.figures"]
    violin = "my_package:violin"

`violin` is a `Kind`. Its options are then a part of the study file, its columns of the reference.
"""

from __future__ import annotations

from typing import Any

from attnscope.figures.kind import Column, Kind, Look
from attnscope.registry import Registry

KINDS: Registry[Kind[Any]] = Registry(
    "kind of figure",
    package="attnscope.figures.kinds",
    group="attnscope.figures",
    is_member=lambda thing: isinstance(thing, Kind),
)

__all__ = ["KINDS", "Column", "Kind", "Look"]
