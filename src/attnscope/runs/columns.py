"""The tables of a run, declared once: columns, types and meanings. You can read them without attnscope."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from attnscope.study.schema import Study


@dataclass(frozen=True)
class Column:
    name: str
    type: Any
    meaning: str


_NAMES = pa.dictionary(pa.int32(), pa.string())
_SPAN = pa.struct([("segment", pa.string()), ("start", pa.int32()), ("end", pa.int32()), ("role", pa.string())])
_CELL = (
    Column("model", _NAMES, "the model's label"),
    Column("condition", _NAMES, "the condition's name"),
    Column("prompt", pa.int32(), "the prompt's number, from 0"),
)
_HEAD = (
    *_CELL,
    Column("queries", _NAMES, "the query group"),
    Column("layer", pa.int16(), "from 0"),
    Column("head", pa.int16(), "from 0"),
)

TABLES: dict[str, tuple[Column, ...]] = {
    "prompts": (
        *_CELL,
        Column("name", pa.string(), "what the study calls the prompt"),
        Column("cluster", pa.string(), "prompts with the same one are not independent; statistics count it once"),
        Column("text", pa.string(), "the full text the model was given"),
        Column("spans", pa.list_(_SPAN), "its segments: character ranges and roles, in order and without gaps"),
        Column("tokens", pa.int32(), "number of tokens"),
        Column("inserted", pa.int32(), "how many of these tokens the condition inserted"),
        Column(
            "query_groups", pa.list_(pa.string()), "the query groups it has; of a series, a short prompt may have fewer"
        ),
        Column("aligned", pa.bool_(), "whether any of its tokens is one of the base prompt's"),
        Column(
            "remerged",
            pa.int32(),
            "tokens of base text that were split differently in the base prompt",
        ),
        Column("cell", pa.string(), "hash of everything its numbers depend on; the key of its arrays in the shards"),
    ),
    "tokens": (
        *_CELL,
        Column("position", pa.int32(), "from 0"),
        Column("token_id", pa.int32(), "in the model's vocabulary"),
        Column("text", pa.string(), "the token's characters, or its name if it has none"),
        Column("segment", _NAMES, "the segment that contains most of its characters"),
        Column("start", pa.int32(), "position of its first character in the text"),
        Column("end", pa.int32(), "position after its last character"),
        Column("special", pa.bool_(), "whether it is one of the tokenizer's special tokens"),
        Column("removed", pa.bool_(), "whether the study leaves it out (`without`)"),
        Column(
            "base_position",
            pa.int32(),
            "the same token's position in the base prompt; null if inserted or re-merged",
        ),
    ),
    "mass": (
        *_HEAD,
        Column("measure", _NAMES, "received, or another measure with one number per key"),
        Column(
            "token_class",
            _NAMES,
            "the class, or a set of `also`; `other` is everything no class claims, `removed` what `without` leaves out",
        ),
        Column(
            "mass",
            pa.float64(),
            "the sum of the measure over the class: for received, its share of attention (of what `without` leaves; "
            "null if that is hardly anything, or if no query has a value)",
        ),
        Column("expected", pa.float64(), "the same for uniform attention over all visible keys"),
    ),
    "heads": (
        *_HEAD,
        Column("measure", _NAMES, "a measure with one number per head; no rows unless the study names one"),
        Column("value", pa.float64(), "mean over the queries that have a value; null if none does"),
        Column("expected", pa.float64(), "the same for uniform attention over all visible keys"),
        Column("defined", pa.float64(), "the share of the group's queries that have a value"),
    ),
}
"""In every run."""

OUTCOMES = "outcomes"
OF_INTERVENTIONS: dict[str, tuple[Column, ...]] = {
    OUTCOMES: (
        *_CELL,
        Column("intervention", _NAMES, "the intervention's name; `none` is the model as it is"),
        Column(
            "layer", pa.int16(), "in a sweep over layers, the first of the window; over heads, the head's; else null"
        ),
        Column("head", pa.int16(), "in a sweep over heads, the head; else null"),
        Column("token_class", _NAMES, "in a sweep over classes, the class that is hidden; else null"),
        Column(
            "logprob", pa.float64(), "the log probability (natural logarithm) of the answer, summed over its tokens"
        ),
        Column("tokens", pa.int32(), "number of the answer's tokens"),
        Column("kl", pa.float64(), "KL divergence of the prediction of the answer's first token, from `none`, in nats"),
        Column("exact", pa.bool_(), "whether the model, always writing the likeliest token, would write the answer"),
        Column("choice", pa.string(), "the likeliest of the answer and the choices; null without choices"),
        Column("right", pa.bool_(), "whether that is the answer; null without choices"),
        Column("edited", pa.int32(), "how many keys are hidden, or heads changed, in this prompt"),
    ),
}
"""In runs of studies with interventions. A prompt that an intervention can't be made in has no row of it."""

EXPORTS: dict[str, tuple[Column, ...]] = {
    "received": (
        *_HEAD,
        Column("view", pa.int16(), "the row of `views` that describes what the queries can see"),
        Column("received", pa.list_(pa.float32()), "attention received, one number per key"),
        Column("entropy", pa.float32(), "entropy of attention over the keys, in nats; null unless measured"),
    ),
    "views": (
        *_CELL,
        Column("queries", _NAMES, "the query group"),
        Column("view", pa.int16(), "number of the view; layers whose queries see the same keys share one"),
        Column("head", pa.int16(), "null if the same for all heads"),
        Column("uniform", pa.list_(pa.float32()), "what each key would receive from uniform attention"),
        Column("seen", pa.list_(pa.float32()), "the share of the group's queries that can see each key"),
    ),
}
"""Written on request, from the shards."""


def tables_of(study: Study) -> list[str]:
    """The tables of a run of a study."""
    return [*TABLES, *(OF_INTERVENTIONS if study.interventions else ())]


def columns_of(table: str) -> tuple[Column, ...]:
    return next(tables[table] for tables in (TABLES, OF_INTERVENTIONS, EXPORTS) if table in tables)


def schema(table: str) -> pa.Schema:
    return pa.schema([pa.field(column.name, column.type) for column in columns_of(table)])
