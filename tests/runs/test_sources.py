"""The published figures' studies, on random models of the same classes with the same numbers of layers and heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
import transformers as tf

from attnscope.studies import run_study
from tests.models import tiny
from tests.runs.conftest import CHAT

TIER = "command"

VOCABULARY = len(tiny.VOCABULARY)


def text(layers: int, heads: int, kv_heads: int, **more: Any) -> dict[str, Any]:
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 4 * heads,
        "intermediate_size": 16,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 1024,
        **more,
    }


def gemma() -> tf.Gemma3Config:
    vision = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    return tf.Gemma3Config(
        text_config=text(34, 8, 4, head_dim=4, sliding_window=32),
        vision_config={**vision, "image_size": 28, "patch_size": 14},
        mm_tokens_per_image=4,
    )


CLASSES: dict[str, tuple[type[Any], Any]] = {
    "Qwen-Phys": (tf.Qwen2ForCausalLM, tf.Qwen2Config(**text(28, 12, 2))),
    "Qwen-Instruct": (tf.Qwen2ForCausalLM, tf.Qwen2Config(**text(28, 12, 2))),
    "Qwen2.5-7B-Math": (tf.Qwen2ForCausalLM, tf.Qwen2Config(**text(28, 28, 4))),
    "Llama3.1-8B-Instruct": (tf.LlamaForCausalLM, tf.LlamaConfig(**text(32, 32, 8))),
    "Gemma3-4b-it": (tf.Gemma3ForConditionalGeneration, gemma()),
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("sources")
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = CHAT
    for seed, (label, (kind, config)) in enumerate(CLASSES.items()):
        torch.manual_seed(seed)
        kind(config).save_pretrained(home / label)
        tokenizer.save_pretrained(home / label)
    return {label: str(home / label) for label in CLASSES}


@pytest.mark.parametrize(
    ("name", "labels", "panels"),
    [
        ("sources/symbols", ["Qwen-Phys", "Qwen-Instruct"], []),
        ("sources/filler", ["Qwen2.5-7B-Math"], [f"Qwen2.5-7B-Math Layer {layer} Head 22" for layer in (1, 2, 3)]),
        (
            "sources/filler-vs-sentence",
            ["Qwen2.5-7B-Math", "Llama3.1-8B-Instruct", "Gemma3-4b-it"],
            ["Qwen2.5-7B-Math Layer 1 Head 1", "Llama3.1-8B-Instruct Layer 1 Head 27", "Gemma3-4b-it Layer 1 Head 8"],
        ),
    ],
)
def test_a_published_figure_is_made_with_its_own_layers_heads_and_conditions(
    name: str, labels: list[str], panels: list[str], folders: dict[str, str], tmp_path: Path
) -> None:
    run = run_study(name, tmp_path / "run", limit=3, swaps={label: folders[label] for label in labels})
    assert run.models == labels
    figure = pl.read_csv(run.path / "figures" / f"{name.removeprefix('sources/')}.csv")
    if panels:
        assert list(dict.fromkeys(figure["panel"])) == panels
        inserted = run.table("prompts").filter(pl.col("condition") != "none").collect()["inserted"]
        assert set(inserted) == {56}  # to this tokenizer every slash is a token, and so is the line's end
        assert set(figure["series"]) <= {"None", "Mless", "Meaningless tokens", "Random sentence"}
    else:
        assert list(dict.fromkeys(figure["group"])) == ["Layer 0", "Layer 16", "Layer 20", "Layer 27"]
        assert list(dict.fromkeys(figure["bar"])) == labels
        assert list(dict.fromkeys(figure["token_class"])) == ["Whitespace", "* (Star)", "# (Hash)"]
