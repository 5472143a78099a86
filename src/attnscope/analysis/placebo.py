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

    For two insertions, one of them and its placebo, or else any control and its placebo. For the base prompt and an
    insertion, the base prompt and another text of the same length; for a placebo, the condition that it draws again.
    For a control and its placebo there is none: they are the null.
    """
    specs = [run.study.condition(name) for name in (one, two)]
    base = [spec.name for spec in specs if spec.is_base]
    edited = [spec for spec in specs if not spec.is_base]
    if len(base) == 1:
        wanted = [edited[0].redraws, *_of_same_length(run, edited[0].name)]
        control = next((name for name in wanted if name is not None and name in run.conditions), None)
        return None if control is None else (base[0], control)
    if placebo_of(run, one) == two or placebo_of(run, two) == one:
        return None
    for name in (two, one, *run.conditions):
        again = placebo_of(run, name)
        if again is not None:
            return name, again
    return None


def _of_same_length(run: Run, name: str) -> list[str]:
    """Conditions that insert as many tokens as another: its controls, what it controls for, and their controls."""
    specs = [run.study.condition(each) for each in run.conditions]
    others = [spec for spec in specs if spec.redraws is None and spec.name != name]
    mine = run.study.condition(name).matched
    controls = [spec.name for spec in others if name in spec.matched]
    siblings = [spec.name for spec in others if set(spec.matched) & set(mine)]
    return list(dict.fromkeys([*controls, *siblings, *mine]))
