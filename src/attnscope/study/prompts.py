"""Prompts: from the study's own items, a file, or a bundled set -> named fields, in order."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from attnscope.errors import AttnscopeError, near
from attnscope.study.consistency import RESERVED, layouts_of
from attnscope.study.schema import PromptsSpec, Study
from attnscope.text.layout import Layout, Layouts
from attnscope.text.sets import PROMPT_SETS

GENERATED = 40  # prompts of a generated set when no count is given


@dataclass(frozen=True)
class Prompt:
    """One item. number: its place, from 0; name: what the user calls it."""

    number: int
    name: str
    fields: Mapping[str, str]


@dataclass(frozen=True)
class PromptList:
    """Every prompt of a study and how they are laid out."""

    prompts: tuple[Prompt, ...]
    layouts: Layouts
    origin: str
    """What they were made from, in words."""


def read_prompts(study: Study, folder: Path) -> PromptList:
    """folder: where the study file is; a prompts' file is looked for from there."""
    part = study.prompts
    layouts = layouts_of(part)
    if part.set is not None:
        chosen = PROMPT_SETS.find(part.set, f"prompts.set: {part.set}")
        rows = chosen.make(part.count or GENERATED, study.seed if part.seed is None else part.seed, part.options)
        layouts = layouts or chosen.layouts
        told = f"set {part.set}"
    elif part.file is not None:
        rows, told = _from_file(folder / part.file, part.file), f"file {part.file}"
    else:
        rows, told = list(part.items or ()), "the study's own items"
    rows = rows[: part.count]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    if layouts is None:
        layouts = _default_layouts(part, columns)
    made = tuple(_prompt(number, row, part, layouts) for number, row in enumerate(rows))
    for name, count in Counter(prompt.name for prompt in made).items():
        if count > 1:
            raise _wrong(f"{count} prompts are named '{name}'", f"prompts.id: {part.id}", "a name of its own for each")
    return PromptList(made, layouts, f"{told}, {len(rows)}")


def _default_layouts(part: PromptsSpec, columns: Sequence[str]) -> Layouts:
    """All segments the study names, or all columns but the prompt's name and the answer, in order."""
    skipped = {part.id, part.answer.field if part.answer else None}
    fields = list(part.fields) or [column for column in columns if column not in skipped]
    line = "\n\n".join(f"{{{field}}}" for field in fields)
    return Layouts(chat=Layout((("user", line),)), plain=Layout(((None, line),)))


def _prompt(number: int, row: Mapping[str, Any], part: PromptsSpec, layouts: Layouts) -> Prompt:
    columns = {field: field for field in row} | dict(part.fields)
    wanted = [*layouts.fields, *([part.answer.field] if part.answer and part.answer.field else [])]
    fields = {}
    for field in wanted:
        column = columns.get(field, field)
        if column not in row:
            raise _wrong(f"prompt {number} has no '{column}'", f"prompts, field {field}", near(column, row))
        value = row[column]
        if not isinstance(value, str | int | float) or isinstance(value, bool):
            raise _wrong(f"'{column}' of prompt {number} is not text", f"prompts, field {field}", "text or a number")
        fields[field] = str(value)
        try:
            fields[field].encode()
        except UnicodeEncodeError as error:
            what = f"'{column}' of prompt {number} holds half a character: {error.reason}"
            raise _wrong(what, f"prompts, field {field}", "text that UTF-8 can write") from None
        if field in RESERVED and field in layouts.fields:
            raise _wrong(f"'{field}' can't be a segment's name", "prompts", f"any name but {', '.join(RESERVED)}")
    if part.id is not None and part.id not in row:
        raise _wrong(f"prompt {number} has no '{part.id}'", "prompts.id", near(part.id, row))
    return Prompt(number, str(row[part.id]) if part.id else str(number), fields)


def _from_file(path: Path, told: str) -> list[dict[str, Any]]:
    readers: dict[str, Callable[[Path], list[dict[str, Any]]]]
    readers = {".jsonl": _jsonl, ".csv": _csv, ".parquet": lambda path: pl.read_parquet(path).to_dicts()}
    if path.suffix.lower() not in readers:
        raise _wrong(f"can't read prompts from a '{path.suffix}' file", f"prompts.file: {told}", ", ".join(readers))
    if not path.is_file():
        raise _wrong("there is no such file of prompts", f"prompts.file: {told}", "a path from the study file's folder")
    try:
        rows = readers[path.suffix.lower()](path)
    except pl.exceptions.ComputeError as error:
        if "more fields" not in str(error):
            raise _wrong(
                f"can't read the prompts: {error}", f"prompts.file: {told}", f"a {path.suffix} file"
            ) from error
        what = "a row has more fields than the first line has names"
        raise _wrong(what, f"prompts.file: {told}", "texts with commas in double quotes") from None
    except (pl.exceptions.PolarsError, UnicodeDecodeError, OSError) as error:
        raise _wrong(f"can't read the prompts: {error}", f"prompts.file: {told}", f"a {path.suffix} file") from error
    if not rows:
        raise _wrong("there are no prompts in the file", f"prompts.file: {told}", "at least one row")
    return rows


def _jsonl(path: Path) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise _wrong(
                f"line {number} is not JSON: {error.msg}", f"{path.name}, line {number}", "one object a line"
            ) from None
        if not isinstance(row, dict):
            raise _wrong(f"line {number} is not an object", f"{path.name}, line {number}", "one object a line")
        rows.append(row)
    return rows


def _csv(path: Path) -> list[dict[str, Any]]:
    return pl.read_csv(path, infer_schema=False).fill_null("").to_dicts()


def _wrong(what: str, where: str, allowed: str) -> AttnscopeError:
    return AttnscopeError(what, where=where, allowed=allowed, todo="fix the study file or the prompts")
