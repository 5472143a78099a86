"""What depends on the view alone: which queries see a key, and what each measure would be under uniform attention.

These numbers are computed once for each view, not once for each layer.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnscope.attention.ask import Ask, PairSet
from attnscope.attention.reduce import ids_of, pair_sums, row_values_of, valued_rows
from attnscope.attention.view import Plan, View
from attnscope.measures import KEY, MEASURES, Measure, TokenIds
from attnscope.measures.received import RECEIVED
from attnscope.records import DEFINED, SEEN, UNIFORM


def view_numbers(view: View, ask: Ask, keys: int) -> dict[str, Tensor]:
    """By the names a record has for them: (B, heads or 1, m[, keys]) each."""
    if not view.numbers:
        view.numbers[SEEN] = _stacked([_seen(plan, _share(ask, plan, prompt), keys) for prompt, plan in _each(view)])
        for measure in ask.measures:
            view.numbers.update(_of_measure(view, ask, measure, keys))
    return view.numbers


def _of_measure(view: View, ask: Ask, measure: Measure, keys: int) -> dict[str, Tensor]:
    name = measure.name
    if measure is RECEIVED:
        uniform = [_uniform_received(plan, _share(ask, plan, prompt), keys) for prompt, plan in _each(view)]
        return {f"{name}{UNIFORM}": _stacked(uniform)}
    if measure.pairs is not None:
        sets = ask.pairs[name]
        both = [_uniform_pairs(plan, sets[prompt], _share(ask, plan, prompt)) for prompt, plan in _each(view)]
        return {
            f"{name}{UNIFORM}": _stacked([one for one, _ in both]),
            f"{name}{DEFINED}": _stacked([two for _, two in both]),
        }
    values = [
        _uniform_measure(measure, plan, view, _share(ask, plan, prompt), keys, ids_of(ask, prompt))
        for prompt, plan in _each(view)
    ]
    numbers = {f"{name}{UNIFORM}": _stacked(values)}
    if measure.partial:
        shares = [_defined(measure, plan, view, ask, prompt) for prompt, plan in _each(view)]
        numbers[f"{name}{DEFINED}"] = _stacked(shares)
    return numbers


def _defined(measure: Measure, plan: Plan, view: View, ask: Ask, prompt: int) -> Tensor:
    """(heads or 1, m): the share of queries that have a value."""
    share = _share(ask, plan, prompt)
    valued = valued_rows(measure, view.positions[: share.shape[1]], ids_of(ask, prompt))
    counted = share if valued is None else share * valued
    return counted.sum(-1).expand(len(plan.visible), -1)


def _each(view: View) -> list[tuple[int, Plan]]:
    return list(enumerate(view.plans))


def _stacked(parts: list[Tensor]) -> Tensor:
    most = max(len(part) for part in parts)
    return torch.stack([part.expand(most, *part.shape[1:]) for part in parts])


def _share(ask: Ask, plan: Plan, prompt: int) -> Tensor:
    """(m, rows): the prompt's row weights, as far as its plan goes."""
    return ask.weights[prompt, :, : plan.visible.shape[1]]


def _uniform_received(plan: Plan, share: Tensor, keys: int) -> Tensor:
    """(heads or 1, m, keys): what each key would receive if every row attended to all it sees alike."""
    return _spread(plan, share / plan.visible.clamp(min=1)[:, None], keys)


def _seen(plan: Plan, share: Tensor, keys: int) -> Tensor:
    """(heads or 1, m, keys): how much of each group's weight lies on rows that see the key."""
    return _spread(plan, share.expand(len(plan.visible), -1, -1), keys)


def _spread(plan: Plan, share: Tensor, keys: int) -> Tensor:
    """Each row's share (heads or 1, m, rows) added to every key it sees."""
    total = share.new_zeros(*share.shape[:2], keys)
    for block in plan.blocks:
        part = share[..., block.start : block.stop]
        done = block.first
        for first, last, keep in (*block.edges, (block.last, block.last, None)):
            total[..., done:first] += part.sum(-1, keepdim=True)
            if keep is not None:  # summed, not subtracted from the whole: a key that no row sees has exactly nothing
                total[..., first:last] += part @ keep.to(part.dtype)
            done = last
    return total


def _uniform_weights(plan: Plan, like: Tensor) -> list[tuple[int, int, int, int, Tensor]]:
    """Block by block: rows [start, stop), keys [first, last), and uniform attention (heads or 1, rows, keys)."""
    heads = len(plan.visible)
    weights = []
    for block in plan.blocks:
        visible = plan.visible[:, block.start : block.stop, None].clamp(min=1)
        weights.append((block.start, block.stop, block.first, block.last, block.seen(heads, like) / visible))
    return weights


def _uniform_pairs(plan: Plan, pairs: PairSet, share: Tensor) -> tuple[Tensor, Tensor]:
    """(heads or 1, m) each: what uniform attention puts on the pairs' keys, and the share of queries that have one."""
    pairs = pairs.to(share.device)
    value = share.new_zeros(len(plan.visible), len(share))
    having = torch.zeros_like(value)
    for start, stop, first, _, weights in _uniform_weights(plan, share):
        sums = pair_sums(weights, pairs, start, first)  # (heads or 1, rows)
        value += sums @ share[:, start:stop].t()
        having += (sums > 0).to(share.dtype) @ share[:, start:stop].t()
    return value, having


def _uniform_measure(
    measure: Measure, plan: Plan, view: View, share: Tensor, keys: int, ids: TokenIds | None
) -> Tensor:
    """(heads or 1, m[, keys])."""
    rule = measure.uniform or measure.block
    if rule is None:
        raise ValueError(f"{measure.name} has no block")
    per_key = measure.axes == KEY
    shape = (len(plan.visible), len(share), keys) if per_key else (len(plan.visible), len(share))
    total = share.new_zeros(shape)
    positions = torch.arange(keys, device=share.device)
    for start, stop, first, last, weights in _uniform_weights(plan, share):
        values = row_values_of(rule, measure, weights, view.positions[start:stop], positions[first:last], ids)
        part = share[:, start:stop]
        values = _of_read_rows(measure, values, part)
        if per_key:
            total[..., first:last] += part @ values
        else:
            total += values @ part.t()
    return total


def _of_read_rows(measure: Measure, values: Tensor, share: Tensor) -> Tensor:
    """Values (heads or 1, rows[, keys]) with 0 in rows that no group reads, which may see nothing; share (m, rows)."""
    read = (share != 0).any(0)
    values = values.masked_fill(~(read[:, None] if values.dim() == 3 else read), 0)
    if not bool(values.isfinite().all()):
        part = "block" if measure.uniform is None else "uniform"
        raise MEASURES.mistake(
            measure.name, part, "gives numbers that are not finite for uniform attention", "finite values"
        )
    return values
