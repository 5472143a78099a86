"""A small study on a model in memory, measured as often as one likes: class by class, layer by layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import polars as pl

from attnscope.analysis.means import mean_over_prompts
from attnscope.analysis.spread import cut_to_shares
from attnscope.errors import AttnscopeError
from attnscope.lens import Lens
from attnscope.models.architecture import describe
from attnscope.records import RECEIVED
from attnscope.runs.batches import batches
from attnscope.runs.cells import Cell, CellMaker
from attnscope.runs.measuring import measure_cells
from attnscope.runs.plan import memory_budget, model_axes
from attnscope.runs.tables import mass_rows
from attnscope.study.prompts import PromptList
from attnscope.study.schema import Study

KEYS = ["queries", "condition", "token_class"]


class SmallStudy:
    """The cells of a study with one model, which is in memory and may change between measurements."""

    def __init__(self, study: Study, prompts: PromptList, model: Any, tokenizer: Any) -> None:
        self.lens = Lens(model, tokenizer, name=study.models[0].label)
        maker = CellMaker(study, prompts, study.models[0], self.lens.tokenization, self.lens.loaded.context)
        self.cells, dropped = maker.make()
        if not self.cells:
            raise AttnscopeError(
                f"no prompt can be measured: {dropped[0].reason if dropped else 'there are none'}",
                where="the study",
                allowed="at least one prompt",
                todo="fix the study's prompts",
            )
        facts = describe(self.lens.model.config, self.lens.name)
        axes = model_axes(study, self.lens.name, facts, self.lens.heads_by_layer)
        self.axes = replace(axes, measures=[RECEIVED])
        self.clusters = {cell.prompt.number: cell.prompt.cluster for cell in self.cells}

    def prove(self) -> None:
        """Have the lens compare the model with eager attention, once, on the paths that measurements take."""
        lengths = {len(cell.tokens): cell for cell in self.cells}
        measure_cells(self.lens, [lengths[each] for each in sorted(lengths)[:2]], self.axes, self.axes.measures)

    def measure(self) -> pl.DataFrame:
        """queries, condition, token_class, layer, prompt, mass: mean over the heads of the layer."""
        limit = memory_budget(self.lens, self.axes, max(len(cell.groups) for cell in self.cells))
        numbers = batches([len(cell.tokens) for cell in self.cells], limit)
        frames = [frame for batch in numbers for frame in self._measured([self.cells[number] for number in batch])]
        return pl.concat(frames)

    def _measured(self, cells: list[Cell]) -> list[pl.DataFrame]:
        records = measure_cells(self.lens, cells, self.axes, self.axes.measures)
        return [self._by_layer(cell, record) for cell, record in zip(cells, records, strict=True)]

    def _by_layer(self, cell: Cell, record: Any) -> pl.DataFrame:
        rows = pl.DataFrame(pl.from_arrow(mass_rows(cell, "", self.axes, record)))
        rows = rows.with_columns(pl.col(*KEYS).cast(pl.String), pl.col("layer", "prompt").cast(pl.Int64))
        return rows.group_by(*KEYS, "layer", "prompt", maintain_order=True).agg(pl.col("mass").mean())

    def means(self, frame: pl.DataFrame, *, by_layer: bool) -> pl.DataFrame:
        """Mean over prompts with its 95 % interval: of each layer, or of the mean over layers."""
        keys = [*KEYS, "layer"] if by_layer else KEYS
        each = frame.group_by(*keys, "prompt", maintain_order=True).agg(pl.col("mass").mean())
        places = {name: place for place, name in enumerate(dict.fromkeys(self.clusters.values()))}
        clusters = {number: places[name] for number, name in self.clusters.items()}
        return cut_to_shares(mean_over_prompts(each, keys, "mass", clusters), "low", "high")
