"""The race of lesson 000, row by row, as measured with librdkafka 2.0 and 2.16 on a mock cluster.

The rows are the programs of kproto/scenarios/race.py.

The outcome of program F occurs only on the mock cluster. There the second join of a group's only member waits
for a session timeout minus one second.

A real broker completes the second join immediately. On a real broker, program F has the outcome of program B.
"""

from __future__ import annotations

import json

import pytest

from kproto.cli import main
from kproto.scenarios.offset_minus_1000 import TP
from kproto.scenarios.race import PROGRAMS, play_program
from kproto.scenarios.scenario import offsets

STORED = -1000
OK, EITHER = ("ok",), ("ok", "_STATE")
# The output of the last request: the assigned offset, the first message, and the result of seek.
MEASURED: dict[str, tuple[int | None, int | None, tuple[str, ...]]] = {
    "A: subscribed before, still joining": (2, 2, OK),
    "B: the same, four seconds later": (STORED, 5, EITHER),
    "C: the same, asked after five seconds": (STORED, 5, OK),
    # Seek returns _STATE if the previous fetcher is still active. With or without the error, the partition
    # has the offset that assign has set.
    "D: the third request, all is answered": (2, 2, EITHER),
    "E: subscribes inside, first request": (2, 2, OK),
    "F: the second one, a join takes long": (None, None, EITHER),
    "F on a broker: it takes no time": (STORED, 5, EITHER),
    "G: the join ends while it polls": (STORED, 2, OK),
    "H: the join takes no time": (STORED, 5, OK),
    "I: sleeps 100 ms, the join takes longer": (2, 2, OK),
    "J: a later request behind such a sleep": (STORED, 5, EITHER),
}


def test_every_program_was_measured() -> None:
    assert list(PROGRAMS) == list(MEASURED)


@pytest.mark.parametrize("name", MEASURED)
def test_a_row_comes_out_as_measured(name: str) -> None:
    _, outcome = play_program(PROGRAMS[name])
    assigned, first, seeks = MEASURED[name]
    assert (outcome.assigned, outcome.first) == (assigned, first)
    assert outcome.seek in seeks


def test_a_join_that_ends_mid_poll_restarts_at_the_committed_offset() -> None:
    handler, _ = play_program(PROGRAMS["G: the join ends while it polls"])
    assert offsets(handler.app, TP) == [2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8]


def test_the_table_is_one_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scenario", "race", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["program"]: (row["assigned"], row["first"]) for row in rows} == {
        name: row[:2] for name, row in MEASURED.items()
    }
