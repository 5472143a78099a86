"""Text of a source, for an edit: of its own length, or with an exact number of tokens in its place in the prompt."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from attnscope.edits.prompt.edit import EditContext
from attnscope.edits.sources import SOURCES, AnySource, SourceContext
from attnscope.edits.sources.fitting import exactly
from attnscope.errors import AttnscopeError

TURNS = 1000  # attempts that each place of an edit has to itself


def drafted(
    source: AnySource,
    wanted: int | None,
    count: Callable[[str], int],
    context: EditContext,
    *,
    old: str = "",
    turn: int = 0,
    units: int | None = None,
) -> str:
    """A text with `wanted` tokens, or of the source's own length.

    count(text) -> its tokens in place. old: the text that it takes the place of. turn: the number of the place, where
    an edit has several; each draws its own text. units: a length in the source's units, whatever the tokens.
    """
    source_context = SourceContext(context.fields, context.vocabulary, old, context.others)

    def rng(attempt: int) -> Random:
        return context.rng(TURNS * turn + attempt)

    def draft(size: int, attempt: int) -> str:
        with SOURCES.blamed(source.key, "draft"):
            return _text(source, source.draft(size, rng(attempt), source_context))

    if units is not None:
        return draft(units, 0)
    if wanted is not None:
        _refuse_more_than_fits(wanted, context)
        return exactly(wanted, draft, count, context.where)
    with SOURCES.blamed(source.key, "natural"):
        whole = _text(source, source.whole(rng(0), source_context))
    if not whole:
        raise AttnscopeError(
            "there is nothing to insert",
            where=context.where,
            allowed="a source with some text",
            todo="check its segment",
        )
    return whole


def _refuse_more_than_fits(wanted: int, context: EditContext) -> None:
    if context.limit is not None and wanted > context.limit:
        raise AttnscopeError(
            f"{wanted} tokens are to be inserted, more than the context of {context.model}",
            where=context.where,
            allowed=f"at most {context.limit} tokens in all",
            todo="insert fewer",
        )


def _text(source: AnySource, text: object) -> str:
    if not isinstance(text, str):
        raise SOURCES.mistake(source.key, "draft", f"returns a {type(text).__name__}", "text")
    return text
