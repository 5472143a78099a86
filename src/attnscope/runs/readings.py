"""TEMPORARY: records from today's readings. Goes as soon as `Lens.measure_prepared` returns records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnscope.attention.reading import Reading
from attnscope.measures.patterns import PATTERNS
from attnscope.record import RECEIVED, SEEN, VIEW, Record


def record_of(reading: Reading, measures: Sequence[str]) -> Record:
    """TEMPORARY: the record that the rewritten lens will give. Layers that share a view keep it once."""
    visible = np.stack([reading.uniform, reading.seen], 1)  # (layers, 2, heads or 1, groups, keys)
    parts = [visible.reshape(len(visible), -1)]
    if reading.patterns is not None:
        parts.append(reading.patterns[..., 1:].reshape(len(visible), -1))
    numbers: dict[bytes, int] = {}
    rows = np.concatenate(parts, 1)
    view = np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in rows], dtype=np.int32)
    first = [int(np.flatnonzero(view == number)[0]) for number in range(len(numbers))]
    arrays: dict[str, NDArray[Any]] = {
        RECEIVED: reading.received,
        VIEW: view,
        SEEN: reading.seen[first],
        f"{RECEIVED}.uniform": reading.uniform[first],
    }
    if reading.entropy is not None:
        arrays["entropy"] = reading.entropy
        arrays["entropy.uniform"] = np.full_like(reading.seen[first][..., 0], np.nan)  # the new lens knows it
    for place, name in enumerate(PATTERNS if reading.patterns is not None else ()):
        if name in measures:
            attention, expected, having = np.moveaxis(reading.patterns[:, :, place], -1, 0)  # type: ignore[index]
            share = np.where(having > 0, having, 1)
            arrays[name] = attention / share
            arrays[f"{name}.uniform"] = (expected / share)[first]
            arrays[f"{name}.defined"] = having[first]
    return Record(reading.text, reading.tokens, reading.layers, reading.heads, reading.queries, arrays)
