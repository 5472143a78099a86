"""What a request may choose in a run: names and heads, refused if the run doesn't have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attnscope.analysis.run import Run
from attnscope.errors import AttnscopeError, near

LONGEST_NAME = 80  # characters of an unknown name that an error repeats


def check_name(name: str, known: Sequence[str], what: str) -> None:
    """Refuse a name that is not one of those known."""
    if name not in known:
        shown = name[:LONGEST_NAME]
        raise AttnscopeError(
            f"there is no {what} '{shown}'", where=what, allowed=near(shown, known), todo="choose another"
        )


@dataclass(frozen=True)
class HeadChoice:
    """One head of a model, and the query group whose attention is shown."""

    model: str
    layer: int
    head: int
    queries: str

    def check(self, run: Run) -> None:
        """Refuse a head that the run doesn't have."""
        check_name(self.model, run.models, "model")
        check_name(self.queries, [group.name for group in run.groups], "queries")
        for what, number, measured in (
            ("layer", self.layer, run.layers(self.model)),
            ("head", self.head, run.heads(self.model)),
        ):
            if number not in measured:
                raise AttnscopeError(
                    f"{what} {number} of {self.model} was not measured",
                    where=what,
                    allowed=f"{what}s {measured[0]} to {measured[-1]}",
                    todo="choose another",
                )

    def index(self, run: Run) -> tuple[int, int]:
        """Its index on the layer and head axes of arrays."""
        return run.layers(self.model).index(self.layer), run.heads(self.model).index(self.head)
