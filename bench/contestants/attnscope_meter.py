"""attnscope, through its public interface."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np


def prepare(folder: Path) -> Callable[[list[int]], np.ndarray[Any, Any]]:
    import attnscope

    lens = attnscope.load(str(folder))

    def run(tokens: list[int]) -> np.ndarray[Any, Any]:
        return np.asarray(lens.measure_tokens(tokens, queries=["all", "last"], beyond_context=True).received)

    return run
