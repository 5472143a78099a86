"""Phases of a command: every second counts once, for the innermost phase that is open."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnscope import clock as module
from attnscope.clock import PHASES, Clock, Phase, duration, phases_in_words


class Time:
    """A time that moves on only when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    fake = Time()
    monkeypatch.setattr(module, "time", fake)
    return fake


def test_a_phase_within_another_stops_the_outer_one(time: Time) -> None:
    now, clock = time, Clock()
    with clock.phase("measuring"):
        now.now += 2
        with clock.phase("proof"):
            now.now += 5
        now.now += 1
        assert clock.phases == {"proof": 5.0, "measuring": 3.0}
    now.now += 7  # between phases
    assert clock.phases == {"proof": 5.0, "measuring": 3.0}
    assert clock.seconds == 15


def test_an_error_ends_a_phase_and_another_thread_opens_none(time: Time) -> None:
    now, clock = time, Clock()

    def fail() -> None:
        with clock.phase("loading"):
            now.now += 1
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()

    def elsewhere() -> None:
        with clock.phase("proof"):
            now.now += 3

    with clock.phase("measuring"):
        worker = threading.Thread(target=elsewhere)
        worker.start()
        worker.join()
    assert clock.phases == {"loading": 1.0, "measuring": 3.0}


STEPS = st.lists(st.tuples(st.sampled_from([*PHASES, None]), st.integers(0, 9)), max_size=30)


@given(STEPS)
def test_no_second_counts_twice(steps: list[tuple[Phase | None, int]]) -> None:
    """A phase name opens it, None closes the innermost; then so many seconds pass."""
    with pytest.MonkeyPatch.context() as patch:
        now = Time()
        patch.setattr(module, "time", now)
        clock, open_ones, expected = Clock(), [], dict.fromkeys(PHASES, 0.0)
        for name, seconds in steps:
            if name is not None:
                entered = clock.phase(name)
                entered.__enter__()
                open_ones.append((name, entered))
            elif open_ones:
                open_ones.pop()[1].__exit__(None, None, None)
            now.now += seconds
            if open_ones:
                expected[open_ones[-1][0]] += seconds
        assert clock.phases == {name: seconds for name, seconds in expected.items() if seconds}
        assert sum(clock.phases.values()) <= clock.seconds == sum(seconds for _, seconds in steps)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (119.4, "119 s"),
        (120, "2 min"),
        (200, "3 min 20 s"),
        (7500, "2 h 5 min"),
    ],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_phases_in_words_leave_out_what_took_no_time() -> None:
    assert phases_in_words({"loading": 2.06, "tables": 0.01, "figures": 12.2}) == "loading 2.1 s, figures 12 s"
    assert phases_in_words({}) == ""
