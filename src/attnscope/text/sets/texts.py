"""Plain texts of eight genres that all begin with another word, written for this project; see texts.jsonl.

Each is cut in three, so that conditions can change how it begins: `first` is its first word, `opening` the three after
it, `rest` all others, each part with the space before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attnscope.text.layout import Layout, Layouts
from attnscope.text.sets.prompt_set import PromptSet, drawn, refuse_options, stored_rows

NAME = "texts"
OPENING = 4  # words, the first included


def make(count: int, seed: int, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`count` of the texts."""
    refuse_options(NAME, options)
    return [_cut(row) for row in drawn(NAME, stored_rows(NAME), count, seed)]


def _cut(row: Mapping[str, str]) -> dict[str, str]:
    words = [f" {word}" for word in row["text"].split(" ")]
    opening, rest = "".join(words[1:OPENING]), "".join(words[OPENING:])
    return {"genre": row["genre"], "first": words[0].strip(), "opening": opening, "rest": rest}


SET = PromptSet(
    name=NAME,
    about="plain texts of eight genres, cut into their first word, the three after it, and the rest",
    layouts=Layouts(plain=Layout(((None, "{first}{opening}{rest}"),))),
    make=make,
    cluster="genre",
)
