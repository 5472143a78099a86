"""Quantities: numbers derived from attention on sets of tokens, such as a lookback ratio. One kind per module of this
package or of a plugin.

A plugin offers its own under the entry points `attnscope.quantities`:

    [project.entry-points."attnscope.quantities"]
    ratio = "my_package.ratio:Ratio"
"""

from __future__ import annotations

from typing import Annotated

from attnscope.quantities.quantity import Named, Quantity, Shares
from attnscope.registry import Registry
from attnscope.spec import OneOf

QUANTITIES: Registry[type[Quantity]] = Registry(
    "quantity",
    package="attnscope.quantities",
    group="attnscope.quantities",
    is_member=lambda thing: isinstance(thing, type) and issubclass(thing, Quantity) and thing is not Quantity,
    named_by="key",
)

AnyQuantity = Annotated[Quantity, OneOf("a quantity", Quantity, lambda: QUANTITIES.members)]
"""In a study file: a mapping with the key of one kind."""

__all__ = ["QUANTITIES", "AnyQuantity", "Named", "Quantity", "Shares"]
