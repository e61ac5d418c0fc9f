"""A start offset is committed before the first record is returned, and overwrites no other commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from consumer.engine.producer.transaction_states import PendingCall, ProducerTransactionState
from consumer.records import GroupMetadata
from kproto.error_codes import ErrorCode
from kproto.errors import BrokerError, NotAuthorized, RequestTimedOut
from kproto.messages.list_offsets import ListOffsetsRequest
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kproto.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from tests.consumer.engine.stage import GROUP, numbers, world_with_records
from tests.consumer.stage import Client, Consumer, World, tp

AUTO = {**GROUP, "enable_auto_commit": True, "auto_commit_interval_ms": 100}


@pytest.mark.rule("I8")
@pytest.mark.parametrize("seeks", [False, True])
def test_an_initial_commit_that_fails_after_a_seek_is_not_raised(seeks: bool) -> None:
    """After a seek a failed initial commit raises no error, because its offset is no longer the position."""
    world = world_with_records()

    def refuse(client: Client, request: Any, version: int) -> OffsetCommitResponse | None:
        if not isinstance(request, OffsetCommitRequest):
            return None
        return answer_code(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)

    world.tamper = refuse
    a = world.consumer(**GROUP)
    a.subscribe("t")
    assert world.run(until=lambda: bool(world.requests_of(a, OffsetCommitRequest)))
    if seeks:
        a.seek(tp("t", 0), 7)
    assert world.run(until=lambda: bool(a.records))
    assert a.values() == numbers(7 if seeks else 0, 10)
    assert [type(error) for error in a.errors] == ([] if seeks else [NotAuthorized])


def answer_code(request: OffsetCommitRequest, code: int) -> OffsetCommitResponse:
    """Return a response that answers every partition of `request` with `code`."""
    topics = [
        OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[
                OffsetCommitResponsePartition(partition_index=entry.partition_index, error_code=code)
                for entry in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetCommitResponse(topics=topics)


def offsets_sent(world: World, consumer: Consumer) -> list[int]:
    """Return the offsets that the consumer sent in OffsetCommit requests, in order."""
    return [
        entry.committed_offset
        for request in world.requests_of(consumer, OffsetCommitRequest)
        for topic in request.topics
        for entry in topic.partitions
    ]


def member_at(world: World, moment: type, **options: Any) -> Consumer:
    """Add a member, and run until it has sent its first request of the message class `moment`."""
    a = world.consumer(**{**GROUP, **options})
    a.subscribe("t")
    assert world.run(until=lambda: bool(world.requests_of(a, moment)))
    return a


MOMENTS = pytest.mark.parametrize("moment", [OffsetFetchRequest, ListOffsetsRequest, OffsetCommitRequest])
OPTIONS = pytest.mark.parametrize("options", [GROUP, AUTO], ids=["manual", "auto"])


@MOMENTS
@OPTIONS
@pytest.mark.rule("M206")
def test_an_initial_commit_does_not_overwrite_a_commit_of_the_application(
    moment: type, options: dict[str, Any]
) -> None:
    """A commit that the application makes during the client's lookup or initial commit is kept."""
    world = World({"t": 1}, latency=(20, 20))
    a = member_at(world, moment, **options)
    token = a.commit({tp("t", 0): 3})
    world.run(10_000)
    assert a.done[token] == (None, None)
    assert world.committed("g", tp("t", 0)) == 3
    assert offsets_sent(world, a) == ([0, 3] if moment is OffsetCommitRequest else [3])
    world.write("t", 0, *numbers(0, 10))
    assert world.run(until=lambda: bool(a.records))
    assert a.values() == numbers(0, 10)


@MOMENTS
@OPTIONS
@pytest.mark.rule("M206")
def test_close_behind_a_commit_of_the_application_keeps_its_offset(
    moment: type, options: dict[str, Any]
) -> None:
    world = World({"t": 1}, latency=(20, 20))
    a = member_at(world, moment, **options)
    token = a.commit({tp("t", 0): 3})
    a.close()
    assert world.run(until=lambda: not a.alive)
    assert a.done[token] == (None, None)
    assert world.committed("g", tp("t", 0)) == 3


@pytest.mark.rule("M206")
@pytest.mark.parametrize("wait_ms", range(0, 200, 10))
def test_close_at_any_time_after_a_commit_of_the_application_keeps_its_offset(wait_ms: int) -> None:
    world = World({"t": 1}, latency=(20, 20))
    a = member_at(world, OffsetFetchRequest, **AUTO)
    a.commit({tp("t", 0): 3})
    world.run(wait_ms)
    a.close()
    assert world.run(until=lambda: not a.alive)
    assert world.committed("g", tp("t", 0)) == 3


@pytest.mark.rule("M206")
@pytest.mark.parametrize("moment", [OffsetFetchRequest, ListOffsetsRequest])
def test_the_initial_commit_is_made_after_a_failed_commit_of_the_application(moment: type) -> None:
    world = World({"t": 1}, latency=(20, 20))
    world.write("t", 0, *numbers(0, 10))
    a = member_at(world, moment)

    def refuse(client: Client, request: Any, version: int) -> OffsetCommitResponse | None:
        if isinstance(request, OffsetCommitRequest):
            world.tamper = None
            return answer_code(request, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        return None

    world.tamper = refuse
    token = a.commit({tp("t", 0): 3})
    assert world.run(until=lambda: bool(a.records))
    assert isinstance(a.done[token][1], BrokerError)
    assert offsets_sent(world, a) == [3, 0]
    assert world.committed("g", tp("t", 0)) == 0
    assert a.values() == numbers(0, 10)


@pytest.mark.rule("M206")
def test_a_retried_initial_commit_is_sent_before_a_later_commit_of_the_application() -> None:
    world = World({"t": 1}, latency=(20, 20))
    failures: list[OffsetCommitRequest] = []

    def refuse(client: Client, request: Any, version: int) -> OffsetCommitResponse | None:
        if isinstance(request, OffsetCommitRequest) and len(failures) < 3:
            failures.append(request)
            return answer_code(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return None

    world.tamper = refuse
    a = member_at(world, OffsetCommitRequest, **AUTO)
    a.commit({tp("t", 0): 3})
    world.run(20_000)
    assert offsets_sent(world, a) == [0, 0, 0, 0, 3]
    assert world.committed("g", tp("t", 0)) == 3


@pytest.mark.rule("M206")
def test_other_partitions_keep_their_initial_commit_beside_a_commit_of_the_application() -> None:
    world = World({"t": 2}, latency=(20, 20))
    a = member_at(world, ListOffsetsRequest)
    a.commit({tp("t", 0): 3})
    world.run(10_000)
    assert [world.committed("g", tp("t", partition)) for partition in (0, 1)] == [3, 0]


@pytest.mark.rule("M206")
def test_java_s_policy_commits_no_start_offset_after_a_commit_of_the_application() -> None:
    world = World({"t": 1}, latency=(20, 20))
    a = member_at(world, ListOffsetsRequest, policy="java")
    a.commit({tp("t", 0): 3})
    world.run(10_000)
    assert offsets_sent(world, a) == [3]


@pytest.mark.rule("M206")
def test_a_commit_of_a_deleted_topic_does_not_replace_the_initial_commit_of_the_new_one() -> None:
    world = World({"t": 1})
    a = member_at(world, OffsetFetchRequest)
    a.commit({tp("t", 0): 3})
    world.run(2_000)
    world.delete_topic("t")
    world.create("t", 1)
    world.write("t", 0, *numbers(0, 10))
    assert world.run(20_000, until=lambda: bool(a.records))
    assert world.committed("g", tp("t", 0)) == 0
    assert a.values() == numbers(0, 10)


@pytest.mark.rule("M206")
def test_a_late_response_to_a_commit_of_the_deleted_topic_does_not_replace_the_initial_commit() -> None:
    """The response to the OffsetCommit arrives after the client has noticed that the topic was re-created."""
    world = World({"t": 1}, brokers=2, latency=(20, 20))
    a = member_at(world, OffsetFetchRequest, session_timeout_ms=30_000, metadata_max_age_ms=500)
    world.fault("delay", a, world.cluster.group_coordinator_of("g"), ms=2_000)
    a.commit({tp("t", 0): 3})
    assert world.run(until=lambda: offsets_sent(world, a) == [3])
    world.delete_topic("t")
    world.create("t", 1)
    world.write("t", 0, *numbers(0, 10))
    assert world.run(20_000, until=lambda: bool(a.records))
    assert offsets_sent(world, a)[-1] == 0
    assert world.committed("g", tp("t", 0)) == 0


@OPTIONS
@pytest.mark.rule("M206")
def test_a_commit_without_offsets_commits_no_start_offset_after_a_commit_of_the_application(
    options: dict[str, Any],
) -> None:
    """`commit()` without offsets commits nothing: the consumer has returned no records."""
    world = World({"t": 1}, latency=(20, 20))
    a = member_at(world, ListOffsetsRequest, **options)
    a.commit({tp("t", 0): 3})
    world.run(1_000)
    token = a.commit()
    world.run(1_000)
    assert a.done[token] == (None, None)
    assert world.committed("g", tp("t", 0)) == 3


@pytest.mark.rule("M206")
def test_the_hourly_commit_of_unchanged_offsets_repeats_the_offset_of_the_application() -> None:
    """Heartbeats, fetches and metadata requests have long intervals, so that an hour of virtual time takes
    little CPU time.
    """
    world = World({"t": 1}, latency=(20, 20))
    slow = {"session_timeout_ms": 300_000, "heartbeat_interval_ms": 60_000, "metadata_max_age_ms": 300_000}
    slow |= {"fetch_max_wait_ms": 20_000}
    a = member_at(
        world,
        ListOffsetsRequest,
        **{**AUTO, **slow, "auto_commit_interval_ms": 60_000, "max_poll_interval_ms": 2 * 3_600_000},
    )
    a.commit({tp("t", 0): 3})
    a.pause_polling()
    world.run(3_600_000 + 120_000)
    assert offsets_sent(world, a) == [3, 3]


def lose_response(world: World, a: Consumer, offset: int) -> None:
    """Let the coordinator store the first commit of `offset`, but drop the response."""

    def tamper(client: Client, request: Any, version: int) -> None:
        if isinstance(request, OffsetCommitRequest) and offsets_sent(world, a)[-1:] == [offset]:
            world.tamper = None
            world.fault("drop", a, lasts=1_000)

    world.tamper = tamper


@pytest.mark.parametrize("moment", [OffsetFetchRequest, ListOffsetsRequest])
@OPTIONS
@pytest.mark.parametrize("timeout_ms", [10, 100, 600])
@pytest.mark.rule("M206")
def test_an_initial_commit_does_not_overwrite_a_commit_that_timed_out(
    moment: type, options: dict[str, Any], timeout_ms: int
) -> None:
    """The initial commit of offset 0 is not sent after the coordinator has stored offset 3.

    The application committed offset 3. The response is lost, so the application's call times out.
    """
    world = World({"t": 1}, latency=(20, 20))
    world.write("t", 0, *numbers(0, 10))
    a = member_at(world, moment, **{**options, "request_timeout_ms": 501, "session_timeout_ms": 30_000})
    lose_response(world, a, 3)
    token = a.commit({tp("t", 0): 3}, timeout_ms=timeout_ms)
    assert world.run(20_000, until=lambda: bool(a.records))
    assert isinstance(a.done[token][1], RequestTimedOut)
    assert 0 not in offsets_sent(world, a)


def begin_transaction(world: World, a: Consumer, offset: int) -> Callable[[str], PendingCall]:
    """Begin a transaction, and send `offset` in it for the group. Return a function that ends the
    transaction.
    """
    producer = world.producer(transactional_id="x", linger_ms=0)
    transactions = producer.engine.transactions
    assert transactions is not None
    transactions.call("begin")
    producer.tick()
    world.run(500, until=lambda: transactions.state is ProducerTransactionState.IN_TRANSACTION)
    member_id, generation = a.engine.group_status.member_for_transaction()
    transactions.send_offsets(
        GroupMetadata("g", generation, member_id, None), {tp("t", 0): (offset, None, "")}
    )
    producer.tick()

    def end(name: str) -> PendingCall:
        call = transactions.call(name)
        producer.tick()
        return call

    return end


@pytest.mark.rule("M206")
@pytest.mark.parametrize("ends_by", ["commit", "abort"])
@pytest.mark.parametrize("open_ms", [0, 500, 2_000])
def test_a_delayed_initial_commit_does_not_overwrite_the_offsets_of_a_transaction(
    ends_by: str, open_ms: int
) -> None:
    """The last commit for a partition determines the committed offset. Before a delayed initial commit, the
    consumer therefore looks up the committed offset again. If an open transaction contains an offset for the
    partition, the lookup waits for the end of this transaction.
    """
    world = World({"t": 1}, latency=(20, 20))
    world.write("t", 0, *numbers(0, 10))
    is_loading = [True]

    def refuse(client: Client, request: Any, version: int) -> OffsetCommitResponse | None:
        if isinstance(request, OffsetCommitRequest) and is_loading:
            return answer_code(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return None

    world.tamper = refuse
    a = member_at(world, OffsetCommitRequest)
    end = begin_transaction(world, a, 3)
    world.run(500)
    is_loading.clear()
    world.run(open_ms)
    call = end(ends_by)
    world.run(10_000)
    assert call.done
    assert world.committed("g", tp("t", 0)) == (3 if ends_by == "commit" else 0)
    assert a.values() == numbers(0, 10)


@pytest.mark.rule("M206")
def test_an_initial_commit_that_waited_for_its_coordinator_does_not_overwrite_a_transaction() -> None:
    world = World({"t": 1}, latency=(20, 20))
    a = member_at(world, ListOffsetsRequest, request_timeout_ms=501)
    world.fault("drop", a, lasts=600)
    end = begin_transaction(world, a, 3)
    call = end("commit")
    world.run(20_000)
    assert call.done
    assert call.error is None
    assert world.committed("g", tp("t", 0)) == 3


@pytest.mark.rule("M206")
@pytest.mark.parametrize("ends_by", ["commit", "abort"])
def test_an_initial_commit_after_a_slow_offset_lookup_does_not_overwrite_a_transaction(ends_by: str) -> None:
    """A slow initial commit does not replace an offset that a transaction committed meanwhile.

    The leader delays its ListOffsets response. If the transaction aborts, the initial commit takes effect.
    """
    world = World({"t": 1}, brokers=2, latency=(20, 20))
    world.write("t", 0, *numbers(0, 10))
    coordinator = world.cluster.group_coordinator_of("g")
    leader = 3 - coordinator
    world.elect("t", 0, leader)
    a = world.consumer(**GROUP)
    world.fault("delay", a, leader, ms=1_000, lasts=5_000)
    a.subscribe("t")
    assert world.run(until=lambda: bool(world.requests_of(a, OffsetFetchRequest)))
    world.run(200)
    end = begin_transaction(world, a, 3)
    world.run(200)
    call = end(ends_by)
    world.run(10_000)
    assert call.done
    assert world.committed("g", tp("t", 0)) == (3 if ends_by == "commit" else 0)
    assert a.values() == numbers(0, 10)


@pytest.mark.rule("M206")
def test_after_a_seek_records_wait_for_the_initial_commit_in_flight() -> None:
    """The application may commit the offsets of these records in a transaction. An initial commit that
    arrives later would overwrite these offsets.
    """
    world = World({"t": 1}, brokers=2, latency=(20, 20))
    world.write("t", 0, *numbers(0, 10))
    a = member_at(world, ListOffsetsRequest, session_timeout_ms=30_000)
    world.fault("delay", a, world.cluster.group_coordinator_of("g"), ms=1_000, lasts=5_000)
    world.run(100)
    a.seek(tp("t", 0), 7)
    world.run(500)
    assert not a.records
    assert not offsets_sent(world, a)
    assert a.engine.delivery_watch.status(tp("t", 0), world.now).reason == "commit"
    assert world.run(until=lambda: bool(a.records))
    assert a.values() == numbers(7, 10)
    end = begin_transaction(world, a, 8)
    world.run(500)
    call = end("commit")
    world.run(10_000)
    assert call.done
    assert offsets_sent(world, a) == [0]
    assert world.committed("g", tp("t", 0)) == 8


@pytest.mark.rule("M206")
def test_after_a_seek_records_are_returned_if_the_initial_commit_gets_no_response() -> None:
    world = World({"t": 1}, brokers=2, latency=(20, 20))
    world.write("t", 0, *numbers(0, 10))
    a = member_at(world, ListOffsetsRequest, session_timeout_ms=30_000, request_timeout_ms=501)
    world.fault("drop", a, world.cluster.group_coordinator_of("g"))
    world.run(100)
    a.seek(tp("t", 0), 7)
    assert world.run(1_000, until=lambda: bool(a.records))
    assert a.values() == numbers(7, 10)


@pytest.mark.rule("M206")
def test_a_partition_whose_buffer_is_dropped_during_its_initial_commit_is_read() -> None:
    """The paused partition's buffer exceeds fetch_max_bytes, so it is discarded. The initial commit remains
    valid.
    """
    world = World({"t": 1}, brokers=2, latency=(5, 5))
    for number in range(20):
        world.write("t", 0, f"{number:0100}")
    a = member_at(world, ListOffsetsRequest, session_timeout_ms=30_000, fetch_max_bytes=300)
    world.fault("delay", a, world.cluster.group_coordinator_of("g"), ms=1_000, lasts=1_500)
    state = a.engine.core.partitions.states[tp("t", 0)]
    assert world.run(500, until=lambda: bool(state.fetches))
    a.pause(tp("t", 0))
    world.run(500)
    assert not state.fetches
    assert not offsets_sent(world, a)
    a.resume(tp("t", 0))
    assert world.run(10_000, until=lambda: len(a.records) == 20)


@pytest.mark.rule("M206")
def test_a_delayed_initial_commit_is_dropped_after_a_seek() -> None:
    world = World({"t": 1}, latency=(20, 20))
    world.write("t", 0, *numbers(0, 10))
    failures: list[OffsetCommitRequest] = []

    def refuse(client: Client, request: Any, version: int) -> OffsetCommitResponse | None:
        if isinstance(request, OffsetCommitRequest) and len(failures) < 3:
            failures.append(request)
            return answer_code(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return None

    world.tamper = refuse
    a = member_at(world, OffsetCommitRequest)
    a.seek(tp("t", 0), 7)
    assert world.run(until=lambda: bool(a.records))
    world.run(5_000)
    assert a.values() == numbers(7, 10)
    assert offsets_sent(world, a) == [0]


@pytest.mark.rule("M206")
@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
def test_the_lookup_before_a_delayed_initial_commit_is_retried(code: ErrorCode) -> None:
    world = World({"t": 1}, latency=(20, 20))
    world.write("t", 0, *numbers(0, 10))
    codes: list[int] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, code, code]

    def refuse(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, OffsetCommitRequest) and len(codes) == 3:
            return answer_code(request, codes.pop())
        if isinstance(request, OffsetFetchRequest) and codes:
            code = codes.pop()
            groups = [
                OffsetFetchResponseGroup(group_id=group.group_id, topics=[], error_code=code)
                for group in request.groups
            ]
            return OffsetFetchResponse(groups=groups)
        return None

    world.tamper = refuse
    a = member_at(world, OffsetCommitRequest)
    assert world.run(until=lambda: bool(a.records))
    assert not codes
    assert a.values() == numbers(0, 10)
    assert world.committed("g", tp("t", 0)) == 0


@pytest.mark.rule("M206")
def test_poll_raises_the_error_of_the_lookup_before_a_delayed_initial_commit() -> None:
    world = World({"t": 1}, latency=(20, 20))
    world.write("t", 0, *numbers(0, 10))
    commits: list[OffsetCommitRequest] = []

    def refuse(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, OffsetCommitRequest):
            commits.append(request)
            return answer_code(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if isinstance(request, OffsetFetchRequest) and commits:
            denied = ErrorCode.GROUP_AUTHORIZATION_FAILED
            group = OffsetFetchResponseGroup(group_id="g", topics=[], error_code=denied)
            return OffsetFetchResponse(groups=[group])
        return None

    world.tamper = refuse
    a = member_at(world, OffsetCommitRequest)
    assert world.run(until=lambda: bool(a.records))
    assert [type(error) for error in a.errors] == [NotAuthorized]
    assert len(commits) == 1
