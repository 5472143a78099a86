"""Questions, each with four passages of which one has the answer, written for this project; see passages.jsonl.

The file has 60 passages about invented things, four to a topic, each with a question that it answers. A prompt has the
passage that answers (role gold), the next one of its topic, which mentions what the question is about and does not
answer it (distractor), and two of other topics (unrelated). So over the whole set every passage is gold once,
distractor once and unrelated twice: roles differ in nothing but their relation to the question. Every pair of places of
gold and distractor occurs five times, and within a topic the gold passage is in each place once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnscope.text.layout import Layout, Layouts
from attnscope.text.sets.prompt_set import PromptSet, drawn, refuse_options, stored_rows

NAME = "passages"
INSTRUCTION = "Answer the question in a few words. The answer is in one of the passages."
OF_TOPIC = 4  # passages of a topic, and of a prompt
UNRELATED = ((1, 2), (3, 4), (5, 6), (7, 8))  # by number in its topic, how many topics on a prompt's others are from


def make(count: int, seed: int, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """`count` of the set's prompts; all of them are balanced, fewer of them nearly so."""
    refuse_options(NAME, options)
    rows = stored_rows(NAME)
    return drawn(NAME, [_prompt(rows, number) for number in range(len(rows))], count, seed)


def _prompt(rows: Sequence[Mapping[str, str]], number: int) -> dict[str, Any]:
    topic, own = divmod(number, OF_TOPIC)
    near, far = UNRELATED[own]
    gold = (topic + own) % OF_TOPIC
    distractor = (gold + 1 + topic % (OF_TOPIC - 1)) % OF_TOPIC
    passages = {
        gold: _item(rows, topic, own, "gold"),
        distractor: _item(rows, topic, own + 1, "distractor"),
    }
    free = [place for place in range(OF_TOPIC) if place not in passages]
    passages[free[0]] = _item(rows, topic + near, own + 2, "unrelated")
    passages[free[1]] = _item(rows, topic + far, own + 3, "unrelated")
    row = rows[number]
    return {
        "topic": row["topic"],
        "question": row["question"],
        "passages": [passages[place] for place in range(OF_TOPIC)],
        "answer": row["answer"],
    }


def _item(rows: Sequence[Mapping[str, str]], topic: int, own: int, role: str) -> dict[str, str]:
    place = topic * OF_TOPIC % len(rows) + own % OF_TOPIC
    return {"text": rows[place]["passage"], "role": role}


SET = PromptSet(
    name=NAME,
    about="questions, each with four passages: one with the answer (role `gold`), one on the same topic without it "
    "(`distractor`), two on others (`unrelated`); with the `answer`",
    layouts=Layouts(
        chat=Layout((("system", INSTRUCTION), ("user", "{passages}\n\nQuestion: {question}"))),
        plain=Layout(((None, INSTRUCTION + "\n\n{passages}\n\nQuestion: {question}\n\nAnswer:\n"),)),
    ),
    make=make,
    cluster="topic",
    default=60,
)
