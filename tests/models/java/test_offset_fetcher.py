"""Java's consumer fetches committed offsets, and validates or resets its positions (OffsetFetcher)."""

from __future__ import annotations

from types import ModuleType

import pytest

from kproto.error_codes import ErrorCode
from kproto.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kproto.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kproto.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kproto.models import contract as c
from kproto.models.java.state import FetchStates, TopicPartitionState
from tests.models.java.stage import BOTH, COORDINATOR, T0, T1, JavaStage, metadata_of
from tests.models.stage import Stage, StageMember


def subscribed_member(stage: Stage, release: ModuleType, name: str = "A") -> StageMember:
    """Return a member that subscribes to t. Its heartbeats are 10 s apart, so that none wakes a poll."""
    a = stage.add_member(
        name, release, reset="earliest", assignors=["range"], heartbeat_ms=10_000, auto_commit_ms=60_000
    )
    a.do(c.SubscribeCalled(("t",)))
    return a


def times_of(member: StageMember, api: str) -> list[int]:
    return [line.now for line in member.lines if line.api == api]


@BOTH
def test_a_failed_offset_fetch_is_retried_within_a_long_poll(release: ModuleType) -> None:
    stage = Stage({"t": 1})
    stage.produce("t", [0], 1)
    a = subscribed_member(stage, release)
    a.inject("OffsetFetch", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert len(a.poll(5_000)) == 1
    first, second = times_of(a, "OffsetFetch")
    assert 100 <= second - first <= 110


@BOTH
def test_a_position_waits_for_its_validation_in_flight(release: ModuleType) -> None:
    stage = Stage({"t": 1})
    stage.produce("t", [0], 1)
    a = subscribed_member(stage, release)
    a.poll(1_000)
    a.run_command("commit")
    a.run_command("close")
    assert stage.run(until=lambda: a.closed)
    b = subscribed_member(stage, release, "B")
    b.hold("EpochEnd", 500)
    b.run_command("poll on")
    stage.run(2_000)
    assert len(times_of(b, "EpochEnd")) == 1


# ---- one response at a time


def positioned(release: ModuleType, state: FetchStates, **conf: object) -> JavaStage:
    """Return a member in a poll of 10 s, with its position of t-0 in the given state."""
    consumer = JavaStage(release, heartbeat_ms=60_000, **conf)
    consumer.do(c.Started((("broker", 9092),), {9: (1, 7)}))
    consumer.stable(T0)
    position = TopicPartitionState(state, *((5, 0) if state is FetchStates.AWAIT_VALIDATION else ()))
    consumer.state.assigned, consumer.state.positions_settled = {T0: position}, False
    consumer.do(c.PollCalled(10_000))
    return consumer


def listed(offset: int, code: int = 0) -> ListOffsetsResponse:
    partition = ListOffsetsPartitionResponse(partition_index=0, error_code=code, offset=offset)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[partition])])


def fetched_offset(offset: int, code: int = 0, epoch: int = -1, of_group: int = 0) -> OffsetFetchResponse:
    partition = OffsetFetchResponsePartition(
        partition_index=0,
        committed_offset=offset,
        committed_leader_epoch=epoch,
        metadata="",
        error_code=code,
    )
    topics = [OffsetFetchResponseTopic(name="t", partitions=[partition])]
    return OffsetFetchResponse(error_code=of_group, topics=topics)


def epoch_end(offset: int, epoch: int = 0, code: int = 0) -> OffsetForLeaderEpochResponse:
    end = EpochEndOffset(error_code=code, partition=0, leader_epoch=epoch, end_offset=offset)
    return OffsetForLeaderEpochResponse(
        throttle_time_ms=0, topics=[OffsetForLeaderTopicResult(topic="t", partitions=[end])]
    )


def fetches(consumer: JavaStage) -> list[int]:
    return [
        partition.fetch_offset
        for request in consumer.requests_of("Fetch")
        for topic in request.topics
        for partition in topic.partitions
    ]


@BOTH
def test_a_committed_offset_is_fetched_from_and_one_with_an_epoch_is_validated_first(
    release: ModuleType,
) -> None:
    consumer = positioned(release, FetchStates.INITIALIZING)
    consumer.answer("OffsetFetch", fetched_offset(7))
    assert (fetches(consumer), consumer.requests_of("OffsetForLeaderEpoch")) == ([7], [])
    consumer = positioned(release, FetchStates.INITIALIZING)
    consumer.answer("OffsetFetch", fetched_offset(0, epoch=0))
    consumer.wait(1)
    assert fetches(consumer) == []
    (request,) = consumer.requests_of("OffsetForLeaderEpoch")
    assert request.topics[0].partitions[0].leader_epoch == 0


@BOTH
def test_an_unstable_committed_offset_is_requested_again_after_the_backoff(release: ModuleType) -> None:
    consumer = positioned(release, FetchStates.INITIALIZING)
    consumer.answer("OffsetFetch", fetched_offset(-1, ErrorCode.UNSTABLE_OFFSET_COMMIT))
    consumer.wait(99)
    assert len(consumer.requests_of("OffsetFetch")) == 1
    consumer.wait(1)
    assert len(consumer.requests_of("OffsetFetch")) == 2
    assert consumer.actions_of(c.FinishPoll) == []


@BOTH
def test_another_error_of_a_committed_offset_is_thrown(release: ModuleType) -> None:
    for of_group, inner, name in ((0, 29, "KafkaException"), (30, 0, "GroupAuthorizationException")):
        consumer = positioned(release, FetchStates.INITIALIZING)
        consumer.answer("OffsetFetch", fetched_offset(-1, inner, of_group=of_group))
        (poll,) = consumer.actions_of(c.FinishPoll)
        assert poll.error[0] == name


@BOTH
def test_an_offset_fetch_without_a_response_looks_the_coordinator_up_again(release: ModuleType) -> None:
    consumer = positioned(release, FetchStates.INITIALIZING)
    consumer.fail("OffsetFetch")
    assert consumer.state.coordinator is None
    assert len(consumer.requests_of("FindCoordinator")) == 1
    assert consumer.actions_of(c.FinishPoll) == []


@BOTH
def test_a_seek_replaces_a_committed_offset_and_a_listed_offset_in_flight(release: ModuleType) -> None:
    consumer = positioned(release, FetchStates.INITIALIZING)
    consumer.do(c.SeekCalled(T0, 9))
    consumer.answer("OffsetFetch", fetched_offset(7))
    assert fetches(consumer) == [9]
    consumer = positioned(release, FetchStates.INITIALIZING, reset="earliest")
    consumer.answer("OffsetFetch", fetched_offset(-1))
    consumer.do(c.SeekCalled(T0, 9))
    consumer.answer("ListOffsets", listed(2))
    assert fetches(consumer) == [9]


@BOTH
def test_without_a_reset_policy_a_missing_committed_offset_is_thrown(release: ModuleType) -> None:
    consumer = positioned(release, FetchStates.INITIALIZING, reset="none")
    consumer.answer("OffsetFetch", fetched_offset(-1))
    (poll,) = consumer.actions_of(c.FinishPoll)
    assert poll.error == (
        "NoOffsetForPartitionException",
        "Undefined offset with no reset policy for partitions: [t-0]",
    )
    assert consumer.requests_of("ListOffsets") == []


@BOTH
def test_a_failed_list_offsets_requests_metadata_and_is_repeated_after_the_backoff(
    release: ModuleType,
) -> None:
    for code in (6, None):
        consumer = positioned(release, FetchStates.INITIALIZING, reset="earliest")
        consumer.answer("OffsetFetch", fetched_offset(-1))
        consumer.now += 200
        if code is None:
            consumer.fail("ListOffsets")
        else:
            consumer.answer("ListOffsets", listed(-1, code))
        assert len(consumer.requests_of("Metadata")) == 1
        consumer.wait(99)
        assert len(consumer.requests_of("ListOffsets")) == 1
        consumer.wait(1)
        assert len(consumer.requests_of("ListOffsets")) == 2
        consumer.answer("ListOffsets", listed(2))
        assert fetches(consumer) == [2]


@BOTH
def test_a_partition_without_a_leader_is_reset_when_its_leader_is_known(release: ModuleType) -> None:
    consumer = positioned(release, FetchStates.INITIALIZING, reset="earliest")
    consumer.state.cluster.update(metadata_of(leader=-1, t=2))
    consumer.answer("OffsetFetch", fetched_offset(-1))
    consumer.wait(100)
    assert consumer.requests_of("ListOffsets") == []
    consumer.answer("Metadata", metadata_of(t=2))
    (request,) = consumer.requests_of("ListOffsets")
    assert request.topics[0].partitions[0].timestamp == -2


@BOTH
@pytest.mark.rule("M150")
def test_a_log_that_ends_before_the_position_moves_it_to_the_end_of_the_epoch(release: ModuleType) -> None:
    consumer = positioned(release, FetchStates.AWAIT_VALIDATION)
    consumer.answer("OffsetForLeaderEpoch", epoch_end(3))
    assert consumer.state.assigned[T0].offset == 3
    consumer.answer("OffsetForLeaderEpoch", epoch_end(3))
    assert fetches(consumer) == [3]


@BOTH
@pytest.mark.rule("M150")
def test_a_log_that_ends_at_the_position_confirms_it(release: ModuleType) -> None:
    consumer = positioned(release, FetchStates.AWAIT_VALIDATION)
    consumer.answer("OffsetForLeaderEpoch", epoch_end(5))
    assert fetches(consumer) == [5]


@BOTH
@pytest.mark.rule("M150")
@pytest.mark.parametrize(("offset", "epoch"), [(-1, 0), (9, -1)])
def test_an_unknown_end_of_the_epoch_applies_the_reset_policy(
    release: ModuleType, offset: int, epoch: int
) -> None:
    consumer = positioned(release, FetchStates.AWAIT_VALIDATION, reset="earliest")
    consumer.answer("OffsetForLeaderEpoch", epoch_end(offset, epoch))
    (request,) = consumer.requests_of("ListOffsets")
    assert request.topics[0].partitions[0].timestamp == -2


@BOTH
@pytest.mark.rule("M151")
def test_a_failed_validation_requests_metadata_and_is_repeated_after_the_backoff(
    release: ModuleType,
) -> None:
    for code in (74, None):
        consumer = positioned(release, FetchStates.AWAIT_VALIDATION)
        consumer.now += 200
        if code is None:
            consumer.fail("OffsetForLeaderEpoch")
        else:
            consumer.answer("OffsetForLeaderEpoch", epoch_end(-1, -1, code))
        assert len(consumer.requests_of("Metadata")) == 1
        consumer.wait(99)
        assert len(consumer.requests_of("OffsetForLeaderEpoch")) == 1
        consumer.wait(1)
        assert len(consumer.requests_of("OffsetForLeaderEpoch")) == 2
        assert fetches(consumer) == []


@BOTH
def test_a_seek_during_a_validation_is_not_overwritten_by_its_response(release: ModuleType) -> None:
    consumer = positioned(release, FetchStates.AWAIT_VALIDATION)
    consumer.do(c.SeekCalled(T0, 9))
    consumer.answer("OffsetForLeaderEpoch", epoch_end(3))
    assert fetches(consumer) == [9]


@BOTH
@pytest.mark.rule("M149")
def test_a_newer_leader_epoch_validates_the_positions_that_have_an_epoch_again(release: ModuleType) -> None:
    for position_epoch, leader_epoch, validated in ((0, 1, True), (0, 0, False), (-1, 1, False)):
        consumer = JavaStage(release, heartbeat_ms=60_000, metadata_ms=1_000).stable(T0)
        consumer.state.assigned[T0].epoch = position_epoch
        consumer.now += 1_000
        consumer.do(c.PollCalled(10_000))
        consumer.answer("Metadata", metadata_of(epoch=leader_epoch, t=2))
        requests = consumer.requests_of("OffsetForLeaderEpoch")
        assert len(requests) == validated
        if validated:
            partition = requests[0].topics[0].partitions[0]
            assert (partition.leader_epoch, partition.current_leader_epoch) == (0, 1)


@BOTH
def test_an_assigned_partition_without_an_offset_looks_up_the_coordinator_for_its_committed_offset(
    release: ModuleType,
) -> None:
    consumer = JavaStage(release)
    consumer.do(c.AssignCalled({T0: None, T1: 4}))
    consumer.poll()
    assert len(consumer.requests_of("FindCoordinator")) == 1
    consumer.state.coordinator = COORDINATOR
    consumer.poll()
    consumer.poll()
    (request,) = consumer.requests_of("OffsetFetch")
    topics = request.groups[0].topics if request.groups else request.topics
    assert [topic.partition_indexes for topic in topics] == [[0]]


@BOTH
def test_committed_offsets_are_validated_after_the_resets_of_the_same_response(release: ModuleType) -> None:
    """updateFetchPositions returns after the committed offsets have arrived. The next call validates the
    positions.
    """
    consumer = positioned(release, FetchStates.INITIALIZING, reset="earliest")
    consumer.state.assigned[T1] = TopicPartitionState()
    response = fetched_offset(7, epoch=0)
    response.topics[0].partitions += fetched_offset(-1).topics[0].partitions
    response.topics[0].partitions[1].partition_index = 1
    out = consumer.answer("OffsetFetch", response)
    sent = [type(action.request).__name__ for action in out if isinstance(action, c.SendRequest)]
    assert sent == ["ListOffsetsRequest", "OffsetForLeaderEpochRequest"]
