"""Made-up outcomes whose truth is known, for runs of the tiny model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Row = dict[str, Any]

PROMPTS = list(range(40))

HIDE = {"keys": "question", "from": "last"}
INTERVENTIONS: list[Any] = [
    "none",
    {"name": "used", "hide": HIDE},
    {"name": "ignored", "hide": {**HIDE, "keys": "marks"}},
]
"""With controls and second draws: `used (control)`, `used (control) (placebo)` and so on."""
PLACEBO = "{} (control) (placebo)"
CHANGES = {
    "used": -1.5,
    "used (control)": -0.4,
    PLACEBO.format("used"): -0.4,
    "ignored": 0.0,
    "ignored (control)": 0.0,
    PLACEBO.format("ignored"): 0.0,
}
"""The true mean change of the log probability."""


def before(prompts: Sequence[int], seed: int = 0) -> dict[int, float]:
    """The log probability of the answer of the model as it is."""
    drawn = np.random.default_rng(seed).uniform(-9, -6, max(prompts) + 1)
    return {prompt: float(drawn[prompt]) for prompt in prompts}


def outcome_rows(prompts: Sequence[int], changes: dict[str, float] = CHANGES, seed: int = 0) -> list[Row]:
    """Interventions without places: a change in each prompt around the true one."""
    chance, start = np.random.default_rng(seed + 1), before(prompts, seed)
    rows: list[Row] = [{"prompt": each, "intervention": "none", "logprob": start[each]} for each in prompts]
    for name, change in changes.items():
        noise = chance.normal(0, 0.3, len(prompts))
        rows += [
            {"prompt": each, "intervention": name, "logprob": start[each] + change + apart, "kl": abs(change + apart)}
            for each, apart in zip(prompts, noise.tolist(), strict=True)
        ]
    return rows


def swept(
    name: str,
    prompts: Sequence[int],
    effects: dict[tuple[Any, ...], float],
    *keys: str,
    noise: float = 0.3,
    seed: int = 0,
) -> Iterator[Row]:
    """A sweep's rows. effects: the true change by place; keys: the columns of a place."""
    chance, start = np.random.default_rng([seed, *name.encode()]), before(prompts, seed)
    for place, change in effects.items():
        for prompt in prompts:
            logprob = start[prompt] + change + float(chance.normal(0, noise))
            yield {"prompt": prompt, "intervention": name, "logprob": logprob, **dict(zip(keys, place, strict=True))}
