"""`attnscope plan`: what a study can find, before it is run."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from attnscope.cli import options
from attnscope.cli.grid import numbers, print_grid
from attnscope.cli.grid import text as text_columns
from attnscope.cli.run import Models, StudyName, Swap, instead, labels, swaps
from attnscope.errors import AttnscopeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnscope.analysis.power import Reach, Target
    from attnscope.analysis.run import Run
    from attnscope.runs.request import RunRequest

MOST_SIZE = 100  # standard deviations


def plan(
    study: StudyName,
    pilot: Annotated[
        int | None, typer.Option(min=6, help="Measure the first N prompts, and take the size of effects from them.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the pilot; runs/NAME-pilot by default.")] = None,
    size: Annotated[
        list[float] | None, typer.Option(help="A size of effect in standard deviations, repeatable; 0.3, 0.5 and 0.8.")
    ] = None,
    models: Models = None,
    swap: Swap = None,
    trust_remote_code: options.TrustRemoteCode = False,
    allow_pickle: options.AllowPickle = False,
    quiet: options.Quiet = False,
) -> None:
    """Say what a study can find: the smallest q, the chance to find an effect, and the prompts needed for 80 %."""
    from attnscope.studies import default_folder, request_study

    for each in size or ():
        _check_size(each)

    def request(limit: int | None) -> RunRequest:
        return request_study(
            study,
            limit=limit,
            models=labels(models),
            swaps=swaps(swap),
            instead=instead(swap),
            trust_remote_code=trust_remote_code,
            allow_pickle=allow_pickle,
            evidence="quick",  # a pilot is measured for the size of effects
        )

    whole = request(None)
    folder = default_folder(study).with_name(f"{default_folder(study).name}-pilot") if out is None else out
    every = len(whole.prompts.prompts)
    if pilot is not None and pilot > every and not quiet:
        print(f"the study has only {every} prompts, so the pilot is the whole study", file=sys.stderr)  # noqa: T201
    measured = None if pilot is None else _measured(request(pilot), folder, quiet=quiet)
    show_plan(whole, size or (), measured)


def _check_size(size: float) -> None:
    if not 0 < size < MOST_SIZE:
        raise AttnscopeError(
            f"{size:g} can't be the size of an effect",
            where="--size",
            allowed=f"a number above 0 and below {MOST_SIZE}, in standard deviations",
            todo="give another",
        )


def _measured(request: RunRequest, folder: Path, *, quiet: bool) -> Run:
    from attnscope.analysis.run import Run
    from attnscope.cli.progress import watching
    from attnscope.studies import perform_request

    with watching(quiet=quiet) as watcher:
        perform_request(request, folder, watcher)
    return Run(folder)


def show_plan(request: RunRequest, sizes: Sequence[float] = (), pilot: Run | None = None) -> None:
    """What a study can find. pilot: a run of some of its prompts."""
    import numpy as np

    from attnscope.analysis.power import SIZES, Reach, targets
    from attnscope.figures import sentences
    from attnscope.runs.audit import heads_measured
    from attnscope.study.independence import FEWEST, testable

    console = Console()
    prompts = request.prompts.prompts
    counts = Counter(prompt.cluster for prompt in prompts)
    clusters, unit = len(counts), "prompts" if len(counts) == len(prompts) else "clusters"
    is_testable = bool(testable(np.array([*counts.values()], dtype=np.float64)))
    classes = len(request.study.token_sets)
    many = sentences.prompts_in_clusters(len(prompts), clusters)
    for label, heads in heads_measured(request).items():
        reach = Reach(clusters, heads * classes)
        console.print(Text(f"\n{label}: {many}; {heads} heads x {classes} classes", style="bold"))
        if clusters >= FEWEST and not is_testable:
            console.print(Text("No test: a few clusters have most of the prompts. Add prompts of others."))
            continue
        console.print(Text(_reach(reach, unit)), soft_wrap=True)
        if reach.testable:
            _show_chances(console, targets(heads, classes), sizes or SIZES, clusters, unit)
            if pilot is not None:
                _show_pilot(console, pilot, label, targets(heads, classes), clusters, unit)
                _say_what_clusters_change(console, pilot, len(prompts) / clusters)
    if unit == "clusters":
        console.print(
            Text(f"The prompts are of {clusters} clusters; a study that needs more takes prompts of other kinds.")
        )
    if pilot is None and is_testable:
        console.print(Text("for sizes as they are in this study: attnscope plan STUDY --pilot 12"))


def _say_what_clusters_change(console: Console, pilot: Run, per_cluster: float) -> None:
    """Means over more prompts of a cluster vary less, so a pilot with fewer of them shows too small sizes."""
    in_pilot = len(pilot.cluster_of) / max(1, len(set(pilot.cluster_of.values())))
    if in_pilot < 0.8 * per_cluster:
        console.print(
            Text(
                f"The pilot has {in_pilot:.1f} prompts per cluster and the study {per_cluster:.1f}: means of clusters "
                "will vary less than here, so sizes are probably larger and fewer clusters are needed."
            )
        )


def _reach(reach: Reach, unit: str) -> str:
    from attnscope.study.independence import FEWEST

    if not reach.testable:
        return f"Too few {unit} for any test: {FEWEST} are the fewest."
    words = f"No p can be below {reach.smallest_p:.2g}, so the smallest q of a single head is {reach.smallest_q:.2g}"
    if reach.together == 1:
        return f"{words}."
    return f"{words}: too few {unit} to find one. q < 0.05 takes {reach.together:,} heads at once."


def _show_chances(console: Console, wanted: Sequence[Target], sizes: Sequence[float], clusters: int, unit: str) -> None:
    from attnscope.analysis.power import clusters_needed, power

    title = (
        f"chance to find an effect (q < 0.05), and how many {unit} 80 % takes; sizes in standard deviations of {unit}"
    )
    rows = []
    for target in wanted:
        cells = []
        for size in sizes:
            least = clusters_needed(size, target.level)
            cells.append(f"{power(size, clusters, target.level):.0%} (80 %: {'never' if least is None else least})")
        rows.append((target.name, *cells))
    columns = [*text_columns("effect on"), *numbers(*(f"size {size:g}" for size in sizes))]
    print_grid(console, title, columns, rows)


def _show_pilot(console: Console, pilot: Run, model: str, wanted: Sequence[Target], clusters: int, unit: str) -> None:
    from attnscope.analysis.power import clusters_needed, pilots, power
    from attnscope.study.independence import FEWEST

    measured = set(pilot.cluster_of.values())
    found = pilots(pilot.compare(), model, pilot.queries[0])
    if not found:
        few = f"its prompts are of {len(measured)} clusters, and {FEWEST} are the fewest"
        why = few if len(measured) < FEWEST else "nothing in it can be tested"
        console.print(Text(f"The pilot says nothing about sizes: {why}."))
        return
    title = f"from the pilot in {pilot.path} ({pilot.queries[0]}, {len(measured)} {unit})"
    rows = []
    mean, tenth, _ = wanted
    for each in found:
        for target, size in ((mean, each.mean), (tenth, each.head)):
            least = clusters_needed(size, target.level)
            chance = power(size, clusters, target.level)
            name = "the mean over heads" if target is mean else "a tenth of all heads"
            cells = (name, f"{size:.2f}", f"{chance:.0%}", "never" if least is None else f"{least}")
            rows.append((each.comparison, each.token_class, *cells))
    columns = [*text_columns("comparison", "class", "effect on"), *numbers("size", "chance", f"{unit} for 80 %")]
    print_grid(console, title, columns, rows)
