"""Sources of text to insert, one per module of this package or of a plugin.

A source is a `Source` with one key of its own, its name in a study file. It drafts texts of a given number of
units; `fitting.exactly` finds the draft with the required number of tokens. A plugin offers its own under the
entry points `attnscope.sources`.
"""

from __future__ import annotations

from typing import Annotated

from attnscope.edits.sources.source import Source, SourceContext
from attnscope.registry import Registry
from attnscope.spec import OneOf

SOURCES: Registry[type[Source]] = Registry(
    "source of text",
    package="attnscope.edits.sources",
    group="attnscope.sources",
    is_member=lambda thing: isinstance(thing, type) and issubclass(thing, Source) and thing is not Source,
    named_by="key",
)

AnySource = Annotated[Source, OneOf("what is to be inserted", Source, lambda: SOURCES.members)]
"""In a study file: a mapping with the key of one source."""

__all__ = ["SOURCES", "AnySource", "Source", "SourceContext"]
