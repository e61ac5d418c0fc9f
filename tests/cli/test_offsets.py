"""`kproto offsets` prints offsets by time, and deletes records."""

from __future__ import annotations

import pytest

from consumer import Admin, Producer
from kproto.broker.server import Server
from tests.cli.stage import Shell


@pytest.fixture(scope="module", autouse=True)
def records(broker: Server) -> None:
    """Write 5 records to o-0, with times from 1,000 ms to 1,004 ms."""
    with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        admin.create_topics({"o": 2, "deleted": 1})
        for number in range(5):
            producer.send("o", b"x", partition=0, timestamp=1_000 + number)
            producer.send("deleted", b"x")


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        ("latest", ["o:0:5", "o:1:0"]),
        ("earliest", ["o:0:0", "o:1:0"]),
        ("1003", ["o:0:3", "o:1:"]),
        ("1970-01-01T00:00:01.002", ["o:0:2", "o:1:"]),
        ("max-timestamp", ["o:0:4", "o:1:"]),
    ],
)
def test_offsets_by_time(shell: Shell, time: str, expected: list[str]) -> None:
    assert shell(f"offsets list o --time {time}") == expected


def test_offsets_of_single_partitions_as_json(shell: Shell) -> None:
    [row] = shell.json("offsets list o:0 --time 1003")
    assert row == {"topic": "o", "partition": 0, "offset": 3, "timestamp": 1003, "leaderEpoch": 0}


def test_a_missing_topic_or_partition_does_not_hide_the_others(shell: Shell) -> None:
    everything = shell("offsets list o")
    assert shell("offsets list missing o o:7", code=1) == everything
    assert "topic 'missing' does not exist" in shell.errors
    assert "o-7" in shell.errors


def test_records_are_deleted_only_with_execute(shell: Shell) -> None:
    assert shell("offsets delete-records deleted:0=3") == [
        "delete the records of deleted-0 below offset 3; the first offset is 0"
    ]
    assert shell("offsets list deleted --time earliest") == ["deleted:0:0"]
    assert shell("offsets delete-records deleted:0=3 --execute") == ["partition: deleted-0\tlow_watermark: 3"]
    assert shell("offsets list deleted --time earliest") == ["deleted:0:3"]
    shell("offsets delete-records deleted:0=latest o:1=9 --execute", code=1)
    assert "OFFSET_OUT_OF_RANGE (1): o-1" in shell.errors
    assert shell("offsets list deleted --time earliest") == ["deleted:0:5"]


def test_the_plan_to_delete_records_reports_missing_partitions(shell: Shell) -> None:
    plan = shell("offsets delete-records missing:0=1 deleted:7=1 o:0=0", code=1)
    assert [line.split(" below ")[0] for line in plan] == ["delete the records of o-0"]
    assert "topic 'missing' does not exist" in shell.errors
    assert "deleted-7" in shell.errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("offsets list o --time yesterday", "--time='yesterday' is not allowed; allowed: earliest, latest"),
        (
            "offsets list o:x",
            "TOPIC='o:x' is not allowed; allowed: a topic, or TOPIC:P,P for some of its partitions",
        ),
        ("offsets delete-records o:0", "TOPIC:P=OFFSET='o:0' is not allowed"),
        (
            "offsets delete-records o:0=3 o:0=5",
            "TOPIC:P=OFFSET='o:0=5' is not allowed; allowed: each partition once",
        ),
    ],
)
def test_invalid_arguments_exit_with_2_and_say_what_is_allowed(
    words: str, message: str, shell: Shell
) -> None:
    shell(words, code=2)
    assert message in shell.errors
