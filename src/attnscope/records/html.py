"""A record in a notebook: the prompt shaded by attention, and the heads that look hardest at one token."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from attnscope.text.tokens import shown_texts

if TYPE_CHECKING:
    from attnscope.records.record import Record

STRONGEST = 6  # heads listed for each query group
LONGEST = 2000  # tokens shown; a longer prompt is cut in the middle
COLOUR = "31,119,180"


def as_html(record: Record) -> str:
    """The record as an HTML fragment that needs no script and no style sheet; all text is escaped."""
    parts = [_group(record, group) for group in record.queries]
    return f'<div style="font-family:sans-serif;max-width:60em">{"".join(parts)}</div>'


def _group(record: Record, group: str) -> str:
    values = record.received.at(queries=group).values.astype(np.float64)  # (layers, heads, keys)
    mean = values.mean((0, 1))
    layers, heads = len(record.layers), len(record.heads)
    of = f"mean of {layers} layer{'s' * (layers > 1)} x {heads} head{'s' * (heads > 1)}"
    return (
        f"<p><b>Attention from {escape(group)}</b>, {of}; the first token gets {mean[0]:.0%} and is not shaded</p>"
        f"{_prompt(record, mean)}{_strongest(record, values)}"
    )


def _prompt(record: Record, mean: np.ndarray) -> str:
    """Shaded by share of the largest, without the first token: a sink in most models, it would hide the rest."""
    most = mean[1:].max(initial=0.0) or 1.0
    texts = shown_texts((token.text, token.start, token.end) for token in record.tokens)
    spans = []
    for place, (text, share) in enumerate(zip(texts, mean, strict=True)):
        shade = 0.0 if place == 0 else float(np.sqrt(share / most))
        style = f"background:rgba({COLOUR},{0.85 * shade:.2f})"
        spans.append(f'<span style="{style}" title="token {place}: {share:.4f}">{escape(text)}</span>')
    if len(spans) > LONGEST:
        half = LONGEST // 2
        spans = [*spans[:half], f"<i> [{len(spans) - 2 * half:,} tokens] </i>", *spans[-half:]]
    return f'<div style="white-space:pre-wrap;font-family:monospace;line-height:1.6">{"".join(spans)}</div>'


def _strongest(record: Record, values: np.ndarray) -> str:
    """The heads with the largest weight on a token other than the first."""
    if values.shape[-1] < 2:
        return ""
    best = values[..., 1:].max(-1)
    order = np.argsort(-best, axis=None, kind="stable")[:STRONGEST]
    rows = []
    for layer, head in zip(*np.unravel_index(order, best.shape), strict=True):
        key = 1 + int(values[layer, head, 1:].argmax())
        cells = (
            record.layers[layer],
            record.heads[head],
            repr(record.tokens[key].text),
            key,
            f"{best[layer, head]:.3f}",
        )
        rows.append("".join(f"<td>{escape(str(cell))}</td>" for cell in cells))
    head_row = "".join(f"<th>{name}</th>" for name in ("layer", "head", "looks most at", "position", "attention"))
    return f"<table><tr>{head_row}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"
