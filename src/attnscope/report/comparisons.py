"""Comparisons as files: every number as csv, what is worth reading as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from attnscope.analysis.comparisons import Compared
from attnscope.errors import AttnscopeError
from attnscope.figures.prose import markdown
from attnscope.report.comparison_tables import comparisons_document


def write_comparisons(found: Sequence[Compared], folder: Path) -> list[Path]:
    """heads.csv, classes.csv and comparisons.md in a folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / name for name in ("heads.csv", "classes.csv", "comparisons.md")]
        for path, part in zip(paths, ("heads", "overall"), strict=False):
            named = [(pl.lit(each.comparison.name).alias("comparison"), getattr(each, part)) for each in found]
            pl.concat([frame.select(name, pl.all()) for name, frame in named]).write_csv(path)
        paths[2].write_text(markdown(comparisons_document(found)), encoding="utf-8")
    except OSError as error:
        raise AttnscopeError(
            f"can't write the comparisons: {error.strerror or error}",
            where=str(folder),
            allowed="a folder that can be written to",
            todo="choose another folder",
        ) from error
    return paths
