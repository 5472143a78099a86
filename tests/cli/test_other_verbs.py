"""`attnscope check` and `attnscope models`, and what no verb may do."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.cli.conftest import Run


def test_check_shows_the_evidence_for_a_model(run: Run) -> None:
    done = run("check", "smollm2-135m-instruct", "--tokens", "48")
    assert done.code == 0
    for words in ("difference to eager", "row's sum", "calls a layer", "mask: causal", "cost of queries all", "noise"):
        assert words in done.out
    card = json.loads(run("check", "smollm2-135m-instruct", "--tokens", "48", "--json").out)
    assert card["long"]["tokens"] == 48
    assert card["long"]["difference"] < 1e-4
    assert card["long"]["row_sum_error"] < 1e-4
    assert set(card["long"]["calls"].values()) == {1}
    assert set(card["cost"]) == {"plain, again", "last", "all"}


def test_models_lists_names_places_and_architectures(run: Run) -> None:
    listing = json.loads(run("models", "--json").out)
    assert [each["name"] for each in listing["models"]] == ["smollm2-135m-instruct", "smollm2-135m-blocks"]
    assert listing["models"][1]["adapter_on"] == "smollm2-135m-instruct"
    assert "llama" in listing["verified"]["attention interface"]
    told = run("models").out
    for words in ("smollm2-135m-instruct", "gptj", "qwen2"):
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
