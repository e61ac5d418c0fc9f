"""The heartbeat loop and each watcher of a generation in kafka-go have at most one request in flight. The
loop and each watcher can end the generation.
"""

from __future__ import annotations

import pytest

from kproto.messages.metadata import MetadataRequest
from kproto.models import contract as c
from kproto.models import kafka_go
from kproto.models.kafka_go.state import ConsumerGroupPhase
from tests.models.kafka_go.stage import ReaderStage, request_name


def advance(reader: ReaderStage, ms: int) -> None:
    """Advance the time without answering a request."""
    reader.now += ms
    reader.do(c.DeadlineReached())


def test_a_watcher_without_a_response_ends_the_generation() -> None:
    reader = ReaderStage(metadata_ms=500, heartbeat_ms=60_000).join()
    advance(reader, 500)
    (sent,) = [sent for sent in reader.open if request_name(sent) == "Metadata"]
    assert [topic.name for topic in sent.request.topics] == ["t"]  # type: ignore[attr-defined]
    reader.open.remove(sent)
    reader.do(c.RequestFailed(sent.request, "connection reset by peer"))
    assert reader.state.state is ConsumerGroupPhase.ENDING


def test_an_error_in_the_first_response_of_a_watcher_ends_the_generation() -> None:
    reader = ReaderStage(metadata_ms=500)
    reader.leads = False
    reader.begin()
    reader.settle(but=("Metadata",))
    watcher = next(sent for sent in reader.open if request_name(sent) == "Metadata")
    reader.answer(watcher, 5)
    assert reader.names()[-1] == "FindCoordinator"
    assert len(reader.requests_of("FindCoordinator")) == 2


def test_a_missing_topic_counts_as_a_topic_without_partitions() -> None:
    reader = ReaderStage(metadata_ms=500, heartbeat_ms=60_000).join()
    reader.errors[MetadataRequest] = [3]
    reader.wait(500)
    assert reader.state.state is ConsumerGroupPhase.ENDING


def test_no_heartbeat_and_no_metadata_request_is_sent_while_the_previous_one_is_open() -> None:
    reader = ReaderStage(heartbeat_ms=200, metadata_ms=500).join()
    metadata_requests = len(reader.requests_of("Metadata"))
    for _ in range(10):
        advance(reader, 200)
    assert len(reader.requests_of("Heartbeat")) == 1
    assert len(reader.requests_of("Metadata")) == metadata_requests + 1
    assert kafka_go.next_deadline(reader.state) is None


def test_one_tick_is_kept_while_a_heartbeat_is_open() -> None:
    """During a pending heartbeat, Go's Ticker buffers one tick and drops the others. Later ticks still come
    at multiples of 200 ms.
    """
    reader = ReaderStage(watch=False, heartbeat_ms=200).join()
    advance(reader, 200)
    advance(reader, 750)
    reader.settle()
    assert len(reader.requests_of("Heartbeat")) == 2
    reader.wait(49)
    assert len(reader.requests_of("Heartbeat")) == 2
    reader.wait(1)
    assert len(reader.requests_of("Heartbeat")) == 3


def test_an_ending_generation_sends_no_heartbeat_and_waits_for_the_open_one() -> None:
    reader = ReaderStage(watch=False, heartbeat_ms=200).join()
    advance(reader, 200)
    reader.do(c.CloseCalled())
    for partition in (0, 1):
        reader.records(partition)
    advance(reader, 1_000)
    assert reader.names()[-1] == "Heartbeat"
    reader.settle()
    assert reader.names()[-2:] == ["FindCoordinator", "LeaveGroup"]
    assert len(reader.requests_of("Heartbeat")) == 1


def test_an_ending_generation_waits_for_the_metadata_of_its_watcher() -> None:
    reader = ReaderStage(heartbeat_ms=60_000, metadata_ms=500).join()
    advance(reader, 500)
    reader.do(c.CloseCalled())
    for partition in (0, 1):
        reader.records(partition)
    assert reader.names()[-1] == "Metadata"
    reader.settle()
    assert reader.names()[-2:] == ["FindCoordinator", "LeaveGroup"]


@pytest.mark.parametrize(("highest", "version"), [(13, 6), (6, 6), (5, 1)])
def test_metadata_requests_have_version_6_or_1(highest: int, version: int) -> None:
    reader = ReaderStage()
    reader.do(c.Started((("broker", 9092),), {3: (0, highest)}))
    reader.do(c.SubscribeCalled(("t",)))
    reader.settle()
    requests = [sent for sent in reader.actions_of(c.SendRequest) if request_name(sent) == "Metadata"]
    assert {sent.version for sent in requests} == {version}
