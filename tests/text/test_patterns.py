"""Patterns are bounded: what would take too long, or too much memory, is refused before it is compiled."""

from __future__ import annotations

import time

import pytest

from attnscope.errors import StoppingError
from attnscope.text.patterns import LONGEST, SECONDS, matched_characters, pattern_problem


@pytest.mark.parametrize(
    "pattern",
    [
        "(?R)",
        "(?R)?",
        "a(?0)",
        "(a(?1)?)",
        "(a)(?-1)",
        "(?+1)(a)",
        "(?P<n>a(?&n)?)",
        "(?P<n>a(?P>n)?)",
        r"[a]\[(?R)]",
        "[[:alpha:]](?R)?",
    ],
)
def test_a_pattern_that_calls_itself_is_refused(pattern: str) -> None:
    assert "calls a part of itself with '(?" in (pattern_problem(pattern) or "")


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(" * 600 + "a" + ")" * 600, "more than 50 brackets"),
        ("(?:" * 51 + "a" + ")?" * 51, "more than 50 brackets"),
        ("a" * (LONGEST + 1), "more than 10,000 characters"),
        ("(?:a{1000}){1000}", "repeats written out"),
        ("(" * 8 + "a" + "{9})" * 8, "repeats written out"),
        ("(" * 30 + "a" + "+)" * 30, "repeats written out"),
        ("(" * 30 + "a" + "){2,3}" * 30, "repeats written out"),
        (f"a{{{'9' * 5000}}}", "repeats written out"),
        (f"a{{1,{'9' * 5000}}}", "repeats written out"),
        ("(?au)a", "can't be read"),
        ("(?V0V1)a", "can't be read"),
        ("a)", "can't be read"),
    ],
)
def test_a_pattern_that_can_not_be_compiled_in_bounds_is_refused_at_once(pattern: str, problem: str) -> None:
    started = time.process_time()
    assert problem in (pattern_problem(pattern) or "")
    assert time.process_time() - started < 0.5


@pytest.mark.parametrize(
    ("pattern", "text", "matched"),
    [
        ("[0-9]+", "a12", "12"),
        (r"\(?R", "a(R", "(R"),
        ("[(?R)]", "a(b", "("),
        ("[](?R)]", "a]b", "]"),
        (r"(a)(?>b)(?:c)(?<n>d)(?P=n)(?P<m>e)\g<m>", "abcddee", "abcddee"),
        ("(?i)A(?(?=b)b|c)", "ab", "ab"),
        (r"\d{5}|(\w{2,4},?){300}", "12345", "12345"),
        ("{a}", "{a}", "{a}"),
        ("(" * 50 + "a" + "*)" * 50, "ba", "a"),
        ("|".join(rf"w{number}\b" for number in range(1000)), "x w77", "w77"),
        ("a{1,100000000}", "aab", "aa"),
    ],
)
def test_other_patterns_are_what_they_were(pattern: str, text: str, matched: str) -> None:
    assert pattern_problem(pattern) is None
    flags = matched_characters(pattern, text, "a class", pattern)
    assert "".join(character for character, flag in zip(text, flags, strict=True) if flag) == matched


def test_matching_has_a_limit_of_computing_time() -> None:
    assert SECONDS == 1
    started = time.process_time()
    with pytest.raises(StoppingError, match=r"too long .*: at most 1 second of computing"):
        matched_characters("(a|aa)+$", "a" * 60 + "b", "a class", "x")
    assert time.process_time() - started < 2
