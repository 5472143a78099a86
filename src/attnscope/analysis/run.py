"""A finished run, opened for questions. Reads its files alone: no model, no torch."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.errors import AttnscopeError
from attnscope.study.classes import OTHER
from attnscope.study.parts import Study

if TYPE_CHECKING:
    from attnscope.analysis.comparisons import Compared


class Run:
    """`run.table("mass")` and the like are lazy: only what is asked for is read."""

    def __init__(self, path: Path | str) -> None:
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
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise AttnscopeError(
                f"this run's manifest can't be read ({type(error).__name__})",
                where=str(manifest),
                allowed="a manifest that this version of attnscope wrote",
                todo="run the study again into another folder",
            ) from error
        if self.manifest["status"] != "finished":
            raise AttnscopeError(
                f"this run is not finished: it is {self.manifest['status']}",
                where=str(path),
                allowed="finished runs",
                todo="give the same 'attnscope run' again; it goes on where it was",
            )

    def table(self, name: str) -> pl.LazyFrame:
        """prompts, tokens, received, views or mass; see docs/run.md for their columns."""
        names = ("model", "condition", "queries", "token_class", "segment")
        if not (self.path / f"{name}.parquet").is_file():
            raise AttnscopeError(
                f"the run has no table '{name}'",
                where=str(self.path),
                allowed="a run with all its tables",
                todo="give the same 'attnscope run' again; it makes them from what was measured",
            )
        frame = pl.scan_parquet(self.path / f"{name}.parquet")
        held = frame.collect_schema().names()
        return frame.with_columns(pl.col(column).cast(pl.String) for column in names if column in held)

    @cached_property
    def models(self) -> list[str]:
        """Labels of the models that have cells, in the study's order."""
        held = set(self.table("prompts").select("model").unique().collect()["model"])
        return [part.label for part in self.study.models if part.label in held]

    @cached_property
    def conditions(self) -> list[str]:
        held = set(self.table("prompts").select("condition").unique().collect()["condition"])
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
        for model, condition, prompt in self.table("prompts").select("model", "condition", "prompt").collect().rows():
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

    @cached_property
    def empty_classes(self) -> list[str]:
        """Classes of which no query sees a token: the rule matches nothing there, or only what others claimed."""
        held = self.table("mass").filter(pl.col("expected") > 0).select("token_class").unique().collect()
        return [name for name in self.study.classes if name not in set(held["token_class"])]

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

    def depth(self, model: str) -> int:
        """How many layers the model has, measured or not."""
        known = self.manifest["models"][model]
        return int(known.get("depth") or len(known["heads_by_layer"]))
