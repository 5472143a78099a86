"""What a decomposition may ask for."""

from __future__ import annotations

from collections.abc import Iterator

from attnscope.analysis.sides import SPLIT
from attnscope.figures.options import ClassOptions
from attnscope.study.consistency import Problem
from attnscope.study.schema import Study


class DecompositionOptions(ClassOptions):
    """Change, dilution and redistribution of each class; one panel per comparison of conditions."""

    def problems(self, study: Study, prompts: int | None = None) -> Iterator[Problem]:
        yield from super().problems(study, prompts)
        if SPLIT not in study.measure.queries or self.queries not in (None, SPLIT):
            what = "a change can be decomposed for a single query only, the last token"
            yield Problem(("queries",) if self.queries else ("kind",), what, f"queries: {SPLIT}")
