"""Each sentence is said where it is true, and not where it is false."""

from __future__ import annotations

from attnscope.figures import sentences


def test_extremes_are_named_unless_two_share_them() -> None:
    values = {"a": 0.1, "b": 0.3, "c": 0.2}
    assert sentences.extreme(values, "bar", most=True) == "The largest bar is 0.3000, at b."
    assert sentences.extreme(values, "bar", most=False) == "The smallest bar is 0.1000, at a."
    assert sentences.extreme({"a": 0.1, "b": 0.1}, "bar", most=True) is None
    assert sentences.extreme({"a": 0.1}, "bar", most=True) is None


def test_a_trend_holds_at_every_step_or_is_not_claimed() -> None:
    assert "rises at every step from a (0.1000) to c (0.3000)" in str(
        sentences.trend({"a": 0.1, "b": 0.2, "c": 0.3}, "It")
    )
    assert "falls at every step" in str(sentences.trend({"a": 0.3, "b": 0.2, "c": 0.1}, "It"))
    assert sentences.trend({"a": 0.1, "b": 0.3, "c": 0.2}, "It") is None
    assert sentences.trend({"a": 0.1, "b": 0.1, "c": 0.2}, "It") is None
    assert sentences.trend({"a": 0.1, "b": 0.2}, "It") is None


def test_a_comparison_tells_the_larger_and_whether_intervals_are_apart() -> None:
    apart = sentences.comparison("L", ("x", 0.4, 0.35, 0.45), ("y", 0.2, 0.15, 0.25))
    assert apart == "L: x is above y, 0.4000 to 0.2000, by 0.2000 (x2.00); not tested, their intervals do not overlap."
    swapped = sentences.comparison("L", ("x", 0.2, 0.15, 0.25), ("y", 0.4, 0.35, 0.45))
    assert (
        swapped == "L: y is above x, 0.4000 to 0.2000, by 0.2000 (x2.00); not tested, their intervals do not overlap."
    )
    touching = sentences.comparison("L", ("x", 0.3, 0.2, 0.4), ("y", 0.2, 0.1, 0.3))
    assert touching is not None
    assert touching.endswith("their intervals overlap.")
    assert "interval" not in str(sentences.comparison("L", ("x", 0.3, None, None), ("y", 0.2, None, None)))
    assert sentences.comparison("L", ("x", 0.2, None, None), ("y", 0.2, None, None)) == "L: x and y are equal (0.2000)."
    assert "(x" not in str(sentences.comparison("L", ("x", 0.2, None, None), ("y", 0.0, None, None)))


def test_the_leading_part_is_told_with_its_share() -> None:
    assert sentences.lead("L", {"a": 0.1, "b": 0.3}) == "L: b has the largest share, 75 % of the bar."
    assert sentences.lead("L", {"a": 0.1, "b": 0.1}) is None
    assert sentences.lead("L", {"a": 0.0, "b": 0.0}) is None
    assert sentences.lead("L", {"a": 0.1}) is None


def test_all_none_and_some_are_told_apart() -> None:
    assert sentences.consistent("x", "y", ["A", "B"], [True, True]) == "x is above y in all of A and B; not tested."
    assert sentences.consistent("x", "y", ["A", "B"], [False, False]) == "x is above y in none of A and B; not tested."
    assert (
        sentences.consistent("x", "y", ["A", "B", "C"], [True, False, True])
        == "x is above y in 2 of 3: A and C; not tested."
    )
    assert sentences.consistent("x", "y", ["A"], [True]) is None


def test_numbers_keep_their_digits() -> None:
    assert sentences.number(0.12345) == "0.1235"
    assert sentences.number(0.000123) == "0.000123"
    assert sentences.number(0) == "0.0000"
    assert sentences.number(-0.5) == "-0.5000"
