"""Effects of interventions in words, which keep apart what an intervention does and what its control does as well.

Rows are those of a figure of effects: a change, and its difference from what it is compared with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attnscope.analysis.discoveries import FALSE_DISCOVERIES
from attnscope.figures import sentences
from attnscope.figures.interventions import score_words
from attnscope.figures.prose import Table

Row = Mapping[str, Any]

NAMED = 5  # heads named in a sentence


def differs(row: Row) -> bool | None:
    """Whether an effect goes beyond its control or, without one, is there at all; None if that was not tested."""
    q = row["q"] if row["against"] is None else row["difference_q"]
    return None if q is None else bool(q < FALSE_DISCOVERIES)


def sentence(row: Row, control: Row | None) -> str:
    """What an intervention changes, what its control does, and whether the rest can be shown."""
    first = _change(row)
    words = first if control is None else f"{first}; {_control(row, control)}"
    if row["difference"] is not None:
        words += f"; {_beyond(row)}"
    return f"{words}."


def _change(row: Row) -> str:
    name = score_words(row["score"]).name
    shown = _number(row, "value", "low", "high")
    n = f"mean over {sentences.prompts_in_clusters(row['n'] or 0, row['clusters'] or row['n'] or 0)}"
    if row["q"] is None:
        verb = "is" if score_words(row["score"]).one_way else "changes by"
        return f"{name} {verb} {shown}, {n} ({why_untested(row)})"
    rate, within = sentences.rate(row["q"]), _is_small(row["same_q"])
    if row["q"] < FALSE_DISCOVERIES:
        verb = "significantly raises" if row["value"] > 0 else "significantly lowers"
        small = ", within the margin" if within else ""
        return f"it {verb} {name} by {_size(row, 'value', 'low', 'high')}, {n}, {rate}{small}"
    if within:
        return f"its effect on {name} is significantly within the margin: a change of {shown}, {n}, {rate}"
    return f"no effect on {name} can be shown: a change of {shown}, {n}, not significant, {rate}"


def why_untested(row: Row) -> str:
    """Why a change has no q."""
    if row["low"] is None:
        return sentences.untested(row["n"] or 0, row["clusters"])
    return score_words(row["score"]).one_way or "not tested"


def _control(row: Row, control: Row) -> str:
    """What the control does; it is there to be subtracted, so its own test is not quoted, unless the draw matters."""
    n = "" if control["n"] == row["n"] else f", n = {control['n']}"
    words = f"its control changes it by {_number(control, 'value', 'low', 'high')}{n}"
    if not _is_small(control["difference_q"]):
        return words
    apart = _number(control, "difference", "difference_low", "difference_high")
    return (
        f"{words}, though two draws of it differ significantly, by {apart} ({sentences.rate(control['difference_q'])})"
    )


def _beyond(row: Row) -> str:
    """What is left of a change once that of the control is subtracted."""
    ends = ("difference", "difference_low", "difference_high")
    many = f", n = {row['pairs']}" if row["pairs"] != row["n"] else ""
    shown = f"{_number(row, *ends)}{many}"
    if row["difference_q"] is None:
        return f"the difference is {shown} ({sentences.untested(row['pairs'] or 0, row['clusters'])})"
    rate, within = sentences.rate(row["difference_q"]), _is_small(row["difference_same_q"])
    if row["difference_q"] < FALSE_DISCOVERIES:
        small = ", within the margin" if within else ""
        if row["difference"] * row["value"] > 0 and abs(row["difference"]) <= abs(row["value"]):
            return f"{_size(row, *ends)}{many} of it goes significantly beyond the control ({rate}){small}"
        return f"a change of {shown} is significant beyond the control ({rate}){small}"
    if within:
        return f"beyond the control, the change is significantly within the margin: {shown} ({rate})"
    return f"no effect beyond the control can be shown: {shown} (not significant, {rate})"


def _is_small(q: float | None) -> bool:
    return q is not None and q < FALSE_DISCOVERIES


def _number(row: Row, value: str, low: str, high: str) -> str:
    return _with_unit(row, row[value], row[low], row[high])


def _size(row: Row, value: str, low: str, high: str) -> str:
    """Without a sign, where the verb has it."""
    ends = (row[low], row[high])
    if row[value] < 0 and None not in ends:
        ends = (-row[high], -row[low])
    return _with_unit(row, abs(row[value]), *ends)


def _with_unit(row: Row, value: float, low: float | None, high: float | None) -> str:
    """`1.5 nats (1.4 to 1.6)`."""
    shown = sentences.number(value)
    return sentences.with_interval(value, low, high).replace(shown, f"{shown}{score_words(row['score']).unit}", 1)


def table(title: str, rows: Sequence[Row], controls: Mapping[str, Row]) -> Table:
    """A row for each intervention or class, where there are too many for sentences."""
    columns = (title, "change", "of the control", "change minus the control's", "n")
    cells = tuple(
        (
            str(row["place"]),
            _tested(_number(row, "value", "low", "high"), row["q"]),
            _cell(controls.get(row["place"])),
            ""
            if row["difference"] is None
            else _tested(_number(row, "difference", "difference_low", "difference_high"), row["difference_q"]),
            str(row["n"]),
        )
        for row in rows
    )
    q = [row["q"] if row["against"] is None else row["difference_q"] for row in rows]
    return Table(columns, cells, tuple(each is not None and each >= FALSE_DISCOVERIES for each in q))


def _cell(row: Row | None) -> str:
    return "" if row is None else _number(row, "value", "low", "high")


def _tested(shown: str, q: float | None) -> str:
    if q is None:
        return f"{shown}, not tested"
    return f"{shown}, {'' if q < FALSE_DISCOVERIES else 'not significant, '}{sentences.rate(q)}"


def too_few(rows: Sequence[Row]) -> bool:
    """Whether none could be significant by itself, and none is."""
    least = [row["least_q"] for row in rows if row["least_q"] is not None]
    return bool(least) and min(least) >= FALSE_DISCOVERIES


def windows(rows: Sequence[Row]) -> str:
    """How many windows of a sweep over layers go beyond the control, and which one goes farthest."""
    known = [row for row in rows if differs(row) is not None]
    against = next((row["against"] for row in rows if row["against"] is not None), None)
    beyond = "the model as it is" if against is None else f'the control ("{against}")'
    most = max(rows, key=lambda row: abs(row["value"]))
    peak = (
        f"The change that is farthest from 0, significant or not, is that of {most['place']}: "
        f"{_number(most, 'value', 'low', 'high')}, n = {most['n']}."
    )
    if most["value"] == 0:
        peak = "No window changes it at all."
    if not known:
        return f"{sentences.counted(len(rows), 'window')}; {why_untested(most)}. {peak}"
    different = [row for row in known if differs(row)]
    count = f"Of {sentences.counted(len(known), 'window')} tested"
    if not different:
        few = against is None and too_few(known)
        none = "there are too few prompts for one alone to be significant" if few else "none is significant"
        return f"{count} against {beyond}, {none}. {peak}"
    name = "value" if against is None else "difference"
    down = sum(row[name] < 0 for row in different)
    farthest = max(different, key=lambda row: abs(row[name]))
    return (
        f"{count}, {len(different)} differ{'s' * (len(different) == 1)} significantly from {beyond}: "
        f"{len(different) - down} above and {down} below. Most: {farthest['place']}, where "
        f"{sentence(farthest, None)} {peak}"
    )


def heads(rows: Sequence[Row]) -> str:
    """How many heads of a sweep have a significant effect, and the strongest of them."""
    count, known = sentences.counted(len(rows), "head"), [row for row in rows if row["q"] is not None]
    if not known:
        return f"{count}; {why_untested(rows[0])}."
    strong = sorted((row for row in known if row["q"] < FALSE_DISCOVERIES), key=lambda row: -abs(row["value"]))
    if not strong:
        none = (
            "There are too few prompts or clusters for one head alone to be significant"
            if too_few(known)
            else "None is significant"
        )
        return f"{none} (of {count})."
    named = [f"{row['place']} by {_number(row, 'value', 'low', 'high')}" for row in strong[:NAMED]]
    what = "the strongest" if len(strong) > len(named) else "namely"
    return (
        f"Alone, {len(strong)} of {count} significantly change{'s' * (len(strong) == 1)} "
        f"{score_words(rows[0]['score']).name}: {what} {sentences.listed(named)}."
    )
