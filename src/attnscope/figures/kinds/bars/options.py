"""What a figure of bars may ask for."""

from __future__ import annotations

from attnscope.figures.options import ClassOptions, HeadOptions


class BarsOptions(ClassOptions, HeadOptions):
    """Stacked bars of classes, one group per layer; the mean over heads."""
