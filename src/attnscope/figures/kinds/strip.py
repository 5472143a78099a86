"""The prompt's own text, each token shaded by the attention it receives."""

from __future__ import annotations

import altair as alt
import polars as pl

from attnscope.analysis.dense import token_rows
from attnscope.analysis.received import Heads, gazes
from attnscope.analysis.run import Run
from attnscope.analysis.spread import mean_of_seen
from attnscope.errors import AttnscopeError
from attnscope.figures import selection, sentences
from attnscope.figures.compose import Description, joined
from attnscope.figures.kind import Field, Kind, Look
from attnscope.study.schema import FigureSpec
from attnscope.text.tokens import shown_texts

COLUMNS = 88  # characters to a line
NARROWEST = 30
FIELDS = (
    Field("panel", pl.String, "the panel's title; in order"),
    Field("position", pl.Int64, "the token's place"),
    Field("token", pl.String, "its text", gaps=True),
    Field("attention", pl.Float64, "its shade; empty where no query sees the token", gaps=True),
    Field("segment", pl.String, "the part of the prompt it is in", optional=True),
)


def table(run: Run, part: FigureSpec) -> pl.DataFrame:
    parts = []
    labels, names = selection.models(run, part), selection.conditions(run, part)
    number = shown_prompt(run, part)
    for model in labels:
        layers, heads = selection.layers(run, part, model), selection.heads(run, part, model)
        for name in names:
            tokens = token_rows(run, model, name, ["position", "segment", "text", "start", "end"], number)
            shown = shown_texts(tokens.select("text", "start", "end").iter_rows())
            tokens = tokens.select("position", "segment", token=pl.Series(shown, dtype=pl.String))
            if not len(tokens):
                raise AttnscopeError(
                    f"prompt {number} was not measured on {model} under {name}",
                    where=f"figure {part.name}: prompt",
                    allowed="prompts of the run that were not dropped",
                    todo="choose another",
                )
            chosen = Heads(model, selection.queries(run, part), layers, heads, part.over)
            gaze = next(gazes(run, chosen, name, number))
            title = selection.title(run, part, model, name)
            parts.append(
                tokens.with_columns(
                    panel=pl.lit(title), attention=pl.Series(mean_of_seen(gaze.attention, (0, 1))).fill_nan(None)
                )
            )
    made = pl.concat(parts).with_columns(pl.col("position").cast(pl.Int64))
    return made.select(field.name for field in FIELDS)


def shown_prompt(run: Run, part: FigureSpec) -> int:
    """The one asked for, or the first that every model has under every condition shown."""
    if part.prompt is not None:
        return part.prompt
    cells = run.table("prompts").filter(
        pl.col("model").is_in(selection.models(run, part)), pl.col("condition").is_in(selection.conditions(run, part))
    )
    held = cells.group_by("prompt").agg(pl.len().alias("cells")).sort(-pl.col("cells").cast(pl.Int64), "prompt")
    return int(held.collect()["prompt"][0])


def look(run: Run, part: FigureSpec, made: pl.DataFrame) -> Look:
    group = selection.queries(run, part)
    gaze = selection.group_words(group)
    over = "" if group == "last" else "the queries that can see it, " if part.over == "visible" else "all queries, "
    number = shown_prompt(run, part)
    name = run.table("prompts").filter(pl.col("prompt") == number).select("name").first().collect().item()
    layers = selection.layers_words(run, part, selection.models(run, part))
    return Look(
        title=part.title or "The prompt, shaded by attention received",
        y="attention received",
        caption=f"Gaze of {gaze}, mean over {over}{layers} and {selection.heads_words(run, part)}; "
        f"one prompt (number {number}{'' if name == str(number) else f', {name}'}). "
        "The scale ends at the second highest token; the highest is marked by a frame."
        + (" Each panel has its own scale." if made["panel"].n_unique() > 1 else "")
        + (" Layers and heads are numbered from 1." if part.number_from else ""),
        number_from=part.number_from,
    )


def placed(part: pl.DataFrame) -> pl.DataFrame:
    """Tokens with the line and columns they are drawn at; line ends and tabs are shown as signs."""
    rows, line, column = [], 0, 0
    for row in part.iter_rows(named=True):
        shown = row["token"].replace("\r", "␍").replace("\t", "⇥")
        breaks = shown.count("\n")
        shown = shown.replace("\n", "⏎")
        shown = shown if len(shown) <= COLUMNS else f"{shown[: COLUMNS - 1]}…"
        if column + len(shown) > COLUMNS:
            line, column = line + 1, 0
        blanks = len(shown) - len(shown.lstrip(" "))  # drawn text is trimmed, so it begins behind them
        place = {"line": line, "left": column, "word": column + blanks, "right": column + len(shown)}
        rows.append({**row, "shown": shown, **place})
        column += len(shown)
        if breaks:
            line, column = line + 1, 0
    return pl.DataFrame(rows, schema_overrides={"segment": pl.String})


def draw(made: pl.DataFrame, seen: Look) -> Description:
    charts = []
    parts = {title: placed(made.filter(pl.col("panel") == title)) for title in dict.fromkeys(made["panel"])}
    wide = max(NARROWEST, *(int(part["right"].max()) for part in parts.values()))  # type: ignore[arg-type]
    for title, part in parts.items():
        seen_part = part.drop_nulls("attention")
        shades = seen_part["attention"].sort(descending=True)
        top = float(shades[1] if len(shades) > 1 else shades[0]) or 1.0
        x = alt.X("left:Q", axis=None, scale=alt.Scale(domain=[0, wide]))
        y = alt.Y("line:O", axis=None)
        base = alt.Chart(part)
        cells = (
            alt.Chart(seen_part)
            .mark_rect()
            .encode(
                x=x,
                x2="right:Q",
                y=y,
                color=alt.Color(
                    "attention:Q",
                    scale=alt.Scale(domain=[0, top], range=["#ffffff", "#e6550d"], interpolate="rgb", clamp=True),
                    title=seen.y,
                ),
                tooltip=["position", "token", alt.Tooltip("attention", format=".4f"), "segment"],
            )
        )
        frame = (
            alt.Chart(seen_part.filter(pl.col("attention") == shades[0]))
            .mark_rect(filled=False, stroke="black", strokeWidth=1.2)
            .encode(x=x, x2="right:Q", y=y)
        )
        words = base.mark_text(align="left", font="monospace", fontSize=11.5).encode(x="word:Q", y=y, text="shown:N")
        lines = int(part["line"].max()) + 1  # type: ignore[arg-type]
        charts.append(joined("layer", (cells, frame, words), width=wide * 7, height=18 * lines, title=title))
    beside = max(1, COLUMNS // wide)  # short lines leave room for panels side by side
    apart = alt.Resolve(scale=alt.ScaleResolveMap(color="independent"))
    return joined("concat", charts, columns=beside, resolve=apart, title=selection.title_of(seen))


def read(made: pl.DataFrame, seen: Look) -> str:
    numbers, observed = [], []
    for title in dict.fromkeys(made["panel"]):
        part = made.filter(pl.col("panel") == title).drop_nulls("attention")
        top = part.sort("attention", descending=True, maintain_order=True).head(8)
        told = [
            f"{row['token']!r} at {row['position']} {sentences.number(row['attention'])}"
            for row in top.iter_rows(named=True)
        ]
        numbers.append(f"**{title}**: highest {sentences.listed(told)}.")
        if part["segment"].is_not_null().all():
            by = part.group_by("segment", maintain_order=True).agg(pl.col("attention").mean())
            values = {f"segment {row['segment']}": row["attention"] for row in by.iter_rows(named=True)}
            told_of = sentences.extreme(values, "mean of a segment's tokens", most=True)
            observed.append(f"{title}: {told_of[0].lower()}{told_of[1:]}" if told_of else None)
    return sentences.document(
        seen.title,
        {
            "Overview": [
                "The text of a prompt, token by token, each shaded by what it receives.",
                seen.caption or None,
            ],
            "Numbers": numbers,
            "Observations": observed,
        },
    )


KIND = Kind(
    "strip", "the prompt's text, shaded by attention received", FIELDS, table, look, draw, read, ("panel", "position")
)
