"""Finding a prompt by its number, its name or words in its text."""

from __future__ import annotations

import polars as pl

from attnscope.analysis.run import Run
from attnscope.explorer.responses import PromptEntry, PromptMatches

MOST_PROMPTS = 50  # in a list
EXCERPT = 80  # characters


def find_prompts(run: Run, text: str) -> PromptMatches:
    """Prompts whose number, name or text matches; without a text, all of them."""
    prompts = (
        run.table("prompts")
        .select("prompt", "name", "text", "tokens")
        .collect()
        .unique("prompt", keep="first", maintain_order=True)
        .sort("prompt")
    )
    words = text.strip().lower()
    if words:
        in_text = pl.col("text").str.to_lowercase().str.contains(words, literal=True)
        in_name = pl.col("name").str.to_lowercase().str.contains(words, literal=True)
        by_number = pl.col("prompt").cast(pl.String) == words
        prompts = prompts.filter(in_text | in_name | by_number).sort(
            by_number, in_name, descending=True, maintain_order=True
        )
    return PromptMatches(
        prompts=[
            PromptEntry(
                number=row["prompt"],
                name=row["name"][:EXCERPT],
                excerpt=_excerpt(row["text"], words),
                tokens=row["tokens"],
            )
            for row in prompts.head(MOST_PROMPTS).iter_rows(named=True)
        ],
        total=len(prompts),
    )


def _excerpt(text: str, words: str) -> str:
    """The part of a text that has the words, or its beginning."""
    at = max(0, text.lower().find(words)) if words else 0
    start = max(0, at - EXCERPT // 3)
    return " ".join(f"{'…' if start else ''}{text[start : start + EXCERPT]}".split())
