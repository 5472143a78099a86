"""A callback for transformers' Trainer that measures a small study while a model is trained, and logs the numbers.

Training goes on as if it were not there: the same weights, bit for bit. A measurement that fails is reported in one
line, and training continues.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from attnscope.arguments import count_of, path_of, shown_parameter
from attnscope.errors import AttnscopeError, Parameter
from attnscope.models.trainer import Callback, log, randomness_kept, sharded
from attnscope.places import check_place, written_whole
from attnscope.studies import small_study
from attnscope.study.schema import ModelSpec, Study
from attnscope.training.allowance import Allowance
from attnscope.training.measured import KEYS, SmallStudy

PROMPTS, SHARE, EVERY = 8, 0.02, 200
MODEL = "model in training"
logger = logging.getLogger("attnscope")

COLUMNS: dict[str, Any] = {
    "step": pl.Int64,
    **dict.fromkeys(KEYS, pl.String),
    "mass": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
}


Given: TypeAlias = Any
"""What the Trainer hands to every event of a callback: `model`, `processing_class`, `optimizer` and others."""


class TrainerCallback(Callback):
    """Measures a study on the model in training: at the beginning, every `every` steps, and at the end.

    study: a bundled study, a study file or a Study; the model in training takes the place of its models. every: steps
    between measurements; longer if they would take more than `share` of the training's time so far (the first and the
    last are always made). prompts: how many of the study's prompts to measure. csv: a file that gets the table after
    each measurement. tokenizer: the model's, if the Trainer is not given one (`processing_class`).

    The Trainer's loggers get `attention/CONDITION/CLASS`: the share of attention on a class, mean over layers, heads
    and the prompts that have the class. If some lack it, `attention/CONDITION/CLASS/n` is how many have it; a class
    that no prompt has is not logged. With several query groups names begin with `attention/QUERIES`. The study's
    quantities are not measured.
    """

    def __init__(
        self,
        study: str | Path | Study,
        every: int = EVERY,
        *,
        prompts: int = PROMPTS,
        share: float = SHARE,
        csv: str | Path | None = None,
        tokenizer: Any = None,
    ) -> None:
        self.every = count_of(every, "every", "choose how many steps lie between two measurements")
        self.share = _share(share)
        self.tokenizer = tokenizer
        limit = count_of(prompts, "prompts", "choose how many prompts to measure")
        self.study, self._prompts = small_study(study, ModelSpec(label=MODEL, source=MODEL), limit)
        if self.study.prompts.answer is not None and self.study.prompts.answer.generate is not None:
            raise AttnscopeError(
                "this study lets the model write its answers, which takes too long while it is trained",
                where="prompts.answer.generate",
                allowed="prompts without an answer, or with answers that are given",
                todo="write answer: {field: ...}, or leave the answer out",
            )
        if self.study.quantities:
            names = ", ".join(self.study.quantities)
            logger.warning("quantities are not measured during training, only classes and sets: %s", names)
        self.csv = None if csv is None else Path(path_of(csv, "csv", "a file for the table"))
        if self.csv is not None:
            check_place(self.csv, "the table")
        self._small: SmallStudy | None = None
        self._allowance = Allowance(self.share)
        self._measured: list[tuple[int, pl.DataFrame]] = []
        self._earlier = pl.DataFrame(schema=COLUMNS)
        self._last = 0  # the step that was measured last, or tried

    def begin(self, model: Any, tokenizer: Any, step: int = 0) -> dict[str, float]:
        """Before the first step of a training loop of your own. Gives the numbers that the Trainer's loggers get.

        step: how many steps the model has seen, if training continues.
        """
        self._measured, self._small, self._allowance = [], None, Allowance(self.share)
        self._earlier = _rows_before(self.csv, step)
        with self._allowance.spending(measuring=False), randomness_kept():
            self._small = SmallStudy(self.study, self._prompts, model, tokenizer)
        return self._measure(step)

    def step(self, number: int) -> dict[str, float]:
        """After a step of a training loop of your own, by its number from 1. Empty if nothing was measured."""
        due = number - self._last >= self.every
        return self._measure(number) if due and self._allowance.allows_another() else {}

    def end(self, number: int) -> dict[str, float]:
        """After the last step. Empty if it was measured already."""
        return {} if number == self._last else self._measure(number)

    def table(self, *, by_layer: bool = False) -> pl.DataFrame:
        """What was measured so far, with 95 % intervals over prompts.

        step, queries, condition, token_class, mass, low, high, n; by_layer: with a column layer. n counts the prompts
        that have the class, which the mean is over; if none has it, there is no mean. Rows of a training
        that continues come from the csv of the one before; they have no layers.
        """
        schema = {**COLUMNS, "layer": pl.Int64} if by_layer else COLUMNS
        columns = [pl.col(name).cast(kind) for name, kind in schema.items()]
        frames = [pl.DataFrame(schema=schema) if by_layer else self._earlier]
        for step, frame in self._measured:
            assert self._small is not None  # noqa: S101  (it was measured)
            means = self._small.means(frame, by_layer=by_layer)
            frames.append(means.with_columns(step=pl.lit(step)).select(columns))
        return pl.concat(frames)

    @property
    def share_spent(self) -> float:
        """What measuring has taken so far, as a share of the time of training without it."""
        return self._allowance.spent / max(self._allowance.training, 1e-9)

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Given) -> None:
        """Called by the Trainer."""
        if not state.is_world_process_zero:
            return
        split = sharded(args)
        if split is not None:
            logger.warning("attention is not measured: %s spreads the model over processes", split)
            return
        self._log(args, state, control, self.begin(given.get("model"), self._tokenizer(given), state.global_step))

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Given) -> None:
        """Called by the Trainer."""
        if self._small is None or not state.is_world_process_zero:
            return
        last = state.global_step >= state.max_steps > 0  # later, loggers may be closed
        numbers = self.end(state.global_step) if last else self.step(state.global_step)
        self._log(args, state, control, numbers)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Given) -> None:
        """Called by the Trainer; a training that was stopped early has its last step measured here."""
        if self._small is None or not state.is_world_process_zero or args.load_best_model_at_end:
            return
        self._log(args, state, control, self.end(state.global_step))

    def _measure(self, step: int) -> dict[str, float]:
        """The numbers of a step, under the names they are logged by; empty if it could not be measured."""
        self._last = step
        small = self._small
        if small is None:
            raise AttnscopeError(
                "the training has not begun",
                where=f"step {step}",
                allowed="begin(model, tokenizer) first",
                todo="call it before the first step",
            )
        with self._allowance.spending(measuring=True), randomness_kept():
            frame = self._tried(step, small.measure)
            if frame is None:
                return {}
            self._measured.append((step, frame))
            self._tried(step, self._write)
            return self._named(small.means(frame, by_layer=False), len(small.clusters))

    def _named(self, means: pl.DataFrame, prompts: int) -> dict[str, float]:
        several = len(means["queries"].unique()) > 1
        numbers: dict[str, float] = {}
        for queries, condition, name, mass, n in means.select(*KEYS, "mass", "n").iter_rows():
            place = "/".join(("attention", *((queries,) if several else ()), condition, name))
            if n:
                numbers[place] = mass
            if 0 < n < prompts:
                numbers[f"{place}/n"] = n
        return numbers

    def _tried(self, step: int, work: Any) -> Any:
        """What the work gives; None if it fails, which is reported on one line and does not stop the training."""
        try:
            return work()
        except Exception as error:
            words = " ".join(str(error).split()) or type(error).__name__
            logger.warning("attention was not measured at step %s: %s", step, words)
            return None

    def _write(self) -> None:
        if self.csv is not None:
            with written_whole(self.csv, "the table") as partial:
                self.table().write_csv(partial)

    def _log(self, args: Any, state: Any, control: Any, numbers: Mapping[str, float]) -> None:
        if numbers:
            self._tried(state.global_step, lambda: log(self, args, state, control, numbers))

    def _tokenizer(self, given: Mapping[str, Given]) -> Any:
        processing = given.get("processing_class") if self.tokenizer is None else self.tokenizer
        tokenizer = getattr(processing, "tokenizer", processing)
        if tokenizer is None:
            raise AttnscopeError(
                "the Trainer has no tokenizer",
                where=Parameter("tokenizer"),
                allowed="Trainer(processing_class=tokenizer), or a tokenizer for the callback",
                todo=("pass the model's tokenizer: ", Parameter("tokenizer")),
            )
        return tokenizer


def _share(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not given > 0:
        raise AttnscopeError(
            "this is not a share of the time",
            where=shown_parameter("share", given),
            allowed="a number above 0",
            todo="leave it out for 0.02, that is 2 %; float('inf') sets no limit",
        )
    return float(given)


def _rows_before(csv: Path | None, step: int) -> pl.DataFrame:
    """What an earlier part of the same training wrote, up to the step that it continues from."""
    if csv is None or not step or not csv.is_file():
        return pl.DataFrame(schema=COLUMNS)
    try:
        rows = pl.read_csv(csv, schema_overrides=COLUMNS).select(list(COLUMNS))
    except pl.exceptions.PolarsError:
        return pl.DataFrame(schema=COLUMNS)
    return rows.filter(pl.col("step") < step)
