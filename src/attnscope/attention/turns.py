"""Turns: threads that run a model, or change it for a while, one at a time."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

CALL = "_call_impl"  # torch's function that runs a module with its hooks


class TurnLock:
    """Like `threading.RLock`, but what a thread held that has ended is free again."""

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.Lock())
        self._owner: threading.Thread | None = None
        self._depth = 0

    def acquire(self) -> None:
        me = threading.current_thread()
        with self._condition:
            while self._owner is not None and self._owner is not me and self._owner.is_alive():
                self._condition.wait(1.0)
            if self._owner is not me:
                self._owner, self._depth = me, 0
            self._depth += 1

    def release(self) -> None:
        with self._condition:
            if self._owner is not threading.current_thread():
                return
            self._depth -= 1
            if self._depth == 0:
                self._owner = None
                self._condition.notify()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_error: object) -> None:
        self.release()


_locks: WeakKeyDictionary[nn.Module, TurnLock] = WeakKeyDictionary()
_table = threading.Lock()


def lock_of(model: nn.Module) -> TurnLock:
    """Held by whoever runs a model or changes it for a while: its modes, buffers, weights or settings."""
    body = getattr(model, "base_model", model)
    with _table:
        return _locks.setdefault(body, TurnLock())


class Depth(threading.local):
    """How many forwards of a model a thread is inside, one within the other.

    A forward that an interrupt ended never reports its end; it is over once its frame has left the stack.
    """

    def __init__(self) -> None:
        self.frames: list[FrameType | None] = []

    def enter(self) -> int:
        """A forward begins. Returns how many of those before it never ended."""
        stack = _stack()
        inside = [each for each in self.frames if each is None or each in stack]
        lost = len(self.frames) - len(inside)
        self.frames = [*inside, next((each for each in stack if each.f_code.co_name == CALL), None)]
        return lost

    def leave(self) -> bool:
        """A forward is over. Returns whether its beginning was seen."""
        if not self.frames:
            return False
        self.frames.pop()
        return True


def _stack() -> list[FrameType]:
    frames: list[FrameType] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


class Turn:
    """Holds a model's lock while a thread runs it."""

    def __init__(self, model: nn.Module) -> None:
        self._lock = lock_of(model)
        self._depth = Depth()
        self._over = False

    def begin(self, *_forward: Any) -> None:
        """A forward begins."""
        self._lock.acquire()
        lost = self._depth.enter()
        if self._over:  # the hook was taken off while this forward waited, so there is no other one to release it
            self._depth.leave()
            lost += 1
        for _ in range(lost):
            self._lock.release()

    def end(self, *_forward: Any) -> None:
        """A forward is over, also one that failed."""
        if self._depth.leave():
            self._lock.release()

    def close(self) -> None:
        """To be called while the lock is held. Forwards of this thread that never ended are over too."""
        self._over = True
        while self._depth.leave():
            self._lock.release()
