"""Models that can't be had or can't be read: one line, exit code 2, no traceback."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
import transformers

from tests.cli.conftest import Run
from tests.models import tiny


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    tiny.save_model(tmp_path / "llama")
    return tmp_path / "llama"


def test_a_model_that_is_nowhere(run: Run, tmp_path: Path) -> None:
    run("measure", "ab", "--model", "smollm-135m").refuses("near: smollm2-135m-blocks, smollm2-135m-instruct")
    run("check", "some-org/some-model").refuses("some-org/some-model")
    run("measure", "ab", "--model", tmp_path / "none").refuses("none")
    run("measure", "ab", "--model", tmp_path / "none.gguf").refuses("none.gguf")


def test_files_cut_short(run: Run, llama: Path, tmp_path: Path) -> None:
    weights = llama / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    run("measure", "ab", "--model", llama).refuses("model.safetensors")
    whole = tiny.write_gguf(tmp_path / "tiny.gguf")
    whole.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])
    run("check", whole).refuses("tiny.gguf")


def test_an_adapter_for_another_model(run: Run, llama: Path, tmp_path: Path) -> None:
    other = tiny.save_adapter(tmp_path / "adapter", tiny.llama_config(hidden_size=64))
    run("measure", "ab", "--model", llama, "--adapter", other).refuses("does not fit")
    run("measure", "ab", "--model", llama, "--adapter", llama).refuses("not an adapter")


def test_architectures_without_attention_over_tokens(run: Run, tmp_path: Path) -> None:
    config = transformers.MambaConfig(vocab_size=len(tiny.VOCABULARY), hidden_size=32, num_hidden_layers=2)
    tiny.save_model(tmp_path / "mamba", config, "MambaForCausalLM")
    run("measure", "ab", "--model", tmp_path / "mamba").refuses("mamba", "state space")
    t5 = transformers.T5Config(vocab_size=len(tiny.VOCABULARY), d_model=32, d_ff=32, num_layers=2, num_heads=4, d_kv=8)
    tiny.save_model(tmp_path / "t5", t5, "T5ForConditionalGeneration")
    run("measure", "ab", "--model", tmp_path / "t5").refuses("t5", "two stacks")


def test_no_memory_for_the_model(run: Run, llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = psutil.virtual_memory()._replace(available=1000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: free)
    run("measure", "ab", "--model", llama).refuses("memory")


def test_layers_heads_and_lengths_out_of_range_name_the_range(run: Run, llama: Path) -> None:
    run("measure", "ab", "--model", llama, "--layers", "2").refuses("layers 0 to 1")
    run("measure", "ab", "--model", llama, "--heads", "0,4").refuses("heads 0 to 3")
    run("measure", "a" * 200, "--model", llama).refuses("200 tokens", "at most 128")
    assert run("measure", "a" * 100, "--model", llama, "--layers", "1").code == 0
