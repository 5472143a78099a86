"""A study file is read whole, or refused with its line, its key and the nearest right word."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from attnscope.errors import AttnscopeError
from attnscope.figures.validation import study_schema
from attnscope.study.file import bundled_studies, find_study, parse_study, read_study
from attnscope.study.sampling import Sample
from attnscope.study.schema import Study

GOOD = """\
models:
  - smollm2-135m-instruct
prompts:
  items: [{question: "What?"}]
  chat: "{question}"
conditions:
  - none
  - name: filler
    insert: {repeat: "/"}
    tokens: 5
    before: question
classes:
  hash: "#"
  question: segment:question
measure:
  queries: [last, question]
figures:
  - name: bars
    kind: bars
"""


def broken(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


@pytest.mark.parametrize(
    ("given", "sample"),
    [
        ("true", Sample()),
        ("false", None),
        ("{}", Sample()),
        ("{temperature: 0.8, top_p: 0.95, top_k: 50}", Sample(temperature=0.8, top_p=0.95, top_k=50)),
    ],
)
def test_sampled_answers_are_read_and_fit_the_schema(given: str, sample: Sample | None) -> None:
    text = answered(f"{{generate: 40, sample: {given}}}")
    study = parse_study(text, "x.yaml")
    assert study.prompts.answer is not None
    assert study.prompts.answer.sample == sample
    Draft202012Validator(study_schema()).validate(yaml.safe_load(text))
    assert Study.model_validate(study.model_dump(mode="json")) == study


def test_a_good_study_is_read() -> None:
    study = parse_study(GOOD, "x.yaml")
    assert study.rules == {"hash": "#", "question": "segment:question"}
    assert [part.name for part in study.conditions] == ["none", "filler"]


def test_what_is_left_out_can_be_compared_with_itself() -> None:
    more = "without: [special]\nquantities: {gap: {calibrated: removed, by: filler}}\n"
    assert list(parse_study(GOOD + more, "x.yaml").quantities) == ["gap"]


def answered(answer: str) -> str:
    return broken('  chat: "{question}"', f'  chat: "{{question}}"\n  answer: {answer}')


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (answered("{generate: 0}"), 6, ["0 is out of range", "1 or more"]),
        (answered("{generate: 9, sample: {temperature: 0}}"), 6, ["0 is out of range", "more than 0"]),
        (answered("{generate: 9, sample: {temperature: .nan}}"), 6, ["nan"]),
        (answered("{generate: 9, sample: {top_p: 1.5}}"), 6, ["1.5 is out of range", "1.0 or less"]),
        (answered("{generate: 9, sample: {top_k: 0}}"), 6, ["0 is out of range", "1 or more"]),
        (answered("{generate: 9, sample: {topp: 0.5}}"), 6, ["unknown key 'topp'", "near: top_p"]),
        (answered("{generate: 9, sample: hot}"), 6, ["'hot'"]),
        (answered("{generate: 9, seed: 3}"), 6, ["nothing is drawn here", "add sample"]),
        (answered("{field: question, sample: true}"), 6, ["only a generated answer can be sampled"]),
        (broken("tokens: 5", "tokns: 5"), 10, ["unknown key 'tokns'", "near: tokens"]),
        (broken("tokens: 5", "tokens: five"), 10, ["'five' is not a whole number"]),
        (broken("tokens: 5", "tokens: 0"), 10, ["0 is out of range", "1 or more"]),
        (broken("    tokens: 5\n", ""), 8, ["needs a length"]),
        (
            broken("before: question", "before: qestion"),
            11,
            ["chat layout has no segment 'qestion'", "near: question"],
        ),
        (broken("    before: question\n", ""), 8, ["either before or after"]),
        (broken('repeat: "/"', 'repeats: "/"'), 9, ["what is to be inserted", "unknown key 'repeats'", "near: repeat"]),
        (broken('hash: "#"', "hash: #"), 13, ["unquoted #"]),
        (
            broken("segment:question", "segment:qestion"),
            14,
            ["chat layout has no segment 'qestion'", "near: question"],
        ),
        (broken("queries: [last, question]", "queries: [lst]"), 16, ["unknown query group 'lst'", "near: last"]),
        (broken("queries: [last, question]", "queries: [answer]"), 16, ["prompts have no answer"]),
        (broken("measure:", "mesure:"), 15, ["unknown key 'mesure'", "near: measure"]),
        (broken('chat: "{question}"', 'chat: "{question}"\n  plain: x'), 6, ["all prompts would be the same"]),
        (
            broken('chat: "{question}"', 'chat: "{question}"\n  plain: "{number}"\n  fields: {number: question}'),
            13,
            ["the plain layout has no segment 'question'", "known: number"],
        ),
        (broken('chat: "{question}"', 'chat: "hello"'), 5, ["all prompts would be the same"]),
        (broken("  - name: filler", "  - name: none"), 8, ["'none' occurs twice"]),
        (broken("    kind: bars", "    kind: bars\n    queries: all"), 20, ["'all' is not measured"]),
        (broken('hash: "#"', "hash: *"), 13, ["unquoted *"]),
        (broken('hash: "#"', 'hash: "re:[0-9"'), 13, ["the pattern can't be read"]),
        (broken('hash: "#"', 'hash: {characters: "#", colour: reddish}'), 13, ["'#ff7f0e'"]),
        (broken('hash: "#"', 'hash: {characters: "#", label: question}'), 14, ["two are labelled 'question'"]),
        (broken('hash: "#"', 'sink: "#"'), 13, ["'sink' is a reserved name"]),
        (broken('chat: "{question}"', 'chat: "{qestion}"'), 5, ["no field 'qestion'", "near: question"]),
        (broken('chat: "{question}"', 'chat: {sytem: "{question}"}'), 5, ["'system', 'user' or 'assistant'"]),
        (broken('chat: "{question}"', 'chat: "{question} {question}"'), 11, ["2 times in the chat layout"]),
        (broken("measure:", "measure:\n  layers: {depths: [0, 2]}"), 16, ["2 is out of range", "1.0 or less"]),
        (broken("measure:", "measure:\n  layers: 3"), 16, ["'3' is not a choice of layers", "[0, 16]", "{depths: "]),
        (broken("measure:", "measure:\n  layers: {depth: [0]}"), 16, ["unknown key 'depth'", "near: depths"]),
        (broken("measure:", "measure:\n  layers: [a]"), 16, ["'a' is not a whole number"]),
        (broken("measure:", "measure:\n  layers: [true]"), 16, ["true is not a whole number"]),
        (broken("measure:", "measure:\n  layers: [1.0]"), 16, ["1.0 is not a whole number"]),
        (broken("measure:", "measure:\n  layers: {depths: [true]}"), 16, ["true is not a number"]),
        (broken("measure:", "measure:\n  layers: [0, 1, 0]"), 16, ["'0' is listed twice", "each once"]),
        (broken("measure:", "measure:\n  layers: {depths: [0, 0.5, 0.5]}"), 16, ["'0.5' is listed twice"]),
        (broken("measure:", "measure:\n  heads: [3, 3]"), 16, ["'3' is listed twice"]),
        (broken("measure:", "measure:\n  heads: [true]"), 16, ["true is not a whole number"]),
        (broken("measure:", "without: [first, first]\nmeasure:"), 15, ["'first' is listed twice"]),
        (broken("queries: [last, question]", "queries: [{last: true}]"), 16, ["true is not a whole number"]),
        (broken("queries: [last, question]", "queries: [{last: '3'}]"), 16, ["'3' is not a whole number"]),
        (
            broken("queries: [last, question]", "queries: [{bins: {of: question, count: 4.0}}]"),
            16,
            ["4.0 is not a whole number"],
        ),
        (broken("tokens: 5", "tokens: 5.0"), 10, ["5.0 is not a whole number"]),
        (broken("tokens: 5", "times: true"), 10, ["true is not a whole number"]),
        (GOOD + "seed: true\n", 20, ["true is not a whole number"]),
        (answered("{generate: true}"), 6, ["true is not a whole number"]),
        (answered("{generate: 9, sample: {temperature: true}}"), 6, ["true is not a number"]),
        (broken('chat: "{question}"', 'chat: "{question}"\n  count: 1.0'), 6, ["1.0 is not a whole number"]),
        (
            answered("{generate: 1100}").replace("queries: [last, question]", "queries: [{each: writing}]"),
            17,
            ["generate: 1100 of prompts.answer", "1,101 query groups", "measure.queries.0.each", "at most 1,024"],
        ),
        (
            answered("{generate: 600}").replace("[last, question]", "[last, {each: answer}, {each: all}]"),
            17,
            ["1,201 query groups", "measure.queries.1.each"],
        ),
        (broken("tokens: 5", "match: none"), 10, ["no earlier condition 'none'", "there are none"]),
        (
            broken('insert: {repeat: "/"}\n    tokens: 5\n    before: question', "delete: question").replace(
                "[last, question]", "[inserted]"
            ),
            14,
            ["no condition inserts text", "'inserted'"],
        ),
        (broken("queries: [last, question]", f"queries: [{'x' * 5000}]"), 16, [f"group '{'x' * 80}", "x...x"]),
        (broken("measure:", "measure:\n  heads: x"), 16, ["'x' is not a choice of heads", "a list of numbers"]),
        (broken("measure:\n  queries: [last, question]", "measure: all"), 15, ["'all' is not a mapping"]),
        (broken("models:\n  - smollm2-135m-instruct", "models: {}"), 1, ["is not a list", "[a, b]"]),
        (GOOD + "title:\n  - 3\n", 20, ["is not text"]),
        (
            GOOD + "without: [special]\nquantities: {gap: {contrast: hash, minus: removed}}\n",
            21,
            ["'removed' is a share of all attention", "shares of the same whole"],
        ),
        (
            broken("queries: [last, question]", "queries: [last, al]").replace("items: [{question", "file: x.csv #")
            + "    queries: all\n",
            16,
            ["unknown query group 'al'", "near: all"],
        ),
        (
            broken('items: [{question: "What?"}]\n  chat: "{question}"', "set: problms"),
            4,
            ["unknown set of prompts 'problms'", "near: problems"],
        ),
        (broken("measure:", "measure:\n  layers: []"), 16, ["the list has 0 items", "at least 1"]),
        (GOOD + "a: &a [*a]\n", 20, ["contains itself"]),
        (GOOD + "seed: 1\nseed: 2\n", 21, ["key 'seed' occurs twice"]),
        (GOOD + "a: [1\n", 21, ["not valid YAML"]),
        (GOOD + "title: 'x\n", 21, ["not valid YAML"]),
    ],
)
def test_a_mistake_is_reported_with_its_line_and_what_is_right(text: str, line: int, words: list[str]) -> None:
    with pytest.raises(AttnscopeError) as refusal:
        parse_study(text, "x.yaml")
    message = str(refusal.value)
    assert "\n" not in message
    assert f"x.yaml, line {line}" in message, message
    for word in words:
        assert word in message, message


@pytest.mark.parametrize("text", ["", "# nothing", "- a list", "just words"])
def test_what_is_no_mapping_is_refused(text: str) -> None:
    with pytest.raises(AttnscopeError, match=r"x\.yaml"):
        parse_study(text, "x.yaml")


def test_a_missing_key_is_named() -> None:
    with pytest.raises(AttnscopeError, match="key 'prompts' is missing"):
        parse_study("models: [a]\n", "x.yaml")


def test_an_unknown_study_is_refused_with_the_nearest() -> None:
    with pytest.raises(AttnscopeError, match="near: symbols"):
        find_study("symbls")
    with pytest.raises(AttnscopeError, match="no such study file"):
        find_study("gone.yaml")


@pytest.mark.parametrize("name", sorted(bundled_studies()))
def test_every_bundled_study_can_be_read(name: str) -> None:
    study = read_study(bundled_studies()[name])
    assert isinstance(study, Study)
    assert study.figures


def test_the_study_to_start_from_can_be_read(tmp_path: Path) -> None:
    from importlib.resources import files

    text = (files("attnscope.study") / "start.yaml").read_text(encoding="utf-8")
    assert parse_study(text, "start.yaml").figures


TWO = """\
  - name: filler
    edits:
      - {insert: {repeat: "/"}, tokens: 5, before: question}
      - {insert: {repeat: "-"}, tokens: 3, after: question}
"""
ONE = """\
  - name: filler
    insert: {repeat: "/"}
    tokens: 5
    before: question
"""


def test_a_condition_may_list_its_edits() -> None:
    study = parse_study(broken(ONE, TWO), "x.yaml")
    assert [len(part.edits) for part in study.conditions] == [0, 2]
    assert study.condition("filler").inserts


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (broken(ONE, TWO.replace("tokens: 3", "tokns: 3")), 11, ["unknown key 'tokns'", "near: tokens"]),
        (broken(ONE, TWO.replace("after: question", "after: qestion")), 11, ["no segment 'qestion'", "near: question"]),
        (broken(ONE, TWO.replace("- {insert", "- {inser", 1)), 10, ["names an edit", "near: insert"]),
        (broken(ONE, TWO + "    tokens: 5\n"), 8, ["'tokens' is next to edits"]),
        (broken('    insert: {repeat: "/"}\n', ""), 8, ["tokens belongs to no edit"]),
        (broken("tokens: 5", "match: gone"), 10, ["no earlier condition 'gone'"]),
        (broken('hash: "#"', 'hash: "token:42"'), 13, ["unknown class rule 'token:'", "write chars:token:42"]),
        (broken('hash: "#"', 'hash: {regx: "a"}'), 13, ["unknown key 'regx'", "near: regex"]),
        (broken('hash: "#"', 'hash: {regex: "a", characters: b}'), 13, ["a class has one rule"]),
        (
            broken('hash: "#"', "hash: {label: a}"),
            13,
            ["one rule", "characters, regex, position, segment, special"],
        ),
        (broken('hash: "#"', "hash: {regex: 3}"), 13, ["regex can't be 3"]),
        (broken('hash: "#"', "hash: {segment: true}"), 13, ["segment can't be True"]),
        (broken('hash: "#"', "hash: {position: x}"), 13, ["'x' is not a position"]),
        (broken('hash: "#"', "hash: {position: 3-1}"), 13, ["'3-1' ends before it begins"]),
        (broken('hash: "#"', "hash: {position: true}"), 13, ["position can't be True", "a whole number or text"]),
        (broken('hash: "#"', "hash: {position: 0.5}"), 13, ["position can't be 0.5"]),
        (broken('hash: "#"', "hash: {characters: 5}"), 13, ["characters can't be 5"]),
        (broken('hash: "#"', "hash: {special: true, within: question}"), 13, ["limited to a segment"]),
        (broken('hash: "#"', "hash: {characters: a, within: qestion}"), 13, ["no segment 'qestion'"]),
    ],
)
def test_mistakes_in_edits_and_rules_are_located_too(text: str, line: int, words: list[str]) -> None:
    test_a_mistake_is_reported_with_its_line_and_what_is_right(text, line, words)


def test_a_study_is_the_same_after_it_was_stored() -> None:
    classes = (
        'a: "ab:"\n  special: "special:"\n  within: "in:question:re:x"\n  mapping: {characters: "re:", label: R}\n  \
first: {position: 0}\n  ends: "position:0,-1"'
    )
    study = parse_study(broken('hash: "#"', classes.replace('"ab:"', '"chars:ab:"')), "x.yaml")
    assert Study.model_validate(study.model_dump(mode="json")) == study
    assert study.rules == {
        "a": "chars:ab:",
        "special": "special:",
        "within": "in:question:re:x",
        "mapping": "chars:re:",
        "first": "position:0",
        "ends": "position:0,-1",
        "question": "segment:question",
    }


@pytest.mark.parametrize("name", sorted(bundled_studies()))
def test_the_schema_allows_every_bundled_study(name: str) -> None:
    study = yaml.safe_load(bundled_studies()[name].read_text(encoding="utf-8"))
    errors = [error.message for error in Draft202012Validator(study_schema()).iter_errors(study)]
    assert not errors


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("classes", {"x": {"regx": "a"}}),
        ("classes", {"x": {"regex": "a", "segment": "b"}}),
        ("conditions", [{"name": "x", "inset": {"repeat": "/"}}]),
        ("conditions", [{"name": "x", "edits": [{"inset": 3}]}]),
        ("prompts", {"set": "blcks"}),
    ],
)
def test_the_schema_refuses_what_a_study_would_be_refused_for(key: str, value: object) -> None:
    study, schema = yaml.safe_load(GOOD), Draft202012Validator(study_schema())
    assert schema.is_valid(study)
    assert not schema.is_valid({**study, key: value})


@pytest.mark.parametrize("written", ["12:30", "0777", "1_000", "2001-01-01", "on", "yes", "0x1F", "1:2:3"])
def test_what_looks_like_a_number_in_older_yaml_is_the_text_it_says(written: str) -> None:
    study = parse_study(f"models: [m]\nprompts: {{items: [{{a: {written}}}]}}\n", "x.yaml")
    assert study.prompts.items == [{"a": written}]


@pytest.mark.parametrize(("written", "number"), [("3", 3), ("-3", -3), ("0.5", 0.5), ("1e-3", 0.001), ("true", True)])
def test_numbers_and_truth_values_are_what_they_say(written: str, number: object) -> None:
    study = parse_study(f"models: [m]\nprompts: {{items: [{{a: {written}}}]}}\n", "x.yaml")
    assert study.prompts.items == [{"a": number}]


def many_groups(count: int) -> str:
    queries = [{"each": "question", "name": f"n{number}"} for number in range(count)]
    return broken("queries: [last, question]", f"queries: {queries}")


def test_a_study_with_hundreds_of_named_series_is_read_at_once() -> None:
    started = time.process_time()
    assert len(parse_study(many_groups(300), "x.yaml").measure.series) == 300
    assert time.process_time() - started < 10


def test_more_query_groups_than_there_can_be_are_refused_when_the_study_is_read() -> None:
    with pytest.raises(AttnscopeError, match=r"there are 1,026 query groups \(x.yaml, line 16, measure.queries\)"):
        parse_study(many_groups(1025), "x.yaml")  # and the whole that the first is taken from


@pytest.mark.parametrize(("name", "clash"), [("n 7", True), ("n 1024", True), ("n 1025", False), ("n 07", False)])
def test_a_group_is_not_named_like_one_of_a_series(name: str, clash: bool) -> None:
    queries = [{"each": "question", "name": "n"}, {"last": 2, "name": name}]
    text = broken("queries: [last, question]", f"queries: {queries}")
    if clash:
        with pytest.raises(AttnscopeError, match=f"'{name}' is a group of 'n' already"):
            parse_study(text, "x.yaml")
    else:
        parse_study(text, "x.yaml")


@pytest.mark.parametrize("given", ["5", "5.5", "true", "['#']"])
def test_a_class_that_is_neither_text_nor_a_rule_is_told_to_quote_it(given: str) -> None:
    with pytest.raises(AttnscopeError, match=r"is not a class \(x.yaml, line 13, classes.hash\): text, in quotes if"):
        parse_study(broken('hash: "#"', f"hash: {given}"), "x.yaml")
