"""What interventions rank heads by: the mean over prompts of a class, a set, a quantity or a measure, head by head."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from attnscope.analysis.derived import derived_values
from attnscope.analysis.head_values import head_values
from attnscope.analysis.run import Run
from attnscope.analysis.sides import Side, masses
from attnscope.analysis.spread import mean_of_seen
from attnscope.errors import AttnscopeError
from attnscope.study.interventions import TopSpec

Ranks = dict[tuple[int, int], float]
"""By layer and head."""


def ranks(folder: Path, model: str, top: TopSpec) -> Ranks:
    """What a model's heads have, from the tables of a run that may not be finished; heads without a value are left out.

    Of a difference between two models, the heads of both, whichever model they are for.
    """
    run = Run(folder, unfinished=True)
    if top.difference is None:
        return _means(run, model, top)
    one, two = (_means(run, label, top) for label in top.difference)
    if one.keys() != two.keys():
        raise AttnscopeError(
            f"{top.difference[0]} and {top.difference[1]} have different heads",
            where=f"interventions, top {top.top} by {top.by}",
            allowed="two models with the same heads, such as a model and its fine-tune",
            todo="rank the heads of each model by itself",
        )
    return {head: two[head] - one[head] for head in two}


def _means(run: Run, model: str, top: TopSpec) -> Ranks:
    condition = top.condition or run.study.conditions[0].name
    queries = top.queries or run.queries[0]
    if top.by in run.token_sets:
        values = masses(run, model, condition, queries).of([top.by])[0]
    elif top.by in run.study.quantities:
        values = derived_values(Side(run, model, condition), queries, top.by)[1]
    else:
        values = head_values(run, model, condition, queries, top.by).value
    means = mean_of_seen(values, 0)
    places = np.argwhere(~np.isnan(means))
    layers, heads = run.layers(model), run.heads(model)
    return {(layers[row], heads[column]): float(means[row, column]) for row, column in places.tolist()}
