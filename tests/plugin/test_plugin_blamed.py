"""What a package gets wrong is said in one line that names it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Outcome
from tests.plugin.conftest import HERE, attnscope, offer

TIER = "command"

RULE = """\
from attnscope.text.rules import Claims, ClassRule
THING = ClassRule(name={name!r}, meaning="x", claims=lambda argument, prompt: Claims())
"""


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import nothing_of_this_name", ["'thing' of an installed package can't be used", "No module named"]),
        ("raise RuntimeError('two\\nlines')", ["can't be used: RuntimeError: two lines"]),
        ("OTHER = 1", ["AttributeError"]),
        ("THING = 3", ["it is an int"]),
        ("class THING: pass", ["it is the class THING"]),
        ("raise SystemExit(0)", ["can't be used: SystemExit: 0"]),
        (RULE.format(name="re"), ["two packages define the class rule 're'", "attnscope and broken"]),
        (RULE.format(name="label"), ["ValueError: class rule 'label'"]),
        (RULE.format(name="within"), ["ValueError: class rule 'within'"]),
        (RULE.format(name="regex"), ["two class rules have the study-file key 'regex'"]),
    ],
)
def test_a_plugin_that_cannot_be_used_is_refused_in_one_line(code: str, words: list[str], tmp_path: Path) -> None:
    site = offer(tmp_path, "attnscope.class_rules", "broken:THING", code)
    attnscope(site, "tokens", "symbols").refuses(*words)


def test_a_broken_plugin_stops_only_what_uses_it(tmp_path: Path) -> None:
    site = offer(tmp_path, "attnscope.class_rules", "broken:THING", "import nothing_of_this_name")
    assert attnscope(site, "--help").code == 0
    assert attnscope(site, "models").code == 0


def stopped(done: Outcome, *words: str) -> None:
    """By one line, whatever was printed before."""
    assert done.code == 2, done
    assert "Traceback" not in done.err
    assert all(word in done.err.splitlines()[-1] for word in ("attnscope: ", *words)), done.err


FAMILIES = {
    "rule": """
from attnscope.text.rules import Claims, ClassRule
THING = ClassRule(name="odd", meaning="x", claims=lambda argument, prompt: ANSWER)
""",
    "group": """
from attnscope.text.groups import QueryGroup
THING = QueryGroup(name="odd", meaning="x", words="x", rows=lambda tokens, segments: ANSWER)
""",
    "edit": """
from attnscope.edits.prompt import PromptEdit
class THING(PromptEdit):
    "x"
    key = "odd"
    odd: int
    def apply(self, lines, context): return ANSWER
""",
    "source": """
from attnscope.edits.sources import Source
class THING(Source):
    "x"
    key = "odd"
    odd: int
    def draft(self, units, rng, context): return ANSWER
""",
    "set": """
from attnscope.text.layout import Layout, Layouts
from attnscope.text.sets import PromptSet
layouts = Layouts(plain=Layout(((None, "{text}"),)))
THING = PromptSet(name="odd", about="x", layouts=layouts, make=lambda count, seed, options: ANSWER)
""",
}
OFFERED: dict[str, tuple[str, str, str, dict[str, object]]] = {
    "rule": ("attnscope.class_rules", "class rule", "claims", {"classes": {"x": "odd:1"}}),
    "group": ("attnscope.query_groups", "query group", "rows", {"measure": {"queries": ["odd"]}}),
    "edit": ("attnscope.prompt_edits", "prompt edit", "apply", {"conditions": [{"name": "x", "odd": 1}]}),
    "source": (
        "attnscope.sources",
        "source of text",
        "draft",
        {"conditions": [{"name": "x", "insert": {"odd": 1}, "tokens": 3, "before": "text"}]},
    ),
    "set": ("attnscope.prompt_sets", "set of prompts", "make", {"prompts": {"set": "odd"}}),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("answer", "words"), [("1 / 0", ["fails with ZeroDivisionError: "]), ("[object()]", [])])
def test_a_plugin_that_fails_is_named_with_its_package_in_one_line(
    family: str, answer: str, words: list[str], tiny_model: Path, tmp_path: Path
) -> None:
    group, word, part, changes = OFFERED[family]
    site = offer(tmp_path / "site", group, "broken:THING", FAMILIES[family].replace("ANSWER", answer))
    parts: dict[str, object] = {
        "models": [{"label": "tiny", "source": str(tiny_model)}],
        "prompts": {"items": [{"text": "a + b"}], "plain": "{text}"},
    }
    parts |= changes
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(parts), encoding="utf-8")
    done = attnscope(site, "tokens", tmp_path / "study.yaml")
    stopped(done, f"the {word} 'odd'", f"its {part}, package broken", *words)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("1 / 0", ["fails with ZeroDivisionError"]),
        ("raise SystemExit(0)", ["fails with SystemExit: 0"]),
        ("job.store.write({'x': None})", ["a cell 'x', which is in none of its batches"]),
        ("pass", ["left 1 of 1 batches unmeasured"]),
    ],
)
def test_an_engine_that_fails_is_named_with_its_package(
    action: str, words: list[str], tiny_model: Path, tmp_path: Path
) -> None:
    code = f"class Odd:\n    name, meaning = 'odd', 'x'\n    def run(self, job): {action}\nTHING = Odd()\n"
    site = offer(tmp_path / "site", "attnscope.engines", "broken:THING", code)
    parts = {
        "models": [{"label": "tiny", "source": str(tiny_model)}],
        "prompts": {"items": [{"text": "a + b"}], "plain": "{text}"},
    }
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(parts), encoding="utf-8")
    done = attnscope(site, "run", tmp_path / "study.yaml", "--out", tmp_path / "run", "--engine", "odd")
    stopped(done, "the engine 'odd'", "its run, package broken", *words)


BROKEN_KIND = """
import dataclasses
from attnscope_dummy.lengths import LENGTHS
THING = dataclasses.replace(LENGTHS, name="odd", {part}=lambda *given: {answer})
"""


@pytest.mark.parametrize(
    ("part", "answer"), [("chart", "1 / 0"), ("chart", "None"), ("prose", "1 / 0"), ("prose", "3")]
)
def test_a_kind_of_figure_that_fails_is_named_with_its_package(part: str, answer: str, tmp_path: Path) -> None:
    shutil.copytree(HERE / "attnscope_dummy", tmp_path / "site" / "attnscope_dummy")
    code = BROKEN_KIND.format(part=part, answer=answer)
    site = offer(tmp_path / "site", "attnscope.figures", "broken:THING", code)
    (tmp_path / "table.csv").write_text("model,condition,prompt,tokens\na,b,0,3\n", encoding="utf-8")
    done = attnscope(site, "figure", "odd", tmp_path / "table.csv", "--out", tmp_path / "x.svg")
    done.refuses("the kind of figure 'odd'", f"its {part}, package broken")


@pytest.mark.parametrize(
    ("group", "code", "words"),
    [
        (
            "attnscope.figures",
            BROKEN_KIND.format(part="table", answer="1 / 0"),
            ["the kind of figure 'odd' fails with ZeroDivisionError", "its table, package broken"],
        ),
        (
            "attnscope.measures",
            """
from attnscope.measures import Measure
THING = Measure(
    name="odd",
    meaning="x",
    block=lambda weights, q, k: weights.sum(-1) * (1 if int(k[-1]) < 200 else 1 // 0),
    reference=lambda matrix: matrix.sum(-1),
)
""",
            ["the measure 'odd' fails with ZeroDivisionError", "its block, package broken"],
        ),
    ],
)
def test_a_plugin_that_fails_late_stops_a_run(
    group: str, code: str, words: list[str], tiny_model: Path, tmp_path: Path
) -> None:
    shutil.copytree(HERE / "attnscope_dummy", tmp_path / "site" / "attnscope_dummy")
    site = offer(tmp_path / "site", group, "broken:THING", code)
    parts: dict[str, object] = {
        "models": [{"label": "tiny", "source": str(tiny_model)}],
        "prompts": {"items": [{"text": "a + b"}, {"text": "a + b " * 80}], "plain": "{text}"},
    }
    if group == "attnscope.figures":
        parts["figures"] = [{"name": "x", "kind": "odd"}]
    else:
        parts["measure"] = {"queries": ["all"], "measures": ["odd"]}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(parts), encoding="utf-8")
    done = attnscope(site, "run", tmp_path / "study.yaml", "--out", tmp_path / "run")
    stopped(done, *words)
