"""A whole study's masses, per class and measure, beside sums over the full matrix; on models of several kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from transformers import PreTrainedModel

from attnscope.analysis.sides import masses
from tests.analysis.conftest import performed
from tests.attention import architectures, reference
from tests.models import tiny
from tests.tolerances import SHALLOW

TIER = "command"

NAMES = [
    "llama",
    "mistral, window",
    "gemma2, softcap and window",
    "gpt-oss, sinks and window",
    "bloom",
    "gpt2",
]
CLASSES = {"first": "position:0", "gold": "segment:passages[role=gold]", "digits": "re:[0-9]"}
QUERIES = ["last", "all", "question", "answer"]
MEASURES = ["received", "top1", "copied"]
NEAR = 1e-5  # weights this close may change places by rounding


def saved(name: str, folder: Path) -> PreTrainedModel:
    """A model of that kind whose tokens are bytes."""
    torch.manual_seed(7)
    cls, config = architectures.EVERY[name]()
    config.vocab_size = len(tiny.VOCABULARY)
    model: PreTrainedModel = cls(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.15)
    model.save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    return model


def study(folder: Path) -> dict[str, Any]:
    items = []
    for number in range(3):
        texts = [f"code {number}4{place}2" for place in range(2 + number % 2)]
        passages = [
            {"text": text, "role": "gold" if place == number % 2 else "other"} for place, text in enumerate(texts)
        ]
        items.append({"passages": passages, "question": f"which {'x' * number}?", "answer": texts[number % 2]})
    return {
        "models": [{"label": "one", "source": str(folder)}],
        "prompts": {"items": items, "plain": "{passages}\n{question}\n", "answer": {"field": "answer"}},
        "conditions": ["none", {"name": "turned", "order": {"of": "passages", "by": "reversed"}}],
        "classes": CLASSES,
        "measure": {"queries": QUERIES, "measures": ["top1", "copied"]},
    }


def class_of(token: dict[str, Any], gold: set[str]) -> str:
    """Of a token that is one character."""
    if token["position"] == 0:
        return "first"
    if token["segment"] in gold:
        return "gold"
    return "digits" if token["text"].isdigit() else "other"


def rows_of(tokens: list[dict[str, Any]], group: str) -> list[int]:
    if group == "last":
        return [len(tokens) - 1]
    return [token["position"] for token in tokens if group in ("all", token["segment"])]


def by_hand(matrix: Any, ids: list[int], rows: list[int], measure: str) -> tuple[Any, Any, int]:
    """(heads, keys) summed over rows, (heads,) how many rows rounding could change, and how many rows have a value."""
    heads, keys = len(matrix), len(ids)
    total, loose = np.zeros((heads, keys)), np.zeros(heads)
    if measure == "received":
        return matrix[:, rows].sum(1), loose, len(rows)
    rows = [row for row in rows if measure != "copied" or row + 1 < keys]
    for row in rows:
        for head in range(heads):
            weights = matrix[head, row]
            top = int(weights.argmax())
            total[head, top] += measure == "top1" or ids[top] == ids[row + 1]
            ranked = np.sort(weights)
            loose[head] += ranked[-1] - ranked[-2] <= NEAR if keys > 1 else 0
    return total, loose, len(rows)


@pytest.mark.parametrize("name", NAMES)
def test_a_studys_masses_are_sums_over_the_full_matrix(name: str, tmp_path: Path) -> None:
    model = saved(name, tmp_path / "model")
    run = performed(study(tmp_path / "model"), tmp_path)
    found = run.table("mass").collect()
    tokens = run.table("tokens").sort("prompt", "position").collect()
    checked, copied = 0, 0.0
    for prompt in run.table("prompts").collect().iter_rows(named=True):
        where = {"condition": prompt["condition"], "prompt": prompt["prompt"]}
        mine = tokens.filter(**where).to_dicts()
        assert all(len(token["text"]) == 1 for token in mine)
        gold = {span["segment"] for span in prompt["spans"] if span["role"] == "gold"}
        owners = np.array([class_of(token, gold) for token in mine])
        ids = [token["token_id"] for token in mine]
        attentions = reference.eager(model, {"input_ids": torch.tensor([ids])}).attentions
        for layer, attention in enumerate(attentions):
            matrix = attention[0].double().detach().numpy()
            for group in QUERIES:
                for measure in MEASURES:
                    sums, loose, having = by_hand(matrix, ids, rows_of(mine, group), measure)
                    table = found.filter(**where, layer=layer, queries=group, measure=measure)
                    for owner in [*CLASSES, "other"]:
                        got = table.filter(pl.col("token_class") == owner).sort("head")["mass"]
                        checked += 1
                        if not having:
                            assert got.is_null().all()
                            continue
                        want = sums[:, owners == owner].sum(1) / having
                        assert (np.abs(got.to_numpy() - want) <= SHALLOW + loose / having).all(), (
                            owner,
                            group,
                            measure,
                        )
                        copied += want.sum() if measure == "copied" else 0
    assert checked == 6 * 3 * 4 * 3 * 4
    assert copied > 0
    last, answer = (masses(run, "one", "none", queries, "copied") for queries in ("last", "answer"))
    assert np.isnan(last.mass).all()
    assert not np.isnan(answer.mass[~np.broadcast_to(answer.absent[:, None, None], answer.mass.shape)]).any()
