"""The explorer's responses, as data: no more than a page shows."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


class Problem(BaseModel):
    """What went wrong, in the four parts of an error."""

    what: str
    where: str
    allowed: str
    todo: str


class RunEntry(BaseModel):
    """A run in the list of runs."""

    name: str
    title: str
    question: str | None = None
    status: str
    problem: Problem | None = None


class RunList(BaseModel):
    """The runs that are served."""

    runs: list[RunEntry]
    live: str | None
    """The model that measures prompts typed in the browser; None if there is none."""
    version: str


class ModelFacts(BaseModel):
    label: str
    about: str
    layers: list[int]
    heads: list[int]
    conditions: list[str]
    """Conditions under which it has prompts."""


class Choice(BaseModel):
    """Something that can be chosen: its name, its label and its colour."""

    name: str
    label: str
    colour: str | None = None


class ConditionFacts(Choice):
    inserts: bool
    without: list[str]
    """Classes without a token under this condition."""


class MeasureFacts(Choice):
    queries: list[str]
    """Query groups that have it."""
    enrichment: bool
    """Whether it can be shown relative to uniform attention."""


class StudyFigure(BaseModel):
    """A figure of the study."""

    name: str
    kind: str
    title: str
    spec: dict[str, Any]
    """Its lines in the study file."""


class DroppedPrompt(BaseModel):
    model: str
    condition: str
    prompt: int
    reason: str


class RunFacts(BaseModel):
    """Everything that can be chosen in a run."""

    name: str
    title: str
    question: str | None
    answer: list[str]
    """Of the report, in sentences."""
    status: str
    planned: str
    """How many models and conditions the study has, measured or not."""
    summary: str
    prompts: int
    first_prompt: int
    models: list[ModelFacts]
    conditions: list[ConditionFacts]
    queries: list[Choice]
    classes: list[Choice]
    measures: list[MeasureFacts]
    figures: list[StudyFigure]
    empty: list[str]
    """Classes without a token that the queries see."""
    dropped: list[DroppedPrompt]
    more_dropped: int
    command: str | None


class Words(BaseModel):
    text: str
    strong: bool


class SectionTable(BaseModel):
    """Of the prose about a figure."""

    columns: list[str]
    rows: list[list[str]]
    faint: list[bool]


class Section(BaseModel):
    heading: str
    items: list[list[Words]]
    tables: list[SectionTable] = []


class Figure(BaseModel):
    """A chart with its title, caption and reading."""

    title: str
    caption: str
    reading: list[Section]
    chart: dict[str, Any]
    study: str
    """The lines of a study file that draw it."""
    top: list[dict[str, Any]]
    """Of a map: the heads with the largest values."""
    upper: float | None
    """Of bars and lines: the upper end of the scale, to draw two charts on the same one."""


class ComparisonTable(BaseModel):
    title: str
    columns: list[str]
    rows: list[list[str]]
    grayed: list[bool]


class ComparisonTables(BaseModel):
    """One comparison."""

    name: str
    facts: list[str]
    tables: list[ComparisonTable]


class Rank(BaseModel):
    """A head among all heads of its model."""

    what: str
    value: float | None
    rank: int | None
    of: int
    low: float | None = None
    high: float | None = None
    q: float | None = None
    significant: bool | None = None


class HeadFacts(BaseModel):
    model: str
    layer: int
    head: int
    kinds: list[dict[str, Any]]
    """Per condition: its kind, and every known score."""
    ranks: list[Rank]
    """Ranked by mass on each class, under each condition."""
    changes: list[Rank]
    """Ranked by the difference between conditions or models, class by class."""


class PromptEntry(BaseModel):
    """A prompt in a list of prompts."""

    number: int
    name: str
    excerpt: str
    tokens: int


class PromptMatches(BaseModel):
    prompts: list[PromptEntry]
    total: int
    """How many match; the list may be shorter."""


class TokenFacts(BaseModel):
    position: int
    text: str
    length: int
    """Characters of its text, of which `text` may be only the beginning."""
    attention: float | None
    segment: str
    base: int | None
    """Its position in the base prompt."""
    shared: str | None
    """A key that is equal for the same token under another condition or in another model."""
    classes: list[str]


class PromptText(BaseModel):
    """A prompt as a model sees it, with the attention that its tokens receive."""

    number: int
    name: str
    model: str
    condition: str
    caption: str
    tokens: list[TokenFacts]
    first: int
    count: int
    """How many tokens it has; `tokens` may be a part of them."""
    highest: float
    """The highest attention of all tokens."""
    top: float
    """The second highest attention of all tokens, where the scale of shades ends."""
    segments: list[str]
    reading: list[str]
    previous: int | None
    """The numbers of the previous prompt and of the next."""
    next: int | None


class PairRow(BaseModel):
    token_class: str
    left: float | None
    right: float | None
    difference: float | None
    low: float | None
    high: float | None
    q: float | None
    significant: bool | None
    """Whether the difference is significant and larger than rounding; null if it is not tested."""
    n: int


class Pair(BaseModel):
    """Two heads, within prompts: right minus left."""

    rows: list[PairRow]
    facts: list[str]
