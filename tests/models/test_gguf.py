"""A GGUF file is tokenized as it says, converted once for its content, and refused before it costs memory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFWriter, TokenType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import GemmaTokenizer, LlamaTokenizer, PreTrainedTokenizerFast

from attnscope.errors import AttnscopeError
from attnscope.models import gguf as gguf_module
from attnscope.models.cache import is_whole, place
from attnscope.models.load import load, look_up

from . import tiny

TEXTS = ["a b", "", " two  blanks ", "Zeile eins\nline two", "<s> is in the text", "h\u00e9llo \U0001f600", "</s>"]
FLAGS: list[dict[str, Any]] = [
    {},
    {"add_bos_token": True},
    {"add_bos_token": False},
    {"add_eos_token": True},
    {"add_bos_token": True, "add_eos_token": True},
    {"add_bos_token": False, "add_eos_token": False},
]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATTNSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def ids(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text)["input_ids"])


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("flags", FLAGS)
def test_bos_and_eos_are_added_as_a_byte_level_file_says(tmp_path: Path, flags: dict[str, Any], chat: bool) -> None:
    tokenization = look_up(str(tiny.write_gguf(tmp_path / "x.gguf", chat=chat, **flags))).tokenization
    own = PreTrainedTokenizerFast(tokenizer_object=tiny.tokenizer().backend_tokenizer, **tiny.SPECIAL, **flags)
    for text in TEXTS:
        assert ids(tokenization.tokenizer, text) == ids(own, text), text
    assert tokenization.has_template == chat
    if chat:
        assert tokenization.render([{"role": "user", "content": "hi"}]) == "hi"
    else:
        with pytest.raises(AttnscopeError, match="no chat template"):
            tokenization.render([{"role": "user", "content": "hi"}])


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(("pre", "begins"), [("smollm", False), ("qwen2", False), ("llama-bpe", True)])
def test_without_a_flag_the_vocabulary_decides_whether_a_text_begins_with_bos(
    tmp_path: Path, pre: str, begins: bool
) -> None:
    tokenization = look_up(str(tiny.write_gguf(tmp_path / "x.gguf", pre=pre))).tokenization
    assert (ids(tokenization.tokenizer, "a")[0] == 0) == begins


SPM = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "a", "b", "\u2581a", "ab"]
GEMMA = ["<pad>", "<eos>", "<bos>", "<unk>", *SPM[3:]]


def write_spm(path: Path, architecture: str, tokens: list[str], **flags: bool) -> Path:
    """A file with a sentencepiece vocabulary and a model too small to be of use."""
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(1)
    writer.add_feed_forward_length(48)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_key_length(8)
    writer.add_value_length(8)
    writer.add_sliding_window(16)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(place) for place in range(len(tokens))])
    special = tokens.index("<0x00>")
    kinds = [TokenType.CONTROL] * special + [TokenType.BYTE] * 256
    writer.add_token_types([*kinds, *[TokenType.NORMAL] * (len(tokens) - len(kinds))])
    for name in ("bos", "eos", "unk"):
        held = tokens.index(f"<{name}>") if f"<{name}>" in tokens else tokens.index({"bos": "<s>", "eos": "</s>"}[name])
        getattr(writer, f"add_{name}_token_id")(held)
    for name, flag in flags.items():
        writer.add_bool(f"tokenizer.ggml.{name}", flag)
    block: dict[str, tuple[int, ...]] = {"attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32)}
    block |= {"attn_output": (32, 32), "ffn_gate": (48, 32), "ffn_up": (48, 32), "ffn_down": (32, 48)}
    block |= {"attn_norm": (32,), "ffn_norm": (32,)}
    if architecture == "gemma3":
        block |= dict.fromkeys(["post_attention_norm", "post_ffw_norm"], (32,))
        block |= dict.fromkeys(["attn_q_norm", "attn_k_norm"], (8,))
    shapes = {"token_embd": (len(tokens), 32), "output": (len(tokens), 32), "output_norm": (32,)}
    shapes |= {f"blk.0.{name}": shape for name, shape in block.items()}
    numbers = np.random.default_rng(0)
    for name, shape in shapes.items():
        if name != "output" or architecture == "llama":
            writer.add_tensor(f"{name}.weight", numbers.normal(0, 0.1, shape).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def spm_tokenizer(kind: Any, tokens: list[str], **options: Any) -> Any:
    vocabulary = {token: place for place, token in enumerate(tokens)}
    made = kind(vocab=vocabulary, merges=[("\u2581", "a"), ("a", "b")], **options)
    made.add_special_tokens({"additional_special_tokens": tokens[: tokens.index("<0x00>")]})
    return made


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    "flags", [*FLAGS, {"add_space_prefix": False}, {"add_bos_token": False, "add_space_prefix": True}]
)
def test_a_sentencepiece_file_is_tokenized_as_the_llama_tokenizer_would(tmp_path: Path, flags: dict[str, Any]) -> None:
    tokenization = look_up(str(write_spm(tmp_path / "x.gguf", "llama", SPM, **flags))).tokenization
    own = spm_tokenizer(
        LlamaTokenizer,
        SPM,
        add_bos_token=flags.get("add_bos_token", True),
        add_eos_token=flags.get("add_eos_token", False),
        add_prefix_space=flags.get("add_space_prefix", True),
    )
    for text in ["a b", "ab a", " a", "b\na", "\u00e9"]:
        assert ids(tokenization.tokenizer, text) == ids(own, text), text
        inner = tokenization.tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenization.tokenizer.decode(inner).lstrip() == text.lstrip()
    first = ids(tokenization.tokenizer, "a b")[0]
    assert (first == SPM.index("<s>")) == flags.get("add_bos_token", True)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("flags", FLAGS)
def test_a_gemma_file_is_tokenized_as_the_gemma_tokenizer_would(tmp_path: Path, flags: dict[str, Any]) -> None:
    loaded = load(str(write_spm(tmp_path / "x.gguf", "gemma3", GEMMA, **flags)))
    settings = {"add_bos_token": flags.get("add_bos_token", True), "add_eos_token": flags.get("add_eos_token", False)}
    own = spm_tokenizer(GemmaTokenizer, GEMMA, **settings)
    for text in ["a b", "ab a", " a", "b\na", "\u00e9"]:
        assert ids(loaded.tokenizer, text) == ids(own, text), text
    begins = loaded.tokenization.tokenize("ab")[0]
    assert (begins.id == 2 and begins.special) == settings["add_bos_token"]


def test_control_tokens_of_a_file_are_special(gguf: Path) -> None:
    tokens = look_up(str(gguf)).tokenization.tokenize("<s>a</s>")
    assert [(token.id, token.special) for token in tokens if token.text != "a"] == [(0, True), (1, True)]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=40))
def test_converting_changes_no_token_of_any_text(gguf: Path, text: str) -> None:
    tokenizer = look_up(str(gguf)).tokenization.tokenizer
    assert tokenizer(text)["input_ids"] == tiny.tokenizer()(text)["input_ids"]


def test_a_file_is_converted_once_for_its_content(
    cache: Path, gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load(str(gguf_file))
    assert first.made_from == "tiny.gguf, number format not stated expanded to float32"
    copy = tmp_path / "another name.gguf"
    shutil.copy(gguf_file, copy)
    with monkeypatch.context() as patch:
        patch.setattr(gguf_module, "convert", lambda *_: pytest.fail("converted again"))
        again = load(str(copy))
        with pytest.raises(pytest.fail.Exception):
            load(str(tiny.write_gguf(tmp_path / "other.gguf", add_bos_token=True)))
    assert again.files == first.files
    assert all(
        torch.equal(one, two) for one, two in zip(first.model.parameters(), again.model.parameters(), strict=True)
    )
    assert [each.name for each in (cache / "models").iterdir() if not each.name.startswith(".")] == [
        first.files[0].parent.name
    ]


def test_a_damaged_conversion_is_made_again(gguf: Path) -> None:
    folder = look_up(str(gguf)).path
    os.truncate(folder / "model.safetensors", 1000)
    assert load(str(gguf)).layers == 2
    assert place(folder.name) == folder
    assert not any("preparing" in each.name for each in folder.parent.iterdir())


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tensors": False}, r"has no weights"),
        ({"add_bos_token": True, "bos": False}, r"adds BOS to texts but doesn't say which token.*bos_token_id"),
        ({"tensors": False, "layers": 10**9}, r"has no weights"),
        ({"layers": 3}, r"only part of its model.*describes a model of [\d,]+ values and has [\d,]+"),
        ({"layers": 10**9}, r"only part of its model.*describes 1,000,000,000 layers and has 21 tensors"),
    ],
)
def test_a_file_without_its_weights_is_refused_before_memory_is_allocated(
    tmp_path: Path, changes: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gguf_module, "read_model", lambda *_, **__: pytest.fail("memory was allocated"))
    with pytest.raises(AttnscopeError, match=said):
        load(str(tiny.write_gguf(tmp_path / "x.gguf", **changes)))


@pytest.mark.usefixtures("cache")
def test_a_full_disk_is_noticed_before_anything_is_written(
    gguf_file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Disk", (), {"free": 1000}))
    with pytest.raises(
        AttnscopeError, match=r"not enough disk space.*takes 0.1\d MiB and 0.00 MiB is free.*ATTNSCOPE_CACHE"
    ):
        load(str(gguf_file))
    assert not [each for each in (cache / "models").iterdir() if not each.name.startswith(".")]


def test_a_file_that_cannot_be_opened_is_said(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tiny.write_gguf(tmp_path / "x.gguf")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(gguf_module, "sha256", refuse)  # root may read everything
    with pytest.raises(AttnscopeError, match=r"can't be read.*Permission denied"):
        load(str(file))
    assert not is_whole(cache, "")
