"""Performs a study: plans its cells, has an engine measure the missing ones, writes tables and manifest."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from attnscope.clock import Clock
from attnscope.errors import AttnscopeError, Parameter, PluginError, restated
from attnscope.lens import Lens, Loader
from attnscope.models.load import Description
from attnscope.runs.answers import writing_of
from attnscope.runs.cells import Cell
from attnscope.runs.columns import OUTCOMES, tables_of
from attnscope.runs.engines import ENGINES
from attnscope.runs.evidence import FULL, NONE, reaches
from attnscope.runs.folder import RunFolder
from attnscope.runs.guard import Guard, wrong_cell
from attnscope.runs.integrity import is_intact, sha256
from attnscope.runs.intervene import RankedHeads, refuse_impossible, score_trials
from attnscope.runs.manifest import STUDY, Dropped, Machine, Manifest, ModelFacts, Status, TableFacts, Timings
from attnscope.runs.measuring import CellMeasurer
from attnscope.runs.outcomes import write_outcomes
from attnscope.runs.plan import (
    PlannedModel,
    cell_keys,
    look_up_models,
    memory_budget,
    missing_batches,
    model_axes,
    model_facts,
    most_groups,
    plan_model,
    same_model,
)
from attnscope.runs.request import RunRequest, plugins, versions
from attnscope.runs.shards import SHARDS, shard_path
from attnscope.runs.spot_check import check_sample, choose_sample
from attnscope.runs.store import Store
from attnscope.runs.tables import Finished, ModelAxes, overlaps, write_tables
from attnscope.runs.trials import Trial
from attnscope.runs.variants import Head
from attnscope.runs.watcher import Silent, Watcher
from attnscope.study.interventions import TopSpec
from attnscope.study.schema import ModelSpec
from attnscope.text.query_rules import in_order

SHOWN_FIRST, SHOWN_EVERY = (
    2.0,
    10.0,
)  # seconds until tables are first written, and at least between two writes
SHOWN_SHARE = 0.05  # the share of the time that may go into this

Rank = Callable[[Path, str, TopSpec], Mapping[Head, float]]
"""(a run's folder, a model's label, what heads are ranked by) -> its mean over prompts, of each head."""


@dataclass
class Outcome:
    """What a run did."""

    folder: Path
    measured: int = 0
    reused: int = 0
    tokens: int = 0
    unchanged: bool = False
    dropped: list[Dropped] = field(default_factory=list)
    scored: int = 0
    """How many prompts were run with interventions."""
    repaired: list[str] = field(default_factory=list)
    """What was damaged or missing, and what was done about it."""
    replaced: str | None = None
    """The title of another study whose tables the folder held."""


def perform(
    request: RunRequest,
    folder: RunFolder,
    watcher: Watcher | None = None,
    *,
    load: Callable[..., Lens] | None = None,
    clock: Clock | None = None,
    rank: Rank | None = None,
) -> Outcome:
    """Bring the run in the folder up to date with the request.

    load: the function that loads a model; by default a `Loader`, which reads what models share only once. clock:
    counts what each phase takes, for the manifest. rank: what heads are chosen by for interventions, from the tables
    of the run's folder.

    A model, layer or head that does not exist is refused before the folder is touched. If no prompt can be measured
    (with strict: if any can't), the run is refused before anything in the folder changes. Where this shows only once
    answers are written, nothing stays in a folder that was empty.
    """
    watch, clock = watcher or Silent(), clock or Clock()
    ENGINES.find(request.engine, Parameter("engine"))
    with clock.phase("loading"):
        models = look_up_models(request)
    with folder.locked(), clock.phase("planning"):
        before, trouble = folder.manifest()
        repaired = [*([trouble] if trouble else []), *(_damage(folder.path, before, request) if before else [])]
        if before is not None and not repaired and _is_up_to_date(before, request, folder, models):
            _refuse_if_strict(request, before.dropped)
            return Outcome(folder.path, reused=before.cells, unchanged=True, dropped=list(before.dropped))
        plans = [plan_model(request, spec, description) for spec, description in models]
        for plan in plans:
            _refuse_if_strict(request, plan.dropped)
            if not plan.cells:  # before a model is loaded that has nothing to measure
                raise _nothing_measured(request, plans, plan.dropped)
        _refuse_conditions_without_prompts(request, plans)
        for plan in plans:
            refuse_impossible(request.study, plan.spec.label, plan.description, plan.cells, plan.maker.layout.chat)
        outcome = Outcome(folder.path, repaired=repaired)
        return _Performance(request, folder, watch, before, plans, load or Loader(), clock, outcome, rank).run()


def _is_up_to_date(
    before: Manifest, request: RunRequest, folder: RunFolder, models: Sequence[tuple[ModelSpec, Description]]
) -> bool:
    if before.status != "finished" or before.key != request.key or set(before.tables) != set(tables_of(request.study)):
        return False
    if not is_intact(folder.path / STUDY, before.study_sha256) or not reaches(before.evidence, request.evidence):
        return False
    return all(same_model(before, spec, description) is not None for spec, description in models)


def _damage(folder: Path, manifest: Manifest, request: RunRequest) -> list[str]:
    """Files listed in the manifest that are missing or changed."""
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
        clock: Clock,
        outcome: Outcome,
        rank: Rank | None,
    ) -> None:
        self.request, self.folder, self.watch, self.before = request, folder, watch, before
        self.plans, self.load, self.clock = plans, load, clock
        self.outcome, self.rank = outcome, rank
        self.was_empty = folder.is_empty
        self.store = Store(folder.path)
        listed = {shard.sha256 for shard in before.shards} if before else set()
        damaged = [digest for digest in self.store.removed if digest not in listed]
        outcome.repaired += [f"{SHARDS}/{digest}.safetensors was damaged: removed" for digest in damaged]
        self.models: dict[str, ModelFacts] = dict(before.models) if before else {}
        self.finished: list[Finished] = []
        self.shown: list[Finished] = []
        """The cells in the tables."""
        self.overlaps: dict[str, list[str]] = {}
        self.tables: dict[str, TableFacts] = {}
        """As last written for this request."""
        self.trials: list[tuple[Trial, str]] = []
        self.ranked: dict[str, RankedHeads] = {}
        self.shown_next = time.monotonic() + SHOWN_FIRST

    def run(self) -> Outcome:
        for each in self.outcome.repaired:
            self.watch.say(each)
        self.folder.write_study(self.request.text)
        self._write_manifest("running")
        try:
            for plan in self.plans:
                self._model(plan)
                self._write_manifest("running")
            self._tables()
            self._interventions()
            self._forget()
        except BaseException as error:
            if self.was_empty and _is_refusal(error) and not self.store.has_numbers:
                self.folder.clear()
            else:
                self._write_manifest("stopped")
            raise
        self._write_manifest("finished")
        self.outcome.replaced = self._replaced()
        if self.before is None:
            self.folder.remove_old_files()
        return self.outcome

    def _replaced(self) -> str | None:
        """The title of the study whose tables are no longer there, if it has nothing in common with this one."""
        before = self.before
        if before is None or not before.cells or self.outcome.reused or before.study.title == self.request.study.title:
            return None
        return before.study.title or "without a title"

    def _model(self, plan: PlannedModel) -> None:
        self._drop(plan.dropped)
        facts, lens = same_model(self.before, plan.spec, plan.description), None
        if facts is None or not (facts.is_proven or self.request.evidence == NONE):
            lens = self._loaded(plan, None)
            with self.clock.phase("loading"):  # checksums of its files, and the proof, which is a phase of its own
                facts = model_facts(plan.spec, plan.description, lens, self.request.study)
        axes = model_axes(self.request.study, plan.description.name, plan.description.facts, facts.heads_by_layer)
        measured_of = {"layers": list(axes.layers), "heads": list(axes.heads), "layout": plan.maker.layout.key}
        facts = self.models[plan.spec.label] = facts.model_copy(update=measured_of)
        cells, proven = self._keyed(plan, axes, facts)
        missing = {key: len(cell.tokens) for cell, key in cells if key not in self.store}
        no_room: dict[str, str] = {}
        if missing:
            lens = lens or self._loaded(plan, facts)
            with self.clock.phase("measuring"):
                no_room = self._measure(plan, lens, axes, cells, sum(missing.values()))
        measured = self._settle(cells, set(missing), no_room)
        unproven = sum(key not in proven for _, key in measured)
        facts = self.models[plan.spec.label] = facts.model_copy(update={"unproven": unproven})
        self._spot_check(plan, lens, facts, axes, measured)
        self.finished += [(self._answered(plan, cell, key), key, axes) for cell, key in measured]

    def _keyed(self, plan: PlannedModel, axes: ModelAxes, facts: ModelFacts) -> tuple[list[tuple[Cell, str]], set[str]]:
        """Each cell with its key, and the keys of proven ones. What was measured with a proof is never measured
        without one; what was measured without is measured again as soon as a proof is wanted.
        """
        cells = cell_keys(plan.cells, self.request.study, axes, facts)
        proven = {key for _, key in cells}
        if self.request.evidence == NONE:
            bare = cell_keys(plan.cells, self.request.study, axes, facts, proven=False)
            cells = [one if one[1] in self.store else other for one, other in zip(cells, bare, strict=True)]
        return cells, proven

    def _measure(
        self, plan: PlannedModel, lens: Lens, axes: ModelAxes, cells: Sequence[tuple[Cell, str]], tokens: int
    ) -> dict[str, str]:
        """Have the engine measure what is missing. Returns the cells that did not fit into memory, with the error."""
        load = self._loader(plan.spec, self.models[plan.spec.label])
        writing = writing_of(self.request.study)
        measure = CellMeasurer(load, plan.maker, axes, writing, lens)
        self.watch.begin(plan.spec.label, tokens)

        def heard(tokens: int) -> None:
            self.watch.advance(tokens)
            self._show(plan, axes, cells)

        limit = memory_budget(lens, axes, most_groups(self.request.study, plan.cells), writing)
        batches = missing_batches(cells, self.store, limit, 0 if writing is None else writing.tokens)
        answered = None if writing is None else plan.maker.answered
        wrong = partial(wrong_cell, axes=axes, answered=answered)
        guard = Guard(self.request.engine, batches, self.store, wrong=wrong, heard=heard)
        no_room = guard.run(measure)
        self.outcome.tokens += tokens
        return no_room

    def _settle(
        self, cells: Sequence[tuple[Cell, str]], missing: set[str], no_room: dict[str, str]
    ) -> list[tuple[Cell, str]]:
        """Count what was measured and drop what could not be. Returns the cells that have numbers."""
        measured, dropped = [], []
        for cell, key in cells:
            reason = no_room.get(key) or self.store.refusal(key)
            if reason is None:
                measured.append((cell, key))
            else:
                where = {"model": cell.model, "condition": cell.condition, "prompt": cell.prompt.number}
                dropped.append(Dropped(**where, reason=reason))
        self.outcome.measured += sum(key in missing for _, key in measured)
        self.outcome.reused += sum(key not in missing for _, key in measured)
        self._drop(dropped)
        return measured

    def _spot_check(
        self,
        plan: PlannedModel,
        lens: Lens | None,
        facts: ModelFacts,
        axes: ModelAxes,
        measured: Sequence[tuple[Cell, str]],
    ) -> None:
        """Spot-check a sample, unless the same cells were checked before. What was checked before stays known as long
        as its cells are part of the run.
        """
        sample, cells = choose_sample(measured), {key for _, key in measured}
        if facts.sample is not None and facts.sample.cells == [key for _, key in sample]:
            return
        if self.request.evidence != FULL or not sample:
            if facts.sample is not None and not cells.issuperset(facts.sample.cells):
                self.models[plan.spec.label] = facts.model_copy(update={"sample": None})
            return
        self.watch.begin(f"{plan.spec.label}: spot check", 1)
        answered = [(self._answered(plan, cell, key), key) for cell, key in sample]
        with self.clock.phase("spot check"):
            checked = check_sample(lens or self._loaded(plan, facts), answered, self.store, axes)
        self.models[plan.spec.label] = facts.model_copy(update={"sample": checked})

    def _show(self, plan: PlannedModel, axes: ModelAxes, cells: Sequence[tuple[Cell, str]]) -> None:
        """From time to time, write the tables of what is measured so far, for whoever watches the run."""
        started = time.monotonic()
        if started < self.shown_next:
            return
        measured = [(cell, key) for cell, key in cells if key in self.store and self.store.refusal(key) is None]
        done = [(self._answered(plan, cell, key), key, axes) for cell, key in measured]
        if self.finished or done:
            with self.clock.phase("tables"):
                self._write_tables([*self.finished, *done])
            self._write_manifest("running")
        now = time.monotonic()
        self.shown_next = now + max(SHOWN_EVERY, (now - started) / SHOWN_SHARE)

    def _loaded(self, plan: PlannedModel, facts: ModelFacts | None) -> Lens:
        """The model, here; facts as in `_loader`."""
        with self.clock.phase("loading"):
            lens = self._loader(plan.spec, facts)()
        lens.clock = self.clock
        return lens

    def _loader(self, spec: ModelSpec, facts: ModelFacts | None) -> Callable[[], Lens]:
        """facts: about a model that was measured before; new cells then get the dtype and device of the old ones."""
        options = {name: value for name, value in spec.loading.items() if value is not None}
        if facts is not None and spec.device_map is None:
            options = {"dtype": facts.dtype, "device": facts.device, **options}
        more = {"trust_remote_code": self.request.trust_remote_code, "allow_pickle": self.request.allow_pickle}
        return partial(_opened, self.load, self.request.evidence != NONE, spec.source, **options, **more)

    def _answered(self, plan: PlannedModel, cell: Cell, key: str) -> Cell:
        ids = self.store.answer(key) if self.request.study.prompts.answer else None
        return cell if ids is None else plan.maker.answered(cell, ids)

    def _drop(self, dropped: Sequence[Dropped]) -> None:
        self.outcome.dropped += dropped
        _refuse_if_strict(self.request, dropped)

    def _tables(self) -> None:
        if not self.finished:
            raise _nothing_measured(self.request, self.plans, self.outcome.dropped)
        self.watch.begin("tables", len(self.finished))
        (self.folder.path / f"{OUTCOMES}.parquet").unlink(missing_ok=True)  # of another study, or written again later
        with self.clock.phase("tables"):
            self._write_tables(self.finished, lambda: self.watch.advance(1))

    def _forget(self) -> None:
        if self.request.forget:
            self.store.forget({*(key for _, key, _ in self.finished), *(key for _, key in self.trials)})

    def _interventions(self) -> None:
        """What the study's interventions do: the heads they change may depend on the tables, which are written."""
        if not self.request.study.interventions:
            return
        self._write_manifest("running")
        for plan in self.plans:
            facts, label = self.models[plan.spec.label], plan.spec.label
            load = partial(self._loaded, plan, facts)
            means, begin = partial(self._means, label), partial(self._begun, label)
            with self.clock.phase("interventions"):
                scoring = score_trials(self.request, plan, facts, self.finished, self.store, load, means, begin)
            self.trials += scoring.trials
            self.ranked[plan.spec.label] = scoring.ranked
            self.outcome.scored += scoring.measured
            self._drop(scoring.dropped)
        if not self.trials:
            raise _nothing_measured(self.request, self.plans, self.outcome.dropped)
        with self.clock.phase("tables"):
            self.tables[OUTCOMES] = write_outcomes(self.folder, self.store, self.trials)

    def _means(self, label: str, top: TopSpec) -> Mapping[Head, float]:
        if self.rank is None:
            raise TypeError("perform needs `rank` for interventions that choose heads")
        with self.clock.phase("tables"):
            return self.rank(self.folder.path, label, top)

    def _begun(self, label: str, tokens: int) -> Callable[[int], None]:
        self.watch.begin(f"{label}: interventions", tokens)
        return self.watch.advance

    def _write_tables(self, cells: Sequence[Finished], tick: Callable[[], None] = lambda: None) -> None:
        self.folder.remove_exports()
        self.tables = write_tables(self.folder, self.store, cells, tick)
        self.overlaps = overlaps(cells)
        self.shown = list(cells)

    def _timings(self) -> Timings:
        earlier = 0.0 if self.before is None else self.before.timings.earlier + self.before.timings.seconds
        return Timings(
            seconds=round(self.clock.seconds, 3),
            tokens=self.outcome.tokens,
            cells_measured=self.outcome.measured,
            phases={name: round(seconds, 3) for name, seconds in self.clock.phases.items()},
            earlier=round(earlier, 3),
        )

    def _write_manifest(self, status: Status) -> None:
        self.folder.write_manifest(
            Manifest(
                status=status,
                key=self.request.key,
                study=self.request.study,
                study_sha256=sha256(self.request.text.encode()),
                prompts=self.request.prompts.origin,
                models=self.models,
                engine=self.request.engine,
                command=self.request.command,
                cells=len(self.finished),
                dropped=self.outcome.dropped,
                versions=versions(),
                plugins=plugins(),
                machine=Machine(system=platform.platform(), python=platform.python_version()),
                timings=self._timings(),
                groups=in_order(
                    self.request.study.measure.queries, (g for cell, _, _ in self.shown for g in cell.groups)
                ),
                overlaps=self.overlaps,
                tables=self.tables,
                ranked=self.ranked,
                shards=self.store.facts([*(key for _, key, _ in self.shown), *(key for _, key in self.trials)]),
            )
        )


def _is_refusal(error: BaseException) -> bool:
    """Whether an error is about the study: the same command would end in it again."""
    return isinstance(error, AttnscopeError) and not isinstance(error, PluginError)


def _opened(load: Callable[..., Lens], proving: bool, source: str, **options: object) -> Lens:
    """A model as a run wants it, in this process or another."""
    lens = load(source, **options)
    lens.proving = proving
    return lens


def _refuse_if_strict(request: RunRequest, dropped: Sequence[Dropped]) -> None:
    if dropped and request.strict:
        raise AttnscopeError(
            f"{len(dropped)} prompt{'s' * (len(dropped) != 1)} can't be measured; the first: {dropped[0].reason}",
            where=f"{dropped[0].model}, {dropped[0].condition}, prompt {dropped[0].prompt}",
            allowed=("with ", Parameter("strict", True), ", every prompt must be measurable"),
            todo=("fix the prompts, or leave out ", Parameter("strict", True)),
        )


def _refuse_conditions_without_prompts(request: RunRequest, plans: Sequence[PlannedModel]) -> None:
    """A condition that no prompt of any model can have is a mistake in the study."""
    known = {cell.condition for plan in plans for cell in plan.cells}
    for number, condition in enumerate(request.study.conditions):
        if condition.name not in known:
            first = next(each for plan in plans for each in plan.dropped if each.condition == condition.name)
            what = f"no prompt can be measured under condition '{condition.name}'"
            raise _because_of(first, what, ("conditions", number), request, plans)


def _nothing_measured(request: RunRequest, plans: Sequence[PlannedModel], dropped: Sequence[Dropped]) -> AttnscopeError:
    return _because_of(dropped[0], "no prompt could be measured", ("prompts",), request, plans)


def _because_of(
    dropped: Dropped, failed: str, at: Sequence[str | int], request: RunRequest, plans: Sequence[PlannedModel]
) -> AttnscopeError:
    """What failed because of a cell that was dropped, at its place in the study file."""
    name = request.prompts.every[dropped.prompt].name
    place = f"{request.place(at)}: {dropped.model}, {dropped.condition}, prompt {name}"
    error = next(plan.maker.error(dropped) for plan in plans if plan.spec.label == dropped.model)
    if error is not None:
        return restated(error, failed, place)
    return AttnscopeError(
        f"{failed}: {dropped.reason}", where=place, allowed="prompts that can be measured", todo="change the prompts"
    )
