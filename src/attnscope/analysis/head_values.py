"""Measures with one number per head, from the table `heads`: per prompt, layer and head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnscope.analysis.dense import dense
from attnscope.analysis.run import Run, unusable
from attnscope.measures.names import head_measures

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class HeadValues:
    """Arrays of (prompts, layers, heads); NaN where no query has a value."""

    prompts: NDArray[np.int64]
    value: Floats
    expected: Floats
    """The value for uniform attention."""
    defined: Floats
    """The share of queries that have a value."""


def per_head_measures(run: Run) -> list[str]:
    """The measures with one number per head that the study names."""
    return [name for name in run.study.measure.all_measures if name in head_measures()]


@lru_cache(maxsize=32)
def head_values(run: Run, model: str, condition: str, queries: str, measure: str) -> HeadValues:
    """One measure of one model, condition and query group."""
    prompts, lacking = run.lacking(model, condition, [queries])
    axes: dict[str, Sequence[Any]] = {
        "prompt": prompts.tolist(),
        "layer": run.layers(model),
        "head": run.heads(model),
    }
    columns = ["value", "expected", "defined"]
    rows = run.arrow_rows("heads", model, condition, [*axes, *columns], queries=queries, measure=measure)
    where = f"{run.path / 'heads.parquet'}: {model}, {condition}, queries {queries}, measure {measure}"
    value, expected = dense(rows, axes, columns[:2], where, missing=True, lacking=lacking[:, 0])
    (defined,) = dense(rows, axes, ["defined"], where, bounds=(0.0, 1.0001), lacking=lacking[:, 0])
    without = (defined > 0) & np.isnan(value)
    if without.any():
        places = zip(axes.items(), np.argwhere(without)[0], strict=True)
        place = ", ".join(f"{name} {labels[at]}" for (name, labels), at in places)
        raise unusable(where, f"value of {place} is missing")
    return HeadValues(prompts, value, expected, np.nan_to_num(defined))
