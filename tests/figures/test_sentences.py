"""Each sentence is said where it is true, and not where it is false."""

from __future__ import annotations

from attnscope.figures import sentences


def test_extremes_are_named_unless_two_share_them() -> None:
    values = {"a": 0.1, "b": 0.3, "c": 0.2}
    assert sentences.extreme(values, "bar", most=True) == "The largest bar is 0.3000, at b (not tested)."
    assert sentences.extreme(values, "bar", most=False) == "The smallest bar is 0.1000, at a (not tested)."
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
    told = "L: b has the largest share, 75 % of the bar (not tested)."
    assert sentences.lead("L", {"a": 0.1, "b": 0.3}) == told
    assert sentences.lead("L", {"a": 0.1, "b": 0.1}) is None
    assert sentences.lead("L", {"a": 0.0, "b": 0.0}) is None
    assert sentences.lead("L", {"a": 0.1}) is None


def test_all_none_and_some_are_told_apart() -> None:
    assert sentences.consistent("x", "y", {"A": 1, "B": 2}) == "x is above y in all of A and B; not tested."
    assert sentences.consistent("x", "y", {"A": -1, "B": -2}) == "y is above x in all of A and B; not tested."
    assert sentences.consistent("x", "y", {"A": 0, "B": -2}) == "y is above x in 1 of 2: B; not tested."
    assert sentences.consistent("x", "y", {"A": 0, "B": 0}) == "x and y are equal in all of A and B."
    some = "x is above y in 2 of 3: A and C; not tested."
    assert sentences.consistent("x", "y", {"A": 1, "B": -1, "C": 2}) == some
    assert sentences.consistent("x", "y", {"A": 1}) is None


def test_names_with_commas_are_told_apart_by_semicolons() -> None:
    depths = ["2,000, start", "2,000, middle", "2,000, end"]
    assert sentences.listed(depths) == "2,000, start; 2,000, middle; and 2,000, end"
    assert sentences.listed(["a, b", "c"]) == "a, b; and c"
    assert sentences.listed(["0.1 (ns, q = 0.2)", "0.2", "0.3"]) == "0.1 (ns, q = 0.2), 0.2 and 0.3"
    assert sentences.listed(["a", "b", "c"]) == "a, b and c"
    assert sentences.few_named(["a, b", "c", "d", "e", "f"]) == "a, b; c; d; and 2 more"


def test_times_uniform_attention_has_two_digits() -> None:
    ratios = {1: "1.0", 0.94: "0.94", 5.53: "5.5", 41.2: "41", 9.97: "10", 1234: "1,234"}
    for ratio, digits in ratios.items():
        assert sentences.times_uniform(ratio) == f"{digits} times uniform attention"


def test_numbers_keep_their_digits() -> None:
    assert sentences.number(0.12345) == "0.1235"
    assert sentences.number(0.000123) == "0.000123"
    assert sentences.number(0) == "0.0000"
    assert sentences.number(-0.5) == "-0.5000"
