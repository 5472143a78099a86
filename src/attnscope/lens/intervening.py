"""What a caller of `intervene` and `sweep` means: the text with its answer, the variants, and their controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random

import numpy as np
import polars as pl

from attnscope.edits.attention import ATTENTION_EDITS, AttentionEdit
from attnscope.errors import AttnscopeError, Parameter, near
from attnscope.lens.arguments import named_edits
from attnscope.records import Scores
from attnscope.text.rules import Tokenized
from attnscope.text.segments import ANSWER, Span
from attnscope.text.tokens import Token

LAYERS, HEADS, CLASSES = "layers", "heads", "classes"


@dataclass(frozen=True)
class Answered:
    """A prompt followed by an answer, in segments `prompt` and `answer`."""

    prompt: Tokenized
    start: int
    """The position of the answer's first token."""

    @classmethod
    def of(cls, text: str, whole: str, tokens: Sequence[Token], start: int) -> Answered:
        """text: the prompt's; whole: with the answer's."""
        spans = (Span("prompt", 0, len(text)), Span(ANSWER, len(text), len(whole)))
        return cls(Tokenized(whole, tokens, spans, answered=len(tokens) - start), start)

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.prompt.tokens]

    @property
    def answer_ids(self) -> list[int]:
        return self.ids[self.start :]

    @property
    def answer_tokens(self) -> list[str]:
        """Their texts."""
        return [token.text for token in self.prompt.tokens[self.start :]]


def controls_of(
    edits: Sequence[AttentionEdit], prompt: Tokenized, heads: Mapping[int, int], draws: int, seed: int
) -> tuple[list[list[AttentionEdit]], str]:
    """As much changed at random, so many times, and what is drawn, in words; or none, and why.

    edits: with positions. heads: how many each layer has.
    """
    without = [edit.key for edit in edits if not edit.control_words]
    if not edits or without or not draws:
        return [], f"'{without[0]}' has none" if without else "none was asked for"
    drawn = []
    for number in range(draws):
        rng = Random(f"{seed}/{number}")  # noqa: S311
        controls = [_control(edit, prompt, heads, rng) for edit in edits]
        alike = [each for each in controls if each is not None]
        if len(alike) < len(edits):
            return [], f"there is too little else for {edits[controls.index(None)].control_words}"
        drawn.append(alike)
    return drawn, " and ".join(dict.fromkeys(edit.control_words for edit in edits))


def _control(edit: AttentionEdit, prompt: Tokenized, heads: Mapping[int, int], rng: Random) -> AttentionEdit | None:
    with ATTENTION_EDITS.blamed(edit.key, "control"):
        drawn: object = edit.control(prompt, heads, rng)
    if drawn is not None and not isinstance(drawn, AttentionEdit):
        raise ATTENTION_EDITS.mistake(edit.key, "control", f"returns a {type(drawn).__name__}", "an attention edit")
    return drawn


@dataclass(frozen=True)
class Swept:
    """One variant of a sweep: what it changes, by column, and its edit."""

    place: Mapping[str, int | str]
    edit: AttentionEdit


def swept(
    over: str,
    heads: Mapping[int, int],
    hide: str | Sequence[int] | None,
    classes: Mapping[str, str],
    queries: str | Sequence[int] | None,
    window: int,
    how: str | None,
) -> list[Swept]:
    """The variants of a sweep. heads: how many each layer has."""
    if over not in (LAYERS, HEADS, CLASSES):
        raise AttnscopeError(
            f"a sweep can't go over '{over}'",
            where=Parameter("over"),
            allowed=near(over, (LAYERS, HEADS, CLASSES)),
            todo="choose one",
        )
    _refuse_unlike(over, hide, classes)
    layers = sorted(heads)
    if over == CLASSES:
        return [Swept({"token_class": name}, _one(rule, queries, None, None, how)) for name, rule in classes.items()]
    if over == HEADS:
        every = [(layer, head) for layer in layers for head in range(heads[layer])]
        places = [{"layer": layer, "head": head} for layer, head in every]
        if hide is None:
            return [
                Swept(at, named_edits(None, {at["layer"]: [at["head"]]}, None, None, None, how)[0]) for at in places
            ]
        return [Swept(at, _one(hide, queries, [at["layer"]], [at["head"]], how)) for at in places]
    if window > len(layers):
        raise AttnscopeError(
            f"a window of {window} layers is wider than the model",
            where=Parameter("window"),
            allowed=f"at most {len(layers)} layers",
            todo="choose a narrower one",
        )
    parts = [layers[first : first + window] for first in range(len(layers) - window + 1)]
    return [Swept({"layer": part[0]}, _one(hide, queries, part, None, how)) for part in parts]


def _one(
    hide: str | Sequence[int] | None,
    queries: str | Sequence[int] | None,
    layers: Sequence[int] | None,
    heads: Sequence[int] | None,
    how: str | None,
) -> AttentionEdit:
    return named_edits(hide, None, queries, layers, heads, how)[0]


def _refuse_unlike(over: str, hide: object, classes: Mapping[str, str]) -> None:
    """Refuse what a sweep needs and does not have."""
    if over == LAYERS and hide is None:
        needs, parameter, example = "keys to hide", "hide", "hide='re:[0-9]'"
    elif over == CLASSES and not classes:
        needs, parameter, example = "classes", "classes", "classes={'digits': 're:[0-9]'}"
    else:
        return
    raise AttnscopeError(
        f"a sweep over {over} needs {needs}", where=Parameter(parameter), allowed=example, todo=f"give {parameter}"
    )


def sweep_table(
    variants: Sequence[Swept], before: Scores, scores: Sequence[Scores], drawn: Sequence[int], ids: Sequence[int]
) -> pl.DataFrame:
    """One row per variant. scores: of the variants, then of their controls; drawn: how many controls each has."""
    changes = [each.log_prob - before.log_prob for each in scores]
    ends = np.cumsum([len(variants), *drawn])
    controls = [changes[start:end] for start, end in pairwise(ends)]
    rows = [
        {
            **variant.place,
            "log_prob": score.log_prob,
            "change": change,
            "kl": float(score.kl[0]),
            "exact": score.writes(ids),
            "control": float(np.mean(others)) if others else None,
        }
        for variant, score, change, others in zip(variants, scores, changes, controls, strict=False)
    ]
    return pl.DataFrame(rows, schema_overrides={"control": pl.Float64})
