"""Whether a model fits: the memory its weights need, and the memory a device has free."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import torch

from attnscope.errors import AttnscopeError, Parameter


def free_memory(device: torch.device) -> int:
    """Free bytes on a device; on a CPU, never more than the control group allows."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())
    available = int(psutil.virtual_memory().available)
    return min(available, _control_group_room() or available)


def eager_tokens(free: int, heads: int) -> int:
    """Over how many tokens eager attention fits: it holds a layer's matrix, and works on copies of it."""
    return int((0.5 * free / (8 * 5 * heads)) ** 0.5)


def refuse_if_too_large(name: str, needed: int, device: torch.device, dtype: str) -> None:
    """Refuse a model that can't fit, before loading it."""
    free = free_memory(device)
    if needed > free:
        raise not_enough_memory(name, f"{dtype} on {device}: its weights need {size(needed)} and {size(free)} is free")


def not_enough_memory(name: str, numbers: str) -> AttnscopeError:
    """The error for a model that doesn't fit, with the numbers as its third part."""
    return AttnscopeError(
        "not enough memory for the model",
        where=name,
        allowed=numbers,
        todo=(
            "free some memory, or choose ",
            Parameter("dtype", "bfloat16"),
            ", another device, a device map or a smaller model",
        ),
    )


@contextmanager
def shortage_explained(name: str) -> Iterator[None]:
    """Turn any allocator's out-of-memory error into one that says so."""
    try:
        yield
    except AttnscopeError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise not_enough_memory(name, "it ran out while loading") from error
        raise


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error raised while loading means that memory ran out, whichever allocator raised it."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    message = str(error).lower()
    return any(phrase in message for phrase in ("can't allocate memory", "cannot allocate memory", "out of memory"))


def size(count: int) -> str:
    """A number of bytes in words."""
    return f"{count / 1024**3:.1f} GiB" if count >= 1024**3 else f"{count / 1024**2:.2f} MiB"


def _control_group_room(root: Path = Path("/sys/fs/cgroup")) -> int | None:
    try:
        limit, used = int((root / "memory.max").read_text()), int((root / "memory.current").read_text())
        stat: dict[str, Any] = dict(line.split() for line in (root / "memory.stat").read_text().splitlines())
        return limit - used + int(stat["inactive_file"])
    except (OSError, ValueError, KeyError):  # no control groups, or no limit ("max")
        return None
