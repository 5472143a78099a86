"""Finds the draft of a source that has exactly the required number of tokens.

The number of tokens depends on the tokenizer (55 slashes may be 14 tokens), so drafts are counted in their place in the
prompt, and their size is changed until the count is right.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from attnscope.errors import AttnscopeError

ATTEMPTS = 24
REACH = 12  # units on either side of the first draft that is long enough


def exactly(wanted: int, draft: Callable[[int, int], str], count: Callable[[str], int], where: str) -> str:
    """The text with `wanted` tokens. draft(units, attempt) -> text; count(text) -> its number of tokens in place."""
    count = cache(count)  # sizes are tried more than once, and several may give the same text
    nearest: tuple[int, int] = (wanted + 1, 0)
    unstopped = ""  # a text that fits without its full stop; sentences of equal length can't reach all counts
    for attempt in range(ATTEMPTS):
        units = _long_enough(wanted, draft, count, attempt)
        for size in sorted(range(max(1, units - REACH), units + REACH + 1), key=lambda size: abs(size - units)):
            text = draft(size, attempt)
            tokens = count(text)
            if tokens == wanted and text:
                return text
            nearest = min(nearest, (abs(tokens - wanted), tokens))
            if not unstopped and tokens == wanted + 1 and text[-1:] == "." and count(text[:-1]) == wanted:
                unstopped = text[:-1]
        if draft(units, attempt) == draft(units, attempt + 1):
            break  # the source is not random
    if unstopped:
        return unstopped
    raise AttnscopeError(
        f"can't make exactly {wanted} tokens for this tokenizer",
        where=where,
        allowed=f"a count it can make; the nearest is {nearest[1]}",
        todo="ask for another count, or insert something else",
    )


def _long_enough(wanted: int, draft: Callable[[int, int], str], count: Callable[[str], int], attempt: int) -> int:
    """The fewest units with at least `wanted` tokens, assuming that tokens increase with units."""
    low, high = 0, 1
    while count(draft(high, attempt)) < wanted and high < wanted * 64:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if count(draft(middle, attempt)) < wanted:
            low = middle
        else:
            high = middle
    return high
