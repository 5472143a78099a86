"""Masses the slow and obvious way: eager attention, characters counted one by one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from attnscope.lens import Lens
from tests.attention import reference

Belongs = Callable[[str, int, list[str]], bool]
"""(text, place of the character, each character's segment) -> does the class claim it?"""


def characters(signs: str) -> Belongs:
    return lambda text, place, segments: text[place] in signs


def pattern(expression: str) -> Belongs:
    return lambda text, place, segments: any(m.start() <= place < m.end() for m in re.finditer(expression, text))


def of_segment(segment: str) -> Belongs:
    return lambda text, place, segments: segments[place] == segment


def within(segment: str, claims: Belongs) -> Belongs:
    return lambda text, place, segments: segments[place] == segment and claims(text, place, segments)


def masses(run: Path, lens: Lens, label: str, classes: Mapping[str, Belongs], queries: list[str]) -> pl.DataFrame:
    """condition, prompt, queries, layer, head, token_class, mass; a class named `marks` has special tokens."""
    prompts = pl.read_parquet(run / "prompts.parquet").filter(pl.col("model").cast(pl.String) == label)
    tokens = pl.read_parquet(run / "tokens.parquet").filter(pl.col("model").cast(pl.String) == label)
    rows = []
    for prompt in prompts.iter_rows(named=True):
        own = tokens.filter(
            pl.col("condition").cast(pl.String) == prompt["condition"], pl.col("prompt") == prompt["prompt"]
        ).sort("position")
        attention = reference.eager(lens.model, {"input_ids": torch.tensor([own["token_id"].to_list()])}).attentions
        shares = _shares(prompt["text"], own, classes)
        for group in queries:
            chosen = _rows(own, group)
            for layer, matrix in enumerate(attention):
                received = matrix[0, :, chosen].mean(1).double().numpy()  # (heads, keys)
                for head, row in enumerate(received):
                    for name, share in shares.items():
                        where = (prompt["condition"], prompt["prompt"], group, layer, head, name)
                        rows.append((*where, float(row @ share)))
    names = ["condition", "prompt", "queries", "layer", "head", "token_class", "mass"]
    return pl.DataFrame(rows, schema=names, orient="row")


def _rows(own: pl.DataFrame, group: str) -> list[int]:
    if group == "last":
        return [len(own) - 1]
    if group == "all":
        return list(range(len(own)))
    return own.filter(pl.col("segment").cast(pl.String) == group)["position"].to_list()


def _shares(text: str, own: pl.DataFrame, classes: Mapping[str, Belongs]) -> dict[str, NDArray[np.float64]]:
    """A character's segment is its token's: good enough where no token lies over a border."""
    shares = {name: np.zeros(len(own)) for name in [*classes, "marks", "other"]}
    segments = [""] * len(text)
    for token in own.iter_rows(named=True):
        segments[token["start"] : token["end"]] = [token["segment"]] * (token["end"] - token["start"])
    for token in own.iter_rows(named=True):
        if token["special"]:
            shares["marks"][token["position"]] = 1
            continue
        for place in range(token["start"], token["end"]):
            owner = next((name for name, claims in classes.items() if claims(text, place, segments)), "other")
            shares[owner][token["position"]] += 1 / (token["end"] - token["start"])
    return shares
