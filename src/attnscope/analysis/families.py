"""What q is the false discovery rate of, in words. A family belongs to a comparison or to a course: it is the same
whatever a figure shows of it, so that a difference has one q in all figures of a run.
"""

from __future__ import annotations

ALL_HEADS = "among all heads tested"
HEADS_AND_CLASSES = "among all heads and classes tested"
CLASSES = "among the comparison's classes, those not shown included"
IN_LAYERS = "among all classes in all measured layers of the comparison, those not shown included"
POSITIONS = "among the positions of a line"
INTERVENTIONS = "among all interventions of the run and all places of sweeps, those not shown included"


def along(*, of_classes: bool) -> str:
    """Of the points of a trajectory, which shows classes or else a quantity or a score."""
    places = "among all places of a line"
    return f"{places} and of the same line of all other classes, those not shown included" if of_classes else places
