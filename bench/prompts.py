"""Tokens to run on: the project's own docs and sources, to any length; random ids for random models."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def long_text() -> str:
    """Everything except the page that the benchmark writes, in a fixed order."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "src").rglob("*.py"))]
    return "\n\n".join(page.read_text("utf-8") for page in pages if page.name != "benchmarks.md" and page.exists())


def text_tokens(encode: Callable[[str], list[int]], count: int) -> list[int]:
    """The first `count` tokens of the text, repeated if it is too short."""
    tokens = encode(long_text())
    return (tokens * (count // len(tokens) + 1))[:count]


def random_tokens(vocabulary: int, count: int) -> list[int]:
    """The same ids in every run."""
    tokens, state = [], 12345
    for _ in range(count):
        state = (1103515245 * state + 12345) % (1 << 31)
        tokens.append((state >> 8) % vocabulary)
    return tokens


def read_tokens(path: Path, count: int) -> list[int]:
    tokens: list[int] = json.loads(path.read_text())
    return tokens[:count]
