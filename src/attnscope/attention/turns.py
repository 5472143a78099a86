"""Turns: threads that run a model, or change it for a while, one at a time."""

from __future__ import annotations

import threading
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

_locks: WeakKeyDictionary[nn.Module, threading.RLock] = WeakKeyDictionary()
_table = threading.Lock()


def lock_of(model: nn.Module) -> threading.RLock:
    """Held by whoever runs a model or changes it for a while: its modes, buffers, weights or settings."""
    body = getattr(model, "base_model", model)
    with _table:
        return _locks.setdefault(body, threading.RLock())


class Turn:
    """Hooks that hold a model's lock while a thread runs it."""

    def __init__(self, model: nn.Module) -> None:
        self._lock = lock_of(model)
        self._here = threading.local()
        self._over = False

    def begin(self, *_forward: Any) -> None:
        """A forward begins."""
        self._lock.acquire()
        if self._over:  # the hook was taken off while this forward waited, so there is no other one to release it
            self._lock.release()
        else:
            self._here.depth = getattr(self._here, "depth", 0) + 1

    def end(self, *_forward: Any) -> None:
        """A forward is over, also one that failed."""
        if getattr(self._here, "depth", 0):
            self._here.depth -= 1
            self._lock.release()

    def close(self) -> None:
        """To be called while the lock is held. Forwards of this thread that never ended are over too."""
        self._over = True
        while getattr(self._here, "depth", 0):
            self.end()
