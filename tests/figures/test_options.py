"""Each kind of figure has its own options; others are refused with the study's line, also those of a plugin's kind."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from attnscope.errors import AttnscopeError
from attnscope.figures import KINDS
from attnscope.figures.kinds.heatmap import HeatmapOptions
from attnscope.figures.kinds.lines import LinesOptions
from attnscope.figures.kinds.strip import StripOptions
from attnscope.figures.validation import figure_problems, options_of, study_schema, with_options
from attnscope.studies import request_study
from attnscope.study.file import bundled_studies, read_study
from attnscope.study.schema import FigureSpec, Study

STUDY = """\
models: [m]
prompts:
  items: [{question: "What?"}, {question: "Where?"}]
  plain: "{question}"
conditions:
  - none
  - {name: filler, insert: {repeat: "/"}, tokens: 5, before: question}
classes:
  hash: "#"
figures:
  - name: first
    kind: bars
  - name: second
"""


def refusal(tmp_path: Path, *lines: str) -> str:
    """What is said of a study whose second figure, from line 14 on, has these lines."""
    path = tmp_path / "x.yaml"
    path.write_text(STUDY + "".join(f"    {line}\n" for line in lines), encoding="utf-8")
    with pytest.raises(AttnscopeError) as refused:
        request_study(str(path))
    return str(refused.value)


@pytest.mark.parametrize(
    ("lines", "line", "words"),
    [
        (["kind: lines", "sort: effect"], 15, ["lines has no option 'sort'", "figures.1.sort"]),
        (["kind: bars", "form: full"], 15, ["bars has no option 'form'", "figures.1.form"]),
        (["kind: heatmap", "sorts: effect"], 15, ["heatmap has no option 'sorts'", "near: sort"]),
        (["kind: lines", "form: ful"], 15, ["'ful' is not allowed here", "'shared', 'full'"]),
        (["kind: pie"], 14, ["unknown kind of figure 'pie'", "figures.1.kind"]),
        (["kind: bras"], 14, ["unknown kind of figure 'bras'", "near: bars"]),
        (["kind: bars", "classes: [hsh]"], 15, ["no 'hsh' in classes", "near: hash"]),
        (["kind: bars", "classes: [hash, hash]"], 15, ["'hash' is listed twice"]),
        (["kind: bars", "conditions: [fillr]"], 15, ["no 'fillr' in conditions", "near: filler"]),
        (["kind: bars", "queries: all"], 15, ["'all' is not measured"]),
        (["kind: heatmap", "difference: [none, m]"], 15, ["can't be compared", "two models"]),
        (["kind: heatmap", "difference: [none, filer]"], 15, ["no model or condition 'filer'", "near: filler"]),
        (["kind: heatmap", "difference: [none]"], 15, ["the list has 1 item", "at least 2"]),
        (["kind: strip", "prompt: 2"], 15, ["there is no prompt 2", "0 to 1"]),
        (["kind: spread", "prompt: 0"], 15, ["spread has no option 'prompt'"]),
        (["kind: bars", "heads: top 6 by effect"], 15, ["is not a choice of heads here"]),
        (["kind: lines", "heads: [1, 2]"], 15, ["is not a choice of heads for lines"]),
        (["kind: lines", "panels:", "  - {model: m, layer: 0, haed: 0}"], 16, ["unknown key 'haed'", "near: head"]),
        (["kind: lines", "panels:", "  - {model: k, layer: 0, head: 0}"], 16, ["there is no model 'k'"]),
        (
            ["kind: lines", "panels: [{model: m, layer: 0, head: 0}]", "heads: top 2 by effect"],
            16,
            ["either heads or panels"],
        ),
        (
            ["kind: lines", "number_from: 1", "panels: [{model: m, layer: 0, head: 1}]"],
            16,
            ["there is no layer 0 when they are numbered from 1"],
        ),
    ],
)
def test_an_option_that_a_kind_does_not_have_is_refused_at_its_line(
    tmp_path: Path, lines: list[str], line: int, words: list[str]
) -> None:
    said = refusal(tmp_path, *lines)
    assert f"x.yaml, line {line}" in said, said
    for word in words:
        assert word in said, said


@pytest.mark.parametrize("names", [["hash", "focus"], ["hash", "whole"], ["hash", "removed"], ["hash", "sink"]])
def test_only_classes_are_summed(names: list[str]) -> None:
    study = Study.model_validate(
        {
            "models": ["m"],
            "prompts": {"items": [{"question": "Where?"}], "plain": "{question}"},
            "classes": {"hash": "#", "star": "*"},
            "also": {"whole": "segment:question"},
            "without": ["first"],
            "quantities": {"focus": {"share": "hash", "of": ["hash", "star"]}},
            "figures": [{"name": "map", "kind": "heatmap", "measure": names}],
        }
    )
    (problem,) = figure_problems(study)
    assert problem.what == f"{names[1]} can't be added to others"
    assert not list(figure_problems(study.model_copy(update={"figures": [_map("hash", "star", "other")]})))
    assert not list(figure_problems(study.model_copy(update={"figures": [_map(names[1])]})))


def _map(*names: str) -> FigureSpec:
    return FigureSpec.model_validate({"name": "map", "kind": "heatmap", "measure": list(names)})


def test_options_keep_their_types_and_their_line() -> None:
    figure = FigureSpec.model_validate(
        {"name": "x", "kind": "lines", "panels": [{"model": "m", "layer": 3, "head": 1}], "number_from": 1}
    )
    options = options_of(figure)
    assert isinstance(options, LinesOptions)
    assert options.panels is not None
    assert options.panels[0].layer == 3
    assert options_of(options) is options
    assert figure.model_dump(exclude_unset=True) == options.model_dump(exclude_defaults=True)


def test_a_figure_says_which_layers_and_heads_must_be_measured() -> None:
    lines = options_of(
        FigureSpec.model_validate(
            {"name": "x", "kind": "lines", "panels": [{"model": "m", "layer": 3, "head": 1}], "number_from": 1}
        )
    )
    assert list(lines.asked("m").layers) == [[2]]
    assert list(lines.asked("m").heads) == [0]
    assert list(lines.asked("k").heads) == []
    bars = options_of(FigureSpec.model_validate({"name": "x", "kind": "bars", "layers": [4], "models": ["m"]}))
    assert list(bars.asked("m").layers) == [[4]]
    assert list(bars.asked("k").layers) == []


def test_a_renamed_model_is_renamed_wherever_a_figure_names_it() -> None:
    heatmap = HeatmapOptions(name="x", kind="heatmap", models=["a"], difference=["b", "a"])
    renamed = heatmap.renamed("a", "new")
    assert renamed.models == ["new"]
    assert renamed.difference == ["b", "new"]
    panel = {"model": "a", "layer": 0, "head": 0, "also": [{"model": "b", "layer": 0, "head": 0}]}
    lines = LinesOptions.model_validate({"name": "x", "kind": "lines", "panels": [panel]}).renamed("a", "new")
    assert [place.model for place in lines.places] == ["new", "b"]


def schema_errors(figures: list[dict[str, Any]]) -> list[str]:
    schema = study_schema()
    part = {**schema["properties"]["figures"], "$defs": schema["$defs"]}
    return [error.message for error in jsonschema.Draft202012Validator(part).iter_errors(figures)]


def test_the_schema_for_editors_knows_every_kinds_options() -> None:
    for figure, is_right in (
        ({"kind": "heatmap", "sort": "effect"}, True),
        ({"kind": "bars", "sort": "effect"}, False),
        ({"kind": "lines", "panels": [{"model": "m", "layer": 0, "head": 0}]}, True),
        ({"kind": "lines", "panels": [{"model": "m", "layer": 0}]}, False),
        ({"kind": "pie"}, False),
    ):
        found = schema_errors([{"name": "x", **figure}])
        assert (found == []) == is_right, (figure, found)
    assert set(study_schema()["properties"]["figures"]["items"]["discriminator"]["mapping"]) == set(KINDS.members)


@pytest.mark.parametrize("name", sorted(bundled_studies()))
def test_every_bundled_study_fits_the_schema_and_its_figures_their_kinds(name: str) -> None:
    path = bundled_studies()[name]
    assert schema_errors(yaml.safe_load(path.read_text(encoding="utf-8"))["figures"]) == []
    figures = with_options(read_study(path), path).figures
    assert all(isinstance(figure, KINDS.members[figure.kind].options) for figure in figures)


PLUGIN = '''
"""Dots: a kind of figure in a package of its own."""
import altair as alt
import polars as pl
from pydantic import Field
from attnscope.figures import Column, Kind, Look
from attnscope.figures.options import Options
from attnscope.figures.prose import document


class DotOptions(Options):
    """Dots, nothing but dots."""

    size: int = Field(3, ge=1, description="How large they are.")


dots = Kind(
    name="dots",
    about="dots of a plugin",
    options=DotOptions,
    columns=(Column("x", pl.Float64, "across"),),
    keys=("x",),
    table=lambda run, options: pl.DataFrame({"x": [float(options.size)]}),
    look=lambda run, options, table: Look(title="Dots"),
    chart=lambda table, look: alt.Chart(table).mark_point().encode(x="x:Q").to_dict(),
    prose=lambda table, look: document(look.title, {"Numbers": [f"x is {table['x'][0]}."]}),
)
'''
PROBE = """
import json, runpy, sys
from pathlib import Path
import polars as pl
from attnscope.errors import AttnscopeError
from attnscope.figures import Look
from attnscope.figures.validation import options_of, study_schema
from attnscope.figures.write import draw_tables
from attnscope.studies import request_study

found = {}
try:
    request_study(sys.argv[1])
except AttnscopeError as error:
    found["refusal"] = str(error)
found["size"] = request_study(sys.argv[2]).study.figures[0].size
found["schema"] = "dots" in study_schema()["properties"]["figures"]["items"]["discriminator"]["mapping"]
pages = runpy.run_path(sys.argv[3])
found["page"] = "\\n".join(pages["_figures"]())
found["alt"] = draw_tables("dots", {"t": pl.DataFrame({"x": [2.0]})}, Look(title="Dots")).alt
print(json.dumps(found))
"""


def test_a_kind_from_an_installed_package_is_checked_documented_and_drawn(tmp_path: Path) -> None:
    (tmp_path / "dots_plugin.py").write_text(PLUGIN, encoding="utf-8")
    info = tmp_path / "dots_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dots-plugin\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[attnscope.figures]\ndots = dots_plugin:dots\n", encoding="utf-8")
    begin = STUDY.rsplit("  - name: first", 1)[0] + "  - name: x\n    kind: dots\n"
    (tmp_path / "wrong.yaml").write_text(begin + "    sise: 5\n", encoding="utf-8")
    (tmp_path / "right.yaml").write_text(begin + "    size: 5\n", encoding="utf-8")
    reference = Path(__file__).resolve().parents[2] / "scripts" / "reference.py"
    arguments = [tmp_path / "wrong.yaml", tmp_path / "right.yaml", reference]
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{PROBE}"
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert "dots has no option 'sise'" in found["refusal"]
    assert "line 13" in found["refusal"]
    assert "near: size" in found["refusal"]
    assert found["size"] == 5
    assert found["schema"]
    assert "## dots: dots of a plugin" in found["page"]
    assert "How large they are." in found["page"]
    assert found["alt"] == "Dots Numbers: x is 2.0."


@pytest.mark.parametrize("value", [True, 1.0, "1"])
def test_what_is_no_whole_number_is_not_taken_for_one(value: object) -> None:
    with pytest.raises(ValidationError, match="prompt"):
        StripOptions.model_validate({"name": "x", "kind": "strip", "prompt": value})
    panel = {"model": "m", "layer": value, "head": 0}
    with pytest.raises(ValidationError, match="layer"):
        LinesOptions.model_validate({"name": "x", "kind": "lines", "panels": [panel]})
