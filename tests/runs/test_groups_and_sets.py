"""Query groups by rule, sets beside classes, tokens left out and derived quantities are what the full matrix gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
import transformers as tf
import yaml

from attnscope.analysis.derived import derived_values
from attnscope.analysis.received import HeadChoice, head_along, read_attention
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side, masses
from attnscope.lens import Lens, load
from attnscope.report.answer import answer
from attnscope.studies import run_study
from tests.attention import reference
from tests.models import tiny
from tests.tolerances import SHALLOW

TIER = "command"

SIZES: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 8}
ARCHITECTURES: dict[str, Any] = {
    "LlamaForCausalLM": lambda: tf.LlamaConfig(**GROUPED),
    "Qwen2ForCausalLM": lambda: tf.Qwen2Config(**SIZES, num_key_value_heads=2),
    "Gemma2ForCausalLM": lambda: tf.Gemma2Config(
        **GROUPED, query_pre_attn_scalar=8, sliding_window=24, attn_logit_softcapping=5.0
    ),
    "GPT2LMHeadModel": lambda: tf.GPT2Config(
        vocab_size=300, n_embd=32, n_layer=2, n_head=4, n_positions=256, n_inner=48, initializer_range=0.3
    ),
    "GPTNeoXForCausalLM": lambda: tf.GPTNeoXConfig(**SIZES),
}
ITEMS = [
    {"context": "Tom has 12 red cups.", "question": "How many?", "answer": "He has 12.\n\nThat is all."},
    {"context": "No figure at all here.", "question": "And now?", "answer": "No"},
    {"context": "7 and 8 and 9; then 70.", "question": "Which?", "answer": "8, then 9\n\nthen 70"},
]
STUDY: dict[str, Any] = {
    "prompts": {"items": ITEMS, "plain": "{context}\n{question}\n", "answer": {"field": "answer"}},
    "conditions": ["none", {"name": "asked", "replace": {"segment": "question", "with": {"text": "N/A"}}}],
    "classes": {
        "digits": {"regex": "[0-9]", "within": "context"},
        "context": "segment:context",
        "question": "segment:question",
        "answer": "segment:answer",
    },
    "also": {"whole context": "segment:context", "all digits": "re:[0-9]"},
    "quantities": {
        "context share": {"share": "context", "of": ["context", "question"]},
        "lookback": {"lookback": "whole context", "new": "answer"},
        "relevance": {"calibrated": "whole context", "by": "asked"},
        "often": {"rate": "question", "above": 0.1},
        "retrieval": {"measured": "copied", "of": "all digits"},
        "fading": {"decay": "whole context", "over": "tokens of writing"},
    },
    "measure": {
        "queries": [
            "writing",
            {"each": "writing"},
            {"bins": {"of": "answer", "count": 3}},
            {"split": {"of": "answer", "at": "\n\n"}, "name": "step"},
            {"match": "[a-z]+", "of": "answer"},
            {"last": 4},
            "last",
        ],
        "measures": ["copied"],
    },
}


def ran(folder: Path, name: str, **changes: Any) -> tuple[Run, Lens]:
    tiny.save_model(folder / "model", ARCHITECTURES[name](), name, seed=5)
    tiny.tokenizer().save_pretrained(folder / "model")
    study = {"models": [{"label": "m", "source": str(folder / "model")}], **STUDY, **changes}
    (folder / "study.yaml").write_text(yaml.safe_dump(study, sort_keys=False), encoding="utf-8")
    return run_study(str(folder / "study.yaml"), folder / "run"), load(str(folder / "model"))


class Matrix:
    """One prompt: its tokens, every layer's attention, and what the study means by its words, the obvious way."""

    def __init__(self, run: Run, lens: Lens, condition: str, prompt: int) -> None:
        self.tokens = run.table("tokens").filter(condition=condition, prompt=prompt).sort("position").collect()
        ids = torch.tensor([self.tokens["token_id"].to_list()])
        attentions = reference.eager(lens.model, {"input_ids": ids}).attentions
        self.attention = np.stack([each[0].double().numpy() for each in attentions])  # (layers, heads, rows, keys)
        self.ids = self.tokens["token_id"].to_numpy()
        segment, text = self.tokens["segment"].to_list(), self.tokens["text"].to_list()
        self.of = {name: np.array([each == name for each in segment]) for name in ("context", "question", "answer")}
        digit = np.array([any(sign.isdigit() for sign in each) for each in text])
        self.sets = {
            "digits": digit & self.of["context"],
            "context": self.of["context"] & ~digit,
            "question": self.of["question"],
            "answer": self.of["answer"],
            "whole context": self.of["context"],
            "all digits": digit,
        }
        answer = np.flatnonzero(self.of["answer"])
        self.rows = {"writing": answer - 1, "answer": answer, "last": np.array([len(text) - 1])}

    def mass(self, rows: Any, name: str, removed: Any = None) -> np.ndarray[Any, Any]:
        received = self.attention[:, :, rows].mean(2)
        keys = self.sets[name]
        if removed is None:
            return np.asarray(received[..., keys].sum(-1))
        return np.asarray(received[..., keys & ~removed].sum(-1) / received[..., ~removed].sum(-1))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_groups_sets_and_quantities_are_those_of_the_full_matrix(name: str, tmp_path: Path) -> None:
    run, lens = ran(tmp_path, name)
    assert run.queries == ["writing", "matches of [a-z]+ in answer", "last 4 tokens", "last"]
    assert list(run.series) == ["tokens of writing", "bins of answer", "step"]
    side = Side(run, "m", "none")
    tokens = run.series["tokens of writing"]
    lookback = {group.number: derived_values(side, group.name, "lookback")[1] for group in tokens}
    for prompt in range(3):
        full = Matrix(run, lens, "none", prompt)
        writing, answer = full.rows["writing"], full.rows["answer"]
        groups: dict[str, Any] = {
            "writing": writing,
            "last": full.rows["last"],
            "last 4 tokens": np.arange(len(full.ids))[-4:],
        }
        groups |= {f"token {number} of writing": [row] for number, row in enumerate(writing, 1)}
        for number in range(3):
            mine = [row for place, row in enumerate(answer) if place * 3 // len(answer) == number]
            groups |= {f"bin {number + 1} of answer": mine} if mine else {}
        for group, rows in groups.items():
            arrays = masses(run, "m", "none", group)
            for token_set, keys in full.sets.items():
                got = arrays.of([token_set])[0][prompt]
                if not (full.attention[:, :, rows][..., keys] > 0).any():
                    assert np.isnan(got).all(), (group, token_set)
                else:
                    np.testing.assert_allclose(got, full.mass(rows, token_set), atol=SHALLOW)
        for number, row in enumerate(writing, 1):
            new = full.sets["answer"] & (np.arange(len(full.ids)) <= row)
            if not new.any():
                assert np.isnan(lookback[number][prompt]).all()
                continue
            _check_lookback(lookback[number][prompt], full, row, new)
        _check_others(side, full, Matrix(run, lens, "asked", prompt), prompt)


def _check_lookback(got: Any, full: Matrix, row: int, new: Any) -> None:
    seen = full.attention[:, :, row] > 0  # a window may hide a part of the context
    with np.errstate(invalid="ignore", divide="ignore"):
        means = [
            (full.attention[:, :, row] * (keys & seen)).sum(-1) / (keys & seen).sum(-1)
            for keys in (full.sets["whole context"], new)
        ]
        want = means[0] / (means[0] + means[1])
    np.testing.assert_allclose(got, want, atol=1e-5)  # undefined in a layer whose window hides all of the context


def _check_others(side: Side, full: Matrix, asked: Matrix, prompt: int) -> None:
    writing = full.rows["writing"]

    def got(name: str) -> Any:
        return derived_values(side, "writing", name)[1][prompt]

    context, question = (full.mass(writing, each) for each in ("context", "question"))
    np.testing.assert_allclose(got("context share"), context / (context + question), atol=1e-5)
    apart = full.mass(writing, "whole context") - asked.mass(asked.rows["writing"], "whole context")
    np.testing.assert_allclose(got("relevance"), apart, atol=2 * SHALLOW)
    near = np.abs(question - 0.1) < 1e-5
    np.testing.assert_array_equal(got("often")[~near], (question > 0.1)[~near])
    course = np.stack([full.mass([row], "whole context") for row in writing])
    slopes = np.polyfit(np.arange(len(writing)), course.reshape(len(writing), -1), 1)[0] if len(writing) > 1 else None
    if slopes is None:
        assert np.isnan(got("fading")).all()
    else:
        np.testing.assert_allclose(got("fading"), -slopes.reshape(course.shape[1:]), atol=1e-5)
    keys = full.sets["all digits"]
    if keys[: writing[-1] + 1].any():
        top = full.attention[:, :, writing].argmax(-1)  # (layers, heads, rows)
        copied = keys[top] & (full.ids[top] == full.ids[writing + 1])
        np.testing.assert_allclose(got("retrieval"), copied.mean(-1), atol=1e-6)


def test_what_is_left_without_the_first_token_adds_up(tmp_path: Path) -> None:
    run, lens = ran(tmp_path, "LlamaForCausalLM", without=["first", "segment:question"])
    assert run.token_sets[-1] == "removed"
    for prompt in range(3):
        full = Matrix(run, lens, "none", prompt)
        removed = (np.arange(len(full.ids)) == 0) | full.sets["question"]
        assert full.tokens["removed"].to_list() == removed.tolist()
        arrays = masses(run, "m", "none", "writing")
        received = full.attention[:, :, full.rows["writing"]].mean(2)
        np.testing.assert_allclose(arrays.of(["removed"])[0][prompt], received[..., removed].sum(-1), atol=SHALLOW)
        for name in ("context", "answer", "whole context"):
            if full.sets[name].any() and not np.isnan(arrays.of([name])[0][prompt]).all():
                want = full.mass(full.rows["writing"], name, removed)
                np.testing.assert_allclose(arrays.of([name])[0][prompt], want, atol=1e-5)
        whole = np.nansum([arrays.of([name])[0][prompt] for name in run.classes], axis=0)
        np.testing.assert_allclose(whole, 1, atol=1e-5)
        heads = HeadChoice("m", "writing", [0, 1], [0, 1, 2, 3], over="all")
        (along,) = read_attention(run, heads, "none", prompt)
        np.testing.assert_allclose(np.nansum(along.attention, -1), 1, atol=1e-5)
        assert np.isnan(along.attention[..., removed]).all()
    flat = head_along(run, HeadChoice("m", "writing", (1,), (2,), over="all"), "none")
    assert np.isnan(flat[0])
    assert run.compare()
    assert "Shares are of the attention that does not go to the first token and segment:question." in answer(run)


def test_prompts_that_lack_a_class_are_left_out_of_its_mean_and_n(tmp_path: Path) -> None:
    run, _ = ran(tmp_path, "LlamaForCausalLM")
    side = masses(run, "m", "none", "last")
    assert side.absent[:, side.names.index("digits")].tolist() == [False, True, False]
    (compared,) = run.compare()
    n = {row["token_class"]: row["n"] for row in compared.overall.filter(queries="last", quantity="mass").to_dicts()}
    assert n["digits"] == 2
    assert n["context"] == n["whole context"] == 3
    whole = compared.overall.filter(queries="last", quantity="mass", token_class="digits")  # noqa: S106
    by_hand = np.nanmean(side.of(["digits"])[0])
    assert whole["one"][0] == pytest.approx(by_hand)
    table = run.table("mass").filter(condition="none", queries="last", measure="received", token_class="digits")  # noqa: S106
    assert len(table.collect().filter(pl.col("mass") == 0)) == 8  # the table keeps what was measured


def test_a_series_is_in_order_and_short_prompts_lack_its_end(tmp_path: Path) -> None:
    run, _ = ran(tmp_path, "LlamaForCausalLM")
    numbers = [group.number for group in run.series["tokens of writing"]]
    assert numbers == list(range(1, len(numbers) + 1))
    last = masses(run, "m", "none", run.series["tokens of writing"][-1].name)
    assert np.isnan(last.mass).all((1, 2, 3)).sum() == 2
    groups = run.table("prompts").filter(condition="none").sort("prompt").collect()["query_groups"].to_list()
    assert [sum(name.startswith("bin ") for name in each) for each in groups] == [3, 2, 3]
    assert [sum(name.startswith("step ") for name in each) for each in groups] == [2, 1, 2]
