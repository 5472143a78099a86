"""Writes the reference pages that are generated from the code; a test fails when they are stale."""

from __future__ import annotations

import inspect
import json
import re
import runpy
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from attnscope.cli.main import app
from attnscope.edits.attention import ATTENTION_EDITS
from attnscope.edits.prompt import PROMPT_EDITS, PromptEdit
from attnscope.edits.sources import SOURCES, Source
from attnscope.figures import KINDS
from attnscope.figures.kinds.lines import AlignSpec, PanelSpec
from attnscope.figures.validation import study_schema
from attnscope.measures import KEY, MEASURES, Measure, TokenIds
from attnscope.measures.names import map_measures
from attnscope.quantities import QUANTITIES, Quantity
from attnscope.registry import built_in_only
from attnscope.report import effects
from attnscope.report.comparisons import CLASSES, HEADS, MULTIVERSE
from attnscope.runs.columns import EXPORTS, OF_INTERVENTIONS, TABLES
from attnscope.study import schema
from attnscope.study.file import bundled_studies, read_study
from attnscope.study.interventions import ChangeSpec, InterventionSpec, OutcomeSpec, SweepSpec, TopSpec
from attnscope.text.groups import GROUPS
from attnscope.text.query_rules import QUERY_RULES, QueryRule
from attnscope.text.rules import rules_by_key
from attnscope.text.sets import PROMPT_SETS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PLUGIN = ROOT / "tests/plugin/attnscope_dummy"
FAMILIES = (  # what is added, its entry points, the dummy plugin's module, where the built-in ones are
    ("class rule", "attnscope.class_rules", "token_id.py", "text/rules/"),
    ("prompt edit", "attnscope.prompt_edits", "drop.py", "edits/prompt/"),
    ("source of text to insert", "attnscope.sources", "countdown.py", "edits/sources/"),
    ("attention edit", "attnscope.attention_edits", "sharpen.py", "edits/attention/"),
    ("query group", "attnscope.query_groups", "newest.py", "text/groups/"),
    ("query rule", "attnscope.query_rules", "sentences.py", "text/query_rules/"),
    ("quantity", "attnscope.quantities", "times.py", "quantities/"),
    ("set of prompts", "attnscope.prompt_sets", "sums.py", "text/sets/"),
    ("measure", "attnscope.measures", "reach.py", "measures/"),
    ("kind of figure", "attnscope.figures", "lengths.py", "figures/kinds/"),
    ("backend", "attnscope.backends", "careful.py", "attention/backends/"),
    ("engine", "attnscope.engines", "backwards.py", "runs/engines/"),
)
SECTIONS = {
    "models": schema.ModelSpec,
    "models, checkpoints": schema.CheckpointsSpec,
    "prompts": schema.PromptsSpec,
    "prompts.answer": schema.AnswerSpec,
    "prompts.answer.sample": schema.Sample,
    "conditions": schema.ConditionSpec,
    "classes": schema.ClassSpec,
    "measure": schema.MeasureSpec,
    "interventions": InterventionSpec,
    "outcome": OutcomeSpec,
    "figures": schema.FigureSpec,
}


DERIVED: dict[type[BaseModel], tuple[str, ...]] = {
    InterventionSpec: ("like", "restated", "draw", "redraws"),
    SweepSpec: ("change",),
}
"""Keys that study files write in other words."""


def pages() -> dict[Path, str]:
    """Every generated page, by path; without plugins, whichever are installed."""
    with built_in_only():
        return _pages()


def _pages() -> dict[Path, str]:
    api = runpy.run_path(str(ROOT / "scripts/api_page.py"))["page"]
    generated = {
        "cli.md": _cli(),
        "study-file.md": _study_file(),
        "run.md": _run(),
        "figures.md": _figures(),
        "api.md": api(),
    }
    texts = {DOCS / name: "\n".join(lines) + "\n" for name, lines in generated.items()}
    for name, table in (("extending.md", _families()), ("measures.md", _measures_table())):
        texts[DOCS / name] = _brought_up_to_date((DOCS / name).read_text(encoding="utf-8"), table)
    texts[ROOT / "src/attnscope/study/study.schema.json"] = json.dumps(study_schema(), indent=1) + "\n"
    return texts


def _cli() -> Iterator[str]:
    yield "# Command line"
    yield ""
    yield "Generated from the commands by `make docs`. Exit codes: 0 done, 2 something to fix (one line"
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
    default_words = "" if default in (None, False, (), [], "") or callable(default) else f"`{default}`"
    return f"| {shown} | {getattr(parameter, 'help', '') or ''} | {default_words} |".replace("|  |", "| |")


def _study_file() -> Iterator[str]:
    yield "# The study file"
    yield ""
    yield "Generated from the code by `make docs`. `attnscope new FILE` writes a commented one to start from; the"
    yield "schema for editors is `src/attnscope/study/study.schema.json`. Quote text that contains `:`, `#` or `*`."
    yield "\n## Top level\n"
    yield from _keys(schema.Study)
    for name, part in SECTIONS.items():
        yield f"\n## {name}\n"
        yield (part.__doc__ or "").strip().split("\n")[0]
        yield ""
        yield from _keys(part)
        yield from MORE.get(name, lambda: iter(()))()
    yield from _quantities()
    yield "\n## Layers\n"
    yield "`all`, numbers from 0, or relative depths: " + (schema.DepthsSpec.model_fields["depths"].description or "")
    yield "\n## Bundled sets of prompts\n"
    for each in PROMPT_SETS.members.values():
        fields = ", ".join(f"`{field}`" for field in each.layouts.fields)
        yield f"- `{each.name}`: {each.about}. Segments: {fields}."
    yield "\n## Bundled studies\n"
    for name, path in bundled_studies().items():
        yield f"- `{name}`: {read_study(path).question}"


def _measures() -> Iterator[str]:
    yield "\n### Measures\n"
    yield "| name | meaning | one number per | unit |\n|---|---|---|---|"
    for each in MEASURES.members.values():
        yield f"| `{each.name}` | {each.meaning} | {'key' if each.axes else 'head'} | {each.unit} |"
    yield "\n### Query groups\n"
    yield "| group | meaning |\n|---|---|"
    for group in GROUPS.members.values():
        yield f"| `{group.name}` | {group.meaning} |"
    yield "| a segment's name | The tokens of that segment. |"
    yield "\n### Query rules\n"
    yield "Instead of a name, an entry of `queries` may be a mapping with the key of one rule. Rules that make a series"
    yield "number its groups from 1; a prompt that is too short lacks some of them, and is left out of those."
    for key, rule in QUERY_RULES.members.items():
        yield f"\n#### {key}\n"
        yield inspect.cleandoc(rule.__doc__ or "")
        yield ""
        yield from _keys(rule)
        for field, info in rule.model_fields.items():
            if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
                yield f"\nKeys of `{field}`:\n"
                yield from _keys(info.annotation)


def _quantities() -> Iterator[str]:
    yield "\n## quantities\n"
    yield "Each entry has a name of your own and the key of one kind; see [definitions](definitions.md#quantities)."
    for key, quantity in QUANTITIES.members.items():
        yield f"\n### {key}\n"
        yield inspect.cleandoc(quantity.__doc__ or "")
        yield f"\nUnit: {quantity.unit}.{f' After {quantity.source}.' if quantity.source else ''}\n"
        yield from _keys(quantity)


def _figure_options() -> Iterator[str]:
    yield "\nEach kind has options besides these; see [figures](figures.md)."


def _edits() -> Iterator[str]:
    for key, edit in PROMPT_EDITS.members.items():
        yield f"\n### {key}\n"
        yield (edit.__doc__ or "").strip()
        yield ""
        yield from _keys(edit)
    yield "\n### What can be inserted\n"
    yield "| `insert:` | meaning |\n|---|---|"
    for key, source in SOURCES.members.items():
        fields = "; ".join(f"`{field}`: {info.description}" for field, info in source.model_fields.items())
        yield f"| `{{{key}: ...}}` | {(source.__doc__ or '').strip()} {fields} |"


def _interventions() -> Iterator[str]:
    yield "\nAn intervention is written as `{name: ..., EDIT: {...}}`, with one or more of the edits below, as a sweep,"
    yield "`{name: ..., sweep: {EDIT: {...}, over: layers}}`, or as a control, `{name: ..., random: like NAME}`. A name"
    yield "alone is the model as it is. What they mean: [interventions](interventions.md#in-a-study)."
    for key, edit in ATTENTION_EDITS.members.items():
        yield f"\n#### {key}\n"
        yield inspect.cleandoc(edit.__doc__ or "")
        yield "\n| key | default | meaning |\n|---|---|---|"
        written = {field: word for word, field in edit.words.items()}
        for field, info in edit.model_fields.items():
            default = "required" if info.is_required() else _default(info.default)
            default = "`writing`" if field == "queries" and "from" in edit.words else default
            meaning = ChangeSpec.model_fields["layers"].description if field == "layers" else info.description
            yield f"| `{written.get(field, field)}` | {default} | {meaning or ''} |"
    yield "\nHeads may be chosen by what the model does without interventions: `heads: top 10 by NAME`, or a mapping:\n"
    yield from _keys(TopSpec)
    yield "\n`layers` then says among which layers. A control may also stand where keys or heads do, as in"
    yield "`keys: {random: like NAME}`.\n\n#### sweep\n"
    yield from _keys(SweepSpec)


def _rules() -> Iterator[str]:
    yield "\n### Class rules\n"
    yield "A class has one rule, written as text or as a mapping: `digits: re:[0-9]` is `digits: {regex: '[0-9]'}`."
    yield "Text without a prefix is a set of characters: `'#*'` is any `#` or `*`. A prefix is a word of two or more"
    yield "letters, digits, `_` or `-` right before a colon; an unknown prefix is refused. To use such text as"
    yield "characters, write `chars:` before it. `in:SEGMENT:` before characters or a pattern is `within`."
    yield ""
    yield "| text | key | meaning |\n|---|---|---|"
    for key, rule in rules_by_key().items():
        yield f"| `{rule.prefix}` | `{key}` | {rule.meaning} |"


MORE = {
    "figures": _figure_options,
    "measure": _measures,
    "conditions": _edits,
    "classes": _rules,
    "interventions": _interventions,
}
"""What follows the keys of a section."""


def _keys(part: type[BaseModel], but: type[BaseModel] | None = None) -> Iterator[str]:
    """A table of a mapping's keys. but: leave out the keys of this mapping."""
    yield "| key | takes | default | meaning |\n|---|---|---|---|"
    for name, info in part.model_fields.items():
        if (but is not None and name in but.model_fields) or name in DERIVED.get(part, ()):
            continue
        default = "required" if info.is_required() else _default(info.default)
        yield f"| `{name}` | {_words(info.annotation)} | {default} | {info.description or ''} |"


def _default(value: Any) -> str:
    if value is None or value is PydanticUndefined:
        return ""
    if isinstance(value, list) and value and isinstance(value[0], BaseModel):
        return "the base prompt alone"
    return f"`{json.dumps(value)}`"


def _words(annotation: Any) -> str:
    """A type, in plain words."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        alternatives = [_words(each) for each in inner if each is not type(None)]
        return " or ".join(dict.fromkeys(alternatives))
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in inner)
    if origin is list:
        return f"list of {_words(inner[0])}"
    if origin is dict:
        return f"mapping of {_words(inner[0])} to {_words(inner[1])}"
    if hasattr(annotation, "__metadata__"):
        return _words(inner[0])
    named = {str: "text", int: "number", float: "number", bool: "true or false", Any: "anything"}
    if annotation in named:
        return named[annotation]
    families = {Source: "one source", PromptEdit: "edit", QueryRule: "query rule", Quantity: "quantity"}
    if annotation in families:
        return families[annotation]
    return "mapping" if isinstance(annotation, type) and issubclass(annotation, BaseModel) else str(annotation)


RUN = """\
# What a run holds

Generated from the code by `make docs`. Column names are a contract; columns may be added. Rows are in the study's
order, and the same study on the same machine gives the same bytes.

- `manifest.json`: the study, versions, hashes of model files, evidence, prompts dropped, timings by phase, status, and
  the SHA-256 of every table, of every shard in use, and of itself
- `study.yaml`: a copy of the study file
- `shards/SHA256.safetensors`: what was measured, one file per batch, named by the SHA-256 of its bytes
- `prompts`, `tokens`, `mass` and `heads`, as Parquet: the tables below, derived from the shards; with interventions,
  also `outcomes`
- `exports/{received,views}.parquet`: the large arrays, if you export them with `attnscope export`
- `figures/NAME.{svg,png,pdf,vl.json,csv,md}`: the picture, its chart specification (Vega-Lite), its data, its reading
- `answer.json`: the answer to the study's question, in sentences
- `comparisons/comparisons.md`: what differs between conditions and models, how sure that is, and which heads carry it,
  on a page; `comparisons/{heads,classes,multiverse,effects}.csv`: every number
- `evidence.md`, `evidence.json`: the checks behind the numbers
- `report.html`: everything on one page
- `report.json`: what the report was made from (`run`, `tables`, `evidence`, `plugins`) and the SHA-256 of each of its
  files (`files`), so that `attnscope run` notices what is out of date or was changed, and writes it again
- `cached/`: slow results, cached for the explorer; safe to delete

If a manifest, study file, table or shard was changed, truncated or replaced after it was written, attnscope refuses
it by name before it shows any of its numbers; a damaged cached result is computed again. Repeating the same
`attnscope run` repairs the run: tables are rewritten from the shards, and the cells of a lost shard are measured
again. To read tables that you changed yourself, use `Run(path, verify=False)`: they are read by key, so the order of
rows does not matter, but a missing column or row is refused. While a run is being measured, its tables are rewritten
from time to time with the results so far. Runs in earlier formats are refused; the error gives the command that
measures them again.

## Shards

An array is named CELL/NAME, where CELL is the column `cell` of the table `prompts`. `received` has the axes layer,
head, queries and key, and so has any other measure with one number per key; a measure with one number per head has
no key axis. `view` is the number of each layer's view. `seen` (the share of queries that see a key),
`NAME.uniform` (the measure's value for uniform attention) and `NAME.defined` (the share of queries that have a
value) have views in place of layers, and a single head if all heads share them. The metadata entry `attnscope` has
the names of the axes and the labels of layers, heads and query groups, as JSON.

The scores of a prompt under interventions have a key of their own: `log_probs`, `likeliest` and `kl` by variant (the
model as it is, then each row of `outcomes`) and token of the answer, and `choices`, the log probability of each choice
by variant."""


def _run() -> Iterator[str]:
    yield RUN
    for name, columns in (TABLES | OF_INTERVENTIONS | EXPORTS).items():
        yield f"\n## {f'exports/{name}' if name in EXPORTS else name}.parquet\n"
        yield "| column | type | meaning |\n|---|---|---|"
        for column in columns:
            kind = str(column.type).replace("dictionary<values=string, indices=int32, ordered=0>", "string")
            yield f"| `{column.name}` | {kind} | {column.meaning} |"
    tables = {"heads": HEADS, "classes": CLASSES, "multiverse": MULTIVERSE, "effects": effects.COLUMNS}
    for name, described in tables.items():
        yield f"\n## comparisons/{name}.csv\n"
        yield "| column | meaning |\n|---|---|"
        yield from (f"| `{column}` | {meaning} |" for column, meaning in described.items())


def _figures() -> Iterator[str]:
    yield "# Figures"
    yield ""
    yield "Generated from the code by `make docs`. A figure is an entry of `figures:` in a study file. All kinds share"
    yield "these keys:"
    yield ""
    yield from _keys(schema.FigureSpec)
    yield ""
    yield "Each kind has options of its own, in the same entry: `{name: map, kind: heatmap, sort: effect}`. An option"
    yield "of another kind is refused. Each kind is drawn from a table; `attnscope figure KIND TABLE -o FILE` draws any"
    yield "table that has the columns. A package can add a kind, see [extending](extending.md)."
    for kind in KINDS.members.values():
        yield f"\n## {kind.name}: {kind.about}\n"
        yield (kind.options.__doc__ or "").strip().split("\n")[0]
        yield ""
        yield from _keys(kind.options, but=schema.FigureSpec)
        if "measure" in kind.options.model_fields:
            yield f"\nMeasures of heads, besides classes: {', '.join(f'`{name}`' for name in map_measures())}."
        if "panels" in kind.options.model_fields:
            yield "\n`panels` is a list of heads:\n"
            yield from _keys(PanelSpec)
        if "align" in kind.options.model_fields:
            yield "\n`align` is `position`, `start:SEGMENT`, `end:SEGMENT`, `within:SEGMENT`, or a mapping:\n"
            yield from _keys(AlignSpec)
        yield "\n| column of the table | meaning | |\n|---|---|---|"
        for column in kind.columns:
            yield f"| `{column.name}` | {column.meaning} | {'optional' if column.optional else 'needed'} |"


def _families() -> Iterator[str]:
    yield "| to add | entry points | files | lines | example | built-in ones |\n|---|---|---|---|---|---|"
    for word, group, name, folder in FAMILIES:
        lines = sum(bool(line.strip()) for line in (PLUGIN / name).read_text(encoding="utf-8").splitlines())
        example = f"[`{name}`](../tests/plugin/attnscope_dummy/{name})"
        yield f"| {word} | `{group}` | 2 | {lines} + 2 | {example} | `{folder}` |"


EXAMPLE_IDS = (5, 6, 5, 6)  # "on and on and"
EXAMPLE_NEXT = 5  # "on" comes next
EXAMPLE_ROW = (0.4, 0.1, 0.2, 0.3)


def _measures_table() -> Iterator[str]:
    """Every measure, with its value for the example row of docs/measures.md and for uniform attention."""
    yield "| name | meaning | unit | one number per | example | uniform |\n|---|---|---|---|---|---|"
    for each in MEASURES.members.values():
        values = [_example(each, row) for row in (EXAMPLE_ROW, (1 / len(EXAMPLE_ROW),) * len(EXAMPLE_ROW))]
        per = "key" if each.axes == KEY else "head"
        yield f"| `{each.name}` | {each.meaning} | {each.unit} | {per} | {values[0]} | {values[1]} |"


def _example(measure: Measure, row: tuple[float, ...]) -> str:
    """A measure of the last query of the example."""
    import torch

    last, weights = len(row) - 1, torch.tensor(row, dtype=torch.float64).view(1, 1, -1)
    if measure.pairs is not None:
        keys = [int(key) for query, key in zip(*measure.pairs(EXAMPLE_IDS), strict=True) if query == last]
        return f"{sum(row[key] for key in keys):.4g}" if keys else "no value"
    is_uniform = len(set(row)) == 1
    rule = measure.uniform if is_uniform and measure.uniform is not None else measure.block
    assert rule is not None  # noqa: S101  (a measure has pairs or a block)
    ids = torch.tensor((*EXAMPLE_IDS, EXAMPLE_NEXT))
    tokens = (TokenIds(ids[:-1], ids[1:]),) if measure.needs_ids else ()
    values = rule(weights, torch.tensor([last]), torch.arange(len(row)), *tokens)
    return ", ".join(f"{value:.4g}" for value in values.flatten().tolist())


def _brought_up_to_date(page: str, table: Iterator[str]) -> str:
    """A page with its table and examples as they are now; the rest of it is written by hand."""
    written = "<!-- table -->\n" + "\n".join(table) + "\n<!-- /table -->"
    page = re.sub(r"<!-- table -->.*?<!-- /table -->", lambda _: written, page, flags=re.DOTALL)

    def example_of(match: re.Match[str]) -> str:
        code = (PLUGIN / match[1]).read_text(encoding="utf-8")
        return f"<!-- {match[1]} -->\n\n```python\n{code}```\n"

    return re.sub(r"<!-- (\w+\.py) -->\n(?:\n```python\n.*?```\n)?", example_of, page, flags=re.DOTALL)


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")  # noqa: T201
