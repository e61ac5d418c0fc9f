"""The race of document 000, row by row, as it was measured with librdkafka 2.0 and 2.16 on a mock cluster.

A row is a program: how long the group's join takes (ms), where it subscribes, how long it waits before each
request, and how often it polls in it; and what the last of its requests printed: where its partition was
assigned at, its first message, and what became of the seek. Row F is the mock cluster's own: there the second
join of a group's only member waits, too, for a session without a second; on a broker it doesn't, and F is B.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kproto.scenarios import Parameters
from kproto.scenarios.frame import Told, offsets
from kproto.scenarios.offset_minus_1000 import TP, Handler, Request

STORED = -1000


@dataclass(frozen=True)
class Row:
    assigned: int | None
    first: int | None
    seek: tuple[str, ...] = ("ok",)
    join_ms: int = 3_000
    rejoin_ms: int | None = None
    inside: bool = False
    """Each request subscribes."""
    sleep_ms: int = 0
    """Between subscribe and seek; nobody polls in it."""
    waits: tuple[int, ...] = (0,)
    polls: int = 4


ROWS = {
    "A: subscribed before, the join is not done yet": Row(2, 2),
    "B: the same, four seconds later": Row(STORED, 5, ("ok", "_STATE"), waits=(0, 4_000)),
    "C: five seconds before the first request": Row(STORED, 5, waits=(5_000,)),
    # librdkafka's own seek may still meet the old fetcher, which is _STATE; the assign's offset holds anyway
    "D: the third request, the event was answered": Row(2, 2, ("ok", "_STATE"), waits=(0, 4_000, 4_000)),
    "E: subscribed inside, the first request": Row(2, 2, inside=True),
    "F: subscribed inside, the second request, the next join takes long": Row(
        None, None, ("ok", "_STATE"), inside=True, rejoin_ms=5_000, waits=(0, 4_000)
    ),
    "F on a broker: the next join takes no time": Row(
        STORED, 5, ("ok", "_STATE"), inside=True, waits=(0, 4_000)
    ),
    "G: the join ends while the first request polls": Row(STORED, 2, inside=True, polls=20),
    "H: the join takes no time": Row(STORED, 5, join_ms=0, inside=True, sleep_ms=20),
    "I: a sleep of 100 ms, the join takes longer": Row(2, 2, inside=True, sleep_ms=100),
    "J: a later request behind a sleep": Row(
        STORED, 5, ("ok", "_STATE"), inside=True, sleep_ms=100, waits=(0, 4_000)
    ),
}


def play(row: Row) -> tuple[Handler, Request]:
    handler = Handler(Told(Parameters(rejoin_after_ms=row.rejoin_ms)), join_ms=row.join_ms)
    if not row.inside:
        handler.subscribe()
    for wait in row.waits:
        handler.wait(wait)
        if row.inside:
            handler.subscribe()
            handler.wait(row.sleep_ms)
        found = handler.request(row.polls)
    return handler, found


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_row_comes_out_as_measured(row: Row) -> None:
    _, found = play(row)
    assert (found.assigned, found.first) == (row.assigned, row.first)
    assert found.seek in row.seek


def test_when_the_join_ends_in_the_middle_messages_begin_anew_at_the_commit() -> None:
    handler, _ = play(ROWS["G: the join ends while the first request polls"])
    assert offsets(handler.app, TP) == [2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8]
