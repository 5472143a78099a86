"""What an attention edit declares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from attnscope.spec import Spec
from attnscope.text.rules import Tokenized

Number = Annotated[int, Field(ge=0)]
Numbers = Annotated[tuple[Number, ...], Field(min_length=1)]
Chosen = Literal["all"] | Numbers
"""All layers or heads, or their numbers from 0."""


class AttentionEdit(Spec):
    """One change to attention, in some layers.

    The class's docstring is its meaning in the docs; its fields are its keys, one of them `key`.
    """

    key: ClassVar[str]
    """The field that names it."""
    changes: ClassVar[Literal["weights", "outputs"]] = "weights"
    """What it changes: attention weights, or the outputs of heads."""
    control_words: ClassVar[str] = ""
    """What `control` draws, as in "as many random tokens"; empty if there is no control."""
    words: ClassVar[Mapping[str, str]] = {}
    """What study files call its fields, as in {"keys": "hide"}, where that is not the field's own name."""
    word: ClassVar[str]
    """What study files call the field of its key."""

    layers: Chosen = Field("all", description="all, or numbers from 0.")

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        if getattr(cls, "key", None) not in cls.model_fields or not (cls.__doc__ or "").strip():
            raise ValueError(f"attention edit {cls.__name__}: it needs a docstring and a field named by its key")
        cls.word = next((word for word, field in cls.words.items() if field == cls.key), cls.key)

    @field_validator("layers", mode="before")
    @classmethod
    def _listed(cls, data: Any) -> Any:
        return tuple(data) if isinstance(data, range) else data

    @field_validator("layers")
    @classmethod
    def _each_once(cls, layers: Any) -> Any:
        return each_once(layers)

    def applies_to(self, layer: int) -> bool:
        """Whether it changes anything in a layer, numbered from 0."""
        return self.layers == "all" or layer in self.layers

    def named(self, every: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """By layer that it changes, the heads that it names: those of a field `heads`, unless these are all.

        every: the layers that "all" stands for.
        """
        heads = getattr(self, "heads", ())
        numbers = tuple(each for each in heads if isinstance(each, int)) if isinstance(heads, list | tuple) else ()
        return dict.fromkeys(every if self.layers == "all" else self.layers, numbers)

    def placed(self, prompt: Tokenized) -> Self:
        """The edit for one prompt, with names of classes and query groups replaced by positions. By default, itself."""
        return self

    def control(self, prompt: Tokenized, heads: Mapping[int, int], rng: Random) -> Self | None:
        """A change of the same size to something else, drawn at random; None if there is not enough else.

        For placed edits whose class has `control_words`. heads: how many each layer has.
        """
        return None

    def weights(self, weights: Any, layer: int, heads: Sequence[int], q: Any, k: Any) -> Any:
        """Changed attention weights of a block of rows; called only for layers it applies to, once placed.

        weights (heads, rows, keys): attention after the softmax, 0 where a row does not see a key. heads: the numbers
        of the heads in it. q (rows,) and k (keys,): positions of queries and keys. All three are tensors; use their own
        methods, so that no model library has to be imported. Return a new tensor of the same shape whose rows sum to at
        most one; don't change the given one.
        """
        raise NotImplementedError

    def outputs(self, outputs: Any, layer: int, q: Any) -> Any:
        """Changed outputs of a layer's heads, for edits whose `changes` is "outputs"; called as `weights` is.

        outputs (rows, heads, width): what each head makes of the values it looks at, before the output projection.
        q (rows,): positions of the rows. Return a new tensor of the same shape; don't change the given one.
        """
        raise NotImplementedError


def each_once(numbers: Any) -> Any:
    """For validators: numbers in order, refused if one of them is given twice."""
    if numbers == "all":
        return numbers
    if len(set(numbers)) < len(numbers):
        raise PydanticCustomError("one_of", "a number is given twice")
    return tuple(sorted(numbers))
