"""`attnscope tokens`: what the tokenizer really made of a study; and what a run of it would take."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from attnscope.arguments import counted
from attnscope.cli.grid import numbers, print_grid
from attnscope.cli.grid import text as text_columns
from attnscope.cli.run import Limit, Models, StudyName, Swap, instead, labels, swaps
from attnscope.errors import AttnscopeError, Parameter, visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnscope.runs.audit import Audit
    from attnscope.runs.cells import Cell
    from attnscope.runs.request import RunRequest
    from attnscope.text.changes import Change, Kind

GROUNDS = ("#b2182b", "#2166ac", "#1b7837", "#762a83", "#e08214", "#35978f", "#8c510a", "#c51b7d")
MARKS: dict[Kind, tuple[str, str, str]] = {
    "same": ("", "", ""),
    "new": ("{+", "+}", "bold green"),
    "gone": ("[-", "-]", "strike red"),
    "moved": ("{~", "~}", "bold blue"),
    "from": ("[~", "~]", "blue"),
}
"""What an edit changed: the signs around it, as wdiff has them, and its style."""
MEANINGS: dict[Kind, str] = {"new": "new", "gone": "gone", "moved": "1:moved", "from": "1"}
LONGEST: dict[Kind, int] = {"same": 400, "new": 240, "gone": 240, "moved": 240, "from": 240}  # characters shown


def tokens(
    study: StudyName,
    prompt: Annotated[int, typer.Option(min=0, help="Which prompt to show in colour.")] = 0,
    limit: Limit = None,
    models: Models = None,
    swap: Swap = None,
) -> None:
    """Show what each tokenizer made of a study: counts, merges, borders, the classes of every token, and what every
    edit puts in, takes out and moves.
    """
    from attnscope.studies import request_study

    request = request_study(study, limit=limit, models=labels(models), swaps=swaps(swap), instead=instead(swap))
    _refuse_prompt(prompt, len(request.prompts.prompts))
    from attnscope.runs.audit import audits  # which loads the model library, so only once the study is right

    console = Console()
    for audit in audits(request):
        _show_counts(console, request, audit)
        _show_dropped(console, audit)
        for condition in request.study.conditions:
            cell = next((each for each in audit.of(condition.name) if each.prompt.number == prompt), None)
            if cell is not None:
                _show(console, request, cell)
                if not condition.is_base:
                    show_changes(console, audit.changes(cell), cell)
    _show_answers(console, request)


def _refuse_prompt(number: int, count: int) -> None:
    if number >= count:
        raise AttnscopeError(
            f"there is no prompt {number}",
            where=Parameter("prompt", number),
            allowed=f"0 to {count - 1}" if count > 1 else "0",
            todo="choose one of these",
        )


def _show_counts(console: Console, request: RunRequest, audit: Audit) -> None:
    from attnscope.runs.audit import border_tokens, inserted_characters

    rows: list[tuple[str, ...]] = []
    lost: list[str] = []
    moved: list[str] = []
    for condition in request.study.conditions:
        cells = audit.of(condition.name)
        if not cells:
            continue
        mixed = sorted({repr(text) for cell in cells for text in border_tokens(cell)})
        unaligned = sum(all(place is None for place in cell.alignment.base) for cell in cells)
        why = "can't be aligned" if condition.inserts else "are not aligned, as their text is changed"
        remerged = sum(len(cell.alignment.remerged) for cell in cells)
        lost.append(_range([len(cell.alignment.lost) for cell in cells]))
        moved.append(_range([audit.moved(cell) for cell in cells]))
        rows.append(
            (
                condition.name,
                str(len(cells)),
                _range([len(cell.tokens) for cell in cells]),
                _range([inserted_characters(cell) for cell in cells]),
                _range([cell.inserted for cell in cells]),
                ", ".join(mixed[:4]) or "none",
                counted(remerged, "token") + (f"; {unaligned} of the prompts {why}" if unaligned else ""),
            )
        )
    counts = numbers("prompts", "tokens", "inserted characters", "inserted tokens")
    columns = [*text_columns("condition"), *counts, *text_columns("border tokens", "re-merged")]
    for name, values in (("lost tokens", lost), ("moved tokens", moved)):
        if set(values) - {"0"}:  # only some edits take text out or move it
            columns += numbers(name)
            rows = [(*row, value) for row, value in zip(rows, values, strict=True)]
    print_grid(console, f"{audit.spec.label} ({audit.spec.source})", columns, rows)


def _show(console: Console, request: RunRequest, cell: Cell) -> None:
    from attnscope.runs.audit import class_counts, segment_counts
    from attnscope.text.classes import membership
    from attnscope.text.tokens import shown_texts

    rules = request.study.rules
    shares = membership(rules, cell.text.text, cell.tokens, cell.text.spans)
    text = Text().append(
        f"\n{cell.model}, {cell.condition}, prompt {visible(cell.prompt.name)}, {counted(len(cell.tokens), 'token')}\n",
        style="bold",
    )
    texts = shown_texts((token.text, token.start, token.end) for token in cell.tokens)
    for token, whole in zip(cell.tokens, texts, strict=True):
        kind = int(shares[:, token.position].argmax())
        ground = f"white on {GROUNDS[kind % len(GROUNDS)]}" if kind < len(rules) else ""
        shown = _shown(whole, len(whole))
        text.append(shown, style=f"{ground} underline" if token.position % 2 else ground)
    console.print(text)
    counts = class_counts(cell, rules)
    legend = Text("\nclasses: ")
    for place, (name, count) in enumerate(counts.items()):
        legend.append(f" {name} ", style=f"white on {GROUNDS[place % len(GROUNDS)]}" if place < len(rules) else "")
        legend.append(f" {count:g}  ")
    legend.append("\nsegments: " + ", ".join(f"{name} {count}" for name, count in segment_counts(cell).items()))
    console.print(legend)


def show_changes(console: Console, changes: Sequence[Change], cell: Cell) -> None:
    """A prompt with what its edits change, in colour and between signs that show it without colour."""
    text = Text().append(f"\nedits of {cell.condition}, prompt {visible(cell.prompt.name)}\n", style="bold")
    for change in changes:
        before, after, style = MARKS[change.kind]
        words = _shown(change.text, LONGEST[change.kind])
        if change.number is not None:
            words = f"{change.number}" if change.kind == "from" else f"{change.number}:{words}"
        text.append(f"{before}{words}{after}", style=style)
    console.print(text)
    legend = Text("\nedits: ")
    for kind, meaning in MEANINGS.items():
        found = [change for change in changes if change.kind == kind]
        if found:
            before, after, style = MARKS[kind]
            legend.append(f"{before}{meaning}{after}", style=style)
            many = counted(sum(len(change.text) for change in found), "character")
            legend.append(f" {'where it was' if kind == 'from' else many}  ")
    if all(change.kind == "same" for change in changes):
        legend.append("none, this prompt stays as it is")
    console.print(legend)


def _shown(text: str, longest: int) -> str:
    """Signs for white space; the middle of a long text is left out."""
    if len(text) > longest:
        half = longest // 2 - 10
        text = f"{text[:half]}\u2026 {counted(len(text) - 2 * half, 'character')} \u2026{text[-half:]}"
    return _visible(text.replace("\n", "⏎\n").replace("\r", "␍").replace("\t", "⇥"))


def _visible(text: str) -> str:
    """Without characters that would control the terminal; line ends stay."""
    return "\n".join(map(visible, text.split("\n")))


def show_estimate(request: RunRequest) -> None:
    """What a run would take: cells and tokens counted, time and disk estimated."""
    from attnscope.attention.speed import multiplications_per_second
    from attnscope.runs.audit import audits
    from attnscope.runs.estimate import estimated_bytes, estimated_report, estimated_seconds
    from attnscope.runs.intervene import refuse_impossible, tokens_to_score

    console = Console()
    speed = multiplications_per_second()
    rows = []
    every = audits(request)
    for audit in every:
        refuse_impossible(request.study, audit.spec.label, audit.description, audit.cells, audit.maker.layout.chat)
        scored = tokens_to_score(request.study, audit.spec.label, audit.description, audit.cells)
        seconds = estimated_seconds(audit, speed, request.evidence, scored)
        rows.append(
            (
                audit.spec.label,
                str(len(audit.cells)),
                str(len(audit.dropped)),
                f"{sum(len(cell.tokens) for cell in audit.cells):,}",
                "unknown before its weights are here" if seconds is None else _time(seconds),
                _size(estimated_bytes(request, audit)),
            )
        )
    seconds, size = estimated_report(request, every)
    rows.append(("start and report", "", "", "", _time(seconds), _size(size)))
    counts = numbers("cells", "dropped", "tokens")
    columns = [*text_columns("model"), *counts, *text_columns("time, about"), *numbers("disk, at most")]
    print_grid(console, "what a run would take", columns, rows)
    for audit in every:
        _show_dropped(console, audit)
    _show_answers(console, request)


def _show_dropped(console: Console, audit: Audit) -> None:
    for each in audit.dropped[:5]:
        console.print(
            Text(f"dropped: {each.model}, {each.condition}, prompt {each.prompt}: {each.reason}", style="red")
        )
    if len(audit.dropped) > 5:
        console.print(Text(f"and {len(audit.dropped) - 5} more of {audit.spec.label}", style="red"))


def _show_answers(console: Console, request: RunRequest) -> None:
    answer = request.study.prompts.answer
    if answer is not None and answer.generate is not None:
        console.print(
            Text(f"answers that the models write come on top, up to {counted(answer.generate, 'token')} per cell")
        )


def _size(count: float) -> str:
    return f"{math.ceil(count / 1e6):,} MB"


def _time(seconds: float) -> str:
    return (
        f"{math.ceil(seconds)} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.1f} h"
    )


def _range(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
