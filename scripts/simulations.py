"""How the statistics perform on simulated data: the tables of docs/statistics.md."""

# ruff: noqa: T201

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from attnscope.analysis.effects import FALSE_DISCOVERIES, effects, interval_of_mean

Floats = NDArray[np.float64]

SIMULATIONS = 2000
HEADS = 270  # tested together
ROUNDS = 100
DRAWS: dict[str, Callable[[np.random.Generator, tuple[int, int]], Floats]] = {
    "normal": lambda chance, shape: chance.normal(0, 1, shape),
    "heavy tails (t, 4 degrees)": lambda chance, shape: chance.standard_t(4, shape),
    "skewed (difference of exponentials)": lambda chance, shape: (
        chance.exponential(1, shape) - 0.5 * chance.exponential(1, shape) - 0.5
    ),
}


def coverage() -> None:
    """How often the 95 % interval contains the true mean."""
    counts = (8, 20, 40, 100, 500)
    print("| differences | " + " | ".join(f"n = {n}" for n in counts) + " |\n|---|" + "---|" * len(counts))
    for name, draw in DRAWS.items():
        cells = []
        for n in counts:
            low, high = interval_of_mean(draw(np.random.default_rng(n), (n, SIMULATIONS)))
            cells.append(f"{((low <= 0) & (high >= 0)).mean():.1%}")
        print(f"| {name} | {' | '.join(cells)} |")


def discoveries() -> None:
    """False discoveries and power, a third of the heads having an effect, by its size in standard deviations."""
    counts = (10, 20, 40, 60)
    print("\n| size of effect | " + " | ".join(f"n = {n}" for n in counts) + " |\n|---|" + "---|" * len(counts))
    real = np.arange(HEADS) < HEADS // 3
    for size in (0.0, 0.3, 0.5, 0.8, 1.2):
        cells = []
        for n in counts:
            wrong, found = [], []
            for seed in range(ROUNDS):
                values = np.random.default_rng([n, seed]).normal(0, 1, (n, HEADS)) + np.where(real, size, 0)
                called = effects(values, seed=seed).q < FALSE_DISCOVERIES
                none_real = size == 0
                wrong.append((called if none_real else called & ~real).sum() / max(1, called.sum()))
                found.append((called & real).sum() / real.sum())
            cells.append(f"{np.mean(wrong):.1%}" if size == 0 else f"{np.mean(found):.0%} ({np.mean(wrong):.1%})")
        print(f"| {size or 'none'} | {' | '.join(cells)} |")


def speed() -> None:
    """How long 32 x 32 heads of 500 prompts take."""
    values = np.random.default_rng(0).normal(0.02, 1, (500, 1024))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        effects(values)
        times.append(time.perf_counter() - start)
    print(f"\n32 x 32 heads, 500 prompts: median {np.median(times):.1f} s of 5 ({min(times):.1f} to {max(times):.1f})")


if __name__ == "__main__":
    coverage()
    discoveries()
    speed()
