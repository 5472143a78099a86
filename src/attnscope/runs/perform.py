"""Performs a study: plans its cells, measures those that are missing, writes the tables and the manifest."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from attnscope.errors import AttnscopeError, Parameter
from attnscope.lens import Lens
from attnscope.lens import load as load_lens
from attnscope.models.cache import sha256
from attnscope.models.load import Description
from attnscope.runs.batches import Budget, budget, bytes_per_token
from attnscope.runs.cells import Cell, CellMaker, Dropped, cell_key
from attnscope.runs.compatibility import chosen_layers, fitting_models
from attnscope.runs.engine import Work, measure_cells
from attnscope.runs.folder import STUDY, RunFolder
from attnscope.runs.request import RunRequest, versions
from attnscope.runs.spot_check import look_again, sampled
from attnscope.runs.tables import TABLES, Shape, write_tables
from attnscope.study.schema import ModelSpec, Study

SHOWN_FIRST, SHOWN_EVERY = 2.0, 10.0  # seconds until a run's tables are written the first time, and at least between
SHOWN_SHARE = 0.05  # of the time may go into that
METER = 2  # raised when the same cell would get other numbers


class Watcher(Protocol):
    """Is told how the work goes."""

    def begin(self, what: str, tokens: int) -> None: ...

    def advance(self, tokens: int) -> None: ...

    def say(self, text: str) -> None: ...


class Silent:
    """A watcher that tells nobody."""

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

    A model, layer or head that is not there is refused before the folder is touched; prompts of which none can be
    measured, or not all where that is asked for, before anything in it is changed.
    """
    watch = watcher or Silent()
    options = {"trust_remote_code": request.trust_remote_code, "allow_pickle": request.allow_pickle}
    models = [_Model(part, found) for part, found in fitting_models(request.study, **options)]
    with folder.held():
        before = folder.manifest() or {}
        if _is_up_to_date(before, request, folder, models):
            dropped = [Dropped(**each) for each in before.get("dropped", [])]
            _refuse_if_strict(request, dropped)
            return Outcome(folder.path, kept=before["cells"], unchanged=True, dropped=dropped)
        for model in models:
            model.make_cells(request)
            _refuse_if_strict(request, model.dropped)
        _refuse_if_empty(folder, models)
        return _Performance(request, folder, watch, before, models, load, second_look).go()


@dataclass
class _Model:
    """One model of the study, and its cells once they are made."""

    part: ModelSpec
    found: Description
    cells: list[Cell] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    maker: CellMaker | None = None

    def make_cells(self, request: RunRequest) -> None:
        self.maker = CellMaker(
            request.study, request.prompts, self.part, self.found.tokenization, self.found.facts.context
        )
        self.cells, self.dropped = self.maker.make()


class _Performance:
    def __init__(
        self,
        request: RunRequest,
        folder: RunFolder,
        watch: Watcher,
        before: Mapping[str, Any],
        models: Sequence[_Model],
        load: Callable[..., Lens],
        second_look: bool,
    ) -> None:
        self.load, self.second_look = load, second_look
        self.request, self.folder, self.watch, self.before = request, folder, watch, before
        self.planned = models
        self.outcome = Outcome(folder.path)
        self.models: dict[str, dict[str, Any]] = {}
        self.finished: list[tuple[Cell, str, Shape]] = []
        self.mark: str | None = None
        """Of the tables, once they are written."""
        self.shown_next = time.monotonic() + SHOWN_FIRST

    def go(self) -> Outcome:
        started = time.monotonic()
        self.folder.write(STUDY, lambda path: path.write_text(self.request.text, encoding="utf-8"))
        self._note("running")
        try:
            for model in self.planned:
                self._model(model)
                self._note("running")
            self._tables()
        except BaseException:
            self._note("stopped")
            raise
        self.outcome.seconds = time.monotonic() - started
        self._note("finished")
        return self.outcome

    def _model(self, model: _Model) -> None:
        study, part, found = self.request.study, model.part, model.found
        self._drop(model.dropped)
        if model.maker is None or not model.cells:
            return
        known = _same_model(self.before, part, found)
        lens = None
        if known is None:
            lens = self._lens(part, {})
            known = _facts(part, found, lens)
        shape = _shape(study, found, known)
        facts = _key_facts(study, shape, known)
        work = Work(
            [(cell, cell_key(facts, cell)) for cell in model.cells],
            shape,
            study.measure.entropy,
            study.measure.patterns,
            study.prompts.answer.generate if study.prompts.answer else None,
        )
        missing = {key: len(cell.tokens) for cell, key in work.cells if not self.folder.has_cell(key)}
        if missing:
            lens = lens or self._lens(part, known)
            self.watch.begin(part.label, sum(missing.values()))
            maker = model.maker
            self.models[part.label] = _entry(known, shape, maker)

            def tick(tokens: int) -> None:
                self.watch.advance(tokens)
                self._show(maker, work)

            measure_cells(lens, maker, work, self.folder, _budget(lens, found, shape), tick)
            self.outcome.tokens += sum(missing.values())
        reasons = [work.no_room.get(key) or self.folder.refusal(key) for _, key in work.cells]
        dropped = [
            Dropped(cell.model, cell.condition, cell.prompt.number, reason)
            for (cell, _), reason in zip(work.cells, reasons, strict=True)
            if reason is not None
        ]
        there = [key for (_, key), reason in zip(work.cells, reasons, strict=True) if reason is None]
        self.outcome.measured += sum(key in missing for key in there)
        self.outcome.kept += sum(key not in missing for key in there)
        self._drop(dropped)
        sample = sampled([pair for pair, reason in zip(work.cells, reasons, strict=True) if reason is None])
        if self.second_look and sample and known.get("sample", {}).get("cells") != [key for _, key in sample]:
            self.watch.begin(f"{part.label}: a second look", 1)
            answered = [(self._answered(model.maker, cell, key), key) for cell, key in sample]
            known["sample"] = look_again(lens or self._lens(part, known), answered, self.folder, shape)
        self.models[part.label] = _entry(known, shape, model.maker)
        for (cell, key), reason in zip(work.cells, reasons, strict=True):
            if reason is None:
                self.finished.append((self._answered(model.maker, cell, key), key, shape))

    def _show(self, maker: CellMaker, work: Work) -> None:
        """Now and then, write the tables of what is there so far, for those who look on."""
        started = time.monotonic()
        if started < self.shown_next:
            return
        there = [(cell, key) for cell, key in work.cells if self.folder.has_cell(key) and not self.folder.refusal(key)]
        done = [(self._answered(maker, cell, key), key, work.shape) for cell, key in there]
        if self.finished or done:
            self.mark = write_tables(self.folder, [*self.finished, *done])
            self._note("running")
        now = time.monotonic()
        self.shown_next = now + max(SHOWN_EVERY, (now - started) / SHOWN_SHARE)

    def _lens(self, part: ModelSpec, known: Mapping[str, Any]) -> Lens:
        """known: of a model that was measured before; new cells then get the dtype and device that the old ones had."""
        options = part.model_dump(exclude={"label", "source", "colour"}, exclude_none=True)
        if known and part.device_map is None:
            options = {"dtype": known["dtype"], "device": known["device"], **options}
        more = {"trust_remote_code": self.request.trust_remote_code, "allow_pickle": self.request.allow_pickle}
        return self.load(part.source, **options, **more)

    def _answered(self, maker: CellMaker, cell: Cell, key: str) -> Cell:
        measured = self.folder.read_cell(key) if self.request.study.prompts.answer else None
        return cell if measured is None or measured.answer is None else maker.answered(cell, measured.answer.tolist())

    def _drop(self, dropped: Sequence[Dropped]) -> None:
        self.outcome.dropped += dropped
        _refuse_if_strict(self.request, dropped)

    def _tables(self) -> None:
        if not self.finished:
            raise _nothing(self.folder, self.outcome.dropped)
        self.watch.begin("tables", len(self.finished))
        self.mark = write_tables(self.folder, self.finished, lambda: self.watch.advance(1))
        if self.request.forget:
            self.folder.forget_cells({key for _, key, _ in self.finished})

    def _note(self, status: str) -> None:
        self.folder.write_manifest(
            {
                "status": status,
                "key": self.request.key,
                "tables": self.mark,
                "study": self.request.study.model_dump(mode="json"),
                "prompts": self.request.prompts.digest_of,
                "models": {**self.before.get("models", {}), **self.models},
                "command": self.request.command,
                "cells": len(self.finished),
                "dropped": [asdict(each) for each in self.outcome.dropped],
                "versions": versions(),
                "machine": {"system": platform.platform(), "python": platform.python_version()},
                "timings": {
                    "seconds": round(self.outcome.seconds, 3),
                    "tokens": self.outcome.tokens,
                    "cells_measured": self.outcome.measured,
                },
            }
        )


def _refuse_if_strict(request: RunRequest, dropped: Sequence[Dropped]) -> None:
    if dropped and request.strict:
        raise AttnscopeError(
            f"{len(dropped)} prompts can't be measured; the first: {dropped[0].reason}",
            where=f"{dropped[0].model}, {dropped[0].condition}, prompt {dropped[0].prompt}",
            allowed=("with ", Parameter("strict", True), ", every prompt must be measurable"),
            todo=("fix the prompts, or leave out ", Parameter("strict", True)),
        )


def _refuse_if_empty(folder: RunFolder, models: Sequence[_Model]) -> None:
    """Before a model is loaded that has nothing to measure."""
    for model in models:
        if not model.cells:
            raise _nothing(folder, model.dropped)


def _nothing(folder: RunFolder, dropped: Sequence[Dropped]) -> AttnscopeError:
    first = dropped[0].reason if dropped else "there are none"
    return AttnscopeError(
        f"no prompt could be measured: {first}",
        where=str(folder.path),
        allowed="at least one for each model",
        todo="mend the prompts or the study file",
    )


def _is_up_to_date(
    manifest: Mapping[str, Any], request: RunRequest, folder: RunFolder, models: Sequence[_Model]
) -> bool:
    if manifest.get("status") != "finished" or manifest.get("key") != request.key:
        return False
    if not all((folder.path / f"{name}.parquet").is_file() for name in TABLES):
        return False
    return all(_same_model(manifest, model.part, model.found) is not None for model in models)


def _same_model(manifest: Mapping[str, Any], part: ModelSpec, found: Description) -> dict[str, Any] | None:
    """What the manifest knows of this model, if it is still the one it saw: the same files, library and device."""
    known: dict[str, Any] | None = manifest.get("models", {}).get(part.label)
    if known is None or known.get("spec") != part.model_dump(mode="json", exclude={"colour"}):
        return None
    device = str(known["device"]).split(":")[0]
    if part.device_map is None and device != found.device.type:
        return None
    if known.get("versions") != versions() or known.get("path") != str(found.path.absolute()):
        return None
    described = {str(path.absolute()) for path in found.files}
    if described != {file["path"] for file in known["files"] if not file["weights"]}:
        return None
    for file in known["files"]:
        try:
            now = Path(file["path"]).stat()
        except OSError:
            return None
        if (now.st_size, now.st_mtime_ns) != (file["bytes"], file["modified"]):
            return None
    return dict(known)


def _facts(part: ModelSpec, found: Description, lens: Lens) -> dict[str, Any]:
    loaded = lens.loaded
    hashes = loaded.fingerprint
    weights = [_file(path, hashes[path.name], weights=True) for path in loaded.files]
    described = [_file(path, sha256(path), weights=False) for path in found.files]
    return {
        "spec": part.model_dump(mode="json", exclude={"colour"}),
        "path": str(found.path.absolute()),
        "versions": versions(),
        "architecture": loaded.architecture,
        "dtype": loaded.dtype,
        "device": loaded.device,
        "adapter_made_for": loaded.adapter_base,
        "files": [*weights, *described],
        "evidence": lens.evidence(),
        "depth": found.facts.layers,
        "heads_by_layer": {str(layer): count for layer, count in lens.parity.heads.items()},
    }


def _entry(known: Mapping[str, Any], shape: Shape, maker: CellMaker) -> dict[str, Any]:
    """What the manifest says of a model: facts about it, what of it is measured, and how it gets its prompts."""
    return {**known, "layers": list(shape.layers), "heads": list(shape.heads), "layout": maker.layout.key}


def _file(path: Path, digest: str, *, weights: bool) -> dict[str, Any]:
    stat = path.stat()
    return {
        "path": str(path.absolute()),
        "sha256": digest,
        "bytes": stat.st_size,
        "modified": stat.st_mtime_ns,
        "weights": weights,
    }


def _shape(study: Study, found: Description, known: Mapping[str, Any]) -> Shape:
    chosen = chosen_layers(study.measure.layers, found.facts)
    heads = min(known["heads_by_layer"][str(layer)] for layer in chosen)
    for head in () if study.measure.heads == "all" else study.measure.heads:
        if head >= heads:
            raise AttnscopeError(
                f"{found.name} has no head {head}",
                where="measure.heads",
                allowed=f"heads 0 to {heads - 1}",
                todo="choose heads from these",
            )
    picked = list(range(heads)) if study.measure.heads == "all" else list(dict.fromkeys(study.measure.heads))
    return Shape(chosen, picked, list(study.measure.queries), study.rules)


def _key_facts(study: Study, shape: Shape, known: Mapping[str, Any]) -> dict[str, object]:
    return {
        "meter": METER,
        "files": [[Path(file["path"]).name, file["sha256"]] for file in known["files"]],
        "versions": known["versions"],
        "dtype": known["dtype"],
        "device": str(known["device"]).split(":")[0],
        "layers": list(shape.layers),
        "heads": list(shape.heads),
        "queries": list(shape.queries),
        "entropy": study.measure.entropy,
        "patterns": study.measure.patterns,
        "generate": study.prompts.answer.generate if study.prompts.answer else None,
    }


def _budget(lens: Lens, found: Description, shape: Shape) -> Budget:
    config = found.config.get_text_config()
    hidden = int(getattr(config, "hidden_size", 1024))
    heads = max(lens.parity.heads.values())
    width = int(getattr(config, "head_dim", None) or hidden // heads)
    between = int(getattr(config, "intermediate_size", None) or 4 * hidden)
    size = 2 if lens.loaded.dtype in ("bfloat16", "float16") else 4
    each = bytes_per_token(hidden, between, heads, width, len(shape.layers), len(shape.queries), size)
    return budget(lens.free_memory(), each, lens.loaded.device)
