"""Lines of two models over one prompt: tokens are matched by their characters, whatever the tokenizers made of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import yaml

from attnscope.studies import run_study
from tests.handmade import exported
from tests.models import tiny
from tests.runs.conftest import CHAT, save_tiny
from tests.tolerances import SUMMED

QUESTION = "Which of the two is the larger of the two?"


@pytest.fixture(scope="module")
def wordy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose tokens are words, with another template around the prompt."""
    folder = tmp_path_factory.mktemp("wordy")
    tokenizer = tiny.wordy_tokenizer(QUESTION)
    size = {"vocab_size": len(tokenizer), "max_position_embeddings": 512, "initializer_range": 0.3}
    tiny.save_model(folder, tiny.llama_config(**size), seed=5)
    tokenizer.chat_template = "Please read.\n" + CHAT
    tokenizer.save_pretrained(folder)
    return folder


def study(tmp_path: Path, one: Path, two: Path) -> str:
    panel = {"model": "one", "layer": 1, "head": 2, "also": [{"model": "two", "layer": 1, "head": 2}]}
    told = {
        "models": [{"label": "one", "source": str(one)}, {"label": "two", "source": str(two)}],
        "prompts": {"items": [{"intro": "Look.", "question": QUESTION}], "chat": "{intro}\n{question}"},
        "conditions": [
            "none",
            {"name": "filler", "insert": {"repeat": "/"}, "tokens": 9, "before": "question"},
        ],
        "measure": {"queries": ["all"]},
        "figures": [
            {"name": "pair", "kind": "lines", "panels": [panel], "conditions": ["none"]},
            {"name": "edited", "kind": "lines", "panels": [panel]},
        ],
    }
    file = tmp_path / "study.yaml"
    file.write_text(yaml.safe_dump(told), encoding="utf-8")
    return str(file)


def attention(path: Path, model: str) -> pl.DataFrame:
    """What each token of the base prompt receives in layer 1, head 2, over the queries that see it; by hand."""
    where = (pl.col("model") == model) & (pl.col("condition") == "none")
    rows = exported(path).filter(where, pl.col("layer") == 1, pl.col("head") == 2)
    received = rows["received"][0].to_numpy().astype(float)
    seen = 1 - np.arange(len(received)) / len(received)
    tokens = pl.read_parquet(path / "tokens.parquet").filter(where)
    return tokens.select("start", "end", "segment", "position").with_columns(attention=pl.Series(received / seen))


def test_another_tokenizers_attention_lands_on_the_same_characters(tmp_path: Path, wordy: Path) -> None:
    run = run_study(study(tmp_path, save_tiny(tmp_path / "one", 1), wordy), tmp_path / "run")
    drawn = pl.read_csv(run.path / "figures" / "pair.csv")
    assert drawn["form"].unique().to_list() == ["shared"]
    texts = dict(run.table("prompts").filter(pl.col("condition") == "none").select("model", "text").collect().rows())
    at = {model: text.index(QUESTION) for model, text in texts.items()}
    ours, theirs = attention(run.path, "one"), attention(run.path, "two")
    by_character = np.zeros(len(QUESTION))
    for start, end, _, _, value in theirs.iter_rows():
        for place in range(start - at["two"], end - at["two"]):
            if 0 <= place < len(QUESTION):
                by_character[place] += value / (end - start)
    two = dict(drawn.filter(series="two").select("position", "attention").rows())
    one = dict(drawn.filter(series="one").select("position", "attention").rows())
    checked = 0
    for start, end, segment, position, value in ours.iter_rows():
        if segment == "question":
            assert one[position] == pytest.approx(value, abs=SUMMED)
            assert two[position] == pytest.approx(by_character[start - at["one"] : end - at["one"]].sum(), abs=SUMMED)
            checked += 1
        elif segment == "template":
            assert position not in one
    assert checked == len(QUESTION.encode())
    assert len(theirs.filter(segment="question")) < checked  # words, not bytes


def test_lines_are_named_by_model_and_condition_and_the_caption_says_how_they_match(
    tmp_path: Path, wordy: Path
) -> None:
    run = run_study(study(tmp_path, save_tiny(tmp_path / "one", 1), wordy), tmp_path / "run")
    drawn = pl.read_csv(run.path / "figures" / "edited.csv")
    assert drawn["series"].unique(maintain_order=True).to_list() == [
        "one / none",
        "one / filler",
        "two / none",
        "two / filler",
    ]
    told = (run.path / "figures" / "edited.md").read_text(encoding="utf-8")
    assert "Tokens of the other models are matched to those of the first by their characters." in told
