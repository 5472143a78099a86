"""A run, opened for questions. Reads its files alone: no model, no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from attnscope.errors import AttnscopeError
from attnscope.runs.marks import mark_of
from attnscope.runs.shards import CellReader
from attnscope.study.schema import Study
from attnscope.text.classes import OTHER

if TYPE_CHECKING:
    from attnscope.analysis.comparisons import Compared

FINISHED = "finished"
TABLES = ("prompts", "tokens", "received", "views", "patterns", "mass")
_NAMES = ("model", "condition", "queries", "token_class", "segment")


class ChangedError(AttnscopeError):
    """The run's tables were written anew since it was opened: open it again."""


class Run:
    """`run.table("mass")` and the like are lazy: only what is asked for is read.

    unfinished: open it even if it is still being measured, or was stopped; it then holds what is in its tables so far.
    """

    def __init__(self, path: Path | str, *, unfinished: bool = False) -> None:
        self.path = Path(path)
        manifest = self.path / "manifest.json"
        if not manifest.is_file():
            raise AttnscopeError(
                "there is no run here",
                where=str(path),
                allowed="a folder that 'attnscope run' wrote",
                todo="run a study first",
            )
        try:
            self.manifest: dict[str, Any] = json.loads(manifest.read_text(encoding="utf-8"))
            self.study = Study.model_validate(self.manifest["study"])
            self.manifest["versions"]["attnscope"]
            self.status: str = self.manifest["status"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise AttnscopeError(
                f"this run's manifest can't be read ({type(error).__name__})",
                where=str(manifest),
                allowed="a manifest that this version of attnscope wrote",
                todo="run the study again into another folder",
            ) from error
        if self.status != FINISHED and not unfinished:
            raise AttnscopeError(
                f"this run is not finished: it is {self.status}",
                where=str(path),
                allowed="finished runs",
                todo="give the same 'attnscope run' again; it goes on where it was",
            )
        self.mark = self._mark()
        self.caching: set[str] | None = None
        """Names of what is kept of it (see `analysis.kept`), while that is being written."""

    def _mark(self) -> str | None:
        """Of its tables. Those of an unfinished run may be of an older study, or not there yet."""
        prompts = self.path / "prompts.parquet"
        mark = mark_of(prompts) if prompts.is_file() else None
        if self.status != FINISHED and (mark is None or mark != self.manifest.get("tables")):
            raise AttnscopeError(
                f"nothing of this run can be shown yet: it is {self.status}",
                where=str(self.path),
                allowed="runs of which some prompts are in the tables",
                todo="wait a little, or give the same 'attnscope run' again if it was stopped",
            )
        return mark

    def table(self, name: str) -> pl.LazyFrame:
        """prompts, tokens, received, views or mass; see docs/run.md for their columns."""
        frame = pl.scan_parquet(self._file(name))
        held = frame.collect_schema().names()
        return frame.with_columns(pl.col(column).cast(pl.String) for column in _NAMES if column in held)

    def rows(
        self, name: str, model: str, condition: str, columns: Sequence[str], prompt: int | None = None
    ) -> pl.DataFrame:
        """Columns of a table, of one model under one condition (and of one prompt); reads no more than it must."""
        keys = {"model": model, "condition": condition} | ({} if prompt is None else {"prompt": prompt})
        path, wanted = self._file(name), tuple(columns)
        with pq.ParquetFile(path, pre_buffer=False) as file:
            held = {group: _holds(file, group, keys) for group in range(file.num_row_groups)}
        parts = []
        for whole, group in groupby((each for each in held if held[each] is not False), lambda each: held[each]):
            read = wanted if whole else tuple(dict.fromkeys([*keys, *columns]))
            if prompt is None:
                part = _row_groups(path, tuple(group), read)
            else:  # the next prompt asked for is likely among these too
                part = _held_row_groups(path, path.stat().st_mtime_ns, tuple(group), read)
            parts.append(part if whole else part.filter(_where(part, keys)).select(list(columns)))
        if not parts:
            parts = [_row_groups(path, (), wanted)]
        found = pl.from_arrow(pa.concat_tables(parts).unify_dictionaries())
        assert isinstance(found, pl.DataFrame)  # noqa: S101
        return found.with_columns(pl.col(each).cast(pl.String) for each in _NAMES if each in columns)

    def _file(self, name: str) -> Path:
        path = self.path / f"{name}.parquet"
        if not path.is_file():
            raise AttnscopeError(
                f"the run has no table '{name}'",
                where=str(self.path),
                allowed="a run with all its tables",
                todo="give the same 'attnscope run' again; it makes them from what was measured",
            )
        mark = mark_of(path)
        if mark is not None and mark != self.mark:
            raise ChangedError(
                "the run was written anew while it was read",
                where=str(path),
                allowed="tables that were written together",
                todo="open the run again",
            )
        return path

    @cached_property
    def chance(self) -> str:
        """A hash of what statistics depend on besides the tables: the seed, and what rounding makes of each model."""
        noise = {label: known.get("sample") for label, known in self.manifest["models"].items()}
        return hashlib.sha256(json.dumps([self.study.seed, noise], sort_keys=True).encode()).hexdigest()

    @cached_property
    def is_whole(self) -> bool:
        """Whether its tables are as attnscope wrote them, together."""
        return self.mark is not None and all(mark_of(self._file(name)) == self.mark for name in TABLES)

    @cached_property
    def cells(self) -> CellReader | None:
        """What was measured, cell by cell; None if it is not all there, or if the table of it is not of these cells."""
        if mark_of(self._file("received")) is None:
            return None  # someone made the table anew
        reader = CellReader(self.path)
        return reader if all(key in reader for key in self._cells["cell"]) else None

    @cached_property
    def _cells(self) -> pl.DataFrame:
        columns = ("model", "condition", "prompt", "cell", "tokens")
        return self.table("prompts").select(*columns).collect()

    def cells_of(self, model: str, condition: str) -> pl.DataFrame:
        """prompt, cell, tokens: of one model under one condition, in the order of prompts."""
        here = (pl.col("model") == model) & (pl.col("condition") == condition)
        return self._cells.filter(here).select("prompt", "cell", "tokens").sort("prompt", maintain_order=True)

    @cached_property
    def models(self) -> list[str]:
        """Labels of the models that have cells, in the study's order."""
        held = set(self._cells["model"])
        return [part.label for part in self.study.models if part.label in held]

    @cached_property
    def conditions(self) -> list[str]:
        held = set(self._cells["condition"])
        return [part.name for part in self.study.conditions if part.name in held]

    def compare(self, other: Run | None = None) -> list[Compared]:
        """What differs between its conditions and models, or between it and another run; see docs/statistics.md."""
        from attnscope.analysis.comparisons import compare, comparisons
        from attnscope.analysis.two_runs import between

        return [compare(each) for each in (comparisons(self) if other is None else between(self, other))]

    def has(self, model: str, condition: str) -> bool:
        """Whether any prompt of a model was measured under a condition."""
        return bool(self.prompts(model, condition))

    def prompts(self, model: str, condition: str) -> set[int]:
        """The numbers of the prompts of a model that were measured under a condition."""
        return self._prompts.get((model, condition), set())

    @cached_property
    def _prompts(self) -> dict[tuple[str, str], set[int]]:
        found: dict[tuple[str, str], set[int]] = {}
        for model, condition, prompt in self._cells.select("model", "condition", "prompt").rows():
            found.setdefault((model, condition), set()).add(prompt)
        return found

    def refuse_if_spoilt(self, values: NDArray[Any], table: str, where: str) -> None:
        """Numbers that are none, as a table may hold that was changed by hand or damaged."""
        if not np.isfinite(values).all():
            raise AttnscopeError(
                "some of the numbers are not a number",
                where=f"{self.path / table}.parquet: {where}",
                allowed="tables as 'attnscope run' wrote them",
                todo="remove the table and give the same 'attnscope run' again",
            )

    @property
    def classes(self) -> list[str]:
        return [*self.study.classes, OTHER]

    def layers(self, model: str) -> list[int]:
        found: list[int] = self.manifest["models"][model]["layers"]
        return found

    def heads(self, model: str) -> list[int]:
        found: list[int] = self.manifest["models"][model]["heads"]
        return found

    def noise(self, model: str, queries: str) -> NDArray[np.float64] | None:
        """(layers, heads): how far rounding moves a head's attention on these prompts; None if it was not measured."""
        found = self.manifest["models"][model].get("sample", {}).get("noise", {}).get("moved")
        return None if found is None or queries not in found else np.asarray(found[queries], dtype=np.float64)

    def layout(self, model: str) -> str | None:
        """How the model got its prompts: `chat` (its chat template) or `plain`; None in runs that don't say."""
        layout: str | None = self.manifest["models"][model].get("layout")
        return layout

    def depth(self, model: str) -> int:
        """How many layers the model has, measured or not."""
        known = self.manifest["models"][model]
        return int(known.get("depth") or len(known["heads_by_layer"]))


def _row_groups(path: Path, groups: tuple[int, ...], columns: tuple[str, ...]) -> pa.Table:
    with pq.ParquetFile(path, pre_buffer=False) as file:
        return file.read_row_groups(groups, columns=list(columns))


@lru_cache(maxsize=4)
def _held_row_groups(path: Path, modified: int, groups: tuple[int, ...], columns: tuple[str, ...]) -> pa.Table:
    return _row_groups(path, groups, columns)


def _holds(file: pq.ParquetFile, group: int, keys: dict[str, Any]) -> bool | None:
    """Whether all rows of a row group have these values, or none has; None if some may."""
    sure = True
    for key, value in keys.items():
        known = file.metadata.row_group(group).column(file.schema_arrow.get_field_index(key)).statistics
        if known is None or not known.has_min_max:
            sure = False
        elif not known.min <= value <= known.max:
            return False
        else:
            sure = sure and known.min == known.max
    return True if sure else None


def _where(held: pa.Table, keys: dict[str, Any]) -> pa.Array:
    """Which rows have these values."""
    here = np.ones(len(held), dtype=bool)
    for key, value in keys.items():
        column = held[key].unify_dictionaries().combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        if isinstance(column, pa.DictionaryArray):
            names = column.dictionary.to_pylist()
            here &= column.indices.to_numpy() == (names.index(value) if value in names else -1)
        else:
            here &= column.to_numpy(zero_copy_only=False) == value
    return pa.array(here)
