"""Prompts: from the study's own items, a file or a prompt set -> named fields, in order."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Any

import polars as pl

from attnscope.errors import AttnscopeError, near
from attnscope.study.consistency import RESERVED, Contents, Problem, layouts_of
from attnscope.study.independence import cluster_field
from attnscope.study.schema import PromptsSpec, Study
from attnscope.text.copies import same_prompt
from attnscope.text.layout import Layout, Layouts
from attnscope.text.segments import TEMPLATE, Span
from attnscope.text.sets import PROMPT_SETS
from attnscope.text.values import VALUES, Chat, Fields, Items, Value, is_whole, read_value, text_of


class PromptsError(AttnscopeError):
    """Prompts that a study file asks for and can't have."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        where = ".".join(map(str, problem.at))
        super().__init__(problem.what, where=where, allowed=problem.allowed, todo=problem.todo)


@dataclass(frozen=True)
class Prompt:
    """One prompt. number: its index, from 0; name: what the user calls it."""

    number: int
    name: str
    fields: Fields
    cluster: str
    """Prompts of one cluster are not independent; without clusters, each has its own, shared by identical prompts."""
    answer: str | None = None
    """What follows the prompt, if it is given."""
    beside: Mapping[str, str] = dataclass_field(default_factory=dict)
    """Its other texts, which the layout has no place for but edits can use."""
    lists: Mapping[str, tuple[str, ...]] = dataclass_field(default_factory=dict)
    """Its other lists, such as the choices of an outcome."""

    @property
    def texts(self) -> dict[str, str]:
        """Every field as one text."""
        return {name: text_of(value) for name, value in self.fields.items()}


@dataclass(frozen=True)
class PromptList:
    """The prompts of a study and how they are laid out."""

    prompts: tuple[Prompt, ...]
    """Those that are measured."""
    layouts: Layouts
    origin: str
    """Where they come from, in words."""
    every: tuple[Prompt, ...]
    """All prompts of the study, which edits draw from: a prompt's text doesn't depend on how many are measured."""

    def first(self, count: int) -> PromptList:
        """The same, with only the first `count` prompts measured."""
        return replace(self, prompts=self.prompts[:count])

    @property
    def contents(self) -> Contents:
        """What the prompts have."""
        laid_out = [
            (prompt, [piece for _, line in layout.pieces(prompt.fields) for piece in line])
            for prompt in self.prompts
            for layout in self.layouts.every
        ]
        every = [piece for _, pieces in laid_out for piece in pieces]
        names = dict.fromkeys((piece.segment, piece.role) for piece in every if piece.segment != TEMPLATE)
        fields = (name for prompt in self.prompts for name, text in {**prompt.beside, **prompt.texts}.items() if text)
        return Contents(
            parts=[Span(segment, 0, 0, role) for segment, role in names],
            fields=list(dict.fromkeys(fields)),
            texts=["".join(piece.text for piece in pieces) + (prompt.answer or "") for prompt, pieces in laid_out],
        )


def read_prompts(study: Study, folder: Path) -> PromptList:
    """The prompts of a study. folder: of the study file; a file of prompts is relative to it."""
    spec = study.prompts
    if spec.set is not None:
        seed = study.seed if spec.seed is None else spec.seed
        count = spec.count or PROMPT_SETS.find(spec.set, f"prompts.set: {spec.set}").default
        rows, origin = rows_of_set(spec.set, count, seed, spec.options), f"set {spec.set}"
    elif spec.file is not None:
        rows, origin = rows_of_file(folder / spec.file, spec.file), f"file {spec.file}"
    else:
        rows, origin = list(spec.items or ()), "the study's own items"
    rows = rows[: spec.count]
    _refuse_fields_of_nothing(spec, rows)
    layouts = layouts_of_rows(spec, rows)
    prompts = _clustered(
        [read_prompt(number, row, spec, layouts) for number, row in enumerate(rows)], rows, cluster_field(spec)
    )
    for name, count in Counter(prompt.name for prompt in prompts).items():
        if count > 1:
            raise _wrong(f"{count} prompts are named '{name}'", ("id",), "a different name for each prompt")
    return PromptList(prompts, layouts, f"{origin}, {len(rows)}", every=prompts)


def _refuse_fields_of_nothing(spec: PromptsSpec, rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse a field whose column no prompt has: its name or its column is misspelt."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    for name, source in spec.fields.items():
        if source.text is None and (source.column or name) not in columns:
            raise _wrong(
                f"no prompt has '{source.column or name}'", ("fields", name), near(source.column or name, columns)
            )


def rows_of_set(name: str, count: int, seed: int, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    chosen = PROMPT_SETS.find(name, f"prompts.set: {name}")
    with PROMPT_SETS.blamed(name, "make"):
        return [dict(row) for row in chosen.make(count, seed, options)]


def layouts_of_rows(spec: PromptsSpec, rows: Sequence[Mapping[str, Any]]) -> Layouts:
    """How a study lays out its prompts: as it says, as its set says, or one field after the other."""
    given = layouts_of(spec) or (PROMPT_SETS.members[spec.set].layouts if spec.set is not None else None)
    return given or _default_layouts(spec, list(dict.fromkeys(key for row in rows for key in row)))


def _default_layouts(spec: PromptsSpec, columns: Sequence[str]) -> Layouts:
    """All segments the study names, or all columns except the prompt's name and the answer, in order."""
    skipped = {spec.id, spec.answer.field if spec.answer else None, cluster_field(spec)}
    fields = list(spec.fields) or [column for column in columns if column not in skipped]
    line = "\n\n".join(f"{{{field}}}" for field in fields)
    return Layouts(chat=Layout((("user", line),)), plain=Layout(((None, line),)))


def read_prompt(number: int, row: Mapping[str, Any], spec: PromptsSpec, layouts: Layouts) -> Prompt:
    fields: dict[str, Value] = {}
    for field in layouts.fields:
        fields[field] = _value(number, field, row, spec, _naming(field, spec, layouts))
        if field in RESERVED:
            raise _wrong(
                f"'{field}' can't be a segment's name", ("fields", field), f"any name but {', '.join(RESERVED)}"
            )
    answer = None
    if spec.answer is not None and spec.answer.field is not None:
        answer = _answer(number, spec.answer.field, fields, row, spec)
    if spec.id is not None and spec.id not in row:
        raise _wrong(f"prompt {number} has no '{spec.id}'", ("id",), near(spec.id, row))
    name = str(row[spec.id]) if spec.id else str(number)
    if not _is_whole(name):
        raise _wrong(
            f"the name of prompt {number} contains an incomplete character", ("id",), "text that UTF-8 can encode"
        )
    beside = _beside(fields, row, spec)
    texts = {key: value for key, value in beside.items() if isinstance(value, str)}
    lists = {key: tuple(item.text for item in value.items) for key, value in beside.items() if isinstance(value, Items)}
    return Prompt(number, name, fields, name, answer, texts, lists)


def _value(number: int, field: str, row: Mapping[str, Any], spec: PromptsSpec, at: tuple[str, ...]) -> Value:
    """A field of a prompt: of its row, or the same for all prompts."""
    source = spec.source_of(field)
    if source.text is not None:
        return source.text
    column = source.column or field
    if column not in row:
        raise _wrong(f"prompt {number} has no '{column}'", at, near(column, [*row, *spec.fields]))
    value = read_value(row[column], source.separator)
    if row[column] == []:
        raise _wrong(f"the list '{column}' of prompt {number} is empty", ("fields", field), "at least one item")
    if value is None:
        raise _wrong(f"'{column}' of prompt {number} is not text", ("fields", field), VALUES)
    roles = [item.role for item in value.items if item.role] if isinstance(value, Items) else []
    if not all(map(_is_whole, [text_of(value), *roles])):
        what = f"'{column}' of prompt {number} contains an incomplete character"
        raise _wrong(what, ("fields", field), "text that UTF-8 can encode")
    return value


def _beside(fields: Fields, row: Mapping[str, Any], spec: PromptsSpec) -> dict[str, str | Items]:
    """The texts and lists of a row, and the texts that all prompts share, that no layout has a place for."""
    sources = {name: spec.source_of(name) for name in [*spec.fields, *row] if name not in fields}
    values = {name: source.text or read_value(row.get(source.column or name)) for name, source in sources.items()}
    usable = {name: value for name, value in values.items() if isinstance(value, str | Items) and is_whole(value)}
    return {name: value for name, value in usable.items() if _is_whole(text_of(value))}


def _is_whole(text: str) -> bool:
    """Whether it has no incomplete character."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _answer(number: int, field: str, fields: dict[str, Value], row: Mapping[str, Any], spec: PromptsSpec) -> str:
    """The given answer: a field, or the last message of a chat, which then is no part of the prompt."""
    value = fields.get(field) or _value(number, field, row, spec, ("answer", "field"))
    if isinstance(value, Chat):
        split = value.without_answer()
        if value.problem is not None:  # the prompt is left out
            return ""
        if split is None:
            what = f"the chat of prompt {number} does not end with an answer"
            raise _wrong(what, ("answer", "field"), "chats whose last message is the assistant's")
        fields[field], answer = split
        return answer
    return text_of(value)


def _naming(field: str, spec: PromptsSpec, layouts: Layouts) -> tuple[str, ...]:
    """The key that names a field."""
    if field in spec.fields:
        return ("fields", field)
    for layout in layouts.every:
        if field in layout.fields:
            return (layout.key,)
    return (layouts.every[0].key,)


def _clustered(prompts: Sequence[Prompt], rows: Sequence[Mapping[str, Any]], cluster: str | None) -> tuple[Prompt, ...]:
    """The prompts with their clusters: those of a field, or one for each prompt. Copies of a prompt share one."""
    names = [each.name for each in prompts]
    if cluster is not None:
        for prompt, row in zip(prompts, rows, strict=True):
            if not _names_a_cluster(row.get(cluster)):
                raise _wrong(f"prompt {prompt.number} has no '{cluster}'", ("cluster",), near(cluster, row))
        names = [_cluster_name(row[cluster]) for row in rows]
    same: dict[str, str] = {}  # by name of a cluster, another that has a copy of one of its prompts
    firsts: dict[tuple[str, ...], str] = {}
    for prompt, name in zip(prompts, names, strict=True):
        first = _last(same, firsts.setdefault(tuple(map(same_prompt, prompt.texts.values())), name))
        if first != _last(same, name):
            same[_last(same, name)] = first
    return tuple(replace(each, cluster=_last(same, name)) for each, name in zip(prompts, names, strict=True))


def _last(links: Mapping[str, str], name: str) -> str:
    while name in links:
        name = links[name]
    return name


def _names_a_cluster(value: object) -> bool:
    """Texts and numbers do."""
    if isinstance(value, str):
        return bool(value.strip())
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _cluster_name(value: Any) -> str:
    """1 and 1.0 are the same."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def rows_of_file(path: Path, name: str) -> list[dict[str, Any]]:
    readers: dict[str, Callable[[Path], list[dict[str, Any]]]]
    readers = {".jsonl": _jsonl, ".csv": _csv, ".parquet": lambda path: pl.read_parquet(path).to_dicts()}
    if path.suffix.lower() not in readers:
        raise _wrong(f"can't read prompts from a '{path.suffix}' file", ("file",), ", ".join(readers))
    if not path.is_file():
        raise _wrong(f"there is no file of prompts '{name}'", ("file",), "a path relative to the study file")
    try:
        rows = readers[path.suffix.lower()](path)
    except pl.exceptions.ComputeError as error:
        if "more fields" not in str(error):
            raise _wrong(f"can't read the prompts: {error}", ("file",), f"a {path.suffix} file") from error
        what = "a row has more fields than the header"
        raise _wrong(what, ("file",), "text with commas in double quotes") from None
    except (pl.exceptions.PolarsError, UnicodeDecodeError, OSError) as error:
        raise _wrong(f"can't read the prompts: {error}", ("file",), f"a {path.suffix} file") from error
    if not rows:
        raise _wrong("there are no prompts in the file", ("file",), "at least one row")
    return rows


def _jsonl(path: Path) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:  # no JSON, a number of thousands of digits, or too many brackets
            what = error.msg if isinstance(error, json.JSONDecodeError) else str(error).partition(";")[0]
            raise _bad_line(path, number, f"line {number} is not JSON that can be read: {what}") from None
        if not isinstance(row, dict):
            raise _bad_line(path, number, f"line {number} is not an object")
        rows.append(row)
    return rows


def _bad_line(path: Path, number: int, what: str) -> AttnscopeError:
    where = f"{path.name}, line {number}"
    return AttnscopeError(what, where=where, allowed="one JSON object per line", todo="fix the line")


def _csv(path: Path) -> list[dict[str, Any]]:
    return pl.read_csv(path, infer_schema=False).fill_null("").to_dicts()


def _wrong(what: str, at: tuple[str, ...], allowed: str) -> PromptsError:
    return PromptsError(Problem(("prompts", *at), what, allowed, "fix the study file or the prompts"))
