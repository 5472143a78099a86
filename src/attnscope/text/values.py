"""What a prompt's field can hold: a text, a list of items, or a chat of several messages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from attnscope.text.segments import TEMPLATE, Piece

SYSTEM, TURN = "system", "turn"
SEPARATOR = "\n\n"
VALUES = (
    "text, a number, a list of texts or of {text, role} with a text as its role, or a chat as a list of {role, "
    "content} with roles system, user and assistant"
)


@dataclass(frozen=True)
class Item:
    """One item of a list. role: what it is among the others, such as gold or distractor."""

    text: str
    role: str | None = None


@dataclass(frozen=True)
class Items:
    """A list; each item is a segment: `passages.1`, `passages.2`, numbered as given."""

    items: tuple[Item, ...]
    separator: str = SEPARATOR

    @property
    def text(self) -> str:
        return self.separator.join(item.text for item in self.items)

    def pieces(self, field: str) -> Iterator[Piece]:
        for number, item in enumerate(self.items, 1):
            if number > 1:
                yield Piece(TEMPLATE, self.separator, joins=field)
            yield Piece(f"{field}.{number}", item.text, item.role)


@dataclass(frozen=True)
class Chat:
    """Messages by role. A turn begins with each user message; segments are `turn.1.user`, `turn.1.assistant`, ..."""

    messages: tuple[tuple[str, str], ...]
    problem: str | None = None
    """Why it can't be a prompt, as in "message 2 has the role 'tool'"; it then has no messages."""

    @property
    def text(self) -> str:
        return SEPARATOR.join(content for _, content in self.messages)

    def lines(self) -> Iterator[tuple[str, list[Piece]]]:
        turn = 0
        for role, content in self.messages:
            turn += role == "user"
            segment = role if role == SYSTEM else f"{TURN}.{max(1, turn)}.{role}"
            yield role, [Piece(segment, content, role)]

    def without_answer(self) -> tuple[Chat, str] | None:
        """The chat up to its last message, and that message, if it is the assistant's."""
        if len(self.messages) < 2 or self.messages[-1][0] != "assistant":
            return None
        return Chat(self.messages[:-1]), self.messages[-1][1]


Value = str | Items | Chat
Fields = Mapping[str, Value]


def is_whole(value: Value) -> bool:
    """Whether it has some text, in each of its parts."""
    if isinstance(value, Items):
        return all(item.text for item in value.items)
    return all(content for _, content in value.messages) if isinstance(value, Chat) else bool(value)


def text_of(value: Value) -> str:
    """A field as one text."""
    return value if isinstance(value, str) else value.text


def read_value(value: Any, separator: str = SEPARATOR) -> Value | None:
    """A field as a row has it -> its value; None if it can't be one."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return str(value)
    if not isinstance(value, Sequence) or not value:
        return None
    if all(isinstance(each, Mapping) and "content" in each for each in value):
        messages = [_message(each) for each in value]
        wrong = next((place for place, each in enumerate(messages) if each is None), None)
        if wrong is not None:
            return Chat((), f"message {wrong + 1} {_what_is_wrong(value[wrong])}")
        return Chat(tuple(each for each in messages if each is not None))
    items = [_item(each) for each in value]
    return None if None in items else Items(tuple(each for each in items if each is not None), separator)


def _message(row: Mapping[str, Any]) -> tuple[str, str] | None:
    role, content = row.get("role"), row["content"]
    if isinstance(content, Sequence) and not isinstance(content, str):  # parts, as of messages with images
        texts = [part.get("text") if isinstance(part, Mapping) else None for part in content]
        content = None if None in texts else "".join(map(str, texts))
    if role not in (SYSTEM, "user", "assistant") or not isinstance(content, str):
        return None
    return role, content


def _what_is_wrong(row: Mapping[str, Any]) -> str:
    role = row.get("role")
    return "has no text" if role in (SYSTEM, "user", "assistant") else f"has the role {role!r}"


def _item(given: Any) -> Item | None:
    if isinstance(given, str):
        return Item(given)
    if not isinstance(given, Mapping) or not isinstance(given.get("text"), str):
        return None
    if given.get("role") is None:
        return Item(given["text"])
    role = read_value(given["role"])
    return Item(given["text"], role) if isinstance(role, str) else None
