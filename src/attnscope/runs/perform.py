"""Performs a study: plans its cells, has an engine measure those that are missing, writes tables and manifest."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from attnscope.errors import AttnscopeError, Parameter
from attnscope.lens import Lens
from attnscope.lens import load as load_lens
from attnscope.models.load import Description
from attnscope.runs.cells import Cell, cell_key
from attnscope.runs.columns import TABLES
from attnscope.runs.engines import ENGINES, Batch, Job
from attnscope.runs.folder import RunFolder
from attnscope.runs.integrity import is_intact, sha256
from attnscope.runs.manifest import STUDY, Dropped, Machine, Manifest, ModelFacts, Status, TableFacts, Timings
from attnscope.runs.measuring import CellMeasurer
from attnscope.runs.plan import (
    PlannedModel,
    generated_tokens,
    key_facts,
    looked_up,
    memory_budget,
    missing_batches,
    model_facts,
    planned,
    same_model,
    shape_of,
)
from attnscope.runs.request import RunRequest, versions
from attnscope.runs.shards import SHARDS, shard_path
from attnscope.runs.spot_check import look_again, sampled
from attnscope.runs.store import NoRoom, Results, Store
from attnscope.runs.tables import Finished, Shape, write_tables
from attnscope.study.schema import ModelSpec

SHOWN_FIRST, SHOWN_EVERY = 2.0, 10.0  # seconds until a run's tables are written the first time, and at least between
SHOWN_SHARE = 0.05  # of the time may go into that


class Watcher(Protocol):
    """Hears how the work goes."""

    def begin(self, what: str, tokens: int) -> None: ...

    def advance(self, tokens: int) -> None: ...

    def say(self, text: str) -> None: ...


class Silent:
    """A watcher that shows nothing."""

    def begin(self, what: str, tokens: int) -> None:
        pass

    def advance(self, tokens: int) -> None:
        pass

    def say(self, text: str) -> None:
        pass


@dataclass
class Outcome:
    """What came of it."""

    folder: Path
    measured: int = 0
    kept: int = 0
    tokens: int = 0
    seconds: float = 0.0
    unchanged: bool = False
    dropped: list[Dropped] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    """What was damaged or missing, and what was done about it."""


def perform(
    request: RunRequest,
    folder: RunFolder,
    watcher: Watcher | None = None,
    *,
    load: Callable[..., Lens] = load_lens,
    second_look: bool = True,
) -> Outcome:
    """Bring the run in the folder up to date with the request.

    load: what loads a model; second_look: whether some prompts are measured once more for the evidence.

    A model, layer or head that does not exist is refused before the folder is touched; prompts of which none can be
    measured, or not all where that is asked for, before anything in it is changed.
    """
    watch = watcher or Silent()
    ENGINES.find(request.engine, Parameter("engine"))
    models = looked_up(request)
    with folder.held():
        before, trouble = folder.manifest()
        repaired = [*([trouble] if trouble else []), *(_damage(folder.path, before, request) if before else [])]
        if before is not None and not repaired and _is_up_to_date(before, request, folder, models):
            _refuse_if_strict(request, before.dropped)
            return Outcome(folder.path, kept=before.cells, unchanged=True, dropped=list(before.dropped))
        plans = [planned(request, part, found) for part, found in models]
        for plan in plans:
            _refuse_if_strict(request, plan.dropped)
            if not plan.cells:  # before a model is loaded that has nothing to measure
                raise _nothing(folder, plan.dropped)
        outcome = Outcome(folder.path, repaired=repaired)
        return _Performance(request, folder, watch, before, plans, load, second_look, outcome).go()


def _is_up_to_date(
    before: Manifest, request: RunRequest, folder: RunFolder, models: Sequence[tuple[ModelSpec, Description]]
) -> bool:
    if before.status != "finished" or before.key != request.key or set(before.tables) != set(TABLES):
        return False
    if not is_intact(folder.path / STUDY, before.study_sha256):
        return False
    return all(same_model(before, part, found) is not None for part, found in models)


def _damage(folder: Path, manifest: Manifest, request: RunRequest) -> list[str]:
    """What is missing or changed of what the manifest lists."""
    trouble = []
    if not any(is_intact(folder / STUDY, each) for each in (manifest.study_sha256, sha256(request.text.encode()))):
        trouble.append(f"{STUDY} was missing, changed or damaged: written again")
    for name, table in manifest.tables.items() if manifest.status == "finished" else ():
        if not is_intact(folder / f"{name}.parquet", table.sha256):
            trouble.append(f"{name}.parquet was missing, changed or damaged: written again from what was measured")
    for shard in manifest.shards:
        if not is_intact(shard_path(folder, shard.sha256), shard.sha256):
            name = f"{SHARDS}/{shard.sha256}.safetensors"
            trouble.append(f"{name} was missing or damaged: its prompts are measured again")
    return trouble


class _Performance:
    def __init__(
        self,
        request: RunRequest,
        folder: RunFolder,
        watch: Watcher,
        before: Manifest | None,
        plans: Sequence[PlannedModel],
        load: Callable[..., Lens],
        second_look: bool,
        outcome: Outcome,
    ) -> None:
        self.request, self.folder, self.watch, self.before = request, folder, watch, before
        self.plans, self.load, self.second_look = plans, load, second_look
        self.outcome = outcome
        self.store = Store(folder.path)
        listed = {shard.sha256 for shard in before.shards} if before else set()
        damaged = [digest for digest in self.store.removed if digest not in listed]
        outcome.repaired += [f"{SHARDS}/{digest}.safetensors was damaged: removed" for digest in damaged]
        self.models: dict[str, ModelFacts] = dict(before.models) if before else {}
        self.finished: list[Finished] = []
        self.shown: list[Finished] = []
        """The cells that are in the tables."""
        self.tables: dict[str, TableFacts] = {}
        """As last written; of an earlier request, none."""
        self.shown_next = time.monotonic() + SHOWN_FIRST

    def go(self) -> Outcome:
        started = time.monotonic()
        for each in self.outcome.repaired:
            self.watch.say(each)
        self.folder.write_study(self.request.text)
        self._note("running")
        try:
            for plan in self.plans:
                self._model(plan)
                self._note("running")
            self._tables()
        except BaseException:
            self._note("stopped")
            raise
        self.outcome.seconds = time.monotonic() - started
        self._note("finished")
        if self.before is None:
            self.folder.remove_former()
        return self.outcome

    def _model(self, plan: PlannedModel) -> None:
        self._drop(plan.dropped)
        facts, lens = same_model(self.before, plan.part, plan.found), None
        if facts is None:
            lens = self._loader(plan.part, None)()
            facts = model_facts(plan.part, plan.found, lens, self.request.study)
        shape = shape_of(self.request.study, plan.found, facts)
        measured_of = {"layers": list(shape.layers), "heads": list(shape.heads), "layout": plan.maker.layout.key}
        facts = self.models[plan.part.label] = facts.model_copy(update=measured_of)
        known = key_facts(self.request.study, shape, facts)
        cells = [(cell, cell_key(known, cell)) for cell in plan.cells]
        missing = {key: len(cell.tokens) for cell, key in cells if key not in self.store}
        no_room: dict[str, str] = {}
        if missing:
            lens = lens or self._loader(plan.part, facts)()
            no_room = self._measure(plan, lens, shape, cells, sum(missing.values()))
        there = self._settle(cells, set(missing), no_room)
        self._look_again(plan, lens, facts, shape, there)
        self.finished += [(self._answered(plan, cell, key), key, shape) for cell, key in there]

    def _measure(
        self, plan: PlannedModel, lens: Lens, shape: Shape, cells: Sequence[tuple[Cell, str]], tokens: int
    ) -> dict[str, str]:
        """Have the engine measure what is missing; the cells that did not fit memory, with the error."""
        load = self._loader(plan.part, self.models[plan.part.label])
        measure = CellMeasurer(load, plan.maker, shape, generated_tokens(self.request.study), lens)
        no_room: dict[str, str] = {}
        self.watch.begin(plan.part.label, tokens)

        def done(batch: Batch, results: Results) -> None:
            no_room.update({key: each.reason for key, each in results.items() if isinstance(each, NoRoom)})
            self.watch.advance(sum(len(cell.tokens) for cell, _ in batch))
            self._show(plan, shape, cells)

        todo = missing_batches(cells, self.store, memory_budget(lens, plan.found, shape))
        ENGINES.find(self.request.engine, "--engine").run(Job(todo, measure, self.store, done))
        self.outcome.tokens += tokens
        return no_room

    def _settle(
        self, cells: Sequence[tuple[Cell, str]], missing: set[str], no_room: dict[str, str]
    ) -> list[tuple[Cell, str]]:
        """Count what was measured and drop what could not be; the cells that have numbers."""
        there, dropped = [], []
        for cell, key in cells:
            reason = no_room.get(key) or self.store.refusal(key)
            if reason is None:
                there.append((cell, key))
            else:
                where = {"model": cell.model, "condition": cell.condition, "prompt": cell.prompt.number}
                dropped.append(Dropped(**where, reason=reason))
        self.outcome.measured += sum(key in missing for _, key in there)
        self.outcome.kept += sum(key not in missing for _, key in there)
        self._drop(dropped)
        return there

    def _look_again(
        self,
        plan: PlannedModel,
        lens: Lens | None,
        facts: ModelFacts,
        shape: Shape,
        there: Sequence[tuple[Cell, str]],
    ) -> None:
        """The spot check, unless these very cells had it."""
        sample = sampled(there)
        if not self.second_look or not sample:
            return
        if facts.sample is not None and facts.sample.cells == [key for _, key in sample]:
            return
        self.watch.begin(f"{plan.part.label}: a second look", 1)
        answered = [(self._answered(plan, cell, key), key) for cell, key in sample]
        checked = look_again(lens or self._loader(plan.part, facts)(), answered, self.store, shape)
        self.models[plan.part.label] = facts.model_copy(update={"sample": checked})

    def _show(self, plan: PlannedModel, shape: Shape, cells: Sequence[tuple[Cell, str]]) -> None:
        """Now and then, write the tables of what is there so far, for those who look on."""
        started = time.monotonic()
        if started < self.shown_next:
            return
        there = [(cell, key) for cell, key in cells if key in self.store and self.store.refusal(key) is None]
        done = [(self._answered(plan, cell, key), key, shape) for cell, key in there]
        if self.finished or done:
            self._write_tables([*self.finished, *done])
            self._note("running")
        now = time.monotonic()
        self.shown_next = now + max(SHOWN_EVERY, (now - started) / SHOWN_SHARE)

    def _loader(self, part: ModelSpec, facts: ModelFacts | None) -> Callable[[], Lens]:
        """facts: of a model that was measured before; new cells then get the dtype and device that the old ones had."""
        options = part.model_dump(exclude={"label", "source", "colour"}, exclude_none=True)
        if facts is not None and part.device_map is None:
            options = {"dtype": facts.dtype, "device": facts.device, **options}
        more = {"trust_remote_code": self.request.trust_remote_code, "allow_pickle": self.request.allow_pickle}
        return partial(self.load, part.source, **options, **more)

    def _answered(self, plan: PlannedModel, cell: Cell, key: str) -> Cell:
        ids = self.store.answer(key) if self.request.study.prompts.answer else None
        return cell if ids is None else plan.maker.answered(cell, ids)

    def _drop(self, dropped: Sequence[Dropped]) -> None:
        self.outcome.dropped += dropped
        _refuse_if_strict(self.request, dropped)

    def _tables(self) -> None:
        if not self.finished:
            raise _nothing(self.folder, self.outcome.dropped)
        self.watch.begin("tables", len(self.finished))
        self._write_tables(self.finished, lambda: self.watch.advance(1))
        if self.request.forget:
            self.store.forget({key for _, key, _ in self.finished})

    def _write_tables(self, cells: Sequence[Finished], tick: Callable[[], None] = lambda: None) -> None:
        self.folder.remove_exports()
        self.tables = write_tables(self.folder, self.store, cells, tick)
        self.shown = list(cells)

    def _note(self, status: Status) -> None:
        seconds = round(self.outcome.seconds, 3)
        self.folder.write_manifest(
            Manifest(
                status=status,
                key=self.request.key,
                study=self.request.study,
                study_sha256=sha256(self.request.text.encode()),
                prompts=self.request.prompts.digest_of,
                models=self.models,
                engine=self.request.engine,
                command=self.request.command,
                cells=len(self.finished),
                dropped=self.outcome.dropped,
                versions=versions(),
                machine=Machine(system=platform.platform(), python=platform.python_version()),
                timings=Timings(seconds=seconds, tokens=self.outcome.tokens, cells_measured=self.outcome.measured),
                tables=self.tables,
                shards=self.store.facts([key for _, key, _ in self.shown]),
            )
        )


def _refuse_if_strict(request: RunRequest, dropped: Sequence[Dropped]) -> None:
    if dropped and request.strict:
        raise AttnscopeError(
            f"{len(dropped)} prompts can't be measured; the first: {dropped[0].reason}",
            where=f"{dropped[0].model}, {dropped[0].condition}, prompt {dropped[0].prompt}",
            allowed=("with ", Parameter("strict", True), ", every prompt must be measurable"),
            todo=("fix the prompts, or leave out ", Parameter("strict", True)),
        )


def _nothing(folder: RunFolder, dropped: Sequence[Dropped]) -> AttnscopeError:
    first = dropped[0].reason if dropped else "there are none"
    return AttnscopeError(
        f"no prompt could be measured: {first}",
        where=str(folder.path),
        allowed="at least one for each model",
        todo="fix the prompts or the study file",
    )
