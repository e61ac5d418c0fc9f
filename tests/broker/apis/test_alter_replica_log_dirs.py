"""AlterReplicaLogDirs: the broker accepts only moves to its single directory."""

from __future__ import annotations

from typing import Any

from kproto.broker.apis.describe_log_dirs import LOG_DIR
from kproto.error_codes import ErrorCode as E
from kproto.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tests.broker.stage import Stage, TwoBrokers


def request(*entries: tuple[str, str, list[int]]) -> AlterReplicaLogDirsRequest:
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=name, partitions=indexes)])
            for path, name, indexes in entries
        ]
    )


def errors(response: Any) -> dict[str, dict[int, int]]:
    return {
        topic.topic_name: {entry.partition_index: entry.error_code for entry in topic.partitions}
        for topic in response.results
    }


def test_only_the_directory_of_the_broker_is_known() -> None:
    alteration = request(
        (LOG_DIR, "t", [0, 9]),
        ("/other", "t", [1]),
        (LOG_DIR, "absent", [0]),
        ("/other", "x" * 212, [10, 100]),
    )
    assert errors(Stage({"t": 2}).client().ask(alteration)) == {
        "t": {0: 0, 9: E.UNKNOWN_TOPIC_OR_PARTITION, 1: E.LOG_DIR_NOT_FOUND},
        "absent": {0: E.UNKNOWN_TOPIC_OR_PARTITION},
        "x" * 212: {10: E.LOG_DIR_NOT_FOUND, 100: E.INVALID_TOPIC_EXCEPTION},
    }


def test_the_last_directory_of_a_partition_counts() -> None:
    alteration = request(("/other", "t", [0]), (LOG_DIR, "t", [0]))
    assert errors(Stage({"t": 1}).client().ask(alteration)) == {"t": {0: 0}}


def test_a_broker_without_a_replica_refuses(led_by_second_broker: TwoBrokers) -> None:
    alteration = request((LOG_DIR, "t", [0]), (LOG_DIR, "r", [0]))
    outcomes = [errors(led_by_second_broker.ask(node, alteration, 2)) for node in (1, 2)]
    assert outcomes == [
        {"t": {0: 0}, "r": {0: 0}},
        {"t": {0: E.REPLICA_NOT_AVAILABLE}, "r": {0: 0}},
    ]
