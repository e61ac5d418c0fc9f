"""kafka-go's reader of one partition restarts after a backoff, and is cancelled when its generation ends."""

from __future__ import annotations

import pytest

from kproto.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kproto.messages.list_offsets import ListOffsetsRequest
from kproto.messages.metadata import MetadataRequest
from kproto.models import contract as c
from tests.models.kafka_go.stage import ReaderStage, request_name


def fail_fetch(reader: ReaderStage, code: int) -> None:
    """Answer the open fetch of partition 0 with an error code."""
    sent = reader.fetch(0)
    reader.open.remove(sent)
    data = PartitionData(
        partition_index=0,
        error_code=code,
        high_watermark=0,
        last_stable_offset=0,
        aborted_transactions=None,
        records=b"",
    )
    topics = [FetchableTopicResponse(topic="t", partitions=[data])]
    reader.do(c.ResponseReceived(sent.request, FetchResponse(throttle_time_ms=0, responses=topics), 10))


def fetches(reader: ReaderStage) -> list[int]:
    """Return the offsets of the fetches of partition 0."""
    partitions = [request.topics[0].partitions[0] for request in reader.requests_of("Fetch")]
    return [partition.fetch_offset for partition in partitions if partition.partition == 0]


def test_a_fetch_without_a_response_restarts_the_reader_on_a_new_connection() -> None:
    reader = ReaderStage(watch=False).join()
    sent = reader.fetch(0)
    reader.open.remove(sent)
    reader.do(c.RequestFailed(sent.request, "connection reset by peer"))
    assert c.CloseConnection(sent.to) in reader.said
    reader.wait(100)
    assert reader.fetch(0).to != sent.to


def test_a_partition_without_a_leader_is_looked_up_again_after_100_ms() -> None:
    reader = ReaderStage(watch=False).begin()
    reader.settle(but=("OffsetFetch",))
    reader.settle(but=("Metadata",))
    unanswered = list(reader.open)
    assert [request_name(sent) for sent in unanswered] == ["Metadata", "Metadata"]
    for sent in unanswered:
        reader.open.remove(sent)
        response = reader.response(sent.request, 0)
        for partition in response.topics[0].partitions:  # type: ignore[attr-defined]
            partition.leader_id = -1
        reader.do(c.ResponseReceived(sent.request, response, sent.version))
    before = len(reader.requests_of("Metadata"))
    reader.wait(99)
    assert len(reader.requests_of("Metadata")) == before
    reader.wait(1)
    assert len(reader.requests_of("Metadata")) == before + 2


def test_the_first_error_after_a_skip_to_the_start_of_the_log_backs_off_100_ms() -> None:
    reader = ReaderStage(watch=False).join()
    fail_fetch(reader, 1)
    while lookups := [sent for sent in reader.open if request_name(sent) == "ListOffsets"]:
        reader.open.remove(lookups[0])
        response = reader.response(lookups[0].request, 0)
        response.topics[0].partitions[0].offset = 5  # type: ignore[attr-defined]
        reader.do(c.ResponseReceived(lookups[0].request, response, lookups[0].version))
    assert fetches(reader) == [0, 5]
    fail_fetch(reader, 29)
    reader.wait(99)
    assert fetches(reader) == [0, 5]
    reader.wait(1)
    assert fetches(reader) == [0, 5, 5]


def answer_first(reader: ReaderStage, api: str, error: int | None = None) -> c.SendRequest:
    """Answer the oldest open request of an API."""
    sent = next(sent for sent in reader.open if request_name(sent) == api)
    reader.answer(sent, error)
    return sent


def one_partition(**options: object) -> ReaderStage:
    """Start a Reader that reads one partition and sends no heartbeats, and answer its group's requests."""
    reader = ReaderStage(watch=False, heartbeat_ms=600_000, **options)
    reader.partitions = 1
    reader.leads = False
    reader.begin()
    for api in ("FindCoordinator", "JoinGroup", "SyncGroup", "OffsetFetch"):
        answer_first(reader, api)
    return reader


@pytest.mark.parametrize("api", ["Metadata", "ListOffsets"])
def test_a_reader_starts_again_after_100_400_900_and_1000_ms(api: str) -> None:
    """From the fourth consecutive error on, each error of a partition's reader reaches the application."""
    reader = one_partition()
    reader.errors[MetadataRequest if api == "Metadata" else ListOffsetsRequest] = [29] * 5
    reader.settle()
    delays = (100, 400, 900, 1_000)
    for number, delay in enumerate(delays, 1):
        reader.wait(delay - 1)
        assert len(reader.requests_of("Metadata")) == number
        reader.do(c.PollCalled(0))
        assert (reader.actions_of(c.FinishPoll)[-1].error is not None) == (number > 3)
        reader.wait(1)
    assert len(reader.requests_of("Metadata")) == 5
    reader.do(c.PollCalled(0))
    assert reader.actions_of(c.FinishPoll)[-1].error[0] == "Error(29)"
    reader.wait(1_000)
    assert fetches(reader) == [0]


def test_a_reader_that_starts_again_alternates_between_the_bootstrap_addresses() -> None:
    reader = ReaderStage(watch=False, heartbeat_ms=600_000)
    reader.partitions, reader.leads = 1, False
    reader.do(c.Started((("a", 1), ("b", 2)), {}))
    reader.do(c.SubscribeCalled(("t",)))
    reader.errors[MetadataRequest] = [29, 29]
    reader.settle()
    reader.wait(600)
    lookups = [sent.to for sent in reader.actions_of(c.SendRequest) if request_name(sent) == "Metadata"]
    assert [address.host for address in lookups] == ["a", "b", "a"]
    closed = [action.address for action in reader.actions_of(c.CloseConnection)]
    assert set(lookups) <= set(closed)


def test_without_a_committed_offset_a_reader_with_last_offset_starts_at_the_end_of_the_log() -> None:
    reader = ReaderStage(watch=False, reset="latest")
    reader.logs = {0: 7, 1: 9}
    reader.join()
    offsets = [request.topics[0].partitions[0].fetch_offset for request in reader.requests_of("Fetch")]
    assert sorted(offsets) == [7, 9]


def test_a_committed_offset_before_the_start_of_the_log_is_moved_to_the_start() -> None:
    for start, offset in ((2, 4), (4, 4), (6, 6)):
        reader = one_partition()
        (partition,) = reader.state.generation.readers  # type: ignore[union-attr]
        partition.offset = 4
        reader.logs[0] = 9
        answer_first(reader, "Metadata")
        while lookups := [sent for sent in reader.open if request_name(sent) == "ListOffsets"]:
            reader.open.remove(lookups[0])
            response = reader.response(lookups[0].request, 0)
            answer = response.topics[0].partitions[0]  # type: ignore[attr-defined]
            answer.offset = answer.offset or start
            reader.do(c.ResponseReceived(lookups[0].request, response, lookups[0].version))
        assert fetches(reader) == [offset]


def test_a_seek_beyond_the_end_of_the_log_starts_the_reader_again_without_an_error() -> None:
    reader = one_partition()
    (partition,) = reader.state.generation.readers  # type: ignore[union-attr]
    partition.offset = 4
    reader.logs[0] = 3
    reader.settle()
    reader.wait(10_000)
    assert fetches(reader) == []
    reader.do(c.PollCalled(0))
    assert reader.actions_of(c.FinishPoll)[-1].error is None
    reader.logs[0] = 4
    reader.wait(1_000)
    assert fetches(reader) == [4]


def test_a_fetch_behind_the_end_of_the_log_is_repeated_after_100_and_400_ms() -> None:
    """After OFFSET_OUT_OF_RANGE, a fetch at the end of the log is repeated after a backoff.

    If the offset is below the end of the log, the fetch is repeated immediately.
    """
    reader = one_partition()
    reader.logs[0] = 5
    (partition,) = reader.state.generation.readers  # type: ignore[union-attr]
    partition.offset = 5
    reader.settle()
    for delay, sent in ((100, 2), (400, 3)):
        fail_fetch(reader, 1)
        reader.settle()
        reader.wait(delay - 1)
        assert len(fetches(reader)) == sent - 1
        reader.wait(1)
        assert fetches(reader) == [5] * sent
    reader.logs[0] = 6
    fail_fetch(reader, 1)
    reader.settle()
    assert fetches(reader) == [5] * 4


@pytest.mark.parametrize("code", [3, 6])
def test_a_partition_that_moved_is_looked_up_again_without_an_error(code: int) -> None:
    reader = one_partition()
    reader.settle()
    fail_fetch(reader, code)
    reader.wait(99)
    assert len(reader.requests_of("Metadata")) == 1
    reader.wait(1)
    assert len(reader.requests_of("Metadata")) == 2
    reader.do(c.PollCalled(0))
    assert reader.actions_of(c.FinishPoll)[-1].error is None


def test_a_fetch_that_timed_out_is_repeated_immediately() -> None:
    reader = one_partition()
    reader.settle()
    fail_fetch(reader, 7)
    assert fetches(reader) == [0, 0]


def test_another_error_of_a_fetch_is_returned_and_the_fetch_is_repeated_after_a_backoff() -> None:
    reader = one_partition()
    reader.settle()
    fail_fetch(reader, 29)
    reader.do(c.PollCalled(0))
    assert reader.actions_of(c.FinishPoll)[-1].error[0] == "Error(29)"
    reader.wait(100)
    fail_fetch(reader, 29)
    reader.wait(399)
    assert fetches(reader) == [0, 0]
    reader.wait(1)
    reader.records(0, b"a")
    fail_fetch(reader, 29)
    reader.wait(100)
    assert fetches(reader) == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("failure", ["none", "code", "broken"])
def test_a_reader_that_is_cancelled_with_a_request_in_flight_ends_with_its_response(failure: str) -> None:
    reader = one_partition()
    answer_first(reader, "Metadata")
    reader.do(c.CloseCalled())
    assert reader.names()[-1] == "ListOffsets"
    sent = reader.open[-1]
    if failure == "broken":
        reader.open.remove(sent)
        reader.do(c.RequestFailed(sent.request, "broken"))
    else:
        answer_first(reader, "ListOffsets", error=29 if failure == "code" else 0)
        for _ in range(3):
            if failure == "none":
                answer_first(reader, "ListOffsets")
    assert c.CloseConnection(sent.to) in reader.said
    assert fetches(reader) == []
    assert reader.names()[-1] == "FindCoordinator"


def test_a_reader_that_is_cancelled_during_a_failing_fetch_ends() -> None:
    reader = one_partition()
    reader.settle()
    reader.do(c.CloseCalled())
    assert reader.names()[-1] == "Fetch"
    fail_fetch(reader, 29)
    assert reader.names()[-1] == "FindCoordinator"
    reader.wait(10_000)
    assert fetches(reader) == [0]


def test_a_reader_that_is_cancelled_during_its_lookup_or_its_backoff_ends_immediately() -> None:
    reader = one_partition()
    reader.do(c.CloseCalled())
    assert reader.names()[-1] == "FindCoordinator"
    reader = one_partition()
    answer_first(reader, "Metadata", error=29)
    reader.do(c.CloseCalled())
    assert reader.names()[-1] == "FindCoordinator"


@pytest.mark.parametrize(("chances", "queued"), [((0.5,), 0), ((0.49, 0.5), 1), ((0.1, 0.2), 2)])
def test_a_cancelled_reader_queues_each_record_by_chance(chances: tuple[float, ...], queued: int) -> None:
    draws = iter(chances)
    reader = one_partition(random=lambda: next(draws))
    reader.settle()
    reader.do(c.CloseCalled())
    reader.records(0, b"a", b"b")
    assert len(reader.state.message_queue) == queued


@pytest.mark.parametrize(("isolation", "level"), [("read_uncommitted", 0), ("read_committed", 1)])
def test_a_fetch_has_the_isolation_level_and_max_bytes_plus_the_smallest_response(
    isolation: str, level: int
) -> None:
    reader = one_partition(fetch_wait_ms=4_000, isolation=isolation, extra={"MaxBytes": 1_000})
    reader.settle()
    sent = reader.fetch(0)
    request = sent.request
    assert request.isolation_level == level  # type: ignore[attr-defined]
    assert request.max_bytes == request.topics[0].partitions[0].partition_max_bytes == 1_059  # type: ignore[attr-defined]
    assert (request.max_wait_ms, sent.timeout_ms) == (3_000, 13_000)  # type: ignore[attr-defined]
