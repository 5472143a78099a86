"""Readings and evidence as tables and shaded text in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from attnscope.arguments import counted
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
            console.print(_mass_table(shown, [*classes, "other"], name, record.unmatched(classes)))
        received = record.received[:, :, group].mean((0, 1))
        console.print(_top_table(record, received, name))
        for measure in record.measures:
            if record[measure].values.ndim == len(HEAD_AXES):
                mean = record[measure][:, :, group].mean(1)
                words = ", ".join(f"{value:.3g}" for value in mean)
                console.print(f"{measure}, mean over heads, layer by layer: {words}", highlight=False)
        if console.color_system is not None:
            console.print(_shaded(record, received))


def _mass_table(mass: pl.DataFrame, names: Sequence[str], queries: str, unmatched: Sequence[str]) -> Table:
    means = mass.group_by("layer", "token_class", maintain_order=True).agg(pl.col("mass", "expected").mean())
    by_place = {(row["layer"], row["token_class"]): row for row in means.iter_rows(named=True)}
    table = Table(
        title=f"mass by class, queries: {queries} (mean over heads; x: relative to uniform attention)",
        title_justify="left",
    )
    table.add_column("layer", justify="right")
    for name in names:
        table.add_column(escape(name) + ("\n(no token)" if name in unmatched else ""), justify="right")
    for layer in dict.fromkeys(mass["layer"]):
        cells = [by_place[layer, name] for name in names]
        table.add_row(str(layer), *(_times(cell["mass"], cell["expected"]) for cell in cells))
    return table


def _times(mass: float, expected: float) -> str:
    return f"{mass:.4f} {f'x{mass / expected:.2f}' if expected > 0 else '':>6}"


def _top_table(record: Record, received: np.ndarray[Any, Any], queries: str) -> Table:
    table = Table(
        title=f"keys that receive most, queries: {queries} (mean over layers and heads)", title_justify="left"
    )
    for column, side in (("position", "right"), ("token", "left"), ("received", "right"), ("", "left")):
        table.add_column(column, justify=side)  # type: ignore[arg-type]
    for position in np.argsort(-received, kind="stable")[:TOP_KEYS]:
        share = float(received[position])
        bar = "█" * round(BAR * share / max(float(received.max()), 1e-12))
        table.add_row(str(position), Text(repr(record.tokens[position].text)), f"{share:.4f}", bar)
    return table


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
    table = Table(
        title=f"evidence: {escape(lens.name)} ({lens.loaded.architecture}, {lens.loaded.dtype})", title_justify="left"
    )
    table.add_column("check")
    table.add_column(counted(card.short.tokens, "token"), justify="right")
    table.add_column(counted(card.long.tokens, "token"), justify="right")
    pair = (card.short, card.long)
    table.add_row("measured through", *(part.way for part in pair))
    table.add_row(
        "largest difference from eager attention",
        *(_measured(part.difference) for part in pair),
    )
    table.add_row("largest error of a row sum", *(f"{part.row_sum_error:.1e}" for part in pair))
    table.add_row("largest share taken by a sink", *(f"{part.sink_share:.3f}" for part in pair))
    table.add_row("causal", *("yes" if part.causal else "no" for part in pair))
    table.add_row("eager's own rounding", *(_measured(part.rounding) for part in pair))
    table.add_row("largest difference allowed", *(f"{part.limit:.1e}" for part in pair))
    table.add_row("the same for few rows (last)", _measured(card.few.difference), "")
    for kind in sorted({(backend, kind) for _, backend, kind in card.long.paths}):
        layers = [str(layer) for layer, *each in sorted(card.long.paths) if tuple(each) == kind]
        table.add_row(
            f"{kind[0]} backend, {kind[1]}",
            "",
            f"layers {layers[0]}-{layers[-1]}" if len(layers) > 2 else ", ".join(layers),
        )
    check = lens.input_check
    for words, loss in ((f"with {check.bos}", check.with_bos), ("without BOS", check.without_bos)):
        if loss is not None:
            table.add_row(f"loss per token on plain text, {escape(words)}", f"{loss:.2f}", "")
    for case, (ratio, least, most) in card.cost.items():
        words = "plain forward, repeated: noise" if case == "plain, again" else f"cost of queries {case}"
        table.add_row(f"{words}, plain = 1", "", f"{ratio:.2f} ({least:.2f} to {most:.2f})")
    console.print(table)
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
    console = Console(soft_wrap=True)
    table = Table(title="built-in models", title_justify="left")
    for column in ("name", "layers x heads", "weights", "licence", "cached"):
        table.add_column(column, overflow="fold")
    for row in rows:
        cached = row["folder"] if row["cached"] else "no (downloaded on first use)"
        weights = f"{row['quantization']}, expanded to float32" if row["quantization"] else "float32"
        table.add_row(row["name"], f"{row['layers']} x {row['heads']}", weights, row["licence"], cached)
    console.print(table)
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
