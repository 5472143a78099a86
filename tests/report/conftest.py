from __future__ import annotations

from pathlib import Path

import pytest

from attnscope.analysis.run import Run
from tests.analysis.conftest import CONDITIONS, performed, study
from tests.runs.conftest import save_tiny

HOSTILE = "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'> **bold** & \"quoted\" {{ 7 * 7 }}"
FIGURES = [
    {"name": "mass", "kind": "bars", "classes": ["question", "inserted"]},
    {"name": "along", "kind": "lines", "conditions": ["none", "filler"], "queries": "all"},
    {"name": "change", "kind": "heatmap", "measure": "question", "difference": ["none", "filler"]},
    {"name": "why", "kind": "decomposition", "queries": "last"},
    {"name": "dots", "kind": "spread", "classes": ["question"]},
    {"name": "text", "kind": "strip", "conditions": ["filler"]},
]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("reported-model") / "one", 1)


@pytest.fixture(scope="session")
def reported(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One figure of each kind; one prompt is too long with the filler and is dropped."""
    lines = study(
        [{"label": "one", "source": str(model)}],
        title="A tiny report",
        question="Where does it look?",
        figures=FIGURES,
    )
    lines["prompts"]["items"][3]["question"] = "long " * 92
    return performed(lines, tmp_path_factory.mktemp("reported"))


@pytest.fixture(scope="session")
def hostile(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run in which every title, label and prompt would like to be markup."""
    items = [{"intro": f"Look {number}. {HOSTILE}", "question": f"{HOSTILE} # {number}"} for number in range(6)]
    shown = [
        {"name": "mass", "kind": "bars", "title": HOSTILE, "y": HOSTILE},
        {"name": "change", "kind": "heatmap", "difference": ["none", HOSTILE]},
        {"name": "text", "kind": "strip"},
    ]
    lines = study(
        [{"label": HOSTILE, "source": str(model)}],
        title=HOSTILE,
        question=HOSTILE,
        prompts={"items": items, "plain": "{intro}\n{question}"},
        conditions=["none", {**CONDITIONS[1], "name": HOSTILE}],
        classes={"sign": {"characters": "#<", "label": HOSTILE}},
        figures=shown,
    )
    return performed(lines, tmp_path_factory.mktemp("hostile"))
