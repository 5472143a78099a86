"""Confirms a run: measures prompts it has not seen, and tests again only what it found.

What a run finds was chosen among thousands of tests, so some of it is chance. On fresh prompts only these findings are
tested, and only in the direction they had. If the run used all prompts of a set, its random text is drawn anew instead:
that shows whether the findings depend on the draw, not whether they hold for other prompts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import yaml

from attnscope.analysis.compared import Compared
from attnscope.analysis.discoveries import FALSE_DISCOVERIES, discoveries
from attnscope.analysis.own_text import own_text
from attnscope.analysis.run import Run
from attnscope.analysis.sides import MASS
from attnscope.errors import AttnscopeError, Parameter
from attnscope.runs.evidence import FULL, level_of
from attnscope.runs.folder import RunFolder
from attnscope.runs.request import RunRequest
from attnscope.study.independence import cluster_field
from attnscope.study.prompts import layouts_of_rows, read_prompt, read_prompts, rows_of_file, rows_of_set
from attnscope.study.schema import PromptsSpec, Study
from attnscope.text.layout import Layouts
from attnscope.text.segments import TEMPLATE
from attnscope.text.sets import PROMPT_SETS

if TYPE_CHECKING:
    from attnscope.runs.watcher import Watcher

TABLE = "confirmation.csv"
_OF_HEADS = ("comparison", "queries", "token_class", "layer", "head", "layer_two", "head_two")
_OF_CLASSES = ("comparison", "queries", "token_class")
_SHOWN = ("difference", "low", "high", "q")


@dataclass(frozen=True)
class Confirmation:
    """What a run found, and what held on fresh prompts."""

    run: Run
    fresh: Run
    heads: pl.DataFrame
    """The heads that changed significantly: keys, `difference`; and of the fresh prompts `again`, ends, `q`, `held`.

    q is over the findings of one comparison and query group; held: q < 0.05 and the same sign.
    """
    classes: pl.DataFrame
    """The same for classes, mean over heads."""

    @property
    def redrawn(self) -> bool:
        """Whether the prompts are the run's own, with other random text."""
        used = {_text_of(dict(segments)) for segments in own_text(self.run).values()}
        return any(_text_of(dict(segments)) in used for segments in own_text(self.fresh).values())

    @property
    def clusters(self) -> int:
        """How many clusters the fresh prompts are of."""
        return len(set(self.fresh.cluster_of.values()))

    @property
    def seen_clusters(self) -> int | None:
        """How many of these the run has prompts of; None if the study gives no clusters."""
        if cluster_field(self.run.study.prompts) is None:
            return None
        first, again = (set(each.table("prompts").select("cluster").collect()["cluster"]) for each in self.runs)
        return len(first & again)

    @property
    def runs(self) -> tuple[Run, Run]:
        return self.run, self.fresh


def confirm_run(
    run: Path | str,
    out: Path | str | None = None,
    *,
    prompts: Path | str | None = None,
    count: int | None = None,
    seed: int | None = None,
    watcher: Watcher | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    evidence: str = FULL,
) -> Confirmation:
    """Measure fresh prompts and test what a run found on them.

    out: the folder of the fresh run, RUN-confirmed by default. prompts: a file of prompts; those that the run used are
    left out. Without it, they are drawn from the study's set. count: how many; by default as many as the run has. seed:
    of the fresh prompts and their random texts; by default the study's plus 1. evidence: as in `run_study`.
    """
    from attnscope.runs.perform import perform

    first = Run(run)
    found = [each for each in first.compare() if each.comparison.kind != "placebo"]
    heads, classes = _findings(found, "heads", _OF_HEADS), _findings(found, "overall", _OF_CLASSES)
    if not len(heads) and not len(classes):
        raise AttnscopeError(
            "this run found nothing to confirm",
            where=str(run),
            allowed=f"runs with significant changes in mass (q < {FALSE_DISCOVERIES})",
            todo="measure more prompts; 'attnscope plan' says how many",
        )
    seed = first.study.seed + 1 if seed is None else seed
    study = _fresh_study(first, prompts, count, seed)
    text = yaml.safe_dump(
        study.model_dump(mode="json", exclude_defaults=True), sort_keys=False, allow_unicode=True, width=100
    )
    request = RunRequest(
        study,
        text,
        read_prompts(study, first.path),
        file="the fresh prompts",
        command=f"attnscope confirm {first.path}",
        trust_remote_code=trust_remote_code,
        allow_pickle=allow_pickle,
        evidence=level_of(evidence),
    )
    folder = first.path.with_name(f"{first.path.resolve().name}-confirmed") if out is None else Path(out)
    if folder.resolve() == first.path.resolve():
        raise AttnscopeError(
            "the fresh prompts would take the place of the run's own",
            where=Parameter("out", out),
            allowed="another folder than the run's",
            todo="choose another, or leave it out",
        )
    perform(request, RunFolder(folder), watcher)
    fresh = Run(folder)
    again = fresh.compare()
    result = Confirmation(
        first,
        fresh,
        _tested_again(heads, _rows(again, "heads"), _OF_HEADS),
        _tested_again(classes, _rows(again, "overall"), _OF_CLASSES),
    )
    _write(result, folder / TABLE)
    return result


def _write(result: Confirmation, file: Path) -> None:
    parts = (("head", result.heads), ("class", result.classes))
    pl.concat([table.select(pl.lit(name).alias("of"), pl.all()) for name, table in parts], how="diagonal").write_csv(
        file
    )


def _rows(compared: Sequence[Compared], part: str) -> pl.DataFrame:
    """The rows of all comparisons about mass."""
    frames = [
        getattr(each, part)
        .filter(pl.col("quantity") == MASS)
        .select(pl.lit(each.comparison.name).alias("comparison"), pl.all())
        for each in compared
    ]
    return pl.concat(frames) if frames else pl.DataFrame()


def _findings(compared: Sequence[Compared], part: str, keys: Sequence[str]) -> pl.DataFrame:
    rows = _rows(compared, part)
    return rows.filter(pl.col("sure")).select(*keys, "difference") if len(rows) else rows


def _tested_again(found: pl.DataFrame, fresh: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Findings with their numbers on fresh prompts; `q` over those of one comparison and query group."""
    if not len(found):
        return found
    wanted = fresh.select(*keys, again="difference", low="low", high="high", p="p", n="n")
    both = found.join(wanted, on=list(keys), how="left", maintain_order="left")
    same_way = pl.col("difference").sign() == pl.col("again").sign()
    both = both.with_columns(
        p=pl.when(same_way).then(pl.col("p")).otherwise(pl.when(pl.col("p").is_not_null()).then(1.0))
    )
    parts = []
    for _, part in both.group_by("comparison", "queries", maintain_order=True):
        q = discoveries(part["p"].cast(pl.Float64).fill_null(np.nan).to_numpy())
        parts.append(part.with_columns(q=pl.Series(q).fill_nan(None)))
    return pl.concat(parts).with_columns(held=pl.col("q") < FALSE_DISCOVERIES)


def _fresh_study(run: Run, file: Path | str | None, count: int | None, seed: int) -> Study:
    """The study with prompts that the run has not used, written out."""
    spec = run.study.prompts
    texts = own_text(run)
    wanted = len(texts) if count is None else count
    if wanted < 1:
        raise AttnscopeError(
            "no prompts would be measured", where=Parameter("count", count), allowed="1 or more", todo="ask for more"
        )
    rows = _candidates(run, file, wanted + len(texts), seed)
    layouts = layouts_of_rows(spec, rows)
    used = {_text_of(dict(segments)) for segments in texts.values()}
    fresh = [row for row in rows if not used & _texts_of(row, spec, layouts)][:wanted]
    if not fresh and file is None and any(condition.is_random for condition in run.study.conditions):
        fresh = rows[:wanted]
    if not fresh:
        raise AttnscopeError(
            "there are no prompts left that the run has not used",
            where=Parameter("prompts", file) if file is not None else f"{run.path}: prompts",
            allowed="a file with other prompts, or a set with more of them",
            todo=("give other prompts with ", Parameter("prompts", "FILE")),
        )
    own: dict[str, Any] = {
        "items": fresh,
        "set": None,
        "file": None,
        "count": None,
        "seed": None,
        "options": {},
        "id": None,
    }
    chat = {role: line for role, line in layouts.chat.lines if role is not None} if layouts.chat else None
    lines = {"chat": chat, "plain": layouts.plain.lines[0][1] if layouts.plain else None}
    data = {**spec.model_dump(), **own, **lines, "cluster": cluster_field(spec)}
    return run.study.model_copy(update={"prompts": PromptsSpec.model_validate(data), "seed": seed, "figures": []})


def _candidates(run: Run, file: Path | str | None, count: int, seed: int) -> list[dict[str, Any]]:
    spec = run.study.prompts
    if file is not None:
        return rows_of_file(Path(file), str(file))
    if spec.set is None:
        raise AttnscopeError(
            "this study's prompts are its own, so there are no others to draw",
            where=f"{run.path}: prompts",
            allowed="a study with a prompt set, or a file of prompts",
            todo=("give prompts with ", Parameter("prompts", "FILE"), "; those the run used are left out"),
        )
    default = PROMPT_SETS.find(spec.set, f"prompts.set: {spec.set}").default
    for many in range(max(count, default), 0, -1):  # a set may have fewer
        try:
            return rows_of_set(spec.set, many, seed, spec.options)
        except AttnscopeError:
            if many == 1:
                raise
    return []


def _texts_of(row: Mapping[str, Any], spec: PromptsSpec, layouts: Layouts) -> set[frozenset[tuple[str, str]]]:
    """The segments of a prompt and their texts, in every layout that a model may get."""
    fields = read_prompt(0, row, spec, layouts).fields
    every = [[piece for _, pieces in layout.pieces(fields) for piece in pieces] for layout in layouts.every]
    return {_text_of({each.segment: each.text for each in pieces if each.segment != TEMPLATE}) for pieces in every}


def _text_of(fields: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    """A prompt's text, for comparison: a template may trim it."""
    return frozenset((name, text.strip()) for name, text in fields.items())
