"""Studies from end to end: a study file becomes a run with its tables, figures and report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnscope.errors import AttnscopeError, near
from attnscope.figures.kind import find_kind
from attnscope.notebook import Run
from attnscope.report.write import is_reported, report_run
from attnscope.runs.folder import RunFolder
from attnscope.runs.order import Order
from attnscope.study.file import bundled_studies, find_study, read_study, refuse_unknown_segments
from attnscope.study.parts import FigurePart, Study
from attnscope.study.prompts import read_prompts

if TYPE_CHECKING:
    from attnscope.runs.perform import Outcome, Watcher

RUNS = Path("runs")


def order_study(
    name: str,
    *,
    limit: int | None = None,
    models: Sequence[str] = (),
    swaps: Mapping[str, str] | None = None,
    instead: str | None = None,
    strict: bool = False,
    forget: bool = False,
    command: str | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
) -> Order:
    """A study by bundled name or file, checked and with its prompts; nothing is loaded yet.

    limit: only the first so many prompts. models: only these, by label. swaps: other sources, by label. instead: a
    source for the only model of the study, which is then labelled by it. strict: a prompt that can't be measured is an
    error. forget: remove what was measured for other versions of the study.
    """
    path = find_study(name)
    study = _swapped(_picked(read_study(path), models), swaps or {})
    study = study if instead is None else _relabelled(study, instead)
    for figure in study.figures:
        find_kind(figure.kind, f"{path.name}, figure {figure.name}")
    prompts = read_prompts(study, path.parent)
    refuse_unknown_segments(study, prompts.layouts, path)
    for figure in study.figures:
        if figure.prompt is not None and figure.prompt >= len(prompts.prompts):
            raise AttnscopeError(
                f"there is no prompt {figure.prompt}",
                where=f"{path.name}, figure {figure.name}: prompt",
                allowed=f"0 to {len(prompts.prompts) - 1}",
                todo="choose another, or leave it out",
            )
    if limit is not None:
        if limit < 1:
            raise AttnscopeError(
                "there would be no prompts", where=f"--limit {limit}", allowed="1 or more", todo="give a larger limit"
            )
        prompts = replace(prompts, prompts=prompts.prompts[:limit])
    return Order(
        study,
        path.read_text(encoding="utf-8"),
        prompts,
        strict=strict,
        forget=forget,
        command=command,
        trust_remote_code=trust_remote_code,
        allow_pickle=allow_pickle,
    )


def run_study(name: str, out: Path | str | None = None, *, watcher: Watcher | None = None, **options: object) -> Run:
    """Run a study into a folder (runs/NAME by default) and return the run, with its figures and report written.

    Options are those of `order_study`. Run again, it measures only what is missing.
    """
    from attnscope.runs.perform import perform

    order = order_study(name, **options)  # type: ignore[arg-type]
    folder = default_folder(name) if out is None else Path(out)
    perform(order, RunFolder(folder), watcher)
    if not is_reported(folder):
        report_run(folder)
    return Run(folder)


def perform_order(order: Order, folder: Path, watcher: Watcher | None = None, **options: Any) -> Outcome:
    """Bring a folder up to date with an order; options are those of `perform`."""
    from attnscope.runs.perform import perform

    return perform(order, RunFolder(folder), watcher, **options)


def default_folder(name: str) -> Path:
    return RUNS / (name if name in bundled_studies() else Path(name).stem)


def _picked(study: Study, labels: Sequence[str]) -> Study:
    known = [part.label for part in study.models]
    for label in labels:
        if label not in known:
            raise AttnscopeError(
                f"the study has no model '{label}'", where="--models", allowed=near(label, known), todo="use its labels"
            )
    if not labels:
        return study
    return study.model_copy(update={"models": [part for part in study.models if part.label in labels]})


def _swapped(study: Study, swaps: Mapping[str, str]) -> Study:
    known = [part.label for part in study.models]
    for label in swaps:
        if label not in known:
            raise AttnscopeError(
                f"the study has no model '{label}'", where="--model", allowed=near(label, known), todo="use its labels"
            )
    plain = {"adapter": None, "revision": None}
    parts = [
        part.model_copy(update={"source": swaps[part.label], **plain}) if part.label in swaps else part
        for part in study.models
    ]
    return study.model_copy(update={"models": parts})


def _relabelled(study: Study, source: str) -> Study:
    """The study on another model than its only one, under that model's own name everywhere."""
    labels = [part.label for part in study.models]
    if len(labels) != 1:
        raise AttnscopeError(
            f"the study has {len(labels)} models",
            where=f"--model {source}",
            allowed=f"say which it replaces: {labels[0]}={source}",
            todo=f"write it so; the study's models are {', '.join(labels)}",
        )
    path = Path(source).expanduser()
    if path.name in ("", ".."):  # `.` and `..` have no name of their own
        path = path.resolve()
    label = path.stem if source.lower().endswith(".gguf") else path.name.partition("@")[0]

    def renamed(names: Sequence[str] | None) -> list[str] | None:
        return None if names is None else [label if name == labels[0] else name for name in names]

    def figure(part: FigurePart) -> FigurePart:
        panels = part.panels and [
            panel.model_copy(
                update={"model": label, "also": [each.model_copy(update={"model": label}) for each in panel.also]}
            )
            for panel in part.panels
        ]
        return part.model_copy(
            update={"models": renamed(part.models), "difference": renamed(part.difference), "panels": panels}
        )

    swapped = _swapped(study, {labels[0]: source})
    parts = [part.model_copy(update={"label": label}) for part in swapped.models]
    return swapped.model_copy(update={"models": parts, "figures": [figure(part) for part in swapped.figures]})
