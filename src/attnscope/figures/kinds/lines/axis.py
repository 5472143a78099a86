"""The horizontal axis of lines in words, from the columns `form` and `align` of their table."""

from __future__ import annotations

from attnscope.analysis.columns import END, START, WITHIN

SHARED, FULL = "shared", "full"
FORMS = {SHARED: "without inserted tokens", FULL: "whole sequence"}
ENDS = {START: "first", END: "last"}


def anchor_words(align: str | None) -> str | None:
    """`start:question` -> `the first token of question`; None for lines that are not aligned by one token."""
    by, _, segment = (align or "").partition(":")
    return f"the {ENDS[by]} token of {segment}" if by in ENDS else None


def segment_within(align: str | None) -> str | None:
    """`within:question` -> `question`; None for lines along the prompt."""
    by, _, segment = (align or "").partition(":")
    return segment if by == WITHIN else None


def x_title(form: str, align: str | None) -> str:
    """What stands below the axis."""
    segment, anchor = segment_within(align), anchor_words(align)
    end = FORMS.get(form, form)
    if segment is not None:
        return f"relative position within {segment}" + (f", {end}" if form == FULL else "")
    return f"{f'tokens from {anchor}' if anchor else 'token position'}, {end}" if form in FORMS else form
