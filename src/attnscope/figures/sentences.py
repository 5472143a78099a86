"""Sentences about numbers, each computed from them; where a pattern does not hold, there is no sentence."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from itertools import pairwise

from attnscope.study.independence import FEWEST

TINY = 1e-6  # below, a number has an exponent


def number(value: float) -> str:
    """Four decimals; small ones with three significant digits."""
    if abs(value) >= 0.001 or value == 0:
        return f"{value:.4f}"
    if abs(value) < TINY:
        return f"{value:.2e}"
    return f"{value:.{2 - math.floor(math.log10(abs(value)))}f}"


def with_interval(value: float, low: float | None, high: float | None) -> str:
    return number(value) if low is None or high is None else f"{number(value)} ({number(low)} to {number(high)})"


def times_uniform(ratio: float) -> str:
    """`0.94 times uniform attention`, to two digits."""
    digits = f"{ratio:,.0f}" if ratio >= 9.95 else f"{ratio:#.2g}"
    return f"{digits} times uniform attention"


def rate(q: float) -> str:
    """A false discovery rate, to two digits."""
    return f"q = {q:.2g}" if q >= 1e-4 else "q < 0.0001"


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most so many characters; `q < 0.05`, `95 %` and the like stay together."""
    joined = re.sub(r"\b([npq]) (=|<|>=) (?=\S)", "\\1\u00a0\\2\u00a0", text)
    joined = re.sub(r"(?<=\d) %", "\u00a0%", joined)
    return [line.replace("\u00a0", " ") for line in textwrap.wrap(joined, width)]


def counted(number: float, what: str) -> str:
    """`1 prompt`, `40 prompts`."""
    return f"{number:.0f} {what}{'s' * (number != 1)}"


def range_of(low: float, high: float, what: str) -> str:
    """`40 prompts`, `38 to 40 prompts`."""
    return counted(high, what) if low == high else f"{low:.0f} to {counted(high, what)}"


def prompts_in_clusters(prompts: float, clusters: float) -> str:
    """`40 prompts`, `40 prompts in 17 clusters`."""
    words = counted(prompts, "prompt")
    return words if clusters == prompts else f"{words} in {counted(clusters, 'cluster')}"


def untested(prompts: float, clusters: float | None = None, *, same: bool = False) -> str:
    """Why there is neither an interval nor a test. clusters: None if unknown; same: all prompts have one value."""
    if prompts < FEWEST:
        return "too few prompts for a test"
    if same:
        return "it is the same in every prompt, so there is no test"
    if clusters is None:
        return "the clusters of prompts are too few or too unequal for a test"
    if clusters < FEWEST:
        return "too few clusters for a test"
    return "a few clusters have most of the prompts, so there is no test"


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`; with semicolons if one of them has a comma outside of brackets."""
    if len(words) == 1:
        return words[0]
    if any("," in re.sub(r"\([^()]*\)", "", each) for each in words):
        return f"{'; '.join(words[:-1])}; and {words[-1]}"
    return f"{', '.join(words[:-1])} and {words[-1]}"


def few_named(names: Sequence[str], most: int = 3) -> str:
    """Some names; of many, the first ones and how many more there are."""
    return listed(names) if len(names) <= most + 1 else listed([*names[:most], f"{len(names) - most} more"])


def range_of_shares(least: float, most: float) -> str:
    """`62 %`, or `58 to 62 %`."""
    one, two = f"{100 * least:.0f}", f"{100 * most:.0f}"
    return f"{one} %" if one == two else f"{one} to {two} %"


def largest(values: Mapping[str, float], *, most: bool = True) -> str | None:
    """The largest (or smallest) of several, as in `0.1, at A`; none if two share it."""
    if len(values) < 2:
        return None
    best = max(values.values()) if most else min(values.values())
    names = [name for name, value in values.items() if value == best]
    return f"{number(best)}, at {names[0]}" if len(names) == 1 else None


def extreme(values: Mapping[str, float], what: str, *, most: bool) -> str | None:
    """A sentence about the largest (or smallest) of several; none if two share it. That is no test, and it says so."""
    found = largest(values, most=most)
    return None if found is None else f"The {'largest' if most else 'smallest'} {what} is {found} (not tested)."


def trend(values: Mapping[str, float], what: str) -> str | None:
    """Whether values rise or fall at every step of an order; steps are not tested, and it says so."""
    given, names = list(values.values()), list(values)
    if len(given) < 3:
        return None
    steps = [after - before for before, after in pairwise(given)]
    if all(step > 0 for step in steps):
        way = "rises"
    elif all(step < 0 for step in steps):
        way = "falls"
    else:
        return None
    ends = f"from {names[0]} ({number(given[0])}) to {names[-1]} ({number(given[-1])})"
    return f"{what} {way} at every step {ends}; the steps are not tested."


def comparison(
    where: str,
    first: tuple[str, float, float | None, float | None],
    second: tuple[str, float, float | None, float | None],
) -> str | None:
    """Which of two is larger, by how much, and whether their intervals overlap; that is no test, and it says so."""
    (one, a, a_low, a_high), (two, b, b_low, b_high) = first, second
    if a == b:
        return f"{where}: {one} and {two} are equal ({number(a)})."
    (upper, more, low, _), (lower, less, _, high) = (
        ((one, a, a_low, a_high), (two, b, b_low, b_high))
        if a > b
        else ((two, b, b_low, b_high), (one, a, a_low, a_high))
    )
    sentence = f"{where}: {upper} is above {lower}, {number(more)} to {number(less)}, by {number(more - less)}"
    if less > 0:
        sentence += f" (x{more / less:.2f})"
    if low is None or high is None:
        return f"{sentence}; not tested."
    return f"{sentence}; not tested, their intervals {'do not overlap' if low > high else 'overlap'}."


def leader(values: Mapping[str, float]) -> str | None:
    """The largest of several parts; none if two share that, or if the parts are no shares of their sum."""
    if len(values) < 2 or sum(values.values()) <= 0 or min(values.values()) < 0:
        return None
    best = max(values.values())
    names = [name for name, value in values.items() if value == best]
    return names[0] if len(names) == 1 else None


def lead(where: str, values: Mapping[str, float]) -> str | None:
    """Which of several parts is the largest, and its share of their sum; that is no test, and it says so."""
    name = leader(values)
    if name is None:
        return None
    share = f"{100 * values[name] / sum(values.values()):.0f} % of the bar"
    return f"{where}: {name} has the largest share, {share} (not tested)."


def consistent(who: str, other: str, gaps: Mapping[str, float]) -> str | None:
    """Where one is above the other; of what is not tested, and it says so. gaps: the one minus the other, by place."""
    if len(gaps) < 2:
        return None
    above = [place for place, gap in gaps.items() if gap > 0]
    if not above and any(gaps.values()):
        return consistent(other, who, {place: -gap for place, gap in gaps.items()})
    if not above:
        return f"{who} and {other} are equal in all of {listed(list(gaps))}."
    if len(above) == len(gaps):
        return f"{who} is above {other} in all of {listed(above)}; not tested."
    return f"{who} is above {other} in {len(above)} of {len(gaps)}: {listed(above)}; not tested."
