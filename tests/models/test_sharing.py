"""Models that share a base are loaded as if each were alone, and the base is as it was once an adapter is off."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from attnscope.errors import AttnscopeError
from attnscope.lens import Loader
from attnscope.models import sharing
from attnscope.models.load import load
from attnscope.models.sharing import SharedLoader
from tests.models import tiny

IDS = torch.arange(2, 30)[None]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    tiny.save_model(tmp_path / "base")
    return tmp_path / "base"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The bases that are read from disk."""
    read: list[Path] = []
    own = sharing.read_base

    def counted(described: Any, **options: Any) -> Any:
        read.append(described.path)
        return own(described, **options)

    monkeypatch.setattr(sharing, "read_base", counted)
    return read


def adapter(folder: Path, seed: int, **lora: Any) -> Path:
    """Random, each seed another one."""
    tiny.save_adapter(folder, **lora)
    from safetensors.torch import load_file, save_file

    file = folder / "adapter_model.safetensors"
    chance = torch.Generator().manual_seed(seed)
    changed = {name: torch.randn(each.shape, generator=chance) for name, each in load_file(file).items()}
    save_file(changed, file, metadata={"format": "pt"})
    return folder


def same(one: Any, two: Any) -> bool:
    mine, theirs = one.state_dict(), two.state_dict()
    equal = mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)
    with torch.no_grad():
        return equal and torch.equal(one(IDS).logits, two(IDS).logits)


KINDS: list[dict[str, Any]] = [
    {},
    {"use_dora": True},
    {"target_modules": ["q_proj", "down_proj"], "modules_to_save": ["lm_head"]},
    {"target_modules": ["v_proj", "embed_tokens"]},
    {"target_modules": "all-linear", "bias": "all"},
]


@pytest.mark.parametrize("lora", KINDS)
def test_adapters_that_take_turns_are_the_same_models_as_loaded_alone(
    base: Path, tmp_path: Path, reads: list[Path], lora: dict[str, Any]
) -> None:
    folders = [adapter(tmp_path / f"checkpoint-{seed}", seed, **lora) for seed in (1, 2)]
    shared = SharedLoader()
    for folder in (None, *folders, None, folders[0]):
        together = shared.load(base, adapter=folder)
        alone = load(base, adapter=folder)
        assert same(together.model, alone.model)
        assert together.fingerprint == alone.fingerprint
        assert together.adapter == alone.adapter
        assert [type(each) for each in together.model.modules()] == [type(each) for each in alone.model.modules()]
    assert len(reads) == 1


def test_weights_that_are_tied_are_tied_again(tmp_path: Path, reads: list[Path]) -> None:
    config = tiny.llama_config(tie_word_embeddings=True)
    tiny.save_model(tmp_path / "base", config)
    folder = adapter(tmp_path / "adapter", 1, config=config, target_modules=["embed_tokens", "q_proj"])
    shared = SharedLoader()
    assert same(shared.load(tmp_path / "base", adapter=folder).model, load(tmp_path / "base", adapter=folder).model)
    again = shared.load(tmp_path / "base").model
    assert again.lm_head.weight is again.model.embed_tokens.weight
    assert again.config.tie_word_embeddings
    assert same(again, load(tmp_path / "base").model)
    assert len(reads) == 1


def test_a_base_that_was_changed_in_between_is_read_again(base: Path, tmp_path: Path, reads: list[Path]) -> None:
    folder, shared = adapter(tmp_path / "adapter", 1), SharedLoader()
    model = shared.load(base, adapter=folder).model
    with torch.no_grad():
        model.model.norm.weight += 1  # not by the adapter
    assert same(shared.load(base).model, load(base).model)
    tiny.save_model(base, seed=5)
    assert same(shared.load(base).model, load(base).model)
    assert same(shared.load(base, dtype="float64").model, load(base, dtype="float64").model)
    assert len(reads) == 4


def test_an_adapter_that_is_refused_leaves_the_base_usable(base: Path, tmp_path: Path, reads: list[Path]) -> None:
    shared = SharedLoader()
    with pytest.raises(AttnscopeError, match="changes nothing"):
        shared.load(base, adapter=tiny.save_adapter(tmp_path / "zero", zero=True))
    folder = adapter(tmp_path / "adapter", 1)
    assert same(shared.load(base, adapter=folder).model, load(base, adapter=folder).model)
    assert len(reads) == 1


def test_without_memory_for_copies_each_is_loaded_alone(
    base: Path, tmp_path: Path, reads: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "SPARE", 10**12)
    shared = SharedLoader()
    for seed in (1, 2):
        folder = adapter(tmp_path / f"{seed}", seed)
        assert same(shared.load(base, adapter=folder).model, load(base, adapter=folder).model)
    assert len(reads) == 2


def test_another_model_is_not_held_beside_the_next(base: Path, tmp_path: Path, reads: list[Path]) -> None:
    tiny.save_model(tmp_path / "other", seed=3)
    shared = SharedLoader()
    for folder in (base, tmp_path / "other", base):
        assert same(shared.load(folder).model, load(folder).model)
    assert len(reads) == 3


def test_a_loader_sent_to_another_process_takes_no_model_along(base: Path) -> None:
    loader = Loader()
    loader(base)
    sent = pickle.loads(pickle.dumps(loader))  # noqa: S301
    assert len(pickle.dumps(loader)) < 200
    assert sent(base).layers if hasattr(sent(base), "layers") else sent(base).loaded.layers == 2


def test_a_tokenizer_may_come_from_elsewhere(base: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    tiny.save_model(bare, seed=2)
    for file in bare.glob("tokenizer*"):
        file.unlink()
    (bare / "special_tokens_map.json").unlink(missing_ok=True)
    with pytest.raises(AttnscopeError, match="no tokenizer"):
        load(bare)
    loaded = load(bare, tokenizer=base)
    assert loaded.tokenizer("a b")["input_ids"] == load(base).tokenizer("a b")["input_ids"]
    with pytest.raises(AttnscopeError, match="no model at this path"):
        load(bare, tokenizer="./nowhere")
