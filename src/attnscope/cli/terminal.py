"""Readings and evidence as tables and small pictures in a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from attnscope.meter.reading import Reading
from attnscope.study.tokens import shown_texts

if TYPE_CHECKING:
    from attnscope.lens import Lens
    from attnscope.meter.card import Card

BAR = 24
TOP_KEYS = 12
MOST_SHADED = 400  # tokens; longer prompts are cut in the middle


def show_reading(reading: Reading, classes: Mapping[str, str]) -> None:
    """For each query group: mass by class and layer, the keys that receive most, and the text shaded by attention."""
    console = Console()
    evidence = reading.evidence
    difference = evidence["check"]["difference"]
    console.print(
        f"{escape(evidence['model'])}: {len(reading.tokens)} tokens, {len(reading.layers)} layers x "
        f"{len(reading.heads)} heads, read through {evidence['check']['way']}, "
        f"within {difference:.0e} of eager attention",
        highlight=False,
    )
    table = reading.mass(classes) if classes else None
    for group, name in enumerate(reading.queries):
        console.print()
        if table is not None:
            console.print(_mass_table(table.filter(pl.col("queries") == name), [*classes, "other"], name))
        received = reading.received[:, :, group].mean((0, 1))
        console.print(_top_table(reading, received, name))
        if reading.entropy is not None:
            mean = reading.entropy[:, :, group].mean(1)
            console.print(f"entropy, mean over heads, layer by layer: {', '.join(f'{value:.2f}' for value in mean)}")
        if console.color_system is not None:
            console.print(_shaded(reading, received))


def _mass_table(mass: pl.DataFrame, names: Sequence[str], queries: str) -> Table:
    means = mass.group_by("layer", "token_class", maintain_order=True).agg(pl.col("mass", "expected").mean())
    by_place = {(row["layer"], row["token_class"]): row for row in means.iter_rows(named=True)}
    table = Table(
        title=f"mass by class, queries: {queries} (mean over heads; x: times a uniform gaze)", title_justify="left"
    )
    table.add_column("layer", justify="right")
    for name in names:
        table.add_column(escape(name), justify="right")
    for layer in dict.fromkeys(mass["layer"]):
        cells = [by_place[layer, name] for name in names]
        table.add_row(str(layer), *(_times(cell["mass"], cell["expected"]) for cell in cells))
    return table


def _times(mass: float, expected: float) -> str:
    return f"{mass:.4f} {f'x{mass / expected:.2f}' if expected > 0 else '':>6}"


def _top_table(reading: Reading, received: np.ndarray[Any, Any], queries: str) -> Table:
    table = Table(
        title=f"keys that receive most, queries: {queries} (mean over layers and heads)", title_justify="left"
    )
    for column, side in (("position", "right"), ("token", "left"), ("received", "right"), ("", "left")):
        table.add_column(column, justify=side)  # type: ignore[arg-type]
    for position in np.argsort(-received, kind="stable")[:TOP_KEYS]:
        share = float(received[position])
        bar = "█" * round(BAR * share / max(float(received.max()), 1e-12))
        table.add_row(str(position), Text(repr(reading.tokens[position].text)), f"{share:.4f}", bar)
    return table


def _shaded(reading: Reading, received: np.ndarray[Any, Any]) -> Text:
    """The prompt, each token's ground the redder the more it receives; the largest is left out of the scale."""
    scale = np.sort(received)[-2] if len(received) > 1 else received[0]
    text = Text()
    tokens = list(reading.tokens)
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
    table.add_column(f"{card.short.tokens} tokens", justify="right")
    table.add_column(f"{card.long.tokens} tokens", justify="right")
    pair = (card.short, card.long)
    table.add_row("read through", *(part.way for part in pair))
    table.add_row(
        "largest difference to eager attention",
        *(f"{part.difference:.1e}" for part in pair),
    )
    table.add_row("largest error of a row's sum", *(f"{part.row_sum_error:.1e}" for part in pair))
    table.add_row("largest share left to a sink", *(f"{part.sink_share:.3f}" for part in pair))
    table.add_row("causal", *("yes" if part.causal else "no" for part in pair))
    table.add_row("attention calls a layer", *(_counts(part.calls.values()) for part in pair))
    for kind in dict.fromkeys(card.long.masks.values()):
        layers = [str(layer) for layer, each in sorted(card.long.masks.items()) if each == kind]
        table.add_row(f"mask: {kind}", "", f"layers {layers[0]}-{layers[-1]}" if len(layers) > 2 else ", ".join(layers))
    check = lens.input_check
    for words, loss in ((f"with {check.bos}", check.with_bos), ("without BOS", check.without_bos)):
        if loss is not None:
            table.add_row(f"loss per token on a plain text, {escape(words)}", f"{loss:.2f}", "")
    for case, (ratio, least, most) in card.cost.items():
        words = "plain forward again: noise" if case == "plain, again" else f"cost of queries {case}"
        table.add_row(f"{words}, plain = 1", "", f"{ratio:.2f} ({least:.2f} to {most:.2f})")
    console.print(table)
    if lens.loaded.made_from:
        console.print(f"weights: {lens.loaded.made_from}", highlight=False, markup=False)
    if lens.loaded.licence:
        console.print(f"licence: {lens.loaded.licence}", highlight=False, markup=False)
    if check.wants_bos is not None and check.wants_bos != check.added:
        plain = [check.bos_id or 0] if check.added else []
        console.print(f"warning, of a prompt as plain text: {check.warning(plain)}", highlight=False, markup=False)


def _counts(calls: Any) -> str:
    return ", ".join(str(count) for count in sorted(set(calls)))


def show_models(rows: Sequence[Mapping[str, Any]], verified: Mapping[str, Sequence[str]]) -> None:
    """Built-in names, where each is cached, and the architectures verified."""
    console = Console(soft_wrap=True)
    table = Table(title="built-in models", title_justify="left")
    for column in ("name", "layers x heads", "weights", "licence", "cached"):
        table.add_column(column, overflow="fold")
    for row in rows:
        cached = row["folder"] if row["cached"] else "no (fetched when first used)"
        weights = f"{row['quantization']}, expanded to float32" if row["quantization"] else "float32"
        table.add_row(row["name"], f"{row['layers']} x {row['heads']}", weights, row["licence"], cached)
    console.print(table)
    for row in rows:
        if row["adapter_on"]:
            console.print(f"{row['name']} is {row['adapter_on']} with an adapter that comes with attnscope.")
    console.print(
        "Quantized weights, expanded to float32, give the numbers of the quantized model, not exactly the original's."
    )
    console.print(
        "Any other model: org/name on the Hub, a folder, or a .gguf file; --adapter puts a PEFT adapter on it."
    )
    for way, names in verified.items():
        console.print(f"\nverified through {way}: {', '.join(names)}", highlight=False)
    console.print("\nEvery model is compared with eager attention before its first reading; what differs is refused.")
