"""Arrays with named axes and labels along them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnscope.arguments import listed, shown, whole_number
from attnscope.errors import AttnscopeError, near

Label = int | str
"""What a place on an axis is called: a number, such as a layer's, or a name, such as a query group's."""


@dataclass(frozen=True)
class Labelled:
    """An array with named axes and labels along them.

    `at` selects by label; indexing with `[...]` and numpy functions work by position, as on any array.
    """

    values: NDArray[Any]
    axes: tuple[str, ...]
    labels: Mapping[str, Sequence[Any]]

    def __post_init__(self) -> None:
        shape = tuple(len(self.labels[axis]) for axis in self.axes)
        if self.values.shape != shape:
            raise ValueError(
                f"an array of shape {self.values.shape} has axes {dict(zip(self.axes, shape, strict=True))}"
            )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype, copy=copy)

    def __getitem__(self, place: Any) -> Any:
        """By position, as on a numpy array."""
        return self.values[place]

    def __len__(self) -> int:
        return len(self.values)

    def __float__(self) -> float:
        """The number that is left once every axis has a label."""
        if self.axes:
            raise AttnscopeError(
                "an array with axes is not one number",
                where=repr(self),
                allowed="an array without axes",
                todo=f"choose a label on each axis: at({', '.join(f'{axis}=...' for axis in self.axes)})",
            )
        return float(self.values)

    def __repr__(self) -> str:
        if not self.axes:
            return f"Labelled({self.values})"
        return f"Labelled({', '.join(f'{axis}: {len(self.labels[axis])}' for axis in self.axes)})"

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        return self.values.shape

    def at(self, **labels: Label | Sequence[Label] | NDArray[Any]) -> Labelled:
        """The part with these labels, by axis: `at(layer=16, head=[0, 3])`.

        One label drops its axis; a list of labels keeps it, in the order given.
        """
        values, axes, kept = self.values, list(self.axes), dict(self.labels)
        for axis, wanted in labels.items():
            if axis not in axes:
                raise AttnscopeError(
                    f"there is no axis '{axis}'",
                    where=f"at({axis}=...)",
                    allowed=near(axis, axes),
                    todo="name one of its axes",
                )
            several = listed(wanted)
            if several is None:
                values = np.take(values, self._places(axis, kept[axis], [wanted])[0], axis=axes.index(axis))
                axes.remove(axis)
            else:
                places = self._places(axis, kept[axis], several)
                values = np.take(values, places, axis=axes.index(axis))
                kept[axis] = [kept[axis][place] for place in places]
        return Labelled(np.asarray(values), tuple(axes), {axis: kept[axis] for axis in axes})

    def _places(self, axis: str, labels: Sequence[Any], wanted: Sequence[object]) -> list[int]:
        if not wanted:
            raise AttnscopeError(
                f"no {axis} is named",
                where=f"at({axis}=[])",
                allowed=f"one or several of {shown(list(labels))}",
                todo=f"name at least one, or leave {axis} out for all",
            )
        known = {_key(label): place for place, label in reversed(list(enumerate(labels)))}
        for each in wanted:
            if _key(each) not in known:
                raise AttnscopeError(
                    f"there is no {axis} {shown(each)}",
                    where=f"at({axis}={shown(each)})",
                    allowed=near(each, map(str, labels)),
                    todo=f"use one of the {axis} labels",
                )
        return [known[_key(each)] for each in wanted]


def _key(label: object) -> Hashable:
    """What tells a label from others: a number of any type is that number, but True is not 1."""
    if isinstance(label, str):
        return str(label)
    try:
        return whole_number(label)
    except TypeError:
        return type(label), label if isinstance(label, Hashable) else None
