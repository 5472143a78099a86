"""The peak memory of a call beyond what the process used before it.

The kernel's high-water mark is reset first. `ru_maxrss` alone won't do: it starts at the size of the process that
started this one, and remembers the loading of the model.
"""

from __future__ import annotations

import gc
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Peak:
    """The peak of one process with one call."""

    loaded_mib: float
    """Used before the call: interpreter, libraries, model."""
    extra_mib: float
    """Used in addition at the peak of the call."""
    seconds: float
    """Duration of the first call at this length; a rough value, times are measured separately."""
    way: str


def peak_of(run: Callable[[], object]) -> Peak:
    gc.collect()
    way = _reset()
    loaded = _resident("VmRSS") if _STATUS.exists() else _maximum()
    started = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - started
    most = _resident("VmHWM") if way == "VmHWM" else _maximum()
    del result
    return Peak(loaded_mib=loaded, extra_mib=most - loaded, seconds=seconds, way=way)


def _reset() -> str:
    try:
        _RESET.write_text("5")
    except OSError:
        return "ru_maxrss"
    return "VmHWM"


def _resident(field: str) -> float:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise LookupError(f"no {field} in {_STATUS}")


def _maximum() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
