"""What a figure of lines may ask for: heads by number, or those that change most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, Self

import regex
from pydantic import Field, GetJsonSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

from attnscope.analysis.columns import END, START, WITHIN, Align
from attnscope.analysis.run import Run
from attnscope.errors import near
from attnscope.figures.options import HeadSpec, OverOptions
from attnscope.spec import Spec, Whole
from attnscope.study.consistency import Problem, selector_problems
from attnscope.study.schema import Asked, Study
from attnscope.text.segments import INSERTED, selector_problem

TOP = r"^top [1-9]\d{0,2} by effect$"
Top = Annotated[str, Field(pattern=TOP)]
"""Such as 'top 6 by effect'."""


WAYS = (START, END, WITHIN)
POSITION = "position"
BINS = 20
ALIGNED = "position, {start: SEGMENT}, {end: SEGMENT} or {within: SEGMENT, bins: 20}; in short start:SEGMENT"


class AlignSpec(Spec):
    """What lines are aligned by; in short `start:question`, `end:question` or `within:question`."""

    start: str | None = Field(None, description="0 is the first token of this segment.")
    end: str | None = Field(None, description="0 is the last token of this segment.")
    within: str | None = Field(None, description="By relative position within this segment, from 0 to 1.")
    bins: Whole | None = Field(
        None,
        ge=2,
        le=1000,
        description=f"With within: into how many parts of equal width it is cut; by default {BINS}.",
    )

    @model_validator(mode="before")
    @classmethod
    def _one_way(cls, data: Any) -> Any:
        if isinstance(data, str):
            way, colon, segment = data.partition(":")
            data = {way: segment} if colon and segment and way in WAYS else {data: None}
        if not isinstance(data, dict):
            return data
        named = [key for key in WAYS if data.get(key) is not None]
        if len(named) != 1:
            raise PydanticCustomError("one_of", "lines are aligned by one thing", {"near": ALIGNED})
        if data.get("bins") is not None and named != [WITHIN]:
            raise PydanticCustomError("one_of", "only lines within a segment have bins", {"near": ALIGNED})
        segment = data[named[0]]
        problem = selector_problem(segment) if isinstance(segment, str) else "a segment is named by text"
        if problem is not None:
            raise PydanticCustomError("one_of", "{why}", {"why": problem, "near": ALIGNED})
        return data

    @property
    def align(self) -> Align:
        """The same for the analysis."""
        if self.within is not None:
            return Align("within", self.within, self.bins or BINS)
        return Align("start", self.start) if self.start is not None else Align("end", self.end or "")

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        short = {"type": "string", "pattern": f"^({POSITION}|({'|'.join(WAYS)}):.+)$"}
        long = handler.resolve_ref_schema(handler(schema))
        return {"anyOf": [short, long]}


class PanelSpec(HeadSpec):
    """One panel: a head, and others drawn over its tokens."""

    also: list[HeadSpec] = Field(
        default_factory=list,
        description="Other heads in the same panel; tokens of another model are matched by their characters.",
    )

    @property
    def places(self) -> list[HeadSpec]:
        """All its heads."""
        return [self, *self.also]


class LinesOptions(OverOptions):
    """Lines along the prompt, one panel per head; by default the first head of each model."""

    panels: list[PanelSpec] | None = Field(None, description="The heads to draw, one panel each.")
    heads: Top | None = Field(None, description="`top 6 by effect`: the heads whose first two lines differ most.")
    form: Literal["shared", "full", "both"] = Field(
        "both",
        description="Over the tokens that all conditions share, over the whole sequence, or both. Lines within a "
        "segment are shared unless you say full.",
    )

    align: AlignSpec | None = Field(
        None,
        description="What stands at the same place in all prompts: a token `position`, the `start` or the `end` of a "
        "segment, or a relative position `within` it. Prompts without the segment are left out.",
    )

    @field_validator("align", mode="before")
    @classmethod
    def _by_position(cls, data: Any) -> Any:
        return None if data == POSITION else data

    @field_validator("heads", mode="before")
    @classmethod
    def _ranked(cls, data: Any) -> Any:
        if data is not None and not (isinstance(data, str) and regex.fullmatch(TOP, data)):
            what = "'{given}' is not a choice of heads for lines; write 'top 6 by effect', or name heads in panels"
            raise PydanticCustomError("one_of", what, {"given": str(data)})
        return data

    @property
    def top(self) -> int | None:
        """How many heads are wanted by their effect, if they are."""
        return int(self.heads.split()[1]) if self.heads else None

    @property
    def aligned(self) -> Align | None:
        """What lines are aligned by; None for token positions."""
        return None if self.align is None else self.align.align

    @property
    def places(self) -> list[HeadSpec]:
        """The heads of all panels."""
        return [place for panel in self.panels or () for place in panel.places]

    def problems(self, study: Study, prompts: int | None = None) -> Iterator[Problem]:
        yield from super().problems(study, prompts)
        yield from self._of_top(study)
        yield from self._of_panels([model.label for model in study.models])
        yield from self._of_align(study)

    def _of_align(self, study: Study) -> Iterator[Problem]:
        align = self.aligned
        if align is None:
            return
        yield from selector_problems(study, align.segment, ("align", align.by))
        if align.segment == INSERTED and self.form != "full":
            yield Problem(("align",), "inserted text is not among the tokens that conditions share", "form: full")

    def _of_top(self, study: Study) -> Iterator[Problem]:
        if self.top is None:
            return
        if self.panels is not None:
            yield Problem(("heads",), "a figure has either heads or panels", "one of them")
        elif len(self.conditions or study.conditions) < 2:
            what = f"'{self.heads}' needs two conditions: an effect is how far apart their lines are"
            yield Problem(("heads",), what, "two conditions in the figure")

    def _of_panels(self, labels: Sequence[str]) -> Iterator[Problem]:
        panels = self.panels or []
        for number, panel in enumerate(panels):
            first = (panel.model, panel.layer, panel.head)
            if first in [(each.model, each.layer, each.head) for each in panels[:number]]:
                yield Problem(("panels", number), "this panel is listed twice", "each head once")
            if len({(each.model, each.layer, each.head) for each in panel.places}) < len(panel.places):
                yield Problem(("panels", number, "also"), "a head is listed twice", "each head once")
            for turn, place in enumerate(panel.places):
                at: tuple[str | int, ...] = ("panels", number, *(("also", turn - 1) if turn else ()))
                yield from self._of_place(place, panel, at, labels)

    def _of_place(
        self, place: HeadSpec, panel: PanelSpec, at: tuple[str | int, ...], labels: Sequence[str]
    ) -> Iterator[Problem]:
        if place.model not in labels:
            yield Problem((*at, "model"), f"there is no model '{place.model}'", near(place.model, labels))
        for key in ("layer", "head"):
            if getattr(place, key) < self.number_from:
                yield Problem((*at, key), f"there is no {key} 0 when they are numbered from 1", "numbers from 1")
        if place.model != panel.model and self.form == "full":
            yield Problem(at, "lines of two models have no whole sequence in common", "form: shared")

    def among(self, run: Run) -> Self | None:
        if self.panels is None:
            return super().among(run)
        kept = [
            panel.model_copy(update={"also": [each for each in panel.also if each.model in run.models]})
            for panel in self.panels
            if panel.model in run.models
        ]
        options = self.model_copy(update={"panels": kept})
        return options if kept and self.models_of(run) and self.conditions_of(run) else None

    def sides(self, run: Run) -> tuple[list[str], list[str]]:
        labels = list(dict.fromkeys(place.model for place in self.places))
        return labels or self.models_of(run), self.conditions_of(run)

    def renamed(self, old: str, new: str) -> Self:
        def head(place: HeadSpec) -> dict[str, Any]:
            return {"model": new if place.model == old else place.model}

        panels = self.panels and [
            panel.model_copy(
                update={**head(panel), "also": [each.model_copy(update=head(each)) for each in panel.also]}
            )
            for panel in self.panels
        ]
        return super().renamed(old, new).model_copy(update={"panels": panels})

    def asked(self, model: str) -> Asked:
        places = [place for place in self.places if place.model == model]
        layers = [place.layer - self.number_from for place in places]
        return Asked((layers,) if layers else (), [place.head - self.number_from for place in places])
