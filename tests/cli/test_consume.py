"""`kproto consume` prints records, between two positions or as a group member, in several formats."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from consumer import Admin, Consumer, Producer, TopicPartition
from kproto.broker.server import Server
from tests.cli.stage import Shell


@pytest.fixture(scope="module", autouse=True)
def records(broker: Server) -> None:
    """Write 4 records to c-0, then 2 to c-1, with timestamps that rise by 1 ms from 1,000 ms.

    Write a record that is not JSON to the topic `text`.

    Write an aborted and a committed record to the topic `transactions`.
    """
    with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap) as producer:
        admin.create_topics({"c": 2, "text": 1, "transactions": 1})
        for number in range(6):
            producer.send(
                "c",
                json.dumps({"n": number}).encode(),
                key=b"k%d" % number,
                partition=int(number >= 4),
                timestamp=1_000 + number,
                headers=[("trace", b"t%d" % number)] if number == 3 else [],
            )
        producer.send("text", b"\xff\x00not json", timestamp=1_000)
    with Producer(broker.bootstrap, transactional_id="consume-aborted") as producer:
        producer.begin()
        producer.send("transactions", b"aborted")
        producer.flush()
        producer.abort()
        with producer.transaction():
            producer.send("transactions", b"committed")


def numbers(shell: Shell, words: str) -> list[int]:
    """Return the numbers in the printed records, in ascending order."""
    return sorted(json.loads(row["value"])["n"] for row in shell.json(f"consume {words}"))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("c", [0, 1, 2, 3, 4, 5]),
        ("c:1", [4, 5]),
        ("c --from latest", []),
        ("c --from 2", [2, 3]),
        ("c --from -1", [3, 5]),
        ("c:0 --from 99", []),
        ("c:0 --to 99", [0, 1, 2, 3]),
        ("c --from 1970-01-01T00:00:01.003", [3, 4, 5]),
        ("c --to 1", [0, 4]),
        ("c --from 1970-01-01T00:00:01.001 --to 1970-01-01T00:00:01.003", [1, 2]),
        ("c:0 --count 2", [0, 1]),
    ],
)
def test_the_records_between_two_places_are_printed(shell: Shell, words: str, expected: list[int]) -> None:
    assert numbers(shell, words) == expected


def test_fields_are_printed_as_kafkas_tool_prints_them(shell: Shell) -> None:
    assert shell("consume c:0 --from -1 --print key,value,timestamp,offset,partition,headers") == [
        'CreateTime:1003\tPartition:0\tOffset:3\ttrace:t3\tk3\t{"n": 3}'
    ]
    assert shell("consume c:1 --count 1 --print headers,key") == ["NO_HEADERS\tk4"]


def test_the_type_of_a_timestamp_is_that_of_its_topic(shell: Shell) -> None:
    shell("topics create appended --config message.timestamp.type=LogAppendTime")
    with Producer(shell.bootstrap) as producer:
        producer.send("appended", b"x", timestamp=1_000)
    (line,) = shell("consume appended --print timestamp,value")
    kind, _, time = line.removesuffix("\tx").partition(":")
    assert kind == "LogAppendTime"
    assert int(time) > 1_000


def test_json_has_all_fields(shell: Shell) -> None:
    assert shell.json("consume c:0 --from 3 --value-format json") == [
        {
            "topic": "c",
            "partition": 0,
            "offset": 3,
            "timestamp": 1003,
            "headers": [["trace", "t3"]],
            "key": "k3",
            "value": {"n": 3},
        }
    ]


@pytest.mark.parametrize(
    ("form", "expected"),
    [("string", "\\xff\0not json"), ("hex", "ff006e6f74206a736f6e"), ("base64", "/wBub3QganNvbg==")],
)
def test_formats_of_values(shell: Shell, form: str, expected: str) -> None:
    assert shell(f"consume text --value-format {form}") == [expected]


def test_a_value_that_is_not_json_is_an_error_with_its_place(shell: Shell) -> None:
    shell("consume text --value-format json", code=1)
    assert shell.errors.startswith("kproto consume: text-0 @ 0: the value is not in the format json: ")


def test_read_committed_skips_aborted_records(shell: Shell) -> None:
    assert shell("consume transactions --isolation read_committed") == ["committed"]
    assert shell("consume transactions") == ["aborted", "committed"]


def test_a_group_continues_after_what_was_printed(shell: Shell, broker: Server) -> None:
    first = shell.json("consume c --group readers --count 4")
    second = shell.json("consume c --group readers")
    printed = [(row["partition"], row["offset"]) for row in first + second]
    assert sorted(printed) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    with Consumer(broker.bootstrap, group_id="readers") as consumer:
        committed = consumer.committed([TopicPartition("c", 0), TopicPartition("c", 1)])
    assert [at.offset for at in committed.values() if at is not None] == [4, 2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("c --print nothing", "--print='nothing' is not allowed; allowed: timestamp, partition, offset"),
        ("c --follow --to latest", "allowed only without --to"),
        ("c --group g --from 3", "allowed with --group: --from earliest or --from latest, and not --to"),
        ("c:0 --group g", "allowed only for whole topics"),
        ("c --from noon", "--from='noon' is not allowed; allowed: earliest, latest"),
        ("c --count 0", "'0' is not a whole number of at least 1"),
    ],
)
def test_invalid_arguments_exit_with_2_and_say_what_is_allowed(
    words: str, message: str, shell: Shell
) -> None:
    shell(f"consume {words}", code=2)
    assert message in shell.errors


def test_an_unknown_topic_is_an_error(shell: Shell) -> None:
    shell("consume nowhere", code=1)
    assert "nowhere" in shell.errors


def test_the_messages_of_internal_topics_are_printed(shell: Shell) -> None:
    shell("consume c --messages", code=2)
    assert "--messages='c' is not allowed; allowed only for __consumer_offsets" in shell.errors


def test_the_messages_in_the_records_of_an_internal_topic_are_printed_as_json(shell: Shell) -> None:
    shell("topics create __consumer_offsets --if-not-exists")
    with Producer(shell.bootstrap) as producer:
        # The key of an offset commit: the version, the group, the topic and the partition.
        producer.send(
            "__consumer_offsets", None, key=b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x07", partition=0
        )
        producer.send("__consumer_offsets", b"x", key=b"\x7f", partition=0)
    first, second = [json.loads(line) for line in shell("consume __consumer_offsets:0 --messages")]
    assert (first["topic"], first["partition"], first["offset"]) == ("__consumer_offsets", 0, 0)
    assert "'group': 'g'" in str(first["key"])
    assert first["value"] is None
    assert second["offset"] == 1
    assert second["error"]
    assert "key" not in second


def test_an_offset_before_the_start_of_the_log_begins_at_its_start(shell: Shell) -> None:
    shell("topics create cut")
    with Producer(shell.bootstrap) as producer:
        for number in range(4):
            producer.send("cut", b"%d" % number)
    shell("offsets delete-records cut:0=2 --execute")
    assert shell("consume cut --from 1") == ["2", "3"]


def test_an_open_transaction_ends_a_read_committed_consume(shell: Shell) -> None:
    """With read_committed, the command ends at the last stable offset, before the ongoing transaction."""
    shell("topics create pending")
    with Producer(shell.bootstrap, transactional_id="consume-pending") as producer:
        with producer.transaction():
            producer.send("pending", b"committed")
        producer.begin()
        producer.send("pending", b"open")
        producer.flush()
        assert shell("consume pending --isolation read_committed") == ["committed"]
        assert shell("consume pending") == ["committed", "open"]
        producer.abort()


def test_a_group_commits_the_records_before_an_invalid_one(shell: Shell) -> None:
    shell("topics create grouped")
    with Producer(shell.bootstrap) as producer:
        for value in (b"1", b"x", b"3"):
            producer.send("grouped", value)
    words = "consume grouped --value-format json --group strict"

    def committed() -> int:
        with Consumer(shell.bootstrap, group_id="strict") as consumer:
            [position] = consumer.committed([TopicPartition("grouped", 0)]).values()
        assert position is not None
        return position.offset

    assert shell(words, code=1) == ["1"]
    assert committed() == 1
    assert shell(f"{words} --skip-invalid --count 1", code=1) == []
    assert committed() == 2
    assert shell(words) == ["3"]
    assert committed() == 3


def test_invalid_records_are_skipped_with_an_option(shell: Shell) -> None:
    shell("topics create mixed")
    with Producer(shell.bootstrap) as producer:
        for value in (b"1", b"x\x1b", b"3"):
            producer.send("mixed", value)
    assert shell("consume mixed --value-format json --skip-invalid", code=1) == ["1", "3"]
    assert shell.errors.startswith("kproto consume: mixed-0 @ 1: the value is not in the format json: ")
    assert shell("consume mixed --value-format json", code=1) == ["1"]


def test_sigterm_lets_a_member_leave_its_group(broker: Server) -> None:
    words = ["consume", "c", "--group", "stopped", "--follow", "--bootstrap", broker.bootstrap]
    with (
        Admin(broker.bootstrap) as admin,
        subprocess.Popen([sys.executable, "-m", "kproto", *words], stdout=subprocess.PIPE) as process,
    ):
        while sum(admin.group("stopped").committed.values()) < 6:
            pass
        process.terminate()
        assert process.wait(timeout=30) == 130
        assert admin.group("stopped").members == ()
