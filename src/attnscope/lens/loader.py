"""Lenses on models that are loaded one after another, each base of several adapters only once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attnscope.lens.lens import Lens
from attnscope.models.sharing import SharedLoader


class Loader:
    """Loads as `load` does, with the same numbers. Only the last lens it gave can be used.

    Sent to another process, it begins anew there.
    """

    def __init__(self) -> None:
        self._shared = SharedLoader()

    def __call__(self, name: str | Path, **options: Any) -> Lens:
        """options: as of `load`."""
        return Lens.of(self._shared.load(name, **options))

    def __reduce__(self) -> tuple[type[Loader], tuple[()]]:
        return Loader, ()
