"""What the explorer answers, as data: no more than a page shows."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


class Trouble(BaseModel):
    """What went wrong, in four parts."""

    what: str
    where: str
    allowed: str
    todo: str


class RunLine(BaseModel):
    """A run in the list of runs."""

    name: str
    title: str
    question: str | None = None
    status: str
    trouble: Trouble | None = None


class Shown(BaseModel):
    """What there is to show, and whether prompts can be tried."""

    runs: list[RunLine]
    live: str | None
    version: str


class ModelFacts(BaseModel):
    label: str
    about: str
    layers: list[int]
    heads: list[int]
    conditions: list[str]
    """Under which it has prompts."""


class Named(BaseModel):
    """Something that can be chosen: its name, what it is called, its colour."""

    name: str
    label: str
    colour: str | None = None


class ConditionFacts(Named):
    inserts: bool
    without: list[str]
    """Classes that no token under it belongs to."""


class MeasureFacts(Named):
    queries: list[str]
    """Query groups that have it."""
    enrichment: bool
    """Whether it can be told as times a uniform gaze."""


class FigureLine(BaseModel):
    name: str
    kind: str
    title: str
    part: dict[str, Any]
    """Its lines in the study file."""


class Drop(BaseModel):
    model: str
    condition: str
    prompt: int
    reason: str


class RunFacts(BaseModel):
    """All that can be chosen in a run."""

    name: str
    title: str
    question: str | None
    status: str
    planned: str
    """What the study is of, measured or not."""
    summary: str
    prompts: int
    first_prompt: int
    models: list[ModelFacts]
    conditions: list[ConditionFacts]
    queries: list[Named]
    classes: list[Named]
    measures: list[MeasureFacts]
    figures: list[FigureLine]
    empty: list[str]
    dropped: list[Drop]
    more_dropped: int
    command: str | None


class Words(BaseModel):
    text: str
    strong: bool


class Section(BaseModel):
    heading: str
    items: list[list[Words]]


class Drawn(BaseModel):
    """A figure: the chart, and all that is told of it."""

    title: str
    caption: str
    reading: list[Section]
    chart: dict[str, Any]
    study: str
    """The lines of a study file that make it."""
    top: list[dict[str, Any]]
    """Of a map: the heads of the largest values."""
    reach: float | None
    """Of bars and lines: how high they reach, for those who draw two on one scale."""


class SheetRows(BaseModel):
    title: str
    columns: list[str]
    rows: list[list[str]]
    grayed: list[bool]


class ComparisonSheets(BaseModel):
    name: str
    facts: list[str]
    sheets: list[SheetRows]


class Rank(BaseModel):
    """A head among all heads of its model."""

    what: str
    value: float | None
    rank: int | None
    of: int
    low: float | None = None
    high: float | None = None
    q: float | None = None
    sure: bool | None = None


class HeadFacts(BaseModel):
    model: str
    layer: int
    head: int
    kinds: list[dict[str, Any]]
    """By condition: kind, and every score that is known."""
    ranks: list[Rank]
    """By mass on each class, under each condition."""
    changes: list[Rank]
    """By change between conditions and models, class by class."""


class PromptLine(BaseModel):
    number: int
    name: str
    begins: str
    tokens: int


class PromptLines(BaseModel):
    prompts: list[PromptLine]
    found: int


class TokenFacts(BaseModel):
    position: int
    text: str
    length: int
    """Of its text, which may be cut."""
    attention: float | None
    segment: str
    base: int | None
    """The same token in the base prompt."""
    shared: str | None
    """What it has in common with the same token under another condition or in another model."""
    classes: list[str]


class PromptText(BaseModel):
    """A prompt as a model got it, with what its tokens receive."""

    number: int
    name: str
    model: str
    condition: str
    caption: str
    tokens: list[TokenFacts]
    first: int
    count: int
    """Of all tokens; those shown may be fewer."""
    highest: float
    """Of all tokens."""
    top: float
    """The second highest attention of all tokens, where the scale of shades ends."""
    segments: list[str]
    reading: list[str]
    before: int | None
    """The prompt before it, and after it."""
    after: int | None


class PairRow(BaseModel):
    token_class: str
    left: float | None
    right: float | None
    difference: float | None
    low: float | None
    high: float | None
    q: float | None
    sure: bool | None
    """Whether the difference is no chance and above what rounding makes; null if that is not tested."""
    n: int


class Pair(BaseModel):
    """Two heads, within prompts: right less left."""

    rows: list[PairRow]
    facts: list[str]
