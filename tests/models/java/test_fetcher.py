"""Java's consumer fetches in sessions, and returns only records at its current positions (Fetcher)."""

from __future__ import annotations

from types import ModuleType

import pytest

from kproto.error_codes import ErrorCode
from kproto.group.subscription import TopicPartition
from kproto.messages.fetch import FetchResponse
from kproto.models import contract as c
from kproto.models import java
from kproto.models.java import java_2_6
from tests.models.java.stage import BOTH, T0, T1, U0, JavaStage, fetched, metadata_of


def consumer_of(release: ModuleType, *owned: TopicPartition, **conf: object) -> JavaStage:
    """Return a consumer whose poll has sent its first Fetch, in a version that names topics."""
    consumer = JavaStage(release, **conf)
    consumer.do(c.Started((("broker", 9092),), {1: (4, 11)}))
    consumer.stable(*owned)
    consumer.poll()
    return consumer


def offsets_of(actions: list[c.ModelAction]) -> list[int]:
    return [
        record.offset for action in actions if isinstance(action, c.FinishPoll) for record in action.records
    ]


def positions_in(consumer: JavaStage) -> list[dict[str, int]]:
    """Return the partitions and offsets of each Fetch request."""
    return [
        {f"{topic.topic}-{p.partition}": p.fetch_offset for topic in request.topics for p in topic.partitions}
        for request in consumer.requests_of("Fetch")
    ]


def sessions_in(consumer: JavaStage) -> list[tuple[int, int]]:
    return [(request.session_id, request.session_epoch) for request in consumer.requests_of("Fetch")]


@BOTH
def test_records_of_a_paused_partition_stay_buffered_until_it_is_resumed(release: ModuleType) -> None:
    consumer = consumer_of(release, T0)
    consumer.do(c.PauseCalled((T0, U0)))
    consumer.answer("Fetch", fetched(5, 6))
    assert offsets_of(consumer.poll()) == []
    consumer.do(c.ResumeCalled((T0, U0)))
    assert offsets_of(consumer.poll()) == [5, 6]
    assert len(consumer.requests_of("Fetch")) == 2


@BOTH
def test_records_of_an_old_position_are_dropped_after_a_seek(release: ModuleType) -> None:
    consumer = consumer_of(release, T0)
    consumer.do(c.SeekCalled(T0, 9))
    consumer.answer("Fetch", fetched(5, 6))
    assert offsets_of(consumer.poll()) == []
    consumer.answer("Fetch", fetched(9))
    assert offsets_of(consumer.poll()) == [9]
    assert positions_in(consumer)[:2] == [{"t-0": 5}, {"t-0": 9}]


@BOTH
def test_a_poll_returns_at_most_its_limit_and_the_next_one_continues_there(release: ModuleType) -> None:
    consumer = consumer_of(release)
    consumer.answer("Fetch", fetched(5, 6, 7))
    batches = [offsets_of(consumer.do(c.PollCalled(0, 2))) for _ in range(3)]
    assert batches == [[5, 6], [7], []]
    assert consumer.state.assigned[T0].offset == 8
    assert consumer.state.assigned[T0].epoch == 0


@BOTH
def test_a_partition_that_was_not_requested_is_ignored(release: ModuleType) -> None:
    consumer = consumer_of(release, T0)
    consumer.answer("Fetch", fetched(5, partition=1))
    assert offsets_of(consumer.poll()) == []
    assert positions_in(consumer) == [{"t-0": 5}, {}]


@BOTH
def test_a_partition_without_a_leader_is_not_fetched_and_metadata_is_requested(release: ModuleType) -> None:
    consumer = JavaStage(release)
    consumer.do(c.Started((("broker", 9092),), {1: (4, 11)}))
    consumer.stable(T0)
    consumer.state.cluster.update(metadata_of(leader=-1, t=2))
    consumer.do(c.PollCalled(1_000))
    consumer.wait(100)
    assert consumer.requests_of("Fetch") == []
    consumer.answer("Metadata", metadata_of(t=2))
    assert positions_in(consumer) == [{"t-0": 5}]


@BOTH
@pytest.mark.rule("M160")
def test_a_fetch_session_continues_with_the_changed_partitions_only(release: ModuleType) -> None:
    consumer = consumer_of(release)
    consumer.answer("Fetch", fetched(5))
    consumer.poll()
    consumer.answer("Fetch", fetched(6))
    consumer.poll()
    assert sessions_in(consumer) == [(0, 0), (7, 1), (7, 2)]
    assert positions_in(consumer) == [{"t-0": 5, "t-1": 5}, {"t-0": 6}, {"t-0": 7}]


@BOTH
@pytest.mark.rule("M160")
def test_a_broker_without_room_for_a_session_gets_full_fetches(release: ModuleType) -> None:
    consumer = consumer_of(release)
    consumer.answer("Fetch", fetched(5, session=0))
    consumer.poll()
    assert sessions_in(consumer) == [(0, 0), (0, 0)]
    assert positions_in(consumer)[1] == {"t-0": 6, "t-1": 5}


@BOTH
@pytest.mark.rule("M160")
@pytest.mark.parametrize(
    ("code", "following"),
    [(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, (0, 0)), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, (7, 0))],
)
def test_an_unknown_session_is_replaced_and_one_with_another_epoch_is_reopened(
    release: ModuleType, code: int, following: tuple[int, int]
) -> None:
    consumer = consumer_of(release)
    consumer.answer("Fetch", fetched(5))
    consumer.poll()
    consumer.answer("Fetch", FetchResponse(throttle_time_ms=0, error_code=code, responses=[]))
    consumer.poll()
    assert sessions_in(consumer)[1:] == [(7, 1), following]
    assert positions_in(consumer)[2] == {"t-0": 6, "t-1": 5}


@BOTH
@pytest.mark.rule("M163")
def test_a_broken_connection_reopens_the_session_with_all_partitions(release: ModuleType) -> None:
    consumer = consumer_of(release)
    consumer.answer("Fetch", fetched(5))
    consumer.poll()
    consumer.fail("Fetch")
    consumer.poll()
    assert sessions_in(consumer)[1:] == [(7, 1), (7, 0)]
    assert positions_in(consumer)[2] == {"t-0": 6, "t-1": 5}


@BOTH
@pytest.mark.rule("M173")
@pytest.mark.parametrize(
    ("code", "thrown"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "TopicAuthorizationException"),
        (ErrorCode.CORRUPT_MESSAGE, "KafkaException"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, None),
    ],
)
def test_an_error_of_a_partition_is_thrown_from_poll_except_an_unknown_server_error(
    release: ModuleType, code: int, thrown: str | None
) -> None:
    consumer = consumer_of(release, T0)
    consumer.answer("Fetch", fetched(code=code))
    consumer.poll()
    consumer.poll()
    errors = [poll.error[0] for poll in consumer.actions_of(c.FinishPoll) if poll.error is not None]
    assert errors == ([thrown] if thrown else [])
    consumer.poll()
    assert consumer.state.assigned[T0].offset == 5


@BOTH
@pytest.mark.rule("M173")
@pytest.mark.parametrize("code", [3, 6, 9, 56, 74, 75, 78, 100, 103])
def test_an_error_of_the_leader_requests_metadata_and_repeats_the_fetch(
    release: ModuleType, code: int
) -> None:
    consumer = consumer_of(release, T0)
    consumer.now += 200
    consumer.answer("Fetch", fetched(code=code))
    consumer.do(c.PollCalled(1_000))
    assert len(consumer.requests_of("Metadata")) == 1
    assert [poll.error for poll in consumer.actions_of(c.FinishPoll)] == [None]
    assert positions_in(consumer)[1:] == [{}]


@BOTH
def test_an_offset_out_of_range_is_reset_by_the_policy(release: ModuleType) -> None:
    for reset, timestamp in (("earliest", -2), ("latest", -1), (None, -1)):
        consumer = consumer_of(release, T0, **({"reset": reset} if reset else {}))
        consumer.answer("Fetch", fetched(code=1))
        consumer.poll()
        consumer.poll()
        (lookup,) = consumer.requests_of("ListOffsets")
        assert lookup.topics[0].partitions[0].timestamp == timestamp


@BOTH
def test_without_a_reset_policy_an_offset_out_of_range_is_thrown(release: ModuleType) -> None:
    consumer = consumer_of(release, T0, reset="none")
    consumer.answer("Fetch", fetched(code=1))
    consumer.poll()
    consumer.poll()
    errors = [poll.error for poll in consumer.actions_of(c.FinishPoll) if poll.error is not None]
    assert errors == [
        ("NoOffsetForPartitionException", "Undefined offset with no reset policy for partitions: [t-0]")
    ]
    assert consumer.requests_of("ListOffsets") == []


@BOTH
def test_assign_drops_buffered_records_of_other_partitions(release: ModuleType) -> None:
    consumer = JavaStage(release)
    consumer.do(c.Started((("broker", 9092),), {1: (4, 11)}))
    consumer.do(c.AssignCalled({T0: 5}))
    consumer.state.cluster.update(metadata_of(t=2))
    consumer.poll()
    consumer.answer("Fetch", fetched(5))
    consumer.do(c.AssignCalled({T1: 5}))
    assert offsets_of(consumer.poll()) == []
    consumer.do(c.AssignCalled({T0: 5, T1: 5}))
    assert offsets_of(consumer.poll()) == []


@BOTH
def test_records_of_an_assigned_partition_need_no_coordinator(release: ModuleType) -> None:
    consumer = JavaStage(release)
    consumer.do(c.Started((("broker", 9092),), {1: (4, 11)}))
    consumer.do(c.AssignCalled({T0: 5}))
    consumer.state.cluster.update(metadata_of(t=2))
    consumer.do(c.PollCalled(1_000))
    assert consumer.state.coordinator is None
    assert offsets_of(consumer.answer("Fetch", fetched(5))) == [5]


@BOTH
def test_a_subscribed_consumer_returns_no_records_while_it_looks_for_its_coordinator(
    release: ModuleType,
) -> None:
    consumer = consumer_of(release, T0)
    consumer.answer("Fetch", fetched(5))
    assert consumer.state.coordinator is not None
    consumer.do(c.ConnectionLost(consumer.state.coordinator))
    assert offsets_of(consumer.do(c.PollCalled(100))) == []
    consumer.wait(100)
    assert offsets_of(consumer.said) == [5]


def test_4_3_closes_each_fetch_session_and_2_6_none() -> None:

    for release, closing in ((java, [(7, -1)]), (java_2_6, [])):
        consumer = consumer_of(release)
        consumer.answer("Fetch", fetched(5))
        consumer.do(c.CloseCalled(stay=True))
        assert sessions_in(consumer)[1:] == closing


@BOTH
def test_close_sends_no_fetch_before_a_session_exists(release: ModuleType) -> None:
    consumer = consumer_of(release)
    consumer.do(c.CloseCalled(stay=True))
    assert sessions_in(consumer) == [(0, 0)]
