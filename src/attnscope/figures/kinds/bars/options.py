"""What a figure of bars may ask for."""

from __future__ import annotations

from collections.abc import Iterator

from attnscope.figures.options import ClassOptions, HeadOptions
from attnscope.study.consistency import Problem
from attnscope.study.schema import Study
from attnscope.text.classes import OTHER


class BarsOptions(ClassOptions, HeadOptions):
    """Stacked bars of classes, one group per layer; the mean over heads."""

    def problems(self, study: Study, prompts: int | None = None) -> Iterator[Problem]:
        yield from super().problems(study, prompts)
        beside = [name for name in self.classes or () if name not in (*study.classes, OTHER)]
        if beside and len(self.classes or ()) > 1:
            what = f"'{beside[0]}' may overlap with the others, so they can't be stacked"
            yield Problem(("classes",), what, "classes alone, or one set of `also` alone")
