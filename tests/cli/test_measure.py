"""`attnscope measure` as people type it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.cli.conftest import Run
from tests.tolerances import DEEP, SUMMED

pytestmark = pytest.mark.model

PROMPT = "Move ## to ** now"


def test_json_is_one_object_with_every_number(run: Run) -> None:
    done = run("measure", PROMPT, "--queries", "last,all", "--layers", "0,16", "--class", "hash=#", "--json")
    assert (done.code, done.err) == (0, "")
    made = json.loads(done.out)
    assert made["queries"] == ["last", "all"]
    assert made["layers"] == [0, 16]
    assert set(made["tokens"][0]) >= {"position", "id", "text", "start", "end"}
    assert "".join(token["text"] for token in made["tokens"]) == PROMPT
    received = np.array(made["received"])
    assert received.shape == (2, 9, 2, len(made["tokens"]))
    np.testing.assert_allclose(received.sum(-1), 1, atol=SUMMED)
    assert {row["token_class"] for row in made["mass"]} == {"hash", "other"}
    assert made["evidence"]["check"]["difference"] < DEEP


def test_json_has_no_mass_without_classes_and_entropy_when_asked(run: Run) -> None:
    made = json.loads(run("measure", PROMPT, "--layers", "3", "--heads", "2", "--measures", "entropy", "--json").out)
    assert "mass" not in made
    assert made["heads"] == [2]
    assert np.array(made["entropy"]).shape == (1, 1, 1)


def test_a_person_gets_tables(run: Run) -> None:
    done = run("measure", PROMPT, "--class", "hash=#", "--layers", "0-2")
    assert done.code == 0
    for words in ("mass by class", "hash", "keys that receive most", "'Move'"):
        assert words in done.out


def test_the_prompt_can_come_from_a_file_and_is_read_as_it_is(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_bytes("a\r\n\tb [bold]é🙂[/bold]".encode())
    made = json.loads(run("measure", "--file", file, "--layers", "0", "--json").out)
    assert made["tokens"][-1]["end"] == len("a\r\n\tb [bold]é🙂[/bold]")
    assert run("measure", "--file", file, "--layers", "0").code == 0


@pytest.mark.parametrize("ending", ["png", "svg", "html", "pdf"])
@pytest.mark.parametrize("classes", [[], ["--class", "hash=#"]])
def test_a_picture_is_drawn_as_its_name_says(run: Run, tmp_path: Path, ending: str, classes: list[str]) -> None:
    file = tmp_path / f"picture.{ending}"
    assert run("measure", PROMPT, "--layers", "0,1", *classes, "--picture", file).code == 0
    content = file.read_bytes()
    starts = {"png": b"\x89PNG", "svg": b"<svg", "html": b"<", "pdf": b"%PDF"}[ending]
    assert content.lstrip().startswith(starts)
    if ending == "html":
        assert b'src="http' not in content
    assert list(tmp_path.iterdir()) == [file]


def test_a_class_that_matches_nothing_is_a_warning_with_the_count(run: Run) -> None:
    done = run("measure", PROMPT, "--class", "at=@", "--layers", "0", "--json")
    assert done.code == 0
    assert "class 'at' matches 0 of" in done.err
    assert json.loads(done.out)["mass"]
    assert "(no token)" in run("measure", PROMPT, "--class", "at=@", "--layers", "0").out


def test_mistakes_are_told_in_one_line(run: Run, tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    run("measure", PROMPT, "--layers", "30").refuses("layer 30", "layers 0 to 29")
    run("measure", PROMPT, "--layers", "x").refuses("--layers", "0,16,20")
    run("measure", PROMPT, "--layers", "5-2").refuses("--layers")
    run("measure", PROMPT, "--heads", "9").refuses("head 9", "heads 0 to 8")
    run("measure", PROMPT, "--queries", "first").refuses("first", "last, all")
    run("measure", PROMPT, "--class", "hash").refuses("NAME=CHARACTERS")
    run("measure", PROMPT, "--class", "x=re:(").refuses("pattern")
    run("measure", "").refuses("empty")
    run("measure").refuses("no prompt", "--file")
    run("measure", PROMPT, "--file", "x").refuses("two prompts")
    run("measure", "--file", tmp_path / "none.txt").refuses("none.txt")
    run("measure", "--file", tmp_path).refuses("can't read")
    run("measure", "--file", binary).refuses("UTF-8")
    run("measure", "# " * 9000).refuses("at most 8192 tokens", "--beyond-context")
    run("measure", PROMPT, "--model", "smolm2-135m").refuses("smollm2-135m-instruct")
    run("measure", PROMPT, "--dtype", "float33").refuses("float32")
    run("measure", PROMPT, "--device", "cuda:7").refuses("cuda:7", "cpu")
    run("measure", PROMPT, "--picture", tmp_path / "a.gif").refuses(".png")
    run("measure", PROMPT, "--picture", tmp_path / "no" / "a.png").refuses("a.png")
    run("measure", PROMPT, "--layer", "3").refuses("--layer", "--help")
    run("mesure", PROMPT).refuses("mesure")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["binary"]
