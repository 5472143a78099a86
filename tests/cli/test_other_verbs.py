"""`attnscope check` and `attnscope models`, and what no verb may do."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.cli.conftest import Run
from tests.tolerances import DEEP


@pytest.mark.model
def test_check_shows_the_evidence_for_a_model(run: Run) -> None:
    done = run("check", "smollm2-135m-instruct", "--tokens", "48")
    assert done.code == 0
    for words in (
        "difference from eager",
        "row sum",
        "own rounding",
        "blocked backend, causal",
        "queries all",
        "noise",
    ):
        assert words in done.out
    card = json.loads(run("check", "smollm2-135m-instruct", "--tokens", "48", "--json").out)
    assert card["long"]["tokens"] == 48
    assert card["long"]["difference"] < DEEP
    assert card["long"]["row_sum_error"] < DEEP
    assert set(card["few_rows"]["backends"].values()) == {"rows"}
    assert set(card["cost"]) == {"plain, again", "last", "all"}


def test_models_lists_names_places_and_architectures(run: Run) -> None:
    listing = json.loads(run("models", "--json").out)
    models = {each["name"]: each for each in listing["models"]}
    assert list(models) == ["smollm2-135m-instruct", "smollm2-135m-blocks", "gemma-3-270m", "minilm-l6"]
    assert models["smollm2-135m-blocks"]["adapter_on"] == "smollm2-135m-instruct"
    formats = {name: each["quantization"] for name, each in models.items()}
    assert formats == {**dict.fromkeys(models, "Q4_1"), "gemma-3-270m": "Q4_K_M", "minilm-l6": None}
    assert "Gemma Terms of Use" in models["gemma-3-270m"]["licence"]
    assert "llama" in listing["verified"]["attention interface"]
    told = run("models").out
    for words in ("smollm2-135m-instruct", "gptj", "qwen2", "Gemma Terms", "Q4_K_M"):
        assert words in told


def test_help_never_loads_torch() -> None:
    code = (
        "import sys; sys.argv = ['attnscope', 'measure', '--help']\n"
        "from attnscope.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"--queries" in done.stdout


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "attnscope", "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("attnscope ")
    done = subprocess.run(
        [sys.executable, "-m", "attnscope", "new", "/no/folder"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
