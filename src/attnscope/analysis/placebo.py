"""The null of a comparison: what a control drawn a second time gives where nothing but chance differs.

A study asks for it with `control: redraw`. Distances, ranks and counts of heads mean little by themselves: two random
sentences of one length also give a ranking of heads, and a reliable one. What counts is what goes beyond the placebo.
"""

from __future__ import annotations

from attnscope.analysis.run import Run


def placebo_of(run: Run, condition: str) -> str | None:
    """The condition that draws this one a second time, if the run has it."""
    drawn = (name for name in run.conditions if run.study.condition(name).redraws == condition)
    return next(drawn, None)


def null_of(run: Run, one: str, two: str) -> tuple[str, str] | None:
    """Two conditions whose difference is the null of the difference between two others.

    For a control and what it controls for, the control and its placebo. For the base prompt and an insertion, the base
    prompt and a control of that insertion: what any text of this length does.
    """
    for name in (two, one):
        again = placebo_of(run, name)
        if again is not None:
            return name, again
    base = [name for name in (one, two) if run.study.condition(name).is_base]
    edited = [name for name in (one, two) if name not in base]
    if not base or not edited:
        return None
    controls = (name for name in run.conditions if edited[0] in run.study.condition(name).matched)
    control = next((name for name in controls if run.study.condition(name).redraws is None), None)
    return None if control is None else (base[0], control)
