"""What the shipped adapter was made with: every number of it."""

from __future__ import annotations

from .puzzles import Stage
from .training import Settings

BASE = "smollm2-135m-instruct"
HELD_OUT_SEED = 99
HELD_OUT_COUNT = 300

_MIXED = ["translate", "rotate"] * 5 + ["scale"]  # of scalings there are only some hundred on grids so small

SETTINGS = Settings(
    stages=(
        Stage(steps=300, puzzles=1000, options={"moves": ["translate"], "least": 4, "most": 4}),
        Stage(steps=2000, puzzles=4800, options={"moves": _MIXED, "least": 4, "most": 6}),
    )
)
