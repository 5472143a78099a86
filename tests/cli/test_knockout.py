"""`attnscope knockout`: a table of what hiding and switching off do, and one line for mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.models import tiny

TIER = "command"
TEXT = "move # to ** and back"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    tiny.save_model(folder, tiny.llama_config(max_position_embeddings=256, initializer_range=0.3))
    return folder


def test_each_class_is_hidden_alone_and_stands_beside_its_control(run: Run, model: Path) -> None:
    words = ["knockout", TEXT, "--answer", "#", "--hide", "hash=#", "--hide", "vowels=re:[aeiou]", "--draws", "4"]
    done = run(*words, "--model", model)
    assert done.code == 0, done.err
    rows = {line.split("  ")[0].strip(): line for line in done.out.splitlines()}
    assert {"as it is", "without hash", "without vowels"} <= set(rows)
    assert "as many random tokens; mean of 4 draws" in done.out


def test_json_has_every_number(run: Run, model: Path) -> None:
    done = run("knockout", TEXT, "--answer", "#", "--ablate", "0.1,1.0", "--draws", "3", "--json", "--model", model)
    assert done.code == 0, done.err
    told = json.loads(done.out)
    heads = told["knockouts"]["heads"]
    assert heads["change"] == pytest.approx(heads["changed"] - heads["log_prob"])
    assert len(heads["control_changes"]) == 3
    assert [each["token"] for each in heads["tokens"]] == ["#"]


def test_ablated_heads_can_give_what_they_give_in_another_prompt(run: Run, model: Path) -> None:
    words = ["knockout", TEXT, "--answer", "#", "--ablate", "0.1", "--draws", "0", "--json", "--model", model]
    outcomes = [run(*words, *how) for how in ((), ("--how", "resample", "--source", "a b # c"))]
    changes = [json.loads(done.out)["knockouts"]["heads"]["change"] for done in outcomes]
    assert changes[0] != changes[1] != 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--hide", "hash=#"], ("no answer", "--answer")),
        (["--answer", "#"], ("nothing to knock out",)),
        (["--answer", "#", "--hide", "hash=#", "--ablate", "0.1"], ("at once",)),
        (["--answer", "#", "--ablate", "0"], ("--ablate", "LAYER.HEAD")),
        (["--answer", "#", "--ablate", "0.1", "--how", "resample"], ("no prompt to take", "--source")),
        (["--answer", "#", "--ablate", "0.1", "--source", "a b"], ("nothing is taken", "--how resample")),
        (["--answer", "#", "--hide", "hash=#", "--source", "a b"], ("nothing is taken", "--source")),
        (["--answer", "#", "--ablate", "0.1", "--how", "soft"], ("--how", "zero, mean, resample")),
        (["--answer", "#", "--ablate", "0.9"], ("no head 9", "heads 0")),
        (["--answer", "#", "--ablate", "9.0"], ("layer 9", "layers 0")),
        (["--answer", "#", "--hide", "q=re:Q"], ("matches no token",)),
        (["--answer", "#", "--hide", "hash=#", "--how", "soft"], ("--how", "'renormalise' or 'zero'")),
        (["--answer", "#", "--hide", "hash=#", "--from", "lst"], ("lst",)),
        (["--answer", "#", "--hide", "hash=#", "--layers", "7"], ("layer 7",)),
        (["--answer", "#", "--hide", "hash=#", "--draws", "-1"], ("--draws",)),
        (["--answer", "#", "--hide", "part=segment:question"], ("needs segments", "--hide")),
        (["--answer", "#", "--hide", "all=re:(?s)."], ("sees no key",)),
    ],
)
def test_mistakes_are_one_line(run: Run, model: Path, words: list[str], expected: tuple[str, ...]) -> None:
    run("knockout", TEXT, *words, "--model", model).refuses(*expected)


def test_too_little_else_to_draw_from_is_a_warning(run: Run, model: Path) -> None:
    done = run("knockout", "ab#", "--answer", "#", "--hide", "letters=re:[ab]", "--model", model)
    assert done.code == 0, done.err
    assert "warning: no control: there is too little else" in done.err
