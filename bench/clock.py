"""Times two calls in alternation, in one process, the first of them twice per round.

Timings drift: another process wakes up, a core heats up. Alternating runs see the same conditions, and the base timed
against itself (the control) shows how much of a ratio is noise.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

Run = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """The seconds of every round, and their ratios."""

    base: list[float]
    control: list[float]
    arm: list[float]
    ratio: float
    """Median over rounds of the arm's time divided by the mean of the round's two base times; a slow spell longer than
    a round then affects both sides.
    """
    of_medians: float
    """The arm's median time divided by that of all base runs: the other usual way, which a slow spell can distort."""
    low: float
    high: float
    """The middle half of the rounds' own ratios."""
    control_ratio: float


def interleave(base: Run, arm: Run, rounds: int, say: Callable[[str], None] = lambda _: None) -> Timing:
    """Each round runs base, base again and arm, rotating their order; a warm-up round is dropped."""
    runs = [base, base, arm]
    seconds: list[list[float]] = [[], [], []]
    for place in (0, 2):
        _timed(runs[place])
    for turn in range(rounds):
        for step in range(3):
            place = (turn + step) % 3
            seconds[place].append(_timed(runs[place]))
        latest = [taken[-1] for taken in seconds]
        say(f"round {turn + 1} of {rounds}: {latest[0]:.3f} s, again {latest[1]:.3f} s, arm {latest[2]:.3f} s")
    return summary(*seconds)


def summary(base: list[float], control: list[float], arm: list[float]) -> Timing:
    own = [2 * mine / (first + again) for mine, first, again in zip(arm, base, control, strict=True)]
    low, _, high = statistics.quantiles(own, n=4, method="inclusive") if len(own) > 1 else [own[0]] * 3
    return Timing(
        base=base,
        control=control,
        arm=arm,
        ratio=statistics.median(own),
        of_medians=statistics.median(arm) / statistics.median(base + control),
        low=low,
        high=high,
        control_ratio=statistics.median(again / first for again, first in zip(control, base, strict=True)),
    )


def _timed(run: Run) -> float:
    gc.collect()
    started = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - started
    del result
    return seconds
