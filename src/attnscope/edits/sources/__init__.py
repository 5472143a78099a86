"""Conditions: edits of the base prompt. Each module here is one source of text to insert, found by its presence.

A source is a `Source` with one key of its own, the one that names it in a study file. It drafts a text of so many
units; `fitting.exactly` finds the draft that has the tokens asked for.
"""

from __future__ import annotations

import importlib
import pkgutil

from attnscope.edits.sources.source import Source


def sources() -> dict[str, type[Source]]:
    """Every source of text, by its key in a study file."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return {each.key: each for each in sorted(Source.__subclasses__(), key=lambda each: each.key)}
