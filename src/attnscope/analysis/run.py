"""An open run. Reads only its files: no model, no torch."""

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

from attnscope.arguments import names_of, path_of, place_of, text_of
from attnscope.errors import AttnscopeError, Parameter, near
from attnscope.places import check_place, writing, written_whole
from attnscope.runs.columns import EXPORTS, OUTCOMES, columns_of, tables_of
from attnscope.runs.export import exported
from attnscope.runs.integrity import DamagedError, is_intact, refuse_if_changed
from attnscope.runs.manifest import STUDY, Manifest, ModelFacts, read_manifest
from attnscope.runs.parquet import parquet_writer
from attnscope.runs.shards import CellReader
from attnscope.text.classes import OTHER
from attnscope.text.query_rules import Group

if TYPE_CHECKING:
    from attnscope.analysis.compared import Compared

FINISHED = "finished"
_NAMES = ("model", "condition", "intervention", "queries", "measure", "token_class", "segment")


class ChangedError(AttnscopeError):
    """The run's tables were rewritten since it was opened; open it again."""


class Run:
    """A run on disk. `run.table("mass")` and the like are lazy: only what you use is read.

    unfinished: open it even if it is still being measured or was stopped; you then get what is in its tables so far.
    verify: refuse files that were changed after they were written. Without it, tables that you changed are used as
    they are, by key and in any order of rows, and nothing is cached.
    """

    def __init__(self, path: Path | str, *, unfinished: bool = False, verify: bool = True) -> None:
        self.path = Path(path_of(path, "path", "the folder of a run"))
        manifest = read_manifest(self.path)
        if manifest is None:
            raise AttnscopeError(
                "there is no run here",
                where=str(path),
                allowed="a folder that 'attnscope run' wrote",
                todo="run a study first",
            )
        self.manifest: Manifest = manifest
        self.verify = verify
        self.study = manifest.study
        self.status: str = manifest.status
        if self.status != FINISHED and not unfinished:
            raise AttnscopeError(
                f"this run is not finished: it is {self.status}",
                where=str(path),
                allowed="finished runs",
                todo="repeat the same 'attnscope run'; it continues where it stopped",
            )
        if not manifest.tables:
            raise AttnscopeError(
                f"there is nothing to show for this run yet: it is {self.status}",
                where=str(self.path),
                allowed="runs with some prompts in their tables",
                todo="wait a little, or repeat the same 'attnscope run' if it was stopped",
            )
        if verify and self.status == FINISHED:
            refuse_if_changed(self.path / STUDY, manifest.study_sha256, "the run's study file")
        self.cached_files: set[str] | None = None
        """The names of this run's cached results while they are being written; see `analysis.cache`."""

    @property
    def tables_key(self) -> str:
        """Changes with the content of any table."""
        return self.manifest.tables_key or ""

    def table(self, name: str) -> pl.LazyFrame:
        """prompts, tokens, mass, heads or outcomes; see docs/run.md for their columns."""
        frame = pl.scan_parquet(self._file(name))
        columns = frame.collect_schema().names()
        frame = frame.with_columns(pl.col(column).cast(pl.String) for column in _NAMES if column in columns)
        return frame if self.verify else self._in_order(frame, columns)

    def _in_order(self, frame: pl.LazyFrame, columns: Sequence[str]) -> pl.LazyFrame:
        """Rows in the study's order, whatever order they have in the file."""
        labels: dict[str, Sequence[str]] = {
            "model": [spec.label for spec in self.study.models],
            "condition": [spec.name for spec in self.study.conditions],
            "queries": [group.name for group in self.groups],
            "measure": self.study.measure.all_measures,
            "token_class": self.token_sets,
            "intervention": [spec.name for spec in self.study.interventions],
        }
        within = ("position", "queries", "intervention", "layer", "head", "measure", "token_class")
        by = []
        for name in ("model", "condition", "prompt", *within):
            if name in labels and name in columns:
                places = {label: place for place, label in enumerate(labels[name])}
                by.append(pl.col(name).replace_strict(places, default=len(places), return_dtype=pl.Int64))
            elif name in columns:
                by.append(pl.col(name))
        return frame.sort(by, maintain_order=True)

    def rows(
        self, name: str, model: str, condition: str, columns: Sequence[str], prompt: int | None = None
    ) -> pl.DataFrame:
        """Columns of a table for one model under one condition (and one prompt); reads no more than needed."""
        number = None if prompt is None else place_of(prompt, "prompt")
        frame = pl.from_arrow(self.arrow_rows(name, model, condition, columns, prompt=number))
        assert isinstance(frame, pl.DataFrame)  # noqa: S101
        return frame.with_columns(pl.col(each).cast(pl.String) for each in _NAMES if each in columns)

    def arrow_rows(
        self, name: str, model: str, condition: str, columns: Sequence[str], **more: str | int | None
    ) -> pa.Table:
        """The same, with names dictionary-encoded. more: required values of other key columns; None means any."""
        keys: dict[str, str | int] = {"model": text_of(model, "model"), "condition": text_of(condition, "condition")}
        keys |= {key: each for key, each in more.items() if each is not None}
        path, wanted = self._file(name), tuple(names_of(columns, "columns", "prompt"))
        with pq.ParquetFile(path, pre_buffer=False) as file:
            _refuse_unknown_columns(name, [*keys, *wanted], file.schema_arrow.names)
            holds = {group: _holds(file, group, keys) for group in range(file.num_row_groups)}
        parts = []
        for whole, group in groupby((each for each in holds if holds[each] is not False), lambda each: holds[each]):
            read = wanted if whole else tuple(dict.fromkeys([*keys, *wanted]))
            if "prompt" in keys:  # the next prompt is probably in the same row groups
                part = _cached_row_groups(path, path.stat().st_mtime_ns, tuple(group), read)
            else:
                part = _row_groups(path, tuple(group), read)
            parts.append(part if whole else part.filter(_where(part, keys)).select(list(wanted)))
        if not parts:
            parts = [_row_groups(path, (), wanted)]
        return pa.concat_tables(parts).unify_dictionaries()

    def _file(self, name: str) -> Path:
        path, facts = self.path / f"{name}.parquet", self.manifest.tables.get(str(name))
        if facts is None or name not in tables_of(self.study):
            allowed = f"{', '.join(tables_of(self.study))}; 'attnscope export' writes {' and '.join(EXPORTS)}"
            raise AttnscopeError(
                f"the run has no table '{name}'", where=str(self.path), allowed=allowed, todo="name one of these"
            )
        if self.verify and not is_intact(path, facts.sha256):
            self._refuse_changed(path, facts.sha256)
        if not path.is_file():
            refuse_if_changed(path, facts.sha256, f"table '{name}'")
        if not self.verify:
            self._refuse_incomplete(path)
        return path

    def _refuse_incomplete(self, path: Path) -> None:
        """A table that someone changed still has to have all its columns."""
        columns = _columns(path, path.stat().st_mtime_ns)
        missing = [column.name for column in columns_of(path.stem) if column.name not in columns]
        if missing:
            raise unusable(str(path), f"it has no column '{missing[0]}'")

    def _refuse_changed(self, path: Path, digest: str) -> None:
        """A table differs from the manifest: either the run is being written, or the table was changed."""
        self._refuse_rewritten(path)
        if path.is_file():
            raise DamagedError(
                f"table '{path.stem}' was changed or damaged after it was written",
                where=str(path),
                allowed=f"the table as 'attnscope run' wrote it (SHA-256 {digest[:12]}...)",
                todo="repeat the same 'attnscope run', which rewrites it; or use Run(path, verify=False)",
            )

    def _refuse_rewritten(self, path: Path) -> None:
        now = read_manifest(self.path)
        if now is None or now.sha256 != self.manifest.sha256 or now.status != FINISHED:
            raise ChangedError(
                "the run was rewritten while it was being read",
                where=str(path),
                allowed="tables that were written together",
                todo="open the run again; if nothing is writing it, repeat the same 'attnscope run'",
            )

    @cached_property
    def statistics_key(self) -> str:
        """A hash of what statistics depend on besides the tables: seed, margin, and each model's rounding error."""
        samples = {
            label: facts.sample and facts.sample.model_dump(mode="json")
            for label, facts in self.manifest.models.items()
        }
        return hashlib.sha256(
            json.dumps([self.study.seed, self.study.margin, samples], sort_keys=True).encode()
        ).hexdigest()

    @property
    def is_whole(self) -> bool:
        """Whether its tables are as attnscope wrote them."""
        return self.verify and all(self._file(name) for name in self.manifest.tables)

    @property
    def has_outcomes(self) -> bool:
        """Whether it has the outcomes of interventions."""
        return OUTCOMES in self.manifest.tables

    @cached_property
    def cells(self) -> CellReader:
        """The measured arrays, cell by cell."""
        return CellReader(self.path, self.manifest.shards, self.verify)

    @cached_property
    def _cells(self) -> pl.DataFrame:
        columns, path = ("model", "condition", "prompt", "cell", "tokens"), self.path / "prompts.parquet"
        cells = self.table("prompts").select(*columns).collect()
        duplicated = cells.filter(cells.select("model", "condition", "prompt").is_duplicated())
        if len(duplicated):
            model, condition, prompt = duplicated.row(0)[:3]
            raise unusable(f"{path}: {model}, {condition}, prompt {prompt}", "it has several rows for one prompt")
        wanted = self.manifest.tables["prompts"].rows
        if len(cells) != wanted:
            self._refuse_rewritten(path)
            raise unusable(str(path), f"it has {len(cells)} rows instead of {wanted}")
        return cells

    def cells_of(self, model: str, condition: str) -> pl.DataFrame:
        """The columns prompt, cell and tokens for one model under one condition, ordered by prompt."""
        here = (pl.col("model") == text_of(model, "model")) & (pl.col("condition") == text_of(condition, "condition"))
        return self._cells.filter(here).select("prompt", "cell", "tokens").sort("prompt", maintain_order=True)

    @cached_property
    def models(self) -> list[str]:
        """Labels of the models that have cells, in the study's order."""
        labels = set(self._cells["model"])
        return [spec.label for spec in self.study.models if spec.label in labels]

    @cached_property
    def families(self) -> dict[str, list[str]]:
        """By name of a training: the labels of its checkpoints that have cells, in the order of their steps."""
        specs = sorted((self.study.model(label) for label in self.models), key=lambda spec: spec.step or 0)
        return {name: [spec.label for spec in specs if spec.family == name] for name in self._families}

    @property
    def _families(self) -> list[str]:
        named = (self.study.model(label).family for label in self.models)
        return list(dict.fromkeys(name for name in named if name is not None))

    @cached_property
    def compared_models(self) -> list[str]:
        """The models, but of each training only the first and the last checkpoint."""
        within = {label for labels in self.families.values() for label in labels[1:-1]}
        return [label for label in self.models if label not in within]

    @cached_property
    def conditions(self) -> list[str]:
        """Names of the conditions that have cells, in the study's order."""
        names = set(self._cells["condition"])
        return [spec.name for spec in self.study.conditions if spec.name in names]

    def compare(self, other: Run | None = None) -> list[Compared]:
        """What differs between its conditions and models, or between it and another run; see docs/statistics.md."""
        from attnscope.analysis.compared import compare
        from attnscope.analysis.comparisons import comparisons
        from attnscope.analysis.two_runs import between

        if other is not None and not isinstance(other, Run):
            raise AttnscopeError(
                f"a {type(other).__name__} is not a run",
                where=Parameter("other"),
                allowed="another run, or nothing to compare what is in this one",
                todo="open it with attnscope.Run(path)",
            )
        return [compare(each) for each in (comparisons(self) if other is None else between(self, other))]

    def export(self, table: str, file: Path | str | None = None) -> Path:
        """Write the large arrays as a Parquet table, `received` or `views`; by default RUN/exports/TABLE.parquet."""
        if not isinstance(table, str) or table not in EXPORTS:
            raise AttnscopeError(
                f"there is no table '{table}' to export",
                where="table",
                allowed=f"{', '.join(EXPORTS)}; {', '.join(tables_of(self.study))} are Parquet already",
                todo="name one of these",
            )
        path = (
            self.path / "exports" / f"{table}.parquet"
            if file is None
            else Path(path_of(file, "file", "a file for the table"))
        )
        if file is None:
            with writing(path, "the table"):
                path.parent.mkdir(exist_ok=True)
        check_place(path, "the table")
        with written_whole(path, "the table") as partial:
            writer = parquet_writer(table, partial)
            try:
                for model, condition, prompt, cell in self._cells.select("model", "condition", "prompt", "cell").rows():
                    where = {"model": model, "condition": condition, "prompt": prompt}
                    labels = self.cells.shard(cell).labels(cell)
                    writer.write_batch(exported(table, where, labels, self.cells.arrays(cell)))
            finally:
                writer.close()
        return path

    def clusters(self, prompts: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
        """A number for each prompt; prompts with the same number are not independent."""
        return np.array([self.cluster_of[int(prompt)] for prompt in prompts], dtype=np.int64)

    @cached_property
    def cluster_of(self) -> dict[int, int]:
        """The number of each prompt's cluster."""
        rows = self.table("prompts").select("prompt", "cluster").unique().sort("prompt").collect()
        several = rows.filter(rows["prompt"].is_duplicated())
        if len(several):
            where = f"{self.path / 'prompts.parquet'}: prompt {several['prompt'][0]}"
            raise unusable(where, "it belongs to several clusters")
        places = {name: place for place, name in enumerate(rows["cluster"].unique(maintain_order=True))}
        return {prompt: places[name] for prompt, name in rows.rows()}

    def has(self, model: str, condition: str) -> bool:
        """Whether any prompt was measured for a model under a condition."""
        return bool(self.prompts(model, condition))

    def prompts(self, model: str, condition: str) -> set[int]:
        """The numbers of the prompts that were measured for a model under a condition."""
        return self._prompts.get((text_of(model, "model"), text_of(condition, "condition")), set())

    @cached_property
    def _prompts(self) -> dict[tuple[str, str], set[int]]:
        numbers: dict[tuple[str, str], set[int]] = {}
        for model, condition, prompt in self._cells.select("model", "condition", "prompt").rows():
            numbers.setdefault((model, condition), set()).add(prompt)
        return numbers

    @property
    def groups(self) -> list[Group]:
        """The query groups that prompts have, in the study's order."""
        return self.manifest.groups

    @property
    def queries(self) -> list[str]:
        """The names of the query groups that belong to no series: what is compared and mapped by default."""
        return [group.name for group in self.groups if group.series is None]

    @cached_property
    def series(self) -> dict[str, list[Group]]:
        """The series of query groups by title, each in order."""
        titles = list(dict.fromkeys(group.series for group in self.groups if group.series is not None))
        return {title: [group for group in self.groups if group.series == title] for title in titles}

    def group(self, queries: str) -> Group:
        """The query group of a name."""
        for group in self.groups:
            if group.name == queries:
                return group
        raise AttnscopeError(
            f"there is no query group '{queries}' in this run",
            where=Parameter("queries"),
            allowed=near(queries, [*self.queries, *(group.name for group in self.groups)]),
            todo="use one of these",
        )

    @property
    def classes(self) -> list[str]:
        """Names of the study's classes, then `other`."""
        return [*self.study.classes, OTHER]

    @property
    def token_sets(self) -> list[str]:
        """Everything that has a mass: the classes, the sets beside them, and `removed` if tokens are left out."""
        return self.study.token_sets

    def lacking(self, model: str, condition: str, groups: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The prompts of one model and condition, and (prompts, groups): which groups each of them lacks."""
        numbers = self.cells_of(model, condition)["prompt"].to_numpy().astype(np.int64)
        rows = self.rows("prompts", model, condition, ["prompt", "query_groups"])
        by_prompt = dict(zip(rows["prompt"].to_list(), rows["query_groups"].to_list(), strict=True))
        has = [set(by_prompt[number] or ()) for number in numbers.tolist()]
        flags = [[name not in each for name in groups] for each in has]
        return numbers, np.array(flags, dtype=bool).reshape(len(has), len(groups))

    def layers(self, model: str) -> list[int]:
        """The layers of a model that were measured."""
        return self._facts(model).layers

    def heads(self, model: str) -> list[int]:
        """The heads of a model that were measured."""
        return self._facts(model).heads

    def noise(self, model: str, queries: str) -> NDArray[np.float64] | None:
        """(layers, heads): how far rounding moves a head's attention on these prompts; None if not measured."""
        sample = self._facts(model).sample
        group = self.group(text_of(queries, "queries"))
        moved = None if sample is None else sample.noise.moved.get(group.series or group.name)
        return None if moved is None else np.asarray(moved, dtype=np.float64)

    def sink_share(self, model: str) -> float:
        """The largest share of a row that no key receives, as far as the proof saw; 0 in models without sinks."""
        return float(self._facts(model).evidence.get("sink_share") or 0.0)

    def having(self, model: str, condition: str, queries: str) -> set[int]:
        """The prompts of one model and condition that have a query group."""
        numbers, lacking = self.lacking(model, condition, [queries])
        return set(numbers[~lacking[:, 0]].tolist())

    def layout(self, model: str) -> str | None:
        """How prompts were laid out: `chat` (through the model's chat template) or `plain`."""
        return self._facts(model).layout

    def depth(self, model: str) -> int:
        """How many layers the model has, measured or not."""
        return self._facts(model).depth

    def _facts(self, model: str) -> ModelFacts:
        known = self.manifest.models
        if not isinstance(model, str) or model not in known:
            raise AttnscopeError(
                f"there is no model '{model}' in this run",
                where=Parameter("model"),
                allowed=near(model, known),
                todo="use one of these",
            )
        return known[model]


def _refuse_unknown_columns(table: str, names: Sequence[str], known: Sequence[str]) -> None:
    for name in names:
        if name not in known:
            raise AttnscopeError(
                f"table '{table}' has no column '{name}'",
                where=Parameter("columns"),
                allowed=near(name, known),
                todo="choose columns from these",
            )


def unusable(where: str, problem: str) -> AttnscopeError:
    """The error for a table that was changed. where: the table, and the part of it."""
    return AttnscopeError(
        f"this table can't be used: {problem}",
        where=where,
        allowed="tables as 'attnscope run' wrote them",
        todo="repeat the same 'attnscope run'; it rewrites the table",
    )


@lru_cache(maxsize=16)
def _columns(path: Path, modified: int) -> frozenset[str]:
    try:
        return frozenset(pq.read_schema(path).names)
    except pa.ArrowException as error:
        raise unusable(str(path), f"it is not a Parquet file ({type(error).__name__})") from error


def _row_groups(path: Path, groups: tuple[int, ...], columns: tuple[str, ...]) -> pa.Table:
    with pq.ParquetFile(path, pre_buffer=False) as file:
        return file.read_row_groups(groups, columns=list(columns))


@lru_cache(maxsize=4)
def _cached_row_groups(path: Path, modified: int, groups: tuple[int, ...], columns: tuple[str, ...]) -> pa.Table:
    return _row_groups(path, groups, columns)


def _holds(file: pq.ParquetFile, group: int, keys: dict[str, Any]) -> bool | None:
    """Whether all rows of a row group have these values (True) or none has (False); None if some may."""
    sure = True
    for key, value in keys.items():
        known = file.metadata.row_group(group).column(file.schema_arrow.get_field_index(key)).statistics
        if known is None or not known.has_min_max:
            sure = False
        elif not known.min <= value <= known.max:
            return False
        else:
            sure = sure and known.min == known.max and not known.null_count
    return True if sure else None


def _where(rows: pa.Table, keys: dict[str, Any]) -> pa.Array:
    """Which rows have these values."""
    here = np.ones(len(rows), dtype=bool)
    for key, value in keys.items():
        column = rows[key].unify_dictionaries().combine_chunks()
        column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
        if isinstance(column, pa.DictionaryArray):
            names = column.dictionary.to_pylist()
            here &= column.indices.to_numpy() == (names.index(value) if value in names else -1)
        else:
            here &= column.to_numpy(zero_copy_only=False) == value
    return pa.array(here)
