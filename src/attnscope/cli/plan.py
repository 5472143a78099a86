"""`attnscope plan`: what a study can find, before it is run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnscope.cli import options
from attnscope.cli.run import Models, StudyName, Swap, instead, labels, swaps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnscope.analysis.power import Reach, Target
    from attnscope.analysis.run import Run
    from attnscope.runs.request import RunRequest


def plan(
    study: StudyName,
    pilot: Annotated[
        int | None, typer.Option(min=2, help="Measure the first N prompts, and take the size of effects from them.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the pilot; runs/NAME-pilot by default.")] = None,
    size: Annotated[
        list[float] | None, typer.Option(help="A size of effect in standard deviations, repeatable; 0.3, 0.5 and 0.8.")
    ] = None,
    models: Models = None,
    swap: Swap = None,
    trust_remote_code: options.TrustRemoteCode = False,
    allow_pickle: options.AllowPickle = False,
) -> None:
    """Say what a study can find: the smallest q, the chance to find an effect, and the prompts needed for 80 %."""
    from attnscope.studies import default_folder, request_study

    def request(limit: int | None) -> RunRequest:
        return request_study(
            study,
            limit=limit,
            models=labels(models),
            swaps=swaps(swap),
            instead=instead(swap),
            trust_remote_code=trust_remote_code,
            allow_pickle=allow_pickle,
        )

    whole = request(None)
    folder = default_folder(study).with_name(f"{default_folder(study).name}-pilot") if out is None else out
    measured = None if pilot is None else _measured(request(pilot), folder)
    show_plan(whole, size or (), measured)


def _measured(request: RunRequest, folder: Path) -> Run:
    from attnscope.analysis.run import Run
    from attnscope.cli.progress import Bar
    from attnscope.studies import perform_request

    with Bar() as bar:
        perform_request(request, folder, bar, spot_check=False)
    return Run(folder)


def show_plan(request: RunRequest, sizes: Sequence[float] = (), pilot: Run | None = None) -> None:
    """What a study can find. pilot: a run of some of its prompts."""
    from attnscope.analysis.power import SIZES, Reach, targets
    from attnscope.figures import sentences
    from attnscope.runs.audit import heads_measured

    console = Console()
    prompts = request.prompts.prompts
    clusters = len({prompt.cluster for prompt in prompts})
    classes = len(request.study.classes) + 1
    many = sentences.prompts_in_clusters(len(prompts), clusters)
    for label, heads in heads_measured(request).items():
        reach = Reach(clusters, heads * classes)
        console.print(Text(f"\n{label}: {many}; {heads} heads x {classes} classes", style="bold"))
        console.print(Text(_reach(reach)), soft_wrap=True)
        if reach.testable:
            console.print(_chances(targets(heads, classes), sizes or SIZES, clusters))
            if pilot is not None:
                console.print(_from_pilot(pilot, targets(heads, classes), clusters))
    if pilot is None:
        console.print(Text("for sizes as they are in this study: attnscope plan STUDY --pilot 12"))


def _reach(reach: Reach) -> str:
    from attnscope.analysis.effects import FEWEST

    if not reach.testable:
        return f"Too few prompts for any test: {FEWEST} are the fewest."
    words = f"No p can be below {reach.smallest_p:.2g}, so the smallest q of a single head is {reach.smallest_q:.2g}"
    if reach.together == 1:
        return f"{words}."
    return f"{words}: too few prompts to find one. q < 0.05 takes {reach.together:,} heads at once."


def _chances(wanted: Sequence[Target], sizes: Sequence[float], clusters: int) -> Table:
    from attnscope.analysis.power import clusters_needed, power

    table = Table(title="chance to find an effect (q < 0.05), and what 80 % takes", title_justify="left")
    table.add_column("effect on")
    for size in sizes:
        table.add_column(f"size {size:g}", justify="right")
    for target in wanted:
        cells = []
        for size in sizes:
            least = clusters_needed(size, target.level)
            cells.append(f"{power(size, clusters, target.level):.0%} (80 %: {'never' if least is None else least})")
        table.add_row(target.name, *cells)
    return table


def _from_pilot(pilot: Run, wanted: Sequence[Target], clusters: int) -> Table:
    from attnscope.analysis.power import clusters_needed, pilots, power

    queries = pilot.study.measure.queries[0]
    table = Table(title=f"from the pilot in {pilot.path} ({queries})", title_justify="left")
    for column in ("comparison", "class", "effect on", "size", "chance", "80 % takes"):
        table.add_column(column, justify="left" if column in ("comparison", "class", "effect on") else "right")
    mean, tenth, _ = wanted
    for each in pilots(pilot.compare(), queries):
        for target, size in ((mean, each.mean), (tenth, each.head)):
            least = clusters_needed(size, target.level)
            chance = power(size, clusters, target.level)
            name = "the mean" if target is mean else target.name
            cells = (name, f"{size:.2f}", f"{chance:.0%}", "never" if least is None else f"{least}")
            table.add_row(Text(each.comparison), Text(each.token_class), *cells)
    return table
