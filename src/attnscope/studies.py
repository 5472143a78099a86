"""Studies from end to end: a study file becomes a run with its tables, figures and report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attnscope.analysis.ranks import ranks
from attnscope.arguments import count_of, names_of, path_of, shown_parameter, text_of
from attnscope.clock import Clock
from attnscope.errors import AttnscopeError, Parameter, near
from attnscope.figures.validation import figure_problems, options_of, with_options
from attnscope.notebook import Run
from attnscope.report.files import is_reported
from attnscope.report.write import Reported, report_run
from attnscope.runs.evidence import FULL, level_of
from attnscope.runs.folder import RunFolder
from attnscope.runs.request import LOCAL, RunRequest
from attnscope.study.consistency import Problem, problems, problems_with_prompts
from attnscope.study.file import bundled_studies, find_study, read_study, refuse, refuse_misfits
from attnscope.study.prompts import PromptList, PromptsError, read_prompts
from attnscope.study.schema import ModelSpec, Study

if TYPE_CHECKING:
    from attnscope.lens import Lens
    from attnscope.runs.perform import Outcome
    from attnscope.runs.watcher import Watcher

RUNS = Path("runs")


def request_study(
    name: str | Path,
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
    engine: str = LOCAL,
    evidence: str = FULL,
) -> RunRequest:
    """A study, by bundled name or file, checked and with its prompts; no model is loaded yet.

    limit: use only the first `limit` prompts. models: use only the models with these labels. swaps: other sources for
    models, by label. instead: a source that replaces the study's only model and becomes its label. strict: raise an
    error if a prompt can't be measured. forget: remove what was measured for other versions of the study. engine: where
    batches are measured. evidence: `full`, `quick` or `none`, see `run_study`. command: the command line to show in the
    report. trust_remote_code: run code that comes with a model. allow_pickle: load pickled weights.
    """
    level = level_of(evidence)
    path = find_study(name)
    full_study = with_options(read_study(path), path)
    study = _swapped(_picked(full_study, names_of(models, "models", "LABEL")), _sources(swaps))
    study = study if instead is None else _relabelled(study, path_of(instead, "instead", "the source of a model"))
    prompts = _prompts(study, path)
    refuse_misfits(study, prompts, path)
    refuse(figure_problems(full_study, len(prompts.prompts)), path)
    if limit is not None:
        most = count_of(limit, "limit", "choose a larger limit, or leave it out for all prompts")
        prompts = prompts.first(most)
    return RunRequest(
        study,
        path.read_text(encoding="utf-8"),
        prompts,
        file=str(path),
        strict=strict,
        forget=forget,
        command=command,
        trust_remote_code=trust_remote_code,
        allow_pickle=allow_pickle,
        engine=text_of(engine, "engine", "the name of an engine, such as 'local'"),
        evidence=level,
    )


def small_study(given: str | Path | Study, model: ModelSpec, limit: int) -> tuple[Study, PromptList]:
    """A study (a bundled name, a file or a Study) of one model in place of its own, with its first `limit` prompts.

    Its own models need not exist; it has no figures and no interventions.
    """
    if isinstance(given, Study):
        study = given.model_copy(update={"models": [model], "figures": [], "interventions": [], "outcome": None})
        _refuse_without_file(problems(study))
        try:
            prompts = read_prompts(study, Path())
        except PromptsError as error:
            _refuse_without_file([error.problem])
            raise
        _refuse_without_file(problems_with_prompts(study, prompts.layouts, prompts.contents))
    else:
        path = find_study(given)
        study = read_study(path, model)
        prompts = _prompts(study, path)
        refuse_misfits(study, prompts, path)
    return study, prompts.first(limit)


def _refuse_without_file(found: Iterable[Problem]) -> None:
    for problem in found:
        where = ".".join(str(step) for step in problem.at)
        raise AttnscopeError(problem.what, where=where, allowed=problem.allowed, todo="fix the study")


def _prompts(study: Study, path: Path) -> PromptList:
    try:
        return read_prompts(study, path.parent)
    except PromptsError as error:
        refuse([error.problem], path)
        raise


def run_study(
    name: str | Path,
    out: Path | str | None = None,
    *,
    watcher: Watcher | None = None,
    limit: int | None = None,
    models: Sequence[str] = (),
    swaps: Mapping[str, str] | None = None,
    instead: str | None = None,
    strict: bool = False,
    forget: bool = False,
    engine: str = LOCAL,
    evidence: str = FULL,
    command: str | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
) -> Run:
    """Run a study into a folder (runs/NAME by default), write its figures and report, and return the run.

    name: a bundled study or a study file. A second call measures only what is missing. watcher: gets the progress.
    limit: only the first `limit` prompts. models: only the models with these labels. swaps: another source for a
    model, by label. instead: a source that replaces the study's only model and becomes its label. strict: a prompt
    that can't be measured is an error. forget: remove what was measured for other versions of the study. engine:
    where batches are measured. evidence: `full` compares each model with eager attention before the first reading
    (proof) and measures some prompts again (spot check); `quick` only proves; `none` does neither, and everything says
    that the numbers are unproven. command: the command line that the report shows. trust_remote_code: run code that
    comes with a model. allow_pickle: load pickled weights.
    """
    folder = None if out is None else Path(path_of(out, "out", "a folder for the run"))
    request = request_study(
        name,
        limit=limit,
        models=models,
        swaps=swaps,
        instead=instead,
        strict=strict,
        forget=forget,
        engine=engine,
        evidence=evidence,
        command=command,
        trust_remote_code=trust_remote_code,
        allow_pickle=allow_pickle,
    )
    folder = folder or default_folder(name)
    clock = Clock()
    perform_request(request, folder, watcher, clock=clock)
    if not is_reported(folder):
        report_request(folder, clock)
    return Run(folder)


def perform_request(
    request: RunRequest,
    folder: Path,
    watcher: Watcher | None = None,
    *,
    load: Callable[..., Lens] | None = None,
    clock: Clock | None = None,
) -> Outcome:
    """Bring the run in a folder up to date with a request.

    load: replaces `attnscope.load`, for models that are already in memory. clock: counts what each phase takes.
    """
    clock = clock or Clock()
    with clock.phase("loading"):  # the libraries
        from attnscope.runs.perform import perform

    return perform(request, RunFolder(folder), watcher, load=load, clock=clock, rank=ranks)


def report_request(folder: Path, clock: Clock) -> Reported:
    """Write the report of a run that was just performed, and note in its manifest what that took."""
    reported = report_run(folder, clock)
    home = RunFolder(folder)
    with home.locked():
        home.write_manifest(Run(folder).manifest.model_copy(update={"timings": reported.timings}))
    return reported


def default_folder(name: str | Path) -> Path:
    return RUNS / (str(name) if str(name) in bundled_studies() else Path(name).stem)


def _picked(study: Study, labels: Sequence[str]) -> Study:
    labels_of_study = [*(spec.label for spec in study.models), *study.families]
    for label in labels:
        if label not in labels_of_study:
            raise AttnscopeError(
                f"the study has no model '{label}'",
                where=Parameter("models"),
                allowed=near(label, labels_of_study),
                todo="use the labels in the study",
            )
    if not labels:
        return study
    return study.model_copy(
        update={"models": [spec for spec in study.models if spec.label in labels or spec.family in labels]}
    )


def _sources(swaps: object) -> dict[str, str]:
    """Sources of models by label."""
    if swaps is None:
        return {}
    if not isinstance(swaps, Mapping):
        raise AttnscopeError(
            "swaps are not sources by label",
            where=shown_parameter("swaps", swaps),
            allowed="a mapping such as {'LABEL': 'org/name'}",
            todo="map the label of each model to its new source",
        )
    return {label: path_of(source, f"swaps[{label!r}]", "the source of a model") for label, source in swaps.items()}


def _swapped(study: Study, swaps: Mapping[str, str]) -> Study:
    labels_of_study = [spec.label for spec in study.models]
    for label in swaps:
        if label not in labels_of_study:
            raise AttnscopeError(
                f"the study has no model '{label}'",
                where=Parameter("swaps"),
                allowed=near(label, labels_of_study),
                todo="use the labels in the study",
            )
    plain = {"adapter": None, "revision": None, "tokenizer": None}
    specs = [
        spec.model_copy(update={"source": swaps[spec.label], **plain}) if spec.label in swaps else spec
        for spec in study.models
    ]
    return study.model_copy(update={"models": specs})


def _relabelled(study: Study, source: str) -> Study:
    """The study with another model in place of its only one, under that model's own name everywhere."""
    labels = [spec.label for spec in study.models]
    if len(labels) != 1:
        raise AttnscopeError(
            f"the study has {len(labels)} models",
            where=Parameter("instead", source),
            allowed="a study with one model, which it replaces",
            todo=(
                "name the model to replace, as in ",
                Parameter("swaps", {labels[0]: source}),
                f"; the study has {', '.join(labels)}",
            ),
        )
    path = Path(source).expanduser()
    if path.name in ("", ".."):  # `.` and `..` have no name of their own
        path = path.resolve()
    label = path.stem if source.lower().endswith(".gguf") else path.name.partition("@")[0]

    swapped = _swapped(study, {labels[0]: source})
    specs = [spec.model_copy(update={"label": label}) for spec in swapped.models]
    figures = [options_of(figure).renamed(labels[0], label) for figure in swapped.figures]
    return swapped.model_copy(update={"models": specs, "figures": figures})
