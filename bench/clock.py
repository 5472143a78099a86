"""Times two calls in alternation, in one process, the first of them twice per round.

Timings drift: another process wakes up, a core heats up. Alternating runs see the same conditions, and the base timed
against itself (the control) shows how much of a ratio is noise.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Run = Callable[[], object]


@dataclass(frozen=True)
class Timing:
    """The seconds of every round of one process, and their ratios."""

    base: list[float]
    control: list[float]
    arm: list[float]
    ratio: float
    """Median over rounds of the arm's time divided by the mean of the round's two base times; a slow spell longer than
    a round then affects both sides.
    """
    control_ratio: float
    """Median over rounds of the base's second time divided by its first."""


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
    again = [second / first for second, first in zip(control, base, strict=True)]
    return Timing(base, control, arm, statistics.median(own), statistics.median(again))


def over_processes(timings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Medians over processes, and the lowest and highest of them.

    Where a process lands on the machine (which cores, which pages) moves its ratio by several percent for as long as it
    lives, so more rounds in one process don't help, and other processes do.
    """
    joined = {name: [second for each in timings for second in each[name]] for name in ("base", "control", "arm")}
    ratios = {name: [each[name] for each in timings] for name in ("ratio", "control_ratio")}
    return {
        **joined,
        **{name: statistics.median(each) for name, each in ratios.items()},
        "ratios": ratios["ratio"],
        "control_ratios": ratios["control_ratio"],
    }


def _timed(run: Run) -> float:
    gc.collect()
    started = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - started
    del result
    return seconds
