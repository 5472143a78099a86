"""Chats of six turns under a system prompt whose rule matters in every turn, written for this project."""

from __future__ import annotations

from attnscope.text.layout import Layout, Layouts
from attnscope.text.sets.prompt_set import PromptSet, shuffled_file

SET = PromptSet(
    name="chats",
    about="chats of six turns under a system prompt, with ten kinds of rules that matter in every turn",
    layouts=Layouts(chat=Layout((("user", "{messages}"),))),
    make=shuffled_file("chats"),
    cluster="kind",
    default=30,
)
