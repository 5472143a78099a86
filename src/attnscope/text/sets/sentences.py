"""Plain English sentences with their punctuation, written for this project; see sentences.jsonl."""

from __future__ import annotations

from attnscope.text.layout import Layout, Layouts
from attnscope.text.sets.prompt_set import PromptSet, shuffled_file

SET = PromptSet(
    name="sentences",
    about="plain English sentences with their punctuation",
    layouts=Layouts(plain=Layout(((None, "{sentence}"),))),
    make=shuffled_file("sentences"),
)
