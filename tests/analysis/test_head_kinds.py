"""Kinds of head: scores are shares of attention on what each kind means, and a head is called what it clearly is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from transformers import MistralConfig

from attnscope.analysis.head_kinds import _kinds, head_kinds, scores
from attnscope.analysis.run import Run
from attnscope.measures.patterns import PATTERNS
from tests.analysis.conftest import performed, study
from tests.handmade import exported
from tests.models.tiny import llama_config, save_model
from tests.models.tiny import tokenizer as byte_tokenizer
from tests.runs.conftest import CHAT
from tests.tolerances import SUMMED


def test_for_one_query_received_gives_what_the_meter_measures(run: Run, tiny: Path, tmp_path: Path) -> None:
    """The run measured patterns; the other did not, and has them for the last token all the same."""
    other = performed(study([{"label": "one", "source": str(tiny)}]), tmp_path)
    measured, derived = (scores(each, "one", "filler", "last") for each in (run, other))
    for name in PATTERNS:
        np.testing.assert_allclose(derived.scores[name], measured.scores[name], atol=SUMMED)
        np.testing.assert_allclose(derived.chance[name], measured.chance[name], atol=SUMMED)
    assert set(scores(other, "one", "filler", "all").scores) == {"sink", "uniform"}
    assert head_kinds(other, "one", "filler", "all")["previous"].null_count() == 8
    assert "mixed" not in set(head_kinds(other, "one", "filler", "all")["kind"])


def test_a_sink_is_corrected_for_queries_that_dont_see_the_first_token(tmp_path: Path) -> None:
    """A window of eight: of some fifty queries only the first eight see the first token."""
    config = MistralConfig(**{**llama_config().to_dict(), "sliding_window": 8, "initializer_range": 0.3})
    save_model(tmp_path / "one", config, "MistralForCausalLM")
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(tmp_path / "one")
    content = study([{"label": "one", "source": str(tmp_path / "one")}], conditions=["none"])
    run = performed(content, tmp_path)
    found = scores(run, "one", "none", "all")
    received = exported(run).filter(queries="all", prompt=2, layer=1, head=0)["received"][0]
    times = len(received) / 8  # a share of the queries that see it, so an error grows as much
    assert found.scores["sink"][2, 1, 0] == pytest.approx(received[0] * times, abs=SUMMED * times)
    assert found.scores["sink"].max() <= 1 + SUMMED * times


def test_a_head_is_called_what_it_clearly_is() -> None:
    named = {
        "sink": {"sink": 0.9},
        "previous": {"previous": 0.7, "local": 0.9},
        "local": {"local": 0.95, "previous": 0.1, "sink": 0.41},
        "induction": {"induction": 0.6, "repeated": 0.5},
        "uniform": {"uniform": 0.95, "sink": 0.2},
        "mixed": {"sink": 0.3, "previous": 0.3, "local": 0.35},
    }
    names = ("sink", *PATTERNS, "uniform")
    means = {name: np.array([[given.get(name, 0.0) for given in named.values()]]) for name in names}
    chance = {name: np.full((1, len(named)), 0.05) for name in names}
    assert _kinds(means, chance)[0].tolist() == list(named)
    chance = {name: np.full((1, len(named)), 0.5) for name in names}  # no more than uniform attention would give
    assert "previous" not in _kinds(means, chance)[0].tolist()
