"""A record: the numbers measured for one prompt, with labelled axes. One type from the kernel to the store; no torch.

Numbers are stored by the name of their measure. The value for uniform attention (`NAME.uniform`), the share of queries
that have a value (`NAME.defined`) and the share of queries that see a key (`seen`) depend on what the queries can see,
not on what they attend to: layers that see the same share one row of these, a view.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import polars as pl
from numpy.typing import NDArray

from attnscope.arguments import count_of, counted, in_words, numbers_of, shown, text_of
from attnscope.errors import AttnscopeError, Parameter, near
from attnscope.records.html import as_html
from attnscope.records.labelled import Labelled
from attnscope.text.classes import OTHER, membership, refuse_segments
from attnscope.text.tokens import Token

RECEIVED, SEEN, VIEW = "received", "seen", "view"
UNIFORM, DEFINED = ".uniform", ".defined"
HEAD_AXES = ("layer", "head", "queries")
KEY_AXES = (*HEAD_AXES, "key")


@dataclass(frozen=True)
class Record:
    """One prompt's numbers. Read a measure with labelled axes by its name: `record["entropy"]`.

    arrays: `received` (layers, heads, query groups, keys) always exists; other measures have the same axes, without
    keys if they give one number per head. `view` (layers,): the view of each layer. `seen` (views, heads or 1, query
    groups, keys). `NAME.uniform`: the measure's axes, with views instead of layers, and heads or 1. `NAME.defined`
    (views, heads or 1, query groups): only for measures that not all queries have a value for.
    """

    text: str
    tokens: Sequence[Token]
    layers: Sequence[int]
    heads: Sequence[int]
    queries: Sequence[str]
    arrays: Mapping[str, NDArray[Any]]
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.measures:
            self[name]  # refuses an array with the wrong axes
        for name in (RECEIVED, VIEW, SEEN):
            if name not in self.arrays:
                raise ValueError(f"a record without {name}")

    def __repr__(self) -> str:
        axes = {"token": self.tokens, "layer": self.layers, "head": self.heads}
        tokens, layers, heads = (counted(len(labels), axis) for axis, labels in axes.items())
        queries, measures = ", ".join(self.queries), ", ".join(self.measures)
        return f"Record({tokens}; {layers}, {heads}, queries {queries}; {measures})"

    if not TYPE_CHECKING:  # a type checker knows what a record has

        def __getattr__(self, name: str) -> NoReturn:
            """Say how a measure is read."""
            words = f"a record has no attribute '{name}'"
            if not name.startswith("_") and "arrays" in vars(self):
                measured = name in self.measures
                known = {each for each in (*vars(self), *dir(type(self)), *self.measures) if not each.startswith("_")}
                words += f": read it as record['{name}']" if measured else f": {near(name, known)}"
                words += "" if measured else f"; what was measured is read as record['{RECEIVED}']"
            raise AttributeError(words, name=name)

    def _repr_html_(self) -> str:
        return as_html(self)

    @cached_property
    def measures(self) -> list[str]:
        """The names of the measures it has."""
        return [name for name in self.arrays if "." not in name and name not in (SEEN, VIEW)]

    @property
    def received(self) -> Labelled:
        """Attention that each key receives, mean over the queries of the group: layer, head, queries, key."""
        return self[RECEIVED]

    def __getitem__(self, measure: str) -> Labelled:
        """A measure's numbers: layer, head, queries, and key if it has one per key; NaN where no query has a value."""
        if not isinstance(measure, str) or measure not in self.measures:
            raise AttnscopeError(
                f"measure '{measure}' was not measured",
                where=f"record[{shown(measure)}]",
                allowed=near(measure, self.measures),
                todo=f"measure it: measures=['{measure}']" if isinstance(measure, str) else "name one of these",
            )
        values = self.arrays[measure]
        if f"{measure}{DEFINED}" in self.arrays:
            none = self._by_layer(f"{measure}{DEFINED}").values == 0
            values = np.where(none if values.ndim == none.ndim else none[..., None], np.nan, values)
        return self._labelled(values)

    def uniform(self, measure: str = RECEIVED) -> Labelled:
        """The measure's value if every query attended equally to all keys it sees."""
        self[measure]  # refuses an unknown one
        return self._by_layer(f"{measure}{UNIFORM}")

    @property
    def seen(self) -> Labelled:
        """The share of the group's queries that can see each key."""
        return self._by_layer(SEEN)

    def defined(self, measure: str) -> Labelled:
        """The share of the group's queries for which the measure has a value."""
        self[measure]  # refuses an unknown one
        if f"{measure}{DEFINED}" in self.arrays:
            return self._by_layer(f"{measure}{DEFINED}")
        return self._labelled(np.ones((len(self.layers), len(self.heads), len(self.queries)), dtype=np.float32))

    def _by_layer(self, name: str) -> Labelled:
        by_view = self.arrays[name][self.arrays[VIEW]]  # (layers, heads or 1, ...)
        return self._labelled(np.broadcast_to(by_view, (len(by_view), len(self.heads), *by_view.shape[2:])))

    def _labelled(self, values: NDArray[Any]) -> Labelled:
        labels = {"layer": self.layers, "head": self.heads, "queries": self.queries, "key": range(len(self.tokens))}
        return Labelled(values, KEY_AXES if values.ndim == len(KEY_AXES) else HEAD_AXES, labels)

    @property
    def row_sums(self) -> Labelled:
        """The sum of attention over keys: one, except for models that leave a share to a sink."""
        return self._labelled(np.asarray(self.arrays[RECEIVED].sum(-1)))

    def mass(self, classes: Mapping[str, str], measure: str = RECEIVED) -> pl.DataFrame:
        """How much of each head's attention lands on each class, and how much uniform attention would put there.

        A tidy table: layer, head, queries, token_class, mass, expected; `other` is what no class claims. measure: sum
        another measure with one number per key, instead of attention received; null where no query has a value of it.
        """
        shares = self._shares(classes)
        self._refuse_without_keys(measure)
        mass = self[measure].values.astype(np.float64) @ shares.T  # (layers, heads, groups, classes)
        expected = self.uniform(measure).values.astype(np.float64) @ shares.T
        none = self.defined(measure).values[..., None] == 0
        mass, expected = (np.where(none, np.nan, each) for each in (mass, expected))
        layer, head, group, number = np.indices(mass.shape).reshape(4, -1)
        return pl.DataFrame(
            {
                "layer": np.asarray(self.layers, dtype=np.int64)[layer],
                "head": np.asarray(self.heads, dtype=np.int64)[head],
                "queries": np.asarray(self.queries)[group],
                "token_class": np.asarray([*classes, OTHER])[number],
                "mass": mass.ravel(),
                "expected": expected.ravel(),
            }
        ).with_columns(pl.col("mass", "expected").fill_nan(None))

    def _shares(self, classes: Mapping[str, str]) -> NDArray[np.float64]:
        """(classes + 1, tokens): each token's share in each class. A record's text has no segments."""
        shares = membership(classes, self.text, self.tokens)
        refuse_segments(classes, lambda name, rule: Parameter("classes", {name: rule}))
        return shares

    def _refuse_without_keys(self, measure: str) -> None:
        if "key" not in self[measure].axes:
            raise AttnscopeError(
                f"measure '{measure}' has one number per head, none per key",
                where=Parameter("measure", measure),
                allowed=", ".join(name for name in self.measures if "key" in self[name].axes),
                todo="use one of these",
            )

    def top(self, rule: str, count: int = 5, queries: str | None = None) -> pl.DataFrame:
        """The heads that attend most to what a class rule claims, such as 're:[0-9]+': layer, head, mass, expected."""
        wanted = self.queries[0] if queries is None else queries
        if not isinstance(wanted, str) or wanted not in self.queries:
            raise AttnscopeError(
                f"query group '{wanted}' was not measured",
                where=Parameter("queries"),
                allowed=", ".join(self.queries),
                todo="use one of these",
            )
        most = count_of(count, "count", "leave it out for 5 heads, or choose a larger number")
        claimed = {"class": text_of(rule, "rule", "a class rule such as 're:[0-9]+'")}
        refuse_segments({"rule": rule}, lambda *_: Parameter("rule", rule))
        table = self.mass(claimed).filter(pl.col("token_class") == "class", pl.col("queries") == wanted)
        return (
            table.sort("mass", descending=True, maintain_order=True)
            .head(min(most, len(table)))
            .select("layer", "head", "mass", "expected")
        )

    def unmatched(self, classes: Mapping[str, str]) -> list[str]:
        """The classes that match no token of this prompt."""
        counts = self._shares(classes).sum(1)
        return [name for name, count in zip(classes, counts, strict=False) if not count]

    def head_table(self) -> pl.DataFrame:
        """The measures with one number per head: layer, head, queries, measure, value, expected, defined."""
        frames = []
        for name in self.measures:
            values = self[name].values
            if values.ndim == len(KEY_AXES):
                continue
            layer, head, group = np.indices(values.shape).reshape(3, -1)
            frames.append(
                pl.DataFrame(
                    {
                        "layer": np.asarray(self.layers, dtype=np.int64)[layer],
                        "head": np.asarray(self.heads, dtype=np.int64)[head],
                        "queries": np.asarray(self.queries)[group],
                        "measure": [name] * values.size,
                        "value": values.astype(np.float64).ravel(),
                        "expected": self.uniform(name).values.astype(np.float64).ravel(),
                        "defined": self.defined(name).values.astype(np.float64).ravel(),
                    }
                )
            )
        table = pl.concat(frames) if frames else pl.DataFrame(schema=HEAD_TABLE)
        return table.with_columns(pl.col("value").fill_nan(None))

    def of_heads(self, heads: Sequence[int]) -> Record:
        """The record of these heads only, each once."""
        wanted = list(dict.fromkeys(numbers_of(heads, "heads")))
        for head in wanted:
            if head not in self.heads:
                raise AttnscopeError(
                    f"head {head} was not measured",
                    where=Parameter("heads"),
                    allowed=in_words("heads", self.heads),
                    todo="choose heads from these, or measure it too",
                )
        places = [list(self.heads).index(head) for head in wanted]

        def select(name: str, array: NDArray[Any]) -> NDArray[Any]:
            return array if name == VIEW or array.shape[1] == 1 else array[:, places]

        return replace(self, heads=wanted, arrays={name: select(name, each) for name, each in self.arrays.items()})

    def as_json(self, classes: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The record as plain lists and numbers."""
        content: dict[str, Any] = {
            "tokens": [vars(token) for token in self.tokens],
            "queries": list(self.queries),
            "layers": list(self.layers),
            "heads": list(self.heads),
            **{name: _or_none(self[name].values) for name in self.measures},
        }
        if classes is not None and not (isinstance(classes, Mapping) and not classes):
            content["mass"] = self.mass(classes).to_dicts()
        content["evidence"] = dict(self.evidence)
        return content


def _or_none(values: NDArray[Any]) -> list[Any]:
    """As nested lists, None instead of NaN."""
    whole = values.astype(object)
    whole[np.isnan(values)] = None
    listed: list[Any] = whole.tolist()
    return listed


HEAD_TABLE: dict[str, Any] = {
    "layer": pl.Int64,
    "head": pl.Int64,
    "queries": pl.String,
    "measure": pl.String,
    "value": pl.Float64,
    "expected": pl.Float64,
    "defined": pl.Float64,
}
