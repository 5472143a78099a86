"""A finished run -> report.html: one file that needs no network, with all text escaped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from attnscope.analysis.compared import Compared
from attnscope.analysis.head_kinds import head_kinds
from attnscope.analysis.run import Run
from attnscope.figures.interactive import head_chooser
from attnscope.figures.library import chart_library
from attnscope.figures.prose import Document, html
from attnscope.figures.write import Figure
from attnscope.measures.names import SCORES
from attnscope.report.comparison_tables import comparison_section, robustness_sections
from attnscope.report.effects import effects_section
from attnscope.report.empty import empty_in_words
from attnscope.report.files import PAGE

MOST_ROWS = 400  # of a table shown; the csv beside the figure has them all


def write_page(
    run: Run,
    figures: Sequence[Figure],
    undrawn: Mapping[str, str],
    compared: Sequence[Compared],
    evidence: Document,
    answer: Sequence[str],
    command: str,
    folder: Path,
) -> None:
    environment = Environment(
        loader=PackageLoader("attnscope.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["json"] = as_json
    chooser, effects = head_chooser(run), effects_section(run)
    page = environment.get_template("report.html.jinja").render(
        title=run.study.title or run.path.name,
        question=run.study.question,
        answer=answer,
        robustness=[html(each) for each in robustness_sections(compared)],
        summary=summary_of(run),
        figures=[_figure(figure) for figure in figures],
        undrawn=undrawn,
        empty=empty_in_words(run),
        chooser=chooser,
        prompts=_prompts(run),
        comparisons=[_comparison(run, each) for each in compared],
        effects=None if effects is None else html(effects),
        kinds=_kinds(run),
        evidence=html(evidence),
        dropped=run.manifest.dropped,
        manifest=run.manifest,
        study=(run.path / "study.yaml").read_text(encoding="utf-8"),
        command=command,
        library=Markup(_script(chart_library())),  # noqa: S704  (the chart library, not anyone's text)
    )
    (folder / PAGE).write_text(page, encoding="utf-8")


def as_json(value: Any) -> Markup:
    """JSON for a script element: no text in it can end the element or begin another."""
    text = json.dumps(value, ensure_ascii=False)
    for sign, code in (
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u2028", "\\u2028"),
        ("\u2029", "\\u2029"),
    ):
        text = text.replace(sign, code)
    return Markup(text)  # noqa: S704


def _script(text: str) -> str:
    return text.replace("</script", "<\\/script")


def _figure(figure: Figure) -> dict[str, Any]:
    shown = figure.table.head(MOST_ROWS)
    return {
        "name": figure.name,
        "title": figure.look.title or figure.name,
        "caption": figure.look.caption,
        "alt": figure.alt,
        "reading": html(figure.reading),
        "description": figure.description,
        "columns": shown.columns,
        "rows": [[_cell(value) for value in row] for row in shown.iter_rows()],
        "hidden": len(figure.table) - len(shown),
    }


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)


def summary_of(run: Run) -> str:
    """How many models, conditions, prompts, cells and tokens."""
    counted = (
        run.table("prompts")
        .select(pl.col("prompt").n_unique(), pl.len().alias("cells"), pl.col("tokens").sum())
        .collect()
    )
    prompts, cells, tokens = counted.row(0)
    counts = {"model": len(run.models), "condition": len(run.conditions), "prompt": prompts}
    words = [f"{count} {name}{'s' * (count > 1)}" for name, count in counts.items()]
    return f"{', '.join(words)}: {cells} cell{'s' * (cells != 1)}, {tokens:,} tokens."


def _prompts(run: Run) -> list[dict[str, Any]]:
    """By model and condition: tokens, inserted tokens, re-merged tokens, and the first prompt's text."""
    rows = (
        run.table("prompts")
        .filter(pl.col("model").is_in(run.compared_models))
        .group_by("model", "condition", maintain_order=True)
        .agg(
            pl.len().alias("prompts"),
            pl.col("tokens").min().alias("fewest"),
            pl.col("tokens").max().alias("most"),
            pl.col("inserted").min().alias("inserted_least"),
            pl.col("inserted").max().alias("inserted_most"),
            pl.col("remerged").sum(),
            pl.col("aligned").all(),
            pl.col("text").first(),
        )
        .collect()
    )
    return rows.to_dicts()


def _comparison(run: Run, found: Compared) -> dict[str, Any]:
    section = comparison_section(found, run.queries)
    return {"name": section.heading, "content": html(section)}


def _kinds(run: Run) -> list[dict[str, Any]]:
    """By model and query group, under the first condition: how many heads are of each kind, and the clearest of it."""
    tables = []
    for model in run.compared_models:
        for queries in run.queries:
            condition = next((name for name in run.conditions if run.has(model, name)), None)
            if condition is None:
                continue
            heads = head_kinds(run, model, condition, queries)
            rows = []
            for kind in dict.fromkeys(heads["kind"].drop_nulls().sort()):
                mine = heads.filter(pl.col("kind") == kind)
                best = (
                    mine.sort(kind, descending=True, maintain_order=True).row(0, named=True) if kind in SCORES else None
                )
                clearest = f"layer {best['layer']} head {best['head']} ({best[kind]:.2f})" if best else ""
                rows.append((kind, f"{len(mine)} of {len(heads)}", clearest))
            tables.append({"model": model, "queries": queries, "condition": condition, "rows": rows})
    return [each for each in tables if each["rows"]]
