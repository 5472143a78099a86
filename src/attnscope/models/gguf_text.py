"""How a GGUF file wants text tokenized: what is put around it, and how it is split before merging.

transformers takes vocabulary, merges and chat template from a GGUF. It splits text as `tokenizer.ggml.pre` says for
some families and as GPT-2 does for all others, and leaves out `add_bos_token`, `add_eos_token` and `add_space_prefix`.
What a file leaves out is decided as in llama.cpp (src/llama-vocab.cpp).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Regex, decoders, normalizers, pre_tokenizers

from attnscope.errors import AttnscopeError, near

BYTE_LEVEL, SENTENCEPIECE, GEMMA4 = "gpt2", "llama", "gemma4"  # kinds of vocabulary, by `tokenizer.ggml.model`

# What a file without a flag means, by kind of vocabulary: (begins with BOS, ends with EOS, begins with a space).
_DEFAULTS = {
    SENTENCEPIECE: (True, False, True),
    BYTE_LEVEL: (False, False, False),
    GEMMA4: (True, False, False),
    "t5": (False, True, True),
}
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # what sentencepiece writes for a space

_CASED = (  # letters of scripts with capitals, as DeepSeek's first tokenizer lists them
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-"
    "\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-"
    "\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80"
    "-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4"
    "\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a"
    "\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-"
    "\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_EAST_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"


@dataclass(frozen=True)
class Splitting:
    """How a byte-level vocabulary splits text before merging."""

    patterns: tuple[str, ...] | None = None
    """Applied one after the other, each to the pieces that the one before left; None: as transformers does already."""
    gpt2_last: bool = False
    """Whether GPT-2's pattern comes after these."""
    whole_words: bool = False
    """Whether a piece that is a token is taken as it is, whatever the merges would make of it."""
    bos: bool = False
    """Whether a text begins with BOS if the file doesn't say."""
    nfc: bool = False
    """Whether text is put into Unicode's composed form first."""


GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_AS_TRANSFORMERS_DOES = Splitting()
_LLAMA3 = Splitting(whole_words=True, bos=True)
_QWEN2 = Splitting(nfc=True)
_GPT2 = Splitting((), gpt2_last=True)
_SINGLE_DIGITS = Splitting((r"\p{N}",), gpt2_last=True)
_DEEPSEEK3 = Splitting(
    (
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    )
)

# By `tokenizer.ggml.pre`. One that is missing here is refused.
SPLITTINGS: dict[str, Splitting] = {
    **dict.fromkeys(("gpt-2", "phi-2", "exaone4"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b"), _SINGLE_DIGITS),
    "command-r": Splitting((r"\p{N}",), gpt2_last=True, nfc=True),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "pixtral", "midm-2.0", "lfm2"), _LLAMA3),
    **dict.fromkeys(("falcon3", "falcon-h1"), _LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe", "megrez", "deepseek-r1-qwen"), _AS_TRANSFORMERS_DOES),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "minimax-m2"), _AS_TRANSFORMERS_DOES),
    "tekken": Splitting(whole_words=True, bos=True),
    **dict.fromkeys(("qwen2", "qwen35"), _QWEN2),
    "deepseek-llm": Splitting(
        (
            r"[\r\n]",
            rf"\s?[{_CASED}]+",
            "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+",
            r"\s+$",
            _EAST_ASIAN,
            r"\p{N}+",
        )
    ),
    "deepseek-coder": Splitting((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _EAST_ASIAN, r"\p{N}")),
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm"), _DEEPSEEK3),
    "falcon": Splitting((r"[\p{P}$+<=>^~|`]+", GPT2_PATTERN, "[0-9][0-9][0-9]")),
    "default": Splitting((r"[\p{P}$+<=>^~|]+", GPT2_PATTERN, r"\p{N}+", "[0-9][0-9][0-9]")),
    "bloom": Splitting((" ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+",)),
}


@dataclass(frozen=True)
class TextRules:
    """How a file wants text tokenized."""

    begins_with_bos: bool
    ends_with_eos: bool
    space_before: bool
    splitting: Splitting | None
    """None for vocabularies that don't split text before merging."""


def text_rules(path: Path, architecture: str, metadata: dict[str, Any]) -> TextRules:
    """What a file's metadata says, and where it says nothing what its kind of vocabulary means."""
    kind = str(metadata.get("tokenizer.ggml.model"))
    bos, eos, space = _DEFAULTS.get(kind, (False, False, False))
    splitting = _splitting(path, metadata) if kind == BYTE_LEVEL else None
    bos = bos or (splitting is not None and splitting.bos)
    space = space and not architecture.startswith("gemma")  # no Gemma puts a space before a text
    begins = kind == GEMMA4 or _flag(path, metadata, "add_bos_token", bos)  # files of Gemma 4 have a wrong flag
    ends = _flag(path, metadata, "add_eos_token", eos)
    for end, added in (("bos", begins), ("eos", ends)):
        if added:
            _refuse_unnamed(path, metadata, end)
    return TextRules(begins, ends, _flag(path, metadata, "add_space_prefix", space), splitting)


def obey(tokenizer: Any, rules: TextRules) -> None:
    """Make a tokenizer that transformers built from the file do as it says."""
    tokenizer.add_bos_token, tokenizer.add_eos_token = rules.begins_with_bos, rules.ends_with_eos
    backend = tokenizer.backend_tokenizer
    if rules.splitting is not None:
        _split(backend, rules.splitting)
    elif rules.space_before != puts_space_before(tokenizer):
        _set_space_before(backend, wanted=rules.space_before)


def puts_space_before(tokenizer: Any) -> bool:
    """Whether a tokenizer puts a space before a text that has none."""
    backend = tokenizer.backend_tokenizer
    text = "a" if backend.normalizer is None else backend.normalizer.normalize_str("a")
    pieces = [(text, (0, 1))] if backend.pre_tokenizer is None else backend.pre_tokenizer.pre_tokenize_str(text)
    return bool(pieces) and pieces[0][0].startswith(_SPACE)


def _splitting(path: Path, metadata: dict[str, Any]) -> Splitting:
    name = metadata.get("tokenizer.ggml.pre")
    if name in SPLITTINGS:
        return SPLITTINGS[name]
    raise AttnscopeError(
        "this GGUF file does not say how its tokenizer splits text"
        if name is None
        else "this GGUF file's tokenizer splits text in a way that is not known here",
        where=f"{path}, tokenizer.ggml.pre" + ("" if name is None else f" = {str(name)[:60]}"),
        allowed=near(str(name or ""), SPLITTINGS),
        todo="load the original model instead (a folder or a Hub id)",
    )


def _flag(path: Path, metadata: dict[str, Any], name: str, default: bool) -> bool:
    value = metadata.get(f"tokenizer.ggml.{name}", default)
    if not isinstance(value, bool):
        raise AttnscopeError(
            f"this GGUF file's {name} is neither true nor false",
            where=f"{path}, tokenizer.ggml.{name} = {str(value)[:60]!r}",
            allowed="a boolean",
            todo="convert the model again, or load its original files",
        )
    return value


def _refuse_unnamed(path: Path, metadata: dict[str, Any], end: str) -> None:
    key = f"tokenizer.ggml.{end}_token_id"
    number, count = metadata.get(key), metadata.get("tokenizer.ggml.tokens", 0)
    if not isinstance(number, int) or not 0 <= number < count:
        which = "does not say which token that is" if number is None else f"has no token {number}"
        raise AttnscopeError(
            f"this GGUF file adds {end.upper()} to texts but {which}",
            where=f"{path}, {key}",
            allowed=f"the id of one of its {count:,} tokens",
            todo="convert the model again, or load its original files",
        )


def _split(backend: Any, splitting: Splitting) -> None:
    if splitting.nfc:
        backend.normalizer = normalizers.NFC()
    if splitting.whole_words:
        backend.model.ignore_merges = True
    if splitting.patterns is not None:
        steps: list[Any] = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in splitting.patterns]
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=splitting.gpt2_last))
        backend.pre_tokenizer = pre_tokenizers.Sequence(steps)


def _set_space_before(backend: Any, *, wanted: bool) -> None:
    """Sentencepiece: with a normalizer, or for Llama in the step that also marks spaces."""
    mark_spaces = normalizers.Replace(" ", _SPACE)
    strip = [decoders.Strip(" ", 1, 0)] if wanted else []
    backend.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    if isinstance(backend.pre_tokenizer, pre_tokenizers.Metaspace):
        scheme = "first" if wanted else "never"
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False)
    else:
        backend.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), mark_spaces]) if wanted else mark_spaces
