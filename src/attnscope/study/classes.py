"""Classes: kinds of token, by the characters they are made of.

A rule is written `NAME=CHARACTERS` (any of these characters), `NAME=re:PATTERN` (what the pattern matches in the
text), `NAME=segment:SEGMENT` (a part of the prompt), `NAME=special:` (the model's special tokens, such as the start of
a text; no other rule can claim these) or `NAME=special:[SEP]` (those of one name). `chars:` before characters that look
like another rule; `in:SEGMENT:` before characters or a pattern keeps to that part.

A token that mixes kinds belongs to each by its share of characters; a character goes to the first class that claims
it, and what none claims to `other`. So memberships add up to one for every token, and masses to the row's sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import regex
from numpy.typing import NDArray

from attnscope.errors import AttnscopeError
from attnscope.study.segments import Span
from attnscope.study.tokens import Token

OTHER = "other"
REGEX, SPECIAL, SEGMENT, WITHIN, CHARACTERS = "re:", "special:", "segment:", "in:", "chars:"


def plain_rule(characters: str) -> str:
    """The rule that claims these characters, also if they look like another rule."""
    looks = characters.startswith((REGEX, SPECIAL, SEGMENT, WITHIN, CHARACTERS))
    return f"{CHARACTERS}{characters}" if looks else characters


def split_within(rule: str) -> tuple[str | None, str]:
    """`in:drawing:#` -> `("drawing", "#")`; a rule for the whole text -> `(None, rule)`."""
    if not rule.startswith(WITHIN):
        return None, rule
    segment, _, inner = rule.removeprefix(WITHIN).partition(":")
    return segment, inner


def parse_classes(rules: Sequence[str]) -> dict[str, str]:
    """`["hash=#", "star=*"]` -> `{"hash": "#", "star": "*"}`."""
    classes: dict[str, str] = {}
    for rule in rules:
        name, equals, pattern = rule.partition("=")
        if not equals or not name.strip() or not pattern:
            raise AttnscopeError(
                "can't read a class",
                where=f"'{rule}'",
                allowed="NAME=CHARACTERS, NAME=chars:CHARACTERS, NAME=re:PATTERN, NAME=special: or NAME=special:TOKEN",
                todo="write it as in 'hash=#'",
            )
        if name.strip() in classes or name.strip() == OTHER:
            raise _taken(name.strip(), rule)
        classes[name.strip()] = pattern
    return classes


def membership(
    classes: Mapping[str, str], text: str, tokens: Sequence[Token], spans: Sequence[Span] = ()
) -> NDArray[np.float64]:
    """(classes + 1, tokens): each token's share in each class, `other` last; every column sums to one."""
    if OTHER in classes:
        raise _taken(OTHER, f"{OTHER}={classes[OTHER]}")
    owner = np.full(len(text), len(classes))
    special: dict[str, int] = {}
    """The class of special tokens, by their name; the empty name is for all others."""
    for number, (name, rule) in reversed(list(enumerate(classes.items()))):
        segment, inner = split_within(rule)
        if rule.startswith(SPECIAL):
            token_name = rule.removeprefix(SPECIAL)
            special = {**special, token_name: number} if token_name else {"": number}
        elif rule.startswith(SEGMENT):
            owner[_within(rule.removeprefix(SEGMENT), text, spans)] = number
        else:
            claimed = np.zeros(len(text), dtype=bool)
            claimed[_claimed(name, inner, text)] = True
            owner[claimed if segment is None else claimed & _within(segment, text, spans)] = number
    shares = np.zeros((len(classes) + 1, len(tokens)))
    for token in tokens:
        if token.special:
            name = token.text if token.text in special else token.text.strip()  # some cover the space beside them
            shares[special.get(name, special.get("", len(classes))), token.position] = 1.0
        elif token.start == token.end:
            shares[-1, token.position] = 1.0
        else:
            counts = np.bincount(owner[token.start : token.end], minlength=len(classes) + 1)
            shares[:, token.position] = counts / counts.sum()
    return shares


def _within(segment: str, text: str, spans: Sequence[Span]) -> NDArray[np.bool_]:
    """Which characters lie in a segment."""
    inside = np.zeros(len(text), dtype=bool)
    for span in spans:
        if span.segment == segment:
            inside[span.start : span.end] = True
    return inside


def _claimed(name: str, rule: str, text: str) -> list[int]:
    """The places of the characters that a rule claims."""
    if not rule.startswith(REGEX):
        characters = rule.removeprefix(CHARACTERS)
        return [place for place, character in enumerate(text) if character in characters]
    try:
        pattern = regex.compile(rule.removeprefix(REGEX))
        found = pattern.finditer(text, timeout=10)
        return [place for match in found for place in range(*match.span())]
    except regex.error as error:
        raise AttnscopeError(
            f"class '{name}' has a pattern that can't be read: {error}",
            where=f"'{rule}'",
            allowed="a regular expression after re:",
            todo="mend the pattern",
        ) from error
    except TimeoutError as error:
        raise AttnscopeError(
            f"class '{name}' has a pattern that takes too long",
            where=f"'{rule}'",
            allowed="10 seconds for a prompt",
            todo="write a simpler pattern",
        ) from error


def _taken(name: str, rule: str) -> AttnscopeError:
    return AttnscopeError(
        f"class '{name}' is there already",
        where=f"'{rule}'",
        allowed=f"every name once, and not '{OTHER}', which holds what no class claims",
        todo="choose another name",
    )
