"""What a figure of the spread over prompts may ask for."""

from __future__ import annotations

from attnscope.figures.options import ClassOptions, HeadOptions, MeasureOptions


class SpreadOptions(ClassOptions, MeasureOptions, HeadOptions):
    """Dots, one per prompt; the mean over the layers and heads chosen. One panel per class, or one for the measure."""
