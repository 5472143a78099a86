"""How fast this machine multiplies: what an estimate of a run's time goes by."""

from __future__ import annotations

import time

import torch

ROWS, WIDTH = 512, 1024


def multiplications_per_second(seconds: float = 0.3) -> float:
    """Multiply-adds a second of a product of the size that models have, on the device models are loaded to."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    left, right = torch.randn(ROWS, WIDTH, device=device), torch.randn(WIDTH, WIDTH, device=device)
    left @ right
    done, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        float((left @ right)[0, 0])
        done += 1
    return done * ROWS * WIDTH * WIDTH / (time.perf_counter() - started)
