"""Who is notified of a run's progress."""

from __future__ import annotations

from typing import Protocol


class Watcher(Protocol):
    """Is notified of progress."""

    def begin(self, what: str, tokens: int) -> None: ...

    def advance(self, tokens: int) -> None: ...

    def say(self, text: str) -> None: ...


class Silent:
    """A watcher that shows nothing."""

    def begin(self, what: str, tokens: int) -> None:
        pass

    def advance(self, tokens: int) -> None:
        pass

    def say(self, text: str) -> None:
        pass
