"""The same part of another prompt: `with: {other_prompt: passages[role=gold]}`."""

from __future__ import annotations

from itertools import cycle, islice
from random import Random
from typing import ClassVar

from pydantic import Field

from attnscope.edits.sources.own_text import words
from attnscope.edits.sources.source import Source, SourceContext
from attnscope.errors import AttnscopeError
from attnscope.text.segments import Selector


class OtherPrompt(Source):
    """A segment of another prompt of the study, drawn at random; a unit is a word with the spaces before it."""

    key: ClassVar[str] = "other_prompt"
    random: ClassVar[bool] = True

    other_prompt: str = Field(min_length=1, description="The segment; of several that fit, one is drawn.")

    @property
    def segment(self) -> str | None:
        return self.other_prompt

    def draft(self, units: int, rng: Random, context: SourceContext) -> str:
        return "".join(islice(cycle(words(self.whole(rng, context))), units))

    def whole(self, rng: Random, context: SourceContext) -> str:
        return rng.choice(self._texts(context))

    def _texts(self, context: SourceContext) -> list[str]:
        selector = Selector.of(self.other_prompt)
        texts = []
        for pieces in context.others():
            chosen = set(selector.segments(pieces))
            texts += [piece.text for piece in pieces if piece.segment in chosen]
        texts = [text for text in texts if text not in ("", context.replaced)]
        if not texts:
            raise AttnscopeError(
                f"no other prompt has '{self.other_prompt}'",
                where=f"other_prompt: {self.other_prompt}",
                allowed="a segment of at least two prompts",
                todo="name another segment, or add prompts",
            )
        return texts
