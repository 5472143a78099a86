"""Short reasoning problems of many kinds, written for this project; see problems.jsonl."""

from __future__ import annotations

from attnscope.text.layout import Layout, Layouts
from attnscope.text.sets.prompt_set import PromptSet, shuffled_file

INSTRUCTION = "Solve the problem. Think about it step by step, then give the answer in one line."

SET = PromptSet(
    name="problems",
    about="short reasoning problems of many kinds",
    layouts=Layouts(
        chat=Layout((("user", "{instruction}\n\n{question}"),)),
        plain=Layout(((None, "{instruction}\n\n{question}"),)),
    ),
    make=shuffled_file("problems", instruction=INSTRUCTION),
    cluster="kind",
)
