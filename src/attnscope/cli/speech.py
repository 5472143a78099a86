"""Sentences on standard output: on a terminal no line is longer than it, in files and pipes each stays one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

NARROWEST = 20  # columns


def say(lines: Iterable[str]) -> None:
    """Print sentences, between words on as many lines as a terminal needs."""
    from attnscope.figures.sentences import wrapped

    width = _columns()
    for line in lines:
        print("\n".join(wrapped(line, width)) if width else line)  # noqa: T201


def _columns() -> int | None:
    """The terminal's width; None if output does not go to one, or it does not tell."""
    if not sys.stdout.isatty():
        return None
    try:
        columns = os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        return None
    return max(columns, NARROWEST) if columns else None
