"""The evidence card of a model: everything a careful reader asks before believing a number read from it."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from attnscope.attention.device import input_device
from attnscope.attention.interface import hooks_kept, implementation, quiet
from attnscope.attention.meter import Meter, Request
from attnscope.attention.proof import Proof


@dataclass(frozen=True)
class Card:
    """Proofs on a short prompt and on a longer one, and what measuring costs beside a plain forward."""

    short: Proof
    few: Proof
    """On the path that reads few rows."""
    long: Proof
    cost: dict[str, tuple[float, float, float]]
    """By query group, of a plain forward: the median over rounds, and their least and most. `plain, again` is noise."""


def evidence_card(meter: Meter, ids: Sequence[int], *, rounds: int) -> Card:
    """Run the checks on a prompt of these ids."""
    request = Request(["all"], meter.readable)
    return Card(
        short=meter.proof(request),
        few=meter.proof(request, few=True),
        long=meter.compared(ids, request),
        cost=_cost(meter, ids, rounds),
    )


def _cost(meter: Meter, ids: Sequence[int], rounds: int) -> dict[str, tuple[float, float, float]]:
    """Interleaved, so that a machine that slows down slows all of them."""
    plain = _plain(meter, ids)
    cases: dict[str, Callable[[], Any]] = {
        "plain": plain,
        "plain, again": plain,
        "last": lambda: meter.read([ids], Request(["last"], meter.readable)),
        "all": lambda: meter.read([ids], Request(["all"], meter.readable)),
    }
    times: dict[str, list[float]] = {case: [] for case in cases}
    for number in range(rounds + 1):
        for case, run in cases.items():
            start = time.perf_counter()
            run()
            if number:  # the first round warms up
                times[case].append(time.perf_counter() - start)
    cost = {}
    for case, each in times.items():
        if case != "plain":
            ratios = [mine / base for mine, base in zip(each, times["plain"], strict=True)]
            cost[case] = (statistics.median(ratios), min(ratios), max(ratios))
    return cost


def _plain(meter: Meter, ids: Sequence[int]) -> Callable[[], Any]:
    model = meter.model
    given = torch.as_tensor([list(ids)], device=input_device(model))
    name = "sdpa" if getattr(model, "_supports_sdpa", False) else "eager"

    def run() -> Any:
        with quiet(model), hooks_kept(model), implementation(model, name, threading.get_ident()):
            return model.base_model(input_ids=given)

    return run
