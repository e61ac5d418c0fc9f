"""The length of source files: at most 500 lines, except where a longer file is easier to read than two.

The test fails for a long file that is not in `LONG_FILES`, and for an entry that is no longer needed.

Split a file before it reaches the limit. Each part should be one concern that a bug report would name.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 500
# A file may exceed the limit by this many lines, so that a small change does not force a split.
TOLERANCE = 30

_ADMIN = "one method for each operation of Kafka's Admin, so that a user finds all of them in one class"
_POLL = "functions that most polls call for each record: divided, the path of a record would have more files"
_MACHINE = "one state machine: its handlers change the same state, and its table refers to all of them"
_CLASS = "one class of another library, whose methods a reader compares with the original side by side"

# Each long file, and the reason why it is not divided.
LONG_FILES = {
    "consumer/aio/admin.py": _ADMIN,
    "consumer/blocking/admin.py": "tests/consumer/blocking/update_admin.py writes its methods",
    "consumer/engine/consumer.py": _POLL,
    "consumer/engine/fetch/buffers.py": _POLL,
    "consumer/engine/fetch/fetcher.py": _POLL,
    "consumer/engine/positions/partition_states.py": _POLL,
    "consumer/operations/polls.py": _POLL,
    "consumer/engine/group/commits.py": _MACHINE,
    "consumer/engine/group/membership.py": _MACHINE,
    "consumer/engine/network/client.py": _MACHINE,
    "consumer/engine/producer/accumulator.py": _MACHINE,
    "consumer/engine/producer/engine.py": _MACHINE,
    "consumer/engine/producer/transactions.py": _MACHINE,
    "consumer/sarama/group.py": _CLASS,
    "kproto/broker/machine.py": _MACHINE,
    "kproto/broker/server.py": "one class, `Server`, with all methods that a test calls",
    "kproto/group/classic/coordinator/table.py": "one table, and the rules that its cells keep",
    "kproto/group/protocol.py": "one interface: the events, actions and methods that all protocols share",
    "kproto/models/java/kafka_consumer.py": _CLASS,
    "kproto/models/librdkafka/state.py": _CLASS,
    "kproto/scenarios/offset_minus_1000.py": "one document, whose stories share its events",
    "kproto/testing/world/world.py": "one class, `World`, with all methods that a test calls",
    "kproto/testing/world/consumers.py": "one simulated client, with all methods that a test calls",
}


def sources() -> Iterator[Path]:
    for package in ("kproto", "consumer"):
        yield from sorted((ROOT / package).rglob("*.py"))


def lines_of(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


def test_a_source_file_has_at_most_500_lines() -> None:
    long_files = {
        path.relative_to(ROOT).as_posix(): lines
        for path in sources()
        if (lines := lines_of(path)) > LIMIT + TOLERANCE
    }
    unexpected = {name: lines for name, lines in long_files.items() if name not in LONG_FILES}
    assert unexpected == {}, "divide the file by concern, or state in LONG_FILES why it must be long"


@pytest.mark.parametrize("name", LONG_FILES)
def test_an_exception_is_still_needed(name: str) -> None:
    assert lines_of(ROOT / name) > LIMIT, f"{name} is not long any more: remove it from LONG_FILES"
