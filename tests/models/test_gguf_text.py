"""A GGUF file's text is tokenized as the file says: what is put around it, and how it is split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import GemmaTokenizer, LlamaTokenizer, PreTrainedTokenizerFast

from attnscope.errors import AttnscopeError
from attnscope.models.gguf import converted_from
from attnscope.models.gguf_text import text_rules
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
    tokenization = look_up(str(tiny.write_spm(tmp_path / "x.gguf", "llama", tiny.SPM, **flags))).tokenization
    own = spm_tokenizer(
        LlamaTokenizer,
        tiny.SPM,
        add_bos_token=flags.get("add_bos_token", True),
        add_eos_token=flags.get("add_eos_token", False),
        add_prefix_space=flags.get("add_space_prefix", True),
    )
    for text in ["a b", "ab a", " a", "b\na", "\u00e9"]:
        assert ids(tokenization.tokenizer, text) == ids(own, text), text
        inner = tokenization.tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenization.tokenizer.decode(inner).lstrip() == text.lstrip()
    first = ids(tokenization.tokenizer, "a b")[0]
    assert (first == tiny.SPM.index("<s>")) == flags.get("add_bos_token", True)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("flags", FLAGS)
def test_a_gemma_file_is_tokenized_as_the_gemma_tokenizer_would(tmp_path: Path, flags: dict[str, Any]) -> None:
    loaded = load(str(tiny.write_spm(tmp_path / "x.gguf", "gemma3", tiny.GEMMA, **flags)))
    settings = {"add_bos_token": flags.get("add_bos_token", True), "add_eos_token": flags.get("add_eos_token", False)}
    own = spm_tokenizer(GemmaTokenizer, tiny.GEMMA, **settings)
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


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("smollm", "a\n\n1. b", ["a", "\n\n", "1", ".", " b"]),
        ("starcoder", "x  90", ["x", "  ", "9", "0"]),
        ("gpt-2", "a\n\n1. b", ["a", "\n", "\n", "1", ".", " b"]),
        ("llama-bpe", "It's 12345", ["It", "'s", " ", "123", "45"]),
        ("dbrx", "It's 12345", ["It", "'s", " ", "123", "45"]),
        ("qwen2", "12 ab", ["1", "2", " ab"]),
        ("tekken", "HelloWorld 12", ["Hello", "World", " ", "1", "2"]),
        ("command-r", "a 12", ["a", " ", "1", "2"]),
        ("deepseek-llm", "\u00e912\nb", ["\u00e9", "12", "\n", "b"]),
        ("deepseek-coder", "x = 12", ["x", " = ", "1", "2"]),
        ("deepseek-v3", "a 1234", ["a", " ", "123", "4"]),
        ("falcon", "a, 1234", ["a", ",", " ", "123", "4"]),
        ("default", "a, 1234", ["a", ",", " ", "123", "4"]),
        ("bloom", "a b.", ["a", " b", "."]),
    ],
)
def test_text_is_split_as_the_vocabulary_was_trained(tmp_path: Path, pre: str, text: str, pieces: list[str]) -> None:
    tokenization = look_up(str(tiny.write_gguf(tmp_path / "x.gguf", pre=pre))).tokenization
    split = tokenization.tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in split] == pieces


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(("pre", "whole"), [("llama-bpe", True), ("tekken", True), ("qwen2", False), ("gpt-2", False)])
def test_a_word_in_the_vocabulary_may_need_no_merges(tmp_path: Path, pre: str, whole: bool) -> None:
    tokens = look_up(str(tiny.write_gguf(tmp_path / "x.gguf", pre=pre, words=["hello"]))).tokenization.tokenize("hello")
    assert ("hello" in [token.text for token in tokens]) == whole


@pytest.mark.usefixtures("cache")
def test_qwen_composes_accents_and_llama_does_not(tmp_path: Path) -> None:
    for pre, composed in (("qwen2", True), ("llama-bpe", False)):
        tokenizer = look_up(str(tiny.write_gguf(tmp_path / f"{pre}.gguf", pre=pre))).tokenization.tokenizer
        assert (ids(tokenizer, "e\u0301") == ids(tokenizer, "\u00e9")) == composed


def _flag_in_words(writer: Any) -> None:
    writer.add_string("tokenizer.ggml.add_bos_token", "false")


def _without_pre(writer: Any) -> None:
    del writer.kv_data[0]["tokenizer.ggml.pre"]


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pre": "qwen-2"}, r"splits text in a way that is not known.*tokenizer.ggml.pre = qwen-2.*near: qwen2"),
        ({"pre": "chameleon"}, r"splits text in a way that is not known"),
        ({"extra": _without_pre}, r"does not say how its tokenizer splits text"),
        ({"extra": _flag_in_words}, r"add_bos_token is neither true nor false.*'false'"),
        ({"add_bos_token": True, "bos": False}, r"adds BOS to texts but does not say which token.*bos_token_id"),
        ({"pre": "llama-bpe", "bos": False}, r"adds BOS to texts but does not say which token"),
        ({"add_bos_token": True, "bos": 99999}, r"adds BOS to texts but has no token 99999"),
    ],
)
def test_a_file_that_does_not_say_how_to_tokenize_is_refused(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(AttnscopeError, match=said):
        look_up(str(tiny.write_gguf(tmp_path / "x.gguf", **changes)))


@pytest.mark.usefixtures("cache")
def test_a_sentencepiece_file_must_name_the_bos_it_adds(tmp_path: Path) -> None:
    with pytest.raises(AttnscopeError, match="adds BOS to texts but does not say which"):
        look_up(str(tiny.write_spm(tmp_path / "x.gguf", "llama", tiny.SPM, names=("eos", "unk"))))


def test_gemma_4_begins_with_bos_whatever_its_flag() -> None:
    metadata = {"tokenizer.ggml.model": "gemma4", "tokenizer.ggml.add_bos_token": False}
    with pytest.raises(AttnscopeError, match="does not say which"):
        text_rules(Path("x.gguf"), "gemma4", metadata)
    named = {**metadata, "tokenizer.ggml.bos_token_id": 2, "tokenizer.ggml.tokens": 9}
    assert text_rules(Path("x.gguf"), "gemma4", named).begins_with_bos


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("architecture", "flags", "space"),
    [
        ("phi3", {}, True),
        ("phi3", {"add_space_prefix": False}, False),
        ("gemma3", {}, False),
        ("gemma3", {"add_space_prefix": True}, True),
        ("llama", {}, True),
        ("llama", {"add_space_prefix": False}, False),
    ],
)
def test_a_space_is_put_before_a_text_as_the_file_says(
    tmp_path: Path, architecture: str, flags: dict[str, Any], space: bool
) -> None:
    tokens = tiny.GEMMA if architecture == "gemma3" else tiny.SPM
    file = tiny.write_spm(tmp_path / "x.gguf", architecture, tokens, names=("bos", "eos", "unk", "pad"), **flags)
    found = look_up(str(file))
    inner = found.tokenization.tokenizer("a b", add_special_tokens=False)["input_ids"]
    assert found.tokenization.tokenizer.convert_ids_to_tokens(inner) == ["\u2581a" if space else "a", "\u2581", "b"]
    assert found.tokenization.tokenizer.decode(inner) == "a b"
    assert converted_from(found.path).space_before == space


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("flag", "template", "text"),
    [
        (True, "{{ messages[0]['content'] }}", ["<s>", "h", "i"]),
        (True, "<s>{{ messages[0]['content'] }}", ["<s>", "h", "i"]),
        (False, "{{ messages[0]['content'] }}", ["h", "i"]),
    ],
)
def test_a_chat_begins_with_one_bos_if_the_file_adds_it(
    tmp_path: Path, flag: bool, template: str, text: list[str]
) -> None:
    def chat(writer: Any) -> None:
        writer.add_chat_template(template)

    file = tiny.write_gguf(tmp_path / "x.gguf", chat=False, extra=chat, add_bos_token=flag)
    tokenization = look_up(str(file)).tokenization
    rendered = tokenization.render([{"role": "user", "content": "hi"}])
    tokens = tokenization.tokenize(rendered, chat=True)
    assert [token.text for token in tokens] == text
    assert [token.position for token in tokens] == list(range(len(text)))
    assert all(rendered[token.start : token.end] in (token.text, "") for token in tokens)
    ids = [token.id for token in tokens if not token.special]
    assert [token.id for token in tokenization.spelled(ids)[1]] == ids  # what is given by id is left as it is
