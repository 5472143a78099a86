"""What does not fit into memory, in words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from attnscope.errors import NoRoomError


@contextmanager
def room_for(what: str, where: str) -> Iterator[None]:
    """Inside, an allocator's error becomes one that says what did not fit; fewer prompts at once may fit."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error).lower():
            raise
        raise NoRoomError(
            f"not enough memory for {what}",
            where=where,
            allowed="what fits beside the model",
            todo="use a shorter prompt, fewer prompts at once or a smaller dtype",
        ) from error
