"""What a shaded prompt may ask for."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field

from attnscope.figures.options import HeadOptions, OverOptions
from attnscope.spec import Whole
from attnscope.study.consistency import Problem
from attnscope.study.schema import Study


class StripOptions(HeadOptions, OverOptions):
    """The text of one prompt; the mean over the layers and heads chosen."""

    prompt: Whole | None = Field(None, ge=0, description="Which prompt; by default the first measured.")

    def problems(self, study: Study, prompts: int | None = None) -> Iterator[Problem]:
        yield from super().problems(study, prompts)
        if self.prompt is not None and prompts is not None and self.prompt >= prompts:
            yield Problem(("prompt",), f"there is no prompt {self.prompt}", f"0 to {prompts - 1}")
