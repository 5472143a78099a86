"""Names of what heads can be mapped by, besides classes; `analysis.measures` says what each is."""

from attnscope.measures.patterns import PATTERNS

ENTROPY = "entropy"
SINK, UNIFORM = "sink", "uniform"
SCORES = (SINK, *PATTERNS, UNIFORM)
"""Of the kinds of head anyone looks for first."""
KEPT, MOVED, TAKEN = "kept", "moved", "taken"
OF_INSERTIONS = (KEPT, MOVED, TAKEN)
MEASURES = (ENTROPY, *SCORES, *OF_INSERTIONS)
