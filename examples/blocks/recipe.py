"""All settings of the shipped adapter."""

from __future__ import annotations

from .puzzles import Stage
from .training import Settings

BASE = "smollm2-135m-instruct"

# Small grids allow few scalings: one in eleven training puzzles, one in five test puzzles.
_TRAINED = ["translate", "rotate"] * 5 + ["scale"]
_ASKED = ["translate", "rotate"] * 2 + ["scale"]

SETTINGS = Settings(
    stages=(
        Stage(steps=300, puzzles=1000, options={"moves": ["translate"], "least": 4, "most": 4}),
        Stage(steps=2000, puzzles=4800, options={"moves": _TRAINED, "least": 4, "most": 6}),
    ),
    seed=1,
    rank=16,
    alpha=32,
    rate=1e-3,
    floor=0.05,
    betas=(0.9, 0.98),
    clip=1.0,
    batch=4,
    warmup=20,
    adapted=("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
)

HELD_OUT = {"moves": _ASKED, "least": 4, "most": 6, "part": "held-out"}
HELD_OUT_COUNT = 300
HELD_OUT_SEED = 99

# In training, only shapes that are scaled down are made of two-by-two blocks, so the start alone gives the move away.
# These shapes are made like that too, but moved differently.
DECOYS = {"moves": ["translate", "rotate"], "least": 4, "most": 6, "part": "held-out", "doubled": 1.0}
DECOY_COUNT = 60
