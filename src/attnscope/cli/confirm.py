"""`attnscope confirm`: what a run found, tested on fresh prompts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnscope.cli import options
from attnscope.cli.speech import say

if TYPE_CHECKING:
    import polars as pl

    from attnscope.confirmation import Confirmation


def confirm(
    run: options.RunFolder,
    prompts: Annotated[
        Path | None, typer.Option(help="A file of prompts; by default more are drawn from the study's set.")
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="How many prompts; by default as many as the run has.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="The seed; by default the study's plus 1.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the fresh run; RUN-confirmed by default.")] = None,
    trust_remote_code: options.TrustRemoteCode = False,
    allow_pickle: options.AllowPickle = False,
    evidence: options.Evidence = "full",
    quiet: options.Quiet = False,
) -> None:
    """Measure prompts that a run has not seen, and test on them what it found: which heads and classes hold."""
    from attnscope.cli.progress import watching
    from attnscope.confirmation import TABLE, confirm_run
    from attnscope.figures import sentences

    with watching(quiet=quiet) as watcher:
        result = confirm_run(
            run,
            out,
            prompts=prompts,
            count=count,
            seed=seed,
            watcher=watcher,
            evidence=evidence,
            trust_remote_code=trust_remote_code,
            allow_pickle=allow_pickle,
        )
    many = sentences.prompts_in_clusters(len(result.fresh.cluster_of), result.clusters)
    if result.redrawn:
        about = (
            f"{many}: {run} used all prompts of its set, so these are the same ones with the random text drawn anew. "
            "What holds does not depend on that draw; whether it holds for other prompts is open (see --prompts)"
        )
    else:
        about = f"fresh: {many}, none of them in {run}"
    say([about, *_limits(result), *_counts(result.heads), *_classes(result.classes)])
    print(f"wrote {result.fresh.path / TABLE}")  # noqa: T201


def _limits(result: Confirmation) -> list[str]:
    """What these prompts can't show."""
    from attnscope.study.independence import FEWEST

    lines, seen = [], result.seen_clusters
    if seen and not result.redrawn:
        which = "all" if seen == result.clusters else f"{seen}"
        lines.append(
            f"{which} of these clusters are in the run as well: what holds is shown for prompts like these, not for "
            "other clusters"
        )
    if result.clusters < FEWEST:
        lines.append(f"too few for any test: it takes {FEWEST} clusters (or independent prompts); see --count")
    return lines


def _counts(heads: pl.DataFrame) -> list[str]:
    lines = []
    for (comparison, queries), part in (
        heads.group_by("comparison", "queries", maintain_order=True) if len(heads) else ()
    ):
        lost = part["held"].null_count()
        untested = f"; {lost} could not be tested" if lost else ""
        lines.append(
            f"{comparison} ({queries}): {int(part['held'].sum())} of {len(part)} heads held (q < 0.05 among them, same "
            f"sign){untested}"
        )
    return lines


def _classes(classes: pl.DataFrame) -> list[str]:
    return [_class(row) for row in classes.iter_rows(named=True)]


def _class(row: dict[str, Any]) -> str:
    from attnscope.figures import sentences

    where = f"{row['comparison']} ({row['queries']}): {row['token_class']}, mean over heads,"
    before = sentences.number(row["difference"])
    if row["again"] is None:
        return f"{where} was {before}; the fresh prompts have none"
    now = sentences.with_interval(row["again"], row["low"], row["high"])
    verdict = "could not be tested" if row["held"] is None else "held" if row["held"] else "did not hold"
    return f"{where} was {before} and is {now}: {verdict}"
