"""What clients log: at which level, of whom, and with which offsets."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from kproto import Cluster, Consumer, Producer, TopicPartition, running
from kproto.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

T0 = TopicPartition("t", 0)
GROUP: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}


def lines(caplog: pytest.LogCaptureFixture, level: int, kind: str) -> list[str]:
    said = [one.getMessage() for one in caplog.records if one.levelno == level]
    return [line for line in said if line.split()[1] == kind]


def fill(bootstrap: str, count: int) -> None:
    with Producer(bootstrap) as producer:
        for number in range(count):
            producer.send("t", b"%d" % number)


def test_a_jump_over_records_is_a_warning_with_both_offsets_and_the_first_start_is_none(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kproto.consumer")
    with running({"t": 1}) as server:
        fill(server.bootstrap, 100)
        with Consumer(server.bootstrap, auto_offset_reset="earliest", **GROUP) as consumer:
            consumer.subscribe("t")
            assert consumer.poll(10, max_records=1)
            consumer.commit()
        assert lines(caplog, logging.WARNING, "reset") == []
        assert len(lines(caplog, logging.INFO, "reset")) == 1
        part = DeleteRecordsPartition(partition_index=0, offset=50)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=[part])], timeout_ms=5000
        )
        with Cluster(server.bootstrap) as cluster:
            cluster.request(request, ("leader", "t", 0))
        with Consumer(server.bootstrap, **GROUP) as consumer:
            consumer.subscribe("t")
            deadline = time.monotonic() + 60
            while not consumer.assignment() or consumer.position(T0) != 100:
                assert time.monotonic() < deadline
                consumer.poll(0.1)
    [line] = lines(caplog, logging.WARNING, "reset")
    assert "t-0 from 1 to 100: offset 1 is out of range: latest" in line


def test_lines_name_the_group_and_the_member(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kproto.consumer")
    with running({"t": 1}) as server, Consumer(server.bootstrap, **GROUP) as consumer:
        consumer.subscribe("t")
        while not consumer.assignment():
            consumer.poll(0.1)
        member = consumer.group_metadata().member_id
    [line] = lines(caplog, logging.INFO, "assigned")
    assert line.startswith(f"kproto assigned group=g member={member} generation=1 t-0")


def test_who_was_away_from_poll_for_too_long_hears_which_option_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits: dict[str, Any] = {
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 300,
        "max_poll_interval_ms": 300,
    }
    with running({"t": 1}) as server, Consumer(server.bootstrap, **GROUP, **limits) as consumer:
        consumer.subscribe("t")
        deadline = time.monotonic() + 60
        while not consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(0.5)
        while not lines(caplog, logging.WARNING, "lost") and time.monotonic() < deadline:
            time.sleep(0.05)
    assert "consumer poll timeout has expired. (max_poll_interval_ms=300)" in caplog.text
