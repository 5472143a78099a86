"""Tasks on a text, with a sentence to hide in the text that is an instruction and one that is not.

Written for this project; see injections.jsonl. `data` is a list of the text's two parts, so that a condition can insert
a sentence between them. `injected` is an instruction to the model; `control` is as foreign to the text, has words in
common with it, and the same number of tokens for the default model, but it tells nobody to do anything.
"""

from __future__ import annotations

from attnscope.text.layout import Layout, Layouts
from attnscope.text.sets.prompt_set import PromptSet, shuffled_file

SET = PromptSet(
    name="injections",
    about="tasks of eight kinds, each with a text in two parts; with an instruction to hide between the parts "
    "(`injected`) and a sentence as long and as foreign that is none (`control`)",
    layouts=Layouts(
        chat=Layout((("user", "{instruction}\n\n{data}"),)),
        plain=Layout(((None, "{instruction}\n\n{data}\n\nAnswer:\n"),)),
    ),
    make=shuffled_file("injections"),
    cluster="task",
    default=48,
)
