"""Deadlines fire once and in order. Moved and removed deadlines do not accumulate in memory."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kproto.deadlines import Deadlines

KEYS = st.integers(0, 5)
TIMES = st.integers(0, 50)
MOVES = st.one_of(
    st.tuples(st.just("set"), KEYS, TIMES),
    st.tuples(st.just("drop"), KEYS),
    st.tuples(st.just("take"), TIMES),
)


def linear_search(times: dict[int, int], now: int) -> list[int]:
    """Remove and return the due deadlines, ordered by time. `times` is in the order of the `set` calls."""
    due = sorted((key for key, at in times.items() if at <= now), key=times.__getitem__)
    for key in due:
        del times[key]
    return due


@given(st.lists(MOVES))
def test_deadlines_equal_a_linear_search(moves: list[tuple[Any, ...]]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    times: dict[int, int] = {}
    for move, *arguments in moves:
        if move == "set":
            key, at = arguments
            deadlines.set(key, at)
            times.pop(key, None)
            times[key] = at
        elif move == "drop":
            deadlines.drop(*arguments)
            times.pop(arguments[0], None)
        else:
            assert list(deadlines.take(*arguments)) == linear_search(times, *arguments)
        assert deadlines.earliest() == min(times.values(), default=None)
        assert {key: deadlines.of(key) for key in range(6) if key in deadlines} == times
        assert len(deadlines) == len(times)


def test_a_deadline_set_during_iteration_fires_when_it_is_due() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 1)
    deadlines.set("b", 2)
    fired = []
    for key in deadlines.take(3):
        fired.append(key)
        if len(fired) < 3:
            deadlines.set(key, len(fired) + 2)
    assert fired == ["a", "b", "a"]
    assert deadlines.earliest() == 4


def test_moved_deadlines_are_removed_from_the_heap() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for at in range(10_000):
        deadlines.set("moved", 1_000_000 - at)
        deadlines.set("dropped", at)
        deadlines.drop("dropped")
    assert len(deadlines._heap) < 100
