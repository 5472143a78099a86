"""Short texts about invented things with a question and an answer of a few sentences, written for this project.

See contexts.jsonl. The texts are of eight genres, and everything in an answer follows from its text.
"""

from __future__ import annotations

from attnscope.text.layout import Layout, Layouts
from attnscope.text.sets.prompt_set import PromptSet, shuffled_file

SET = PromptSet(
    name="contexts",
    about="short texts of eight genres about invented things, each with a question and an `answer` of a few sentences",
    layouts=Layouts(
        chat=Layout((("user", "{context}\n\n{question}"),)),
        plain=Layout(((None, "{context}\n\n{question}\n\n"),)),
    ),
    make=shuffled_file("contexts"),
    cluster="genre",
)
