"""Readings and evidence as tables and shaded text in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from attnscope.arguments import counted
from attnscope.cli.grid import Column, numbers, print_grid
from attnscope.cli.grid import text as text_columns
from attnscope.records import HEAD_AXES, Record
from attnscope.text.tokens import shown_texts

if TYPE_CHECKING:
    from attnscope.attention.card import Card
    from attnscope.lens import Lens

BAR = 24
TOP_KEYS = 12
MOST_SHADED = 400  # tokens; longer prompts are cut in the middle


def show_record(record: Record, classes: Mapping[str, str]) -> None:
    """For each query group: mass by class and layer, the keys that receive most, and the text shaded by attention."""
    console = Console()
    evidence = record.evidence
    difference, way = evidence["check"]["difference"], evidence["check"]["way"]
    tokens, layers, heads = counted(len(record.tokens), "token"), len(record.layers), counted(len(record.heads), "head")
    console.print(
        f"{escape(evidence['model'])}: {tokens}, {counted(layers, 'layer')} x {heads}, "
        f"measured through {'the ' * way.startswith('attention')}{way}, within {difference:.0e} of eager attention",
        highlight=False,
    )
    table = record.mass(classes) if classes else None
    for group, name in enumerate(record.queries):
        console.print()
        if table is not None:
            shown = table.filter(pl.col("queries") == name)
            _show_mass(console, shown, [*classes, "other"], name, record.unmatched(classes))
        received = record.received[:, :, group].mean((0, 1))
        _show_top(console, record, received, name)
        for measure in record.measures:
            if record[measure].values.ndim == len(HEAD_AXES):
                mean = record[measure][:, :, group].mean(1)
                words = ", ".join("no value" if np.isnan(value) else f"{value:.3g}" for value in mean)
                console.print(f"{measure}, mean over heads, layer by layer: {words}", highlight=False)
        if console.color_system is not None:
            console.print(_shaded(record, received))


def _show_mass(
    console: Console, mass: pl.DataFrame, names: Sequence[str], queries: str, unmatched: Sequence[str]
) -> None:
    means = mass.group_by("layer", "token_class", maintain_order=True).agg(pl.col("mass", "expected").mean())
    by_place = {(row["layer"], row["token_class"]): row for row in means.iter_rows(named=True)}
    rows = []
    for layer in dict.fromkeys(mass["layer"]):
        cells = [by_place[layer, name] for name in names]
        rows.append((str(layer), *(_times(cell["mass"], cell["expected"]) for cell in cells)))
    columns = numbers("layer", *(f"{name} (no token)" if name in unmatched else name for name in names))
    title = f"mass by class, queries: {queries} (mean over heads; x: relative to uniform attention)"
    print_grid(console, title, columns, rows)


def _times(mass: float, expected: float) -> str:
    return f"{mass:.4f} {f'x{mass / expected:.2f}' if expected > 0 else '':>6}"


def _show_top(console: Console, record: Record, received: np.ndarray[Any, Any], queries: str) -> None:
    rows = []
    for position in np.argsort(-received, kind="stable")[:TOP_KEYS]:
        share = float(received[position])
        bar = "█" * round(BAR * share / max(float(received.max()), 1e-12))
        rows.append((str(position), repr(record.tokens[position].text), f"{share:.4f}", bar))
    columns = [*numbers("position"), *text_columns("token"), *numbers("received"), *text_columns("")]
    print_grid(console, f"keys that receive most, queries: {queries} (mean over layers and heads)", columns, rows)


def _shaded(record: Record, received: np.ndarray[Any, Any]) -> Text:
    """The prompt, each token redder the more it receives; the second highest sets the scale."""
    scale = np.sort(received)[-2] if len(received) > 1 else received[0]
    text = Text()
    tokens = list(record.tokens)
    shown = shown_texts((token.text, token.start, token.end) for token in tokens)
    if len(tokens) > MOST_SHADED:
        tokens = [*tokens[: MOST_SHADED // 2], *tokens[-MOST_SHADED // 2 :]]
    before = -1
    for token in tokens:
        if token.position != before + 1:
            text.append(" [...] ")
        before = token.position
        heat = min(1.0, float(received[token.position]) / max(float(scale), 1e-12))
        pale = round(255 * (1 - heat))
        text.append(shown[token.position], style=f"black on rgb(255,{pale},{pale})")
    return text


def show_card(lens: Lens, card: Card) -> None:
    """The evidence card."""
    console = Console()
    rows: list[tuple[str, ...]] = []

    def add(*cells: str) -> None:
        rows.append(cells)

    pair = (card.short, card.long)
    add("measured through", *(part.way for part in pair))
    add(
        "largest difference from eager attention",
        *(_measured(part.difference) for part in pair),
    )
    add("largest error of a row sum", *(f"{part.row_sum_error:.1e}" for part in pair))
    add("largest share taken by a sink", *(f"{part.sink_share:.3f}" for part in pair))
    add("causal", *("yes" if part.causal else "no" for part in pair))
    add("eager's own rounding", *(_measured(part.rounding) for part in pair))
    add("largest difference allowed", *(f"{part.limit:.1e}" for part in pair))
    add("the same for few rows (last)", _measured(card.few.difference), "")
    for kind in sorted({(backend, kind) for _, backend, kind in card.long.paths}):
        layers = [str(layer) for layer, *each in sorted(card.long.paths) if tuple(each) == kind]
        add(
            f"{kind[0]} backend, {kind[1]}",
            "",
            f"layers {layers[0]}-{layers[-1]}" if len(layers) > 2 else ", ".join(layers),
        )
    check = lens.input_check
    for words, loss in ((f"with {check.bos}", check.with_bos), ("without BOS", check.without_bos)):
        if loss is not None:
            add(f"loss per token on plain text, {words}", f"{loss:.2f}", "")
    for case, (ratio, least, most) in card.cost.items():
        words = "plain forward, repeated: noise" if case == "plain, again" else f"cost of queries {case}"
        add(f"{words}, plain = 1", "", f"{ratio:.2f} ({least:.2f} to {most:.2f})")
    tokens = (counted(part.tokens, "token") for part in pair)
    title = f"evidence: {lens.name} ({lens.loaded.architecture}, {lens.loaded.dtype})"
    print_grid(console, title, text_columns("check", *tokens), rows)
    if lens.loaded.made_from:
        console.print(f"weights: {lens.loaded.made_from}", highlight=False, markup=False)
    if lens.loaded.licence:
        console.print(f"licence: {lens.loaded.licence}", highlight=False, markup=False)
    if check.wants_bos is not None and check.wants_bos != check.added:
        plain = [check.bos_id or 0] if check.added else []
        console.print(f"warning for plain prompts: {check.warning(plain)}", highlight=False, markup=False)


def _measured(number: float | None) -> str:
    return "not known" if number is None else f"{number:.1e}"


def show_models(rows: Sequence[Mapping[str, Any]], verified: Mapping[str, Sequence[str]]) -> None:
    """Built-in models, where each is cached, and the verified architectures."""
    console = Console()
    cells = []
    for row in rows:
        cached = "yes" if row["cached"] else "on first use"
        weights = f"{row['quantization']}, expanded to float32" if row["quantization"] else "float32"
        cells.append((row["name"], f"{row['layers']} x {row['heads']}", weights, row["licence"], cached))
    columns = [Column("name", left=True), *numbers("layers x heads"), *text_columns("weights", "licence", "downloaded")]
    print_grid(console, "built-in models", columns, cells)
    for folder in dict.fromkeys(row["folder"] for row in rows if row["cached"]):
        console.print(f"downloaded: {folder}", highlight=False, soft_wrap=True)
    for row in rows:
        if row["adapter_on"]:
            console.print(f"{row['name']} is {row['adapter_on']} with an adapter that comes with attnscope.")
    console.print(
        "Quantized weights, expanded to float32, give the quantized model's numbers, not exactly the original's."
    )
    console.print("Any other model: org/name on the Hub, a folder or a .gguf file; add a PEFT adapter with --adapter.")
    for way, names in verified.items():
        console.print(
            f"\nverified through {'the ' * way.startswith('attention')}{way}: {', '.join(names)}", highlight=False
        )
    console.print("\nEvery model is compared with eager attention before its first record, and refused if it differs.")
