"""Shares independent tasks out over the cores.

A long pass goes to a crew of workers, one a core: torch's own threading splits every operation over all cores and pays
for it at each one, while a worker that walks through whole tasks keeps a block of scores in its core's cache from the
first product to the last. A short pass is over before the workers are awake (torch's threads hold the cores for some
milliseconds after each operation), so torch's own threading serves it better.

Tasks are dealt into more shares than there are workers, and a worker that is done takes the next share: a core that
something else holds for a while does not keep the others waiting. What is in a share is fixed by the tasks' costs, and
each share has sums of its own, so the same work on the same machine gives the same bits, whoever does it.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

MOST_WORKERS = 32
SHARES = 4  # per worker
SHORT_PASS = 20_000_000  # scores; about 15 ms on two cores

_pools: dict[tuple[int, int], ThreadPoolExecutor] = {}
_pools_lock = threading.Lock()
_scratch = threading.local()


def crew_size(scores: int, device: torch.device) -> int:
    """How many workers a pass over so many scores gets; 0 means none, torch's own threading does it."""
    if device.type != "cpu" or scores < SHORT_PASS:
        return 0
    return min(torch.get_num_threads(), MOST_WORKERS)


def fair_shares(costs: Sequence[int], workers: int) -> list[list[int]]:
    """Task numbers by share: the costliest first, each to the share that costs least so far."""
    shares: list[list[int]] = [[] for _ in range(max(1, SHARES * workers))]
    loads = [0] * len(shares)
    for task in sorted(range(len(costs)), key=lambda task: -costs[task]):
        lightest = loads.index(min(loads))
        shares[lightest].append(task)
        loads[lightest] += costs[task]
    return shares


def run_workers(work: Callable[[int], None], shares: int, workers: int) -> None:
    """Call `work` with each share's number, by so many workers, each on a core of its own; with none, do it here."""
    if workers == 0:
        for share in range(shares):
            work(share)
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # also what the workers' matrix products go by
    left = deque(range(shares))

    def take() -> None:
        while True:
            try:
                share = left.popleft()
            except IndexError:  # another worker took the last one
                return
            work(share)

    try:
        for future in [_pool(workers).submit(take) for _ in range(workers)]:
            future.result()
    finally:
        torch.set_num_threads(before)


def kept_buffer(count: int, place: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A buffer of `count` numbers that this thread keeps: fresh memory costs more than the arithmetic."""
    buffers: dict[tuple[int, torch.dtype, torch.device], Tensor] = _scratch.__dict__.setdefault("buffers", {})
    buffer = buffers.get((place, dtype, device))
    if buffer is None or buffer.numel() < count:
        with torch.inference_mode(False):  # so that it serves in either mode
            buffers[place, dtype, device] = buffer = torch.empty(count, dtype=dtype, device=device)
    return buffer


def _pool(workers: int) -> ThreadPoolExecutor:
    key = (os.getpid(), workers)  # a forked child has its parent's pool object but none of its threads
    with _pools_lock:
        if key not in _pools:
            _pools[key] = pool = ThreadPoolExecutor(workers, thread_name_prefix="attnscope", initializer=_prepare)
            everyone = threading.Barrier(workers)  # one that came late would change torch's threads after the pass
            for future in [pool.submit(everyone.wait) for _ in range(workers)]:
                future.result()
        return _pools[key]


def _prepare() -> None:
    """A worker's thread stays on one core, and drops weights below 1e-38, which would slow products tenfold."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
