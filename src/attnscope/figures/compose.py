"""Charts joined as data. altair describes each mark, but joining there would copy all of them at every step."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Literal

import altair as alt
import polars as pl

alt.data_transformers.disable_max_rows()  # a figure carries all its numbers

Description = dict[str, Any]
"""A chart in Vega-Lite, its numbers under `datasets`."""
NO_DATA = {"name": "empty"}  # what altair writes for a chart that has none of its own
TOP = ("$schema", "config", "datasets")  # what only the whole has


def joined(
    how: Literal["layer", "hconcat", "vconcat", "concat"],
    parts: Sequence[alt.Chart | Description],
    data: pl.DataFrame | None = None,
    **properties: Any,
) -> Description:
    """Charts in one: layered, or side by side. data: for those that have none. Undefined properties are left out."""
    charts = [described(part) for part in parts]
    whole: Description = {key: charts[0][key] for key in ("$schema", "config")}
    whole["datasets"] = {name: rows for part in charts for name, rows in part.get("datasets", {}).items()}
    if data is not None:
        name, rows = _named(data)
        whole["data"] = {"name": name}
        whole["datasets"][name] = rows
    whole[how] = [{key: value for key, value in part.items() if key not in TOP} for part in charts]
    return whole | _plain(properties)


def _named(data: pl.DataFrame) -> tuple[str, list[dict[str, Any]]]:
    """Rows, and a name made from their content."""
    rows = data.with_columns(pl.col(pl.Float64).fill_nan(None)).to_dicts()
    return f"data-{hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:32]}", rows


def faceted(part: Description, by: alt.Facet, **properties: Any) -> Description:
    """A chart for each value of a column, in rows of `columns`."""
    whole = {key: part[key] for key in (*TOP, "data") if key in part}
    inner = {key: value for key, value in part.items() if key not in whole}
    return whole | {"facet": by.to_dict(validate=False), "spec": inner} | _plain(properties)


def described(part: alt.Chart | Description) -> Description:
    if isinstance(part, dict):
        return part
    chart: Description = part.to_dict(validate=False)
    if chart.get("data") == NO_DATA:
        del chart["data"]
        chart.pop("datasets", None)
    return chart


def _plain(properties: dict[str, Any]) -> Description:
    known = {key: value for key, value in properties.items() if value is not alt.Undefined}
    return {key: value.to_dict(validate=False) if hasattr(value, "to_dict") else value for key, value in known.items()}


# What a picture's file can't contain: control characters become their signs, what is not a character becomes a box.
_SIGNS = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n\r"}
_SIGNS |= dict.fromkeys([0x7F, *range(0x80, 0xA0), 0xFFFE, 0xFFFF, *range(0xD800, 0xE000)], 0x25A1)
# Every object of JavaScript has these, so Vega takes a group of that name for one that it has made already.
_INHERITED = (
    *("constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString"),
    *("valueOf", "__proto__", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__"),
)


def drawable(value: Any) -> Any:
    """A description with every text in it as Vega and a picture's file can take it; it looks the same."""
    if isinstance(value, str):
        shown = value.translate(_SIGNS)
        return f"{shown}\u00a0" if shown in _INHERITED else shown
    if isinstance(value, dict):
        return {drawable(key): drawable(each) for key, each in value.items()}
    return [drawable(each) for each in value] if isinstance(value, list) else value
