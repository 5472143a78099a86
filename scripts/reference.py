"""Writes the reference pages that are made from the code; a test says when they are stale."""

from __future__ import annotations

import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from attnscope.cli.main import app
from attnscope.edits.sources import sources
from attnscope.figures.kind import kinds
from attnscope.measures import MEASURES
from attnscope.runs.columns import EXPORTS, TABLES
from attnscope.study import schema
from attnscope.study.file import bundled_studies, read_study
from attnscope.text.sets import prompt_sets

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
SECTIONS = {
    "models": schema.ModelSpec,
    "prompts": schema.PromptsSpec,
    "prompts.answer": schema.AnswerSpec,
    "conditions": schema.ConditionSpec,
    "classes": schema.ClassSpec,
    "measure": schema.MeasureSpec,
    "figures": schema.FigureSpec,
    "figures.panels": schema.PanelSpec,
}


def pages() -> dict[Path, str]:
    """Every generated page, by its path."""
    made = {"cli.md": _cli(), "study-file.md": _study_file(), "run.md": _run(), "figures.md": _figures()}
    found = {DOCS / name: "\n".join(lines) + "\n" for name, lines in made.items()}
    declared = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema.Study.model_json_schema()}
    found[ROOT / "src/attnscope/study/study.schema.json"] = json.dumps(declared, indent=1) + "\n"
    return found


def _cli() -> Iterator[str]:
    yield "# Command line"
    yield ""
    yield "Made from the commands themselves by `make docs`. Exit codes: 0 done, 2 something to mend (told in one line"
    yield "on standard error), 130 stopped with Ctrl-C."
    group = typer.main.get_command(app)
    context = typer.Context(group, info_name="attnscope")
    for name in group.list_commands(context):  # type: ignore[attr-defined]
        command = group.get_command(context, name)  # type: ignore[attr-defined]
        yield f"\n## attnscope {name}\n"
        yield (command.help or "").strip()
        yield "\n| option | meaning | default |\n|---|---|---|"
        for parameter in command.params:
            if parameter.name != "help":
                yield _row(parameter)


def _row(parameter: object) -> str:
    names = getattr(parameter, "opts", [])
    is_argument = getattr(parameter, "param_type_name", "") == "argument"
    shown = f"`{str(getattr(parameter, 'name', '')).upper()}`" if is_argument else f"`{', '.join(names)}`"
    default = getattr(parameter, "default", None)
    told = "" if default in (None, False, (), [], "") or callable(default) else f"`{default}`"
    return f"| {shown} | {getattr(parameter, 'help', '') or ''} | {told} |".replace("|  |", "| |")


def _study_file() -> Iterator[str]:
    yield "# The study file"
    yield ""
    yield "Made from the code by `make docs`. `attnscope new FILE` writes a commented one to start from; the schema"
    yield "for editors is `src/attnscope/study/study.schema.json`. Put texts with `:`, `#` or `*` in quotes."
    yield "\n## Top level\n"
    yield from _keys(schema.Study)
    for name, part in SECTIONS.items():
        yield f"\n## {name}\n"
        yield (part.__doc__ or "").strip().split("\n")[0]
        yield ""
        yield from _keys(part)
        if name == "measure":
            yield "\n### Measures\n"
            yield "| name | meaning | one number per | unit |\n|---|---|---|---|"
            for each in MEASURES.members.values():
                yield f"| `{each.name}` | {each.meaning} | {'key' if each.axes else 'head'} | {each.unit} |"
        if name == "conditions":
            yield "\n### What can be inserted\n"
            yield "| `insert:` | meaning |\n|---|---|"
            for key, source in sources().items():
                told = "; ".join(f"`{field}`: {info.description}" for field, info in source.model_fields.items())
                yield f"| `{{{key}: ...}}` | {(source.__doc__ or '').strip()} {told} |"
    yield "\n## Layers\n"
    yield "`all`, numbers from 0, or relative depths: " + (schema.DepthsSpec.model_fields["depths"].description or "")
    yield "\n## Bundled sets of prompts\n"
    for each in prompt_sets().values():
        fields = ", ".join(f"`{field}`" for field in each.layouts.fields)
        yield f"- `{each.name}`: {each.about}. Segments: {fields}."
    yield "\n## Bundled studies\n"
    for name, path in bundled_studies().items():
        yield f"- `{name}`: {read_study(path).question}"


def _keys(part: type[BaseModel]) -> Iterator[str]:
    yield "| key | takes | default | meaning |\n|---|---|---|---|"
    for name, info in part.model_fields.items():
        default = "required" if info.is_required() else _default(info.default)
        yield f"| `{name}` | {_words(info.annotation)} | {default} | {info.description or ''} |"


def _default(value: Any) -> str:
    if value is None or value is PydanticUndefined:
        return ""
    if isinstance(value, list) and value and isinstance(value[0], BaseModel):
        return "the base prompt alone"
    return f"`{json.dumps(value)}`"


def _words(annotation: Any) -> str:
    """A type in a reader's words."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        kept = [_words(each) for each in inner if each is not type(None)]
        return " or ".join(dict.fromkeys(kept))
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in inner)
    if origin is list:
        return f"list of {_words(inner[0])}"
    if origin is dict:
        return f"mapping of {_words(inner[0])} to {_words(inner[1])}"
    if hasattr(annotation, "__metadata__"):
        return "one source" if "Discriminator" in str(annotation) else _words(inner[0])
    named = {str: "text", int: "number", float: "number", bool: "true or false", Any: "anything"}
    if annotation in named:
        return named[annotation]
    return "mapping" if isinstance(annotation, type) and issubclass(annotation, BaseModel) else str(annotation)


RUN = """\
# What a run holds

Made from the code by `make docs`. Column names are a contract; more may join. Rows are in the study's order, and the
same study on the same machine gives the same bytes.

- `manifest.json`: the study, versions, hashes of model files, evidence, prompts dropped, timings, status, and the
  SHA-256 of every table and every shard in use; it carries its own
- `study.yaml`: the study file as it was written
- `shards/SHA256.safetensors`: what was measured, one file per batch, named by the SHA-256 of its bytes
- `prompts`, `tokens`, `mass` and `heads`, as Parquet: the tables below, made from the shards
- `exports/{received,views}.parquet`: the large arrays, if you asked for them with `attnscope export`
- `figures/NAME.{svg,png,pdf,vl.json,csv,md}`: the picture, its description, its numbers, its reading
- `comparisons/{heads,classes}.csv`, `comparisons.md`: what differs between conditions and models
- `evidence.md`: what shows that the numbers can be believed
- `report.html`: everything on one page
- `cached/`: results that take long, for the explorer to find; can be removed

A manifest, study file, table or shard that was changed, cut or replaced after it was written is noticed and named
before a number of it is shown; a cached result is computed again. The same `attnscope run` repairs the run: tables
are written again from the shards, and what a lost shard held is measured again. To read tables that you changed
yourself, use `Run(path, verify=False)`: they are read by key, so the order of rows means nothing. While a run is
measured, its tables are written now and then with what is there so far. Runs of earlier formats are refused with the
command that measures them again.

## Shards

An array is named CELL/NAME, where CELL is the column `cell` of the table `prompts`. `received` has the axes layer,
head, queries and key, and so has any other measure with one number per key; a measure with one number per head has no
key axis. `view` gives every layer the number of its view. `seen` (the share of queries that see a key),
`NAME.uniform` (the measure's value for uniform attention) and `NAME.defined` (the share of queries that have a value)
have views in place of layers, and one head if all heads are alike. The metadata entry `attnscope` holds the names of
the axes and the labels of layers, heads and query groups, as JSON."""


def _run() -> Iterator[str]:
    yield RUN
    for name, columns in (TABLES | EXPORTS).items():
        yield f"\n## {f'exports/{name}' if name in EXPORTS else name}.parquet\n"
        yield "| column | type | meaning |\n|---|---|---|"
        for column in columns:
            kind = str(column.type).replace("dictionary<values=string, indices=int32, ordered=0>", "string")
            yield f"| `{column.name}` | {kind} | {column.meaning} |"


def _figures() -> Iterator[str]:
    yield "# Figures"
    yield ""
    yield "Made from the code by `make docs`. Each kind is drawn from a table; `attnscope figure KIND TABLE -o FILE`"
    yield "draws any table that has the columns."
    for kind in kinds().values():
        yield f"\n## {kind.name}: {kind.about}\n"
        yield "| column | meaning | |\n|---|---|---|"
        for field in kind.fields:
            yield f"| `{field.name}` | {field.meaning} | {'optional' if field.optional else 'needed'} |"


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")  # noqa: T201
