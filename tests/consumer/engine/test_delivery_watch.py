"""A consumer reports why a partition returns no records, and when the partition counts as stalled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from consumer.records import DeliveryStatus
from kproto.error_codes import ErrorCode
from kproto.group.subscription import TopicPartition
from kproto.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.list_offsets import ListOffsetsRequest
from kproto.messages.offset_commit import OffsetCommitRequest
from kproto.messages.offset_fetch import OffsetFetchRequest
from tests.consumer.engine.stage import GROUP
from tests.consumer.stage import Client, Consumer, World, tp

T0 = tp("t", 0)


def reader(**options: Any) -> tuple[World, Consumer]:
    """Return a simulated cluster whose topic `t` has ten records, and a member that has read all of them."""
    world = World({"t": 1})
    world.write("t", 0, *map(str, range(10)))
    a = world.consumer(**{**GROUP, **options})
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == 10)
    return world, a


def without_answers(world: World, *requests: type[Any]) -> None:
    """Break the connection of every client that sends one of these requests."""

    def tamper(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, requests):
            world.cut(client)
        return None

    world.tamper = tamper


def why(world: World, consumer: Consumer) -> tuple[str, str]:
    status = consumer.engine.delivery_watch.status(T0, world.now)
    return status.reason, status.detail


def test_a_reader_at_the_end_of_the_log_is_caught_up() -> None:
    world, a = reader()
    assert why(world, a) == ("caught up", "offset 10 is the end of the log")
    assert a.engine.delivery_watch.status(T0, world.now).lag == 0


def test_a_partition_of_another_member_is_not_assigned() -> None:
    world, a = reader()
    assert a.engine.delivery_watch.status(tp("t", 7), world.now).reason == "not assigned"


def test_a_subscribed_topic_that_does_not_exist_is_named_until_it_is_created() -> None:
    world, a = reader()

    def status() -> DeliveryStatus:
        return a.engine.delivery_watch.status(tp("later", 0), world.now)

    a.subscribe("t", "later")
    world.run(2_000)
    assert status().reason == "no topic"
    assert status().detail == "the topic 'later' does not exist; create it, or correct the subscription"
    assert why(world, a)[0] == "caught up"
    a.subscribe("t")
    world.run(2_000)
    assert status().reason == "not assigned"
    a.subscribe("t", "later")
    world.create("later", 1)
    assert world.run(30_000, until=lambda: status().reason == "caught up")


def test_an_assigned_topic_that_does_not_exist_is_named() -> None:
    """The reason is "no topic", both before a topic is created and after it is deleted."""
    world = World({"t": 1})
    a = world.consumer(auto_offset_reset="earliest")
    a.assign({T0: None, tp("later", 0): None})

    def reason(partition: TopicPartition) -> str:
        return a.engine.delivery_watch.status(partition, world.now).reason

    world.run(2_000)
    assert (reason(T0), reason(tp("later", 0))) == ("caught up", "no topic")
    world.create("later", 1)
    world.delete_topic("t")
    assert world.run(30_000, until=lambda: reason(tp("later", 0)) == "caught up")
    assert world.run(30_000, until=lambda: reason(T0) == "no topic")


def test_an_assigned_partition_without_a_leader_is_named() -> None:
    world = World({"t": 1})
    a = world.consumer()
    a.assign({tp("t", 7): None})
    world.run(2_000)
    assert a.engine.delivery_watch.status(tp("t", 7), world.now).reason == "no leader"


def test_a_member_that_has_not_joined_yet_is_rebalancing() -> None:
    world = World({"t": 1})
    a = world.consumer(**GROUP)
    a.subscribe("t")
    assert why(world, a) == ("rebalancing", "the group's coordinator is unknown")


def test_a_paused_partition_waits_for_resume() -> None:
    world, a = reader()
    a.pause(T0)
    assert why(world, a)[0] == "paused"
    a.resume(T0)
    assert why(world, a)[0] == "caught up"


def test_an_application_that_does_not_poll_is_named_with_the_time_of_its_last_poll() -> None:
    world, a = reader()
    a.pause_polling()
    world.write("t", 0, "x")
    world.run(4_000)
    status = a.engine.delivery_watch.status(T0, world.now)
    assert status.reason == "poll"
    assert status.lag == 1
    assert status.since is not None
    assert 3_000 <= a.engine.core.wall() - status.since <= 6_000


def test_a_callback_that_hangs_is_named_with_its_duration() -> None:
    world = World({"t": 1})
    world.write("t", 0, "x")
    a = world.consumer(**GROUP)
    a.callback_ms = 60_000
    a.subscribe("t")
    assert world.run(until=lambda: a.in_callback is not None)
    world.run(5_000)
    reason, detail = why(world, a)
    assert reason == "callback"
    assert detail == "the callback `assigned` has been running for 5.0 s"


@pytest.mark.parametrize(
    ("request_type", "reason", "expected"),
    [
        (FindCoordinatorRequest, "rebalancing", "the group's coordinator is unknown: "),
        (OffsetFetchRequest, "position", "the committed offset is being looked up"),
        (ListOffsetsRequest, "position", "the start offset is being looked up at the leader"),
        (OffsetCommitRequest, "commit", "the start offset is being committed"),
        (FetchRequest, "connection", "there is no connection to "),
    ],
)
def test_a_request_without_a_response_is_named(request_type: type[Any], reason: str, expected: str) -> None:
    world = World({"t": 1})
    world.write("t", 0, "x")
    without_answers(world, request_type)
    a = world.consumer(**GROUP)
    a.subscribe("t")
    details: set[str] = set()
    for _ in range(200):
        world.run(100)
        current, detail = why(world, a)
        if current == reason:
            details.add(detail)
    assert any(expected in detail for detail in details), details


def test_a_stopped_broker_is_named_with_the_error_of_the_connection() -> None:
    world, a = reader()
    world.write("t", 0, "x")
    a.pause_polling()
    world.fault("refuse")
    world.cut(a)
    a.seek(T0, 0)
    reasons: set[str] = set()
    for _ in range(50):
        world.run(100)
        reasons.add(why(world, a)[0])
    assert "connection" in reasons


def answer_fetches(world: World, **fields: Any) -> None:
    """Answer each fetch with these fields for partition 0. By default there are no records and no error."""
    topic_id = world.cluster.topics.id("t")
    assert topic_id is not None

    def tamper(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, FetchRequest):
            return None
        values: dict[str, Any] = {"error_code": 0, "aborted_transactions": None, "records": b"", **fields}
        entry = PartitionData(partition_index=0, **values)
        topic = FetchableTopicResponse(topic_id=topic_id, partitions=[entry])
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[topic])

    world.tamper = tamper


def test_an_open_transaction_is_named_with_the_time_since_which_it_blocks() -> None:
    world, a = reader(isolation_level="read_committed")
    answer_fetches(world, high_watermark=12, last_stable_offset=10)
    world.run(5_000)
    status = a.engine.delivery_watch.status(T0, world.now)
    assert status.reason == "transaction"
    assert status.detail == "a transaction that contains offset 10 is open"
    assert status.lag == 2
    assert status.since is not None
    assert status.since <= a.engine.core.wall() - 4_000


def test_an_error_that_poll_raises_until_a_seek_is_quoted() -> None:
    world, a = reader(on_out_of_range="none")
    a.seek(T0, 1_000)
    world.run(2_000)
    reason, detail = why(world, a)
    assert reason == "error"
    assert "t-0 has no offset 1000" in detail


# ---- stalled partitions


def stalls(consumer: Consumer) -> list[str]:
    return [change.reason for change in consumer.changes_of("stalled")]


def test_a_stalled_partition_is_reported_once_with_its_reason() -> None:
    world, a = reader(stall_report_ms=10_000, max_poll_interval_ms=10_000_000)
    a.pause_polling()
    world.write("t", 0, "x")
    world.run(9_000)
    assert stalls(a) == []
    world.run(60_000)
    [reason] = stalls(a)
    assert reason.startswith("no record for 10 s; poll: poll has not been called for 1")
    assert a.changes_of("stalled")[0].partitions == (T0,)


def test_a_partition_that_stalls_again_after_progress_is_reported_again() -> None:
    world, a = reader(stall_report_ms=10_000, max_poll_interval_ms=10_000_000)
    for value in ("x", "y"):
        a.pause_polling()
        world.write("t", 0, value)
        world.run(30_000)
        a.resume_polling()
        world.run(30_000)
    assert len(stalls(a)) == 2


def pause(world: World, a: Consumer) -> None:
    a.pause(T0)


def write(world: World, a: Consumer) -> None:
    world.write("t", 0, "one more")


def rejoin(world: World, a: Consumer) -> None:
    a.rejoin()


@pytest.mark.parametrize("change", [pause, write, rejoin])
def test_a_healthy_consumer_is_never_reported(change: Callable[[World, Consumer], object]) -> None:
    world, a = reader(stall_report_ms=1_000)
    for _ in range(30):
        change(world, a)
        world.run(1_000)
    world.run(60_000)
    assert stalls(a) == []


def test_without_the_option_no_partition_is_reported() -> None:
    world, a = reader(stall_report_ms=None, max_poll_interval_ms=10_000_000)
    a.pause_polling()
    world.write("t", 0, "x")
    world.run(60_000)
    assert stalls(a) == []


def test_a_lasting_fetch_error_is_reported_with_its_code() -> None:
    world, a = reader(stall_report_ms=5_000)
    a.seek(T0, 5)
    answer_fetches(world, error_code=ErrorCode.KAFKA_STORAGE_ERROR, high_watermark=-1)
    world.run(20_000)
    [reason] = stalls(a)
    assert "KAFKA_STORAGE_ERROR" in reason
