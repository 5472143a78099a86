"""A small study on a model in memory, measured as often as one likes: class by class, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from attnscope.analysis.means import mean_over_prompts
from attnscope.analysis.sides import HAS_CLASS
from attnscope.analysis.spread import cut_to_shares
from attnscope.errors import restated
from attnscope.lens import Lens
from attnscope.models.architecture import describe
from attnscope.records import RECEIVED
from attnscope.runs.cells import Cell, CellMaker
from attnscope.runs.compatibility import chosen_layers
from attnscope.runs.measuring import measure_cells
from attnscope.runs.plan import model_axes
from attnscope.runs.tables import mass_rows
from attnscope.study.prompts import PromptList
from attnscope.study.schema import Study

KEYS = ["queries", "condition", "token_class"]


class SmallStudy:
    """The cells of a study with one model, which is in memory and may change between measurements.

    The model is compared with eager attention when this is made, on the path that measurements take.
    """

    def __init__(self, study: Study, prompts: PromptList, model: Any, tokenizer: Any) -> None:
        self.lens = Lens(model, tokenizer, name=study.models[0].label)
        maker = CellMaker(study, prompts, study.models[0], self.lens.tokenization, self.lens.loaded.context)
        self.cells, dropped = maker.make()
        if not self.cells:
            first = dropped[0]
            place = f"the study: {first.condition}, prompt {prompts.every[first.prompt].name}"
            error = maker.error(first)
            assert error is not None  # noqa: S101  (nothing was measured yet)
            raise restated(error, "no prompt can be measured", place)
        facts = describe(self.lens.model.config, self.lens.name)
        self._prove(min(self.cells, key=lambda cell: len(cell.tokens)), chosen_layers(study.measure.layers, facts))
        axes = model_axes(study, self.lens.name, facts, self.lens.heads_by_layer)
        self.axes = replace(axes, measures=[RECEIVED])
        self.clusters = {cell.prompt.number: cell.prompt.cluster for cell in self.cells}

    def _prove(self, cell: Cell, layers: Sequence[int]) -> None:
        """A reading of one cell, which the lens proves; so what else is asked of the model needs no other proof."""
        groups = [group.name for group in cell.groups]
        self.lens.measure_prepared([(cell.text.text, cell.tokens)], groups, layers, rows=[cell.rows])

    def measure(self) -> pl.DataFrame:
        """queries, condition, token_class, layer, prompt, mass, heads: mean over the heads of the layer that have one.

        Mass is null where a prompt lacks the class, as in the analysis of a run.
        One prompt at a time: to prove that they can share a batch would take longer than a few prompts take alone.
        """
        return pl.concat([self._measured(cell) for cell in self.cells])

    def _measured(self, cell: Cell) -> pl.DataFrame:
        (record,) = measure_cells(self.lens, [cell], self.axes, self.axes.measures)
        rows = pl.DataFrame(pl.from_arrow(mass_rows(cell, "", self.axes, record)))
        rows = rows.with_columns(pl.col(*KEYS).cast(pl.String), pl.col("layer", "prompt").cast(pl.Int64))
        mass = pl.when(HAS_CLASS).then(pl.col("mass"))
        each = rows.with_columns(mass).group_by(*KEYS, "layer", "prompt", maintain_order=True)
        return each.agg(pl.col("mass").mean(), heads=pl.col("mass").count())

    def means(self, frame: pl.DataFrame, *, by_layer: bool) -> pl.DataFrame:
        """Mean over the prompts that have the class, with its 95 % interval: of each layer, or over all heads.

        n is how many prompts these are; a class that none has is a row without a number.
        """
        keys = [*KEYS, "layer"] if by_layer else KEYS
        over_heads = (pl.col("mass") * pl.col("heads")).sum() / pl.col("heads").sum()
        each = frame.group_by(*keys, "prompt", maintain_order=True).agg(over_heads.fill_nan(None).alias("mass"))
        places = {name: place for place, name in enumerate(dict.fromkeys(self.clusters.values()))}
        clusters = {number: places[name] for number, name in self.clusters.items()}
        return cut_to_shares(mean_over_prompts(each, keys, "mass", clusters), "low", "high")
