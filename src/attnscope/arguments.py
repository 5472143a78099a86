"""What callers may write for numbers, names and text in Python, the errors for the rest, and numbers in words."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from operator import index

from attnscope.errors import AttnscopeError, Parameter, Words

LONGEST = 60  # characters of a value that an error shows


def whole_number(given: object) -> int:
    """A whole number of any type, numpy's and torch's too; a bool is not meant as one. Raises TypeError."""
    of_bools = str(getattr(given, "dtype", "")).removeprefix("torch.") == "bool"
    if isinstance(given, bool) or of_bools or getattr(given, "ndim", 0) != 0:
        raise TypeError("not one whole number")
    return index(given)  # type: ignore[arg-type]  # which says so itself


def listed(given: object, *, ordered: bool = False) -> list[object] | None:
    """Several things as a list; None for one alone, such as a number or a text. ordered: None for a set too."""
    if isinstance(given, str | bytes | bytearray | Mapping) or not isinstance(given, Iterable):
        return None
    if getattr(given, "ndim", 1) == 0 or (ordered and isinstance(given, Set)):
        return None
    return list(given)


def numbers_of(given: object, what: str, *, ordered: bool = False) -> list[int]:
    """Layers, heads or token ids: one number or several, of any type of whole numbers. ordered: a set won't do."""
    things = listed(given, ordered=ordered)
    try:
        numbers = [whole_number(given)] if things is None else [whole_number(each) for each in things]
    except (TypeError, ValueError):  # ValueError: of an array's or a tensor's own making
        numbers = None
    if not numbers:
        raise AttnscopeError(
            f"{what} are not whole numbers" if numbers is None else f"no {what} are given",
            where=shown_parameter(what, given),
            allowed=f"a list such as {what}=[0, 16]",
            todo="name at least one by its number",
        )
    return numbers


def count_of(given: object, what: str, todo: Words, *, least: int = 1) -> int:
    """How many: a whole number of any type, 1 or more."""
    try:
        count = whole_number(given)
    except (TypeError, ValueError):
        count = least - 1
    if count < least:
        raise AttnscopeError(
            f"{what} can't be {shown(given)}",
            where=shown_parameter(what, given),
            allowed=f"a whole number, {least} or more",
            todo=todo,
        )
    return count


def place_of(given: object, what: str) -> int:
    """The number of a layer, a head or a prompt."""
    return count_of(given, what, "count from 0", least=0)


def names_of(given: object, what: str, example: str) -> list[str]:
    """One name or several."""
    names = [given] if isinstance(given, str) else listed(given)
    strings = [name for name in names or () if isinstance(name, str)]
    if names is None or len(strings) < len(names):
        raise AttnscopeError(
            f"{what} are not names" if what.endswith("s") else f"{what} is not a name or a list of names",
            where=shown_parameter(what, given),
            allowed=f"a list such as {what}=['{example}']",
            todo="write each name as a string",
        )
    return strings


def text_of(given: object, what: str = "text", allowed: Words = "a string") -> str:
    """A text that a tokenizer can read."""
    text = _string(given, what, allowed)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise AttnscopeError(
            f"the {what} has half a character at position {error.start}: {text[error.start]!r}",
            where=Parameter(what),
            allowed="text that can be written as UTF-8",
            todo="remove it, or decode the text again from its bytes",
        ) from None
    return text


def path_of(given: object, what: str, allowed: Words) -> str:
    """The path of a file or folder, or a name in its place: a string or a Path."""
    return _string(os.fspath(given) if isinstance(given, os.PathLike) else given, what, allowed)


def _string(given: object, what: str, allowed: Words) -> str:
    if not isinstance(given, str):
        raise AttnscopeError(
            f"{what} is of type {type(given).__name__}",
            where=shown_parameter(what, given),
            allowed=allowed,
            todo="pass one string",
        )
    return given


def in_words(what: str, numbers: Sequence[int]) -> str:
    """`layers 0 to 29`, or all of them if some are missing."""
    if len(numbers) > 1 and list(numbers) == list(range(len(numbers))):
        return f"{what} 0 to {len(numbers) - 1}"
    return f"{what} {', '.join(map(str, numbers))}"


def counted(number: int, what: str) -> str:
    """`1 token`, `1,024 tokens`."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def shown(given: object) -> str:
    """A value as Python writes it, on one line; the beginning of a long one."""
    text = " ".join(repr(given).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def shown_parameter(name: str, given: object) -> Words:
    """A parameter with its value, if that is short enough to be shown."""
    return Parameter(name, given) if len(repr(given)) <= LONGEST else Parameter(name)
