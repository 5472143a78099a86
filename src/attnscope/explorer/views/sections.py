"""A document as the sections that pages show."""

from __future__ import annotations

from typing import Any

from attnscope.explorer.responses import Section
from attnscope.figures.prose import Document, as_json


def sections(document: Document) -> list[Section]:
    return sections_of(as_json(document))


def sections_of(document: dict[str, Any]) -> list[Section]:
    """document: as `prose.as_json` gives it."""
    return [Section.model_validate(section) for section in document["sections"]]
