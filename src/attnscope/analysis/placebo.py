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
    prompt and a control of that insertion: what any text of this length does. For a control and its placebo there is
    none: they are the null.
    """
    specs = [run.study.condition(name) for name in (one, two)]
    base = [spec.name for spec in specs if spec.is_base]
    edited = [spec for spec in specs if not spec.is_base]
    if len(base) == 1:
        controls = [name for name in run.conditions if edited[0].name in run.study.condition(name).matched]
        wanted = [placebo_of(run, edited[0].name), edited[0].redraws, *controls]
        control = next((name for name in wanted if name is not None and name in run.conditions), None)
        return None if control is None else (base[0], control)
    for name, other in ((two, one), (one, two)):
        again = placebo_of(run, name)
        if again is not None and again != other:
            return name, again
    return None
