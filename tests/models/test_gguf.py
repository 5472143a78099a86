"""A GGUF file is converted once for its content, wholly or not at all, and refused before it costs memory."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest
import torch
from filelock import FileLock
from safetensors import SafetensorError

from attnscope.errors import AttnscopeError
from attnscope.models import gguf as gguf_module
from attnscope.models.cache import place, sha256
from attnscope.models.load import Loaded, load, look_up

from . import tiny

LEFT_OUT = r"holds weights that would not be used"


def test_a_file_is_converted_once_for_its_content(
    cache: Path, gguf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load(str(gguf_file))
    digest = sha256(gguf_file)
    stated = "expanded to float32; the file does not state its number format"
    assert first.made_from == f"tiny.gguf (SHA-256 {digest}), {stated}"
    copy = tmp_path / "another name.gguf"
    shutil.copy(gguf_file, copy)
    with monkeypatch.context() as patch:
        patch.setattr(gguf_module, "convert", lambda *_: pytest.fail("converted again"))
        again = load(str(copy))
        with pytest.raises(pytest.fail.Exception):
            load(str(tiny.write_gguf(tmp_path / "other.gguf", add_bos_token=True)))
    assert again.files == first.files
    assert all(
        torch.equal(one, two) for one, two in zip(first.model.parameters(), again.model.parameters(), strict=True)
    )
    assert [each.name for each in (cache / "models").iterdir() if not each.name.startswith(".")] == [
        first.files[0].parent.name
    ]


def test_a_damaged_conversion_is_made_again(gguf: Path) -> None:
    folder = look_up(str(gguf)).path
    os.truncate(folder / "model.safetensors", 1000)
    assert load(str(gguf)).layers == 2
    assert place(folder.name) == folder
    assert not any("preparing" in each.name for each in folder.parent.iterdir())


@pytest.mark.usefixtures("cache")
def test_files_converted_at_the_same_time_keep_their_own_weights(tmp_path: Path) -> None:
    def other(writer: Any) -> None:
        for tensors in writer.tensors:
            for info in tensors.values():
                info.tensor[...] *= 2

    files = {"one": tiny.write_gguf(tmp_path / "one.gguf")}
    files["two"] = tiny.write_gguf(tmp_path / "two.gguf", extra=other)
    loaded: dict[str, Loaded] = {}
    streams = sys.stdout, sys.stderr

    def run(name: str) -> None:
        loaded[name] = load(str(files[name]))

    threads = [Thread(target=run, args=(name,)) for name in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    one, two = (loaded[name].model.state_dict()["lm_head.weight"] for name in ("one", "two"))
    assert torch.equal(2 * one, two)
    assert (sys.stdout, sys.stderr) == streams  # what was silenced meanwhile is back


@pytest.mark.usefixtures("cache")
def test_a_file_that_changes_while_it_is_converted_is_refused(
    tmp_path: Path, gguf_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path(shutil.copy(gguf_file, tmp_path / "x.gguf"))
    converted = gguf_module.convert

    def swap(path: Path, folder: Path, digest: str) -> None:
        tiny.write_gguf(path, add_bos_token=True)
        converted(path, folder, digest)

    monkeypatch.setattr(gguf_module, "convert", swap)
    with pytest.raises(AttnscopeError, match="changed while it was being converted"):
        load(str(file))
    monkeypatch.undo()
    assert not (tmp_path / "cache" / "models" / f"gguf-{sha256(gguf_file)[:32]}").exists()


def test_a_conversion_that_was_changed_is_not_vouched_for(gguf: Path) -> None:
    weights = load(str(gguf)).files[0]
    data = bytearray(weights.read_bytes())
    weights.write_bytes(data[:-1000] + bytes(100) + data[-900:])
    try:
        with pytest.raises(AttnscopeError, match=r"changed or damaged.*SHA-256"):
            _ = load(str(gguf)).fingerprint
    finally:
        shutil.rmtree(weights.parent)


def test_converted_weights_can_be_read_by_whoever_reads_the_cache(gguf: Path) -> None:
    folder = look_up(str(gguf)).path
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()}
    assert modes["model.safetensors"] == modes["config.json"]


@pytest.mark.usefixtures("cache")
def test_what_killed_conversions_left_is_removed(tmp_path: Path, cache: Path) -> None:
    models = cache / "models"
    for name in (".gguf-killed.preparing-abc", ".gguf-working.preparing-abc"):
        (models / name / "model").mkdir(parents=True)
    with FileLock(models / ".gguf-working.lock"):
        load(str(tiny.write_gguf(tmp_path / "x.gguf")))
    assert [each.name for each in models.iterdir() if "preparing" in each.name] == [".gguf-working.preparing-abc"]


def _tensor(name: str, values: Any) -> Any:
    return lambda writer: writer.add_tensor(name, np.asarray(values, dtype=np.float32))


def _setting(name: str, value: float) -> Any:
    return lambda writer: writer.add_float32(f"llama.{name}", value)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (_tensor("rope_freqs.weight", [1, 2, 4, 8]), LEFT_OUT + r".*rope_freqs.weight.*scaled per dimension"),
        (_tensor("blk.0.attn_q.bias", [3] * 32), LEFT_OUT + r".*blk.0.attn_q.bias"),
        (_tensor("blk.0.attn_q_norm.weight", [3] * 8), LEFT_OUT + r".*attn_q_norm"),
        (_tensor("blk.0.whatever.weight", [3] * 8), LEFT_OUT + r".*whatever"),
        (_setting("rope.scaling.factor", 4), r"setting that would not be applied.*llama.rope.scaling.factor = 4"),
        (_setting("attention.scale", 0.5), r"setting that would not be applied.*llama.attention.scale = 0.5"),
        (_setting("attention.key_length", 16), r"llama.attention.key_length = 16"),
        (_setting("attn_logit_softcapping", 50), r"attn_logit_softcapping"),
        (_setting("attention.sliding_window", 16), r"sliding_window"),
        (_setting("something.new", 1), r"llama.something.new = 1"),
        (lambda writer: writer.add_string("llama.rope.scaling.type", "linear"), r"llama.rope.scaling.type = linear"),
    ],
)
def test_what_would_be_left_out_of_the_model_is_refused(tmp_path: Path, extra: Any, said: str) -> None:
    with pytest.raises(AttnscopeError, match=said):
        load(str(tiny.write_gguf(tmp_path / "x.gguf", extra=extra)))


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    "extra",
    [
        _tensor("rope_freqs.weight", [1, 1, 1, 1]),
        _setting("attention.scale", 8**-0.5),
        _setting("attention.key_length", 8),
        _setting("rope.scaling.factor", 1),
        _setting("attn_logit_softcapping", 0),
        lambda writer: writer.add_string("llama.rope.scaling.type", "none"),
    ],
)
def test_what_changes_nothing_is_taken(tmp_path: Path, extra: Any) -> None:
    assert load(str(tiny.write_gguf(tmp_path / "x.gguf", extra=extra))).layers == 2


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("architecture", ["llama", "phi3", "qwen2", "gemma3"])
def test_files_of_several_architectures_are_loaded(tmp_path: Path, architecture: str) -> None:
    def more(writer: Any) -> None:
        if architecture == "phi3":
            writer.add_sliding_window(32)
            writer.add_rope_dimension_count(8)
        if architecture == "qwen2":
            for name, width in (("attn_q", 32), ("attn_k", 16), ("attn_v", 16)):
                writer.add_tensor(f"blk.0.{name}.bias", np.ones(width, dtype=np.float32))

    tokens = tiny.GEMMA if architecture == "gemma3" else tiny.SPM
    names = ("bos", "eos", "unk", "pad")
    loaded = load(str(tiny.write_spm(tmp_path / "x.gguf", architecture, tokens, names=names, extra=more)))
    assert (loaded.layers, loaded.heads) == (1, 4)
    if architecture == "phi3":
        assert loaded.model.config.sliding_window == 32


@pytest.mark.usefixtures("cache")
def test_gpt2_is_loaded(tmp_path: Path) -> None:
    file = tiny.write_gpt2(tmp_path / "x.gguf")
    assert load(str(file)).architecture == "GPT2LMHeadModel"


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tensors": False}, r"has no weights"),
        ({"tensors": False, "layers": 10**9}, r"has no weights"),
        ({"layers": 3}, r"only part of its model.*describes a model of [\d,]+ values and has [\d,]+"),
        ({"layers": 10**9}, r"only part of its model.*describes 1,000,000,000 layers and has 21 tensors"),
    ],
)
def test_a_file_without_its_weights_is_refused(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(AttnscopeError, match=said):
        load(str(tiny.write_gguf(tmp_path / "x.gguf", **changes)))


_MEMORY = """
import resource, sys
from attnscope.errors import AttnscopeError
from attnscope.models.load import load
from tests.models import tiny
from pathlib import Path

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024  # MiB

load(str(tiny.write_gguf(Path(sys.argv[1]) / "small.gguf")))  # libraries take theirs
before = peak()
try:
    load(sys.argv[2])
except AttnscopeError as error:
    print(peak() - before, error)
"""


def test_a_file_that_describes_more_than_it_holds_costs_no_memory(tmp_path: Path) -> None:
    def huge(writer: Any) -> None:
        writer.kv_data[0]["llama.feed_forward_length"].value = 2**22  # 1.6 GB per layer at 32 dimensions

    file = tiny.write_gguf(tmp_path / "x.gguf", extra=huge)
    command = [sys.executable, "-c", _MEMORY, str(tmp_path), str(file)]
    environment = {**os.environ, "ATTNSCOPE_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    megabytes, error = done.stdout.split(" ", 1)
    assert "has only part of its model" in error
    assert int(megabytes) < 100


def test_conversion_says_what_it_needs(gguf_file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_module, "free_memory", lambda _: 1000)
    with pytest.raises(AttnscopeError, match=r"to convert the model.*takes 0.2\d MiB.*0.00 MiB is free"):
        load(str(gguf_file), dtype="bfloat16")
    assert not [each for each in (cache / "models").iterdir() if not each.name.endswith(".lock")]


def test_a_full_disk_is_noticed_before_anything_is_written(
    gguf_file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: type("Disk", (), {"free": 1000}))
    with pytest.raises(
        AttnscopeError, match=r"not enough disk space.*takes 0.1\d MiB and 0.00 MiB is free.*ATTNSCOPE_CACHE"
    ):
        load(str(gguf_file))
    assert not [each for each in (cache / "models").iterdir() if not each.name.endswith(".lock")]


def test_a_disk_that_fills_up_is_one_line_and_leaves_nothing(
    gguf_file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_up(*_: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr(gguf_module, "_save", fill_up)
    with pytest.raises(AttnscopeError, match=r"can't write.*No space left.*free some disk space"):
        load(str(gguf_file))
    assert not [each for each in (cache / "models").iterdir() if not each.name.endswith(".lock")]


def test_a_file_that_cannot_be_opened_is_reported(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tiny.write_gguf(tmp_path / "x.gguf")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(gguf_module, "sha256", refuse)  # root may read everything
    with pytest.raises(AttnscopeError, match=r"can't be read.*Permission denied"):
        load(str(file))
    assert not cache.exists()


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"llama.attention.head_count\x04\0\0\0\x04", b"llama.attention.head_count\x04\0\0\0\0"),
        (b"general.name", b"general.nam\xff"),
        (b"tiny", b"t\xffny"),
        (b"blk.0.attn_q.weight\x02", b"blk.0.attn_q.weight\x07"),
        (b"general.architecture", b"general.architectur_"),
        (b"tokenizer.ggml.merges", b"tokenizer.ggml.mergez"),
    ],
)
def test_a_damaged_header_is_one_line(tmp_path: Path, before: bytes, after: bytes) -> None:
    data = tiny.write_gguf(tmp_path / "x.gguf").read_bytes()
    assert before in data
    (tmp_path / "x.gguf").write_bytes(data.replace(before, after, 1))
    with pytest.raises(AttnscopeError, match=str(tmp_path)):
        load(str(tmp_path / "x.gguf"))
