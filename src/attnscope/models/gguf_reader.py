"""Opening GGUF files: one that is cut short or damaged is refused, and transformers gets the reader that parsed it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import RLock
from typing import Any

import numpy as np

from attnscope.errors import AttnscopeError
from attnscope.models.memory import is_out_of_memory
from attnscope.models.weights import broken

CONVERTING = RLock()
"""Held while a file is converted: transformers finds the parsed file in a place that all threads share."""


def open_gguf(path: Path) -> Any:
    """A reader of the file; refuses one whose header is damaged or whose tensors would end beyond the file."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
    from gguf.gguf_reader import GGUFReader

    class Checked(GGUFReader):
        """Stops where the file ends, and sees where the last tensor should end before any is touched."""

        @property
        def data(self) -> Any:
            return self._bytes

        @data.setter
        def data(self, mapped: Any) -> None:
            self._bytes = mapped.view(np.ndarray)  # whose slices are made many times faster

        def _get(self, offset: int, dtype: Any, count: int = 1, override_order: Any = None) -> Any:
            numbers = super()._get(offset, dtype, count, override_order)
            if len(numbers) < count:
                raise ValueError(f"{count} numbers at byte {offset} don't fit")
            return numbers

        def _build_tensors(self, start_offs: int, fields: list[Any]) -> None:
            ends = [0]
            for field in fields:
                _, _, _, dims, kind, offset = field.parts
                block, bytes_of_block = GGML_QUANT_SIZES[GGMLQuantizationType(kind[0])]
                ends.append(start_offs + int(offset[0]) + math.prod(map(int, dims)) * bytes_of_block // block)
            missing = max(ends) - path.stat().st_size
            if missing > 0:
                raise broken(path, f"it is {missing:,} bytes short of {max(ends):,}")
            super()._build_tensors(start_offs, fields)

    with damage_explained(path):
        return Checked(path)


@contextmanager
def damage_explained(path: Path) -> Iterator[None]:
    """Turn whatever a damaged header trips in the libraries into the error that says so."""
    try:
        yield
    except AttnscopeError:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        reason = str(error) or type(error).__name__
        raise broken(
            path, f"its header can't be used; it has {path.stat().st_size:,} bytes ({reason[:200]})"
        ) from error


@contextmanager
def parsed_once(path: Path, reader: Any) -> Iterator[None]:
    """Give transformers a reader that has parsed the file, instead of one anew for config and weights."""
    library: Any = import_module("gguf")
    original = import_module("gguf.gguf_reader").GGUFReader

    def stand_in(wanted: Any, *arguments: Any) -> Any:
        same = Path(wanted).resolve() == path.resolve()
        return reader if same else original(wanted, *arguments)

    with CONVERTING:
        library.GGUFReader = stand_in
        try:
            yield
        finally:
            library.GGUFReader = original
