"""The evidence card of a model: everything a careful reader asks before believing a number read from it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from attnscope.attention.forward import input_device
from attnscope.attention.interface import implementation
from attnscope.attention.meter import Meter
from attnscope.attention.parity import Parity, prove


@dataclass(frozen=True)
class Card:
    """Parity on a short prompt and on a longer one, and what measuring costs beside a plain forward."""

    short: Parity
    long: Parity
    cost: dict[str, tuple[float, float, float]]
    """By query group, of a plain forward: the median over rounds, and their least and most. `plain, again` is noise."""


def evidence_card(meter: Meter, short: Parity, ids: Sequence[int], *, rounds: int) -> Card:
    """Run the checks on a prompt of these ids."""
    long = prove(meter.model, meter.name, meter.readable, ids)
    return Card(short=short, long=long, cost=_cost(meter, short, ids, rounds))


def _cost(meter: Meter, parity: Parity, ids: Sequence[int], rounds: int) -> dict[str, tuple[float, float, float]]:
    """Interleaved, so that a machine that slows down slows all of them."""
    plain = _plain(meter, ids)
    cases: dict[str, Callable[[], Any]] = {
        "plain": plain,
        "plain, again": plain,
        "last": lambda: meter.read([ids], ["last"], meter.readable, parity=parity),
        "all": lambda: meter.read([ids], ["all"], meter.readable, parity=parity),
    }
    times: dict[str, list[float]] = {case: [] for case in cases}
    for number in range(rounds + 1):
        for case, run in cases.items():
            start = time.perf_counter()
            run()
            if number:  # the first round warms up
                times[case].append(time.perf_counter() - start)
    found = {}
    for case, each in times.items():
        if case != "plain":
            ratios = [mine / base for mine, base in zip(each, times["plain"], strict=True)]
            found[case] = (statistics.median(ratios), min(ratios), max(ratios))
    return found


def _plain(meter: Meter, ids: Sequence[int]) -> Callable[[], Any]:
    model = meter.model
    given = torch.as_tensor([list(ids)], device=input_device(model))
    name = "sdpa" if getattr(model, "_supports_sdpa", False) else "eager"

    def run() -> Any:
        with implementation(model, name):
            return model.base_model(input_ids=given)

    return run
