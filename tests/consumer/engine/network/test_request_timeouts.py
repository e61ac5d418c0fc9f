"""A connection without a response is closed after a timeout, which depends on the kind of the request."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from consumer.engine.metadata.cluster import BrokerAddress
from consumer.engine.network.call import Call
from consumer.engine.network.client import GROUP
from consumer.engine.network.transport import Data
from kproto.broker.machine import FailRequests
from kproto.error_codes import ErrorCode
from kproto.errors import ConnectionFailed, RequestTimedOut
from kproto.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from kproto.messages.offset_commit import OffsetCommitRequest
from kproto.messages.produce import ProduceRequest
from tests.consumer.engine.metadata.stage import metadata_response
from tests.consumer.engine.network.stage import Stage, fetch, joining, question
from tests.consumer.stage import World, tp


def test_the_timeout_of_a_slow_broker_doubles() -> None:
    stage = Stage()
    call = question(stage)
    for turn, timeout in enumerate((5_000, 10_000)):
        stage.connect(stage.opened[turn].key)
        started_at = stage.now
        assert stage.network.next_deadline() == started_at + timeout
        stage.tick(started_at + timeout)
        stage.tick(stage.now + 1_000)
    assert not call.done
    stage.tick(30_000)
    assert isinstance(call.error, RequestTimedOut)


def test_a_fast_response_does_not_reset_the_timeout_of_another_api() -> None:
    """A fast response resets the doubled timeout of its own API only.

    Fetches may be fast while ListOffsets for a tiered topic takes seconds.
    """
    stage = Stage().knows(BrokerAddress(1, "a", 1))
    stage.ask(node=1, lane=GROUP)
    stage.connect(stage.opened[0].key)
    stage.answer()
    call = question(stage)
    for turn, timeout in enumerate((5_000, 10_000), start=1):
        stage.connect(stage.opened[turn].key)
        started_at = stage.now
        stage.ask(node=1, lane=GROUP)
        stage.requests.insert(0, stage.requests.pop())
        stage.answer()
        stage.tick(started_at + timeout - 1)
        assert len(stage.shut) == turn - 1
        stage.tick(started_at + timeout)
        assert len(stage.shut) == turn
        stage.tick(stage.now + 1_000)
    assert not call.done


def send_produce_request(stage: Stage) -> Call:
    """Send a Produce request, which a healthy broker may hold until its replicas have the batch."""
    call = stage.network.send(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[]), stage.now, node=1)
    stage.take()
    return call


def test_a_pending_produce_request_triggers_liveness_checks() -> None:
    stage = Stage().knows(BrokerAddress(1, "a", 1))
    checks: list[int] = []
    stage.network.on_liveness_check = lambda: checks.append(stage.now)
    call = send_produce_request(stage)
    stage.connect(stage.opened[0].key)
    while not call.done:
        stage.tick(stage.network.next_deadline() or 0)
    assert checks[:3] == [5_000, 7_000, 9_000]
    # Liveness checks do not close the connection, because the broker may be healthy. The request timeout
    # does.
    assert stage.now == 30_000


def test_requests_to_a_broker_removed_from_the_metadata_fail() -> None:
    """Requests to a broker fail when the metadata no longer contains the broker.

    The requests fail even if the broker's address is a bootstrap address. Only requests that any broker can
    serve may still be sent to a bootstrap address.
    """
    stage = Stage(("a", 1)).knows(BrokerAddress(1, "a", 1), BrokerAddress(2, "b", 2))
    stage.network.metadata_changed(0)
    call = send_produce_request(stage)
    stage.connect(stage.opened[0].key)
    stage.knows(BrokerAddress(2, "b", 2))
    stage.network.metadata_changed(6_000)
    stage.take()
    assert isinstance(call.error, ConnectionFailed)
    assert "the cluster lists no broker at this address any more" in str(call.error)
    question(stage)
    assert not stage.network.closed


def test_a_batch_at_a_frozen_leader_is_sent_to_the_next_leader() -> None:
    """A batch in flight to a frozen leader is sent to the next leader within seconds.

    The producer does not wait for the request timeout of 30 s.
    """
    world = World({"t": 1}, brokers=2)
    world.elect("t", 0, 2)
    producer = world.producer()
    producer.deliver("t", "x", partition=0)
    assert world.run(5_000, until=lambda: world.log(tp("t", 0)).end_offset == 1)
    world.fault("stall", node=2, ms=10**6)
    started_at = world.now
    sent = producer.deliver("t", "y", partition=0)
    world.run(4_000)
    world.elect("t", 0, 1)
    topic_view = producer.engine.core.view.topics["t"]

    def tamper(client: Any, request: Any, version: int) -> Any:
        if not isinstance(request, MetadataRequest):
            return None
        metadata = metadata_response(leader=1, epoch=9, topic_id=topic_view.id or UUID(int=0))
        broker = MetadataResponseBroker(node_id=1, host="broker", port=9092)
        return MetadataResponse(brokers=[broker], controller_id=1, topics=metadata.topics)

    world.tamper = tamper
    assert world.run(40_000, until=sent.done)
    assert world.now - started_at < 9_000
    assert sent.result().offset == 1


def test_a_join_group_request_that_the_broker_holds_is_not_repeated() -> None:
    stage = Stage()
    call = joining(stage)
    stage.connect(stage.opened[0].key)
    stage.tick(29_999)
    assert not call.done
    assert len(stage.opened) == 1


def test_a_lookup_behind_a_held_request_does_not_time_out() -> None:
    stage = Stage()
    joining(stage)
    lookup = question(stage)
    stage.connect(stage.opened[0].key)
    stage.tick(20_000)
    assert not lookup.done
    assert stage.shut == []


def test_a_fetch_on_a_stalled_connection_fails_soon() -> None:
    stage = Stage()
    call = fetch(stage)
    stage.connect(stage.opened[0].key)
    assert stage.network.next_deadline() == 5_500
    stage.tick(5_500)
    assert "Fetch was not answered within 5500 ms" in str(call.error)
    assert stage.shut == [stage.opened[0].key]


def test_a_large_response_in_progress_does_not_time_out() -> None:
    stage = Stage()
    call = fetch(stage)
    stage.connect(stage.opened[0].key)
    for second in range(1, 20):
        stage.tick(second * 1_000)
        stage.happened(Data(stage.opened[0].key, b""))
    assert not call.done
    stage.tick(19_000 + 5_500)
    assert call.done


def test_an_unanswered_heartbeat_fails_long_before_the_session_timeout() -> None:
    stage = Stage()
    call = stage.ask()
    stage.connect(stage.opened[0].key)
    stage.tick(5_000)
    assert "Heartbeat was not answered within 5000 ms" in str(call.error)
    assert stage.shut == [stage.opened[0].key]


def test_a_commit_times_out_after_10_seconds() -> None:
    stage = Stage()
    request = OffsetCommitRequest(group_id="g", member_id="", topics=[])
    call = stage.network.send(request, 0)
    stage.take()
    stage.connect(stage.opened[0].key)
    stage.tick(9_999)
    assert not call.done
    stage.tick(10_000)
    assert "OffsetCommit was not answered within 10000 ms" in str(call.error)


def test_a_frozen_coordinator_costs_no_partitions_if_another_takes_over() -> None:
    """Members keep their partitions when another broker takes over from a frozen coordinator.

    Kafka fences a frozen broker after broker.session.timeout.ms. Java's client would wait 30 s for the
    response of this broker.
    """
    world = World({"t": 1}, brokers=2)
    world.elect("t", 0, 1)
    options: dict[str, Any] = {"session_timeout_ms": 20_000, "heartbeat_interval_ms": 1_000}
    a = world.consumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False, **options)
    a.subscribe("t")
    assert world.run(until=a.is_stable)
    world.move_coordinator("g", 2)
    world.run(5_000)
    world.fault("stall", node=2)
    world.write("t", 0, "x")
    assert world.run(2_000, until=lambda: a.values() == ["x"])
    committed = a.commit()
    world.run(8_000)
    world.move_coordinator("g", 1)
    assert world.run(12_000, until=lambda: committed in a.done)
    assert a.done[committed][1] is None
    world.run(60_000)
    assert a.changes_of("lost") == []


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT])
def test_members_of_a_coordinator_that_cannot_write_commits_keep_their_partitions(code: ErrorCode) -> None:
    """Members keep their partitions while the coordinator cannot write commits.

    The cause is an offsets topic with too few in-sync replicas. Commits fail for minutes, but heartbeats
    succeed.
    """
    world = World({"t": 1}, brokers=2, latency=(300, 300))
    options: dict[str, Any] = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 1_000}
    a = world.consumer(group_id="g", auto_offset_reset="earliest", enable_auto_commit=False, **options)
    a.subscribe("t")
    world.write("t", 0, "x")
    assert world.run(until=lambda: a.values() == ["x"])
    for node in world.brokers:
        world.step(node, FailRequests(OffsetCommitRequest.__api_key__ or 0, code, 10**6))
    committed = a.commit(timeout_ms=600_000)
    world.run(120_000)
    assert a.changes_of("lost") == []
    for node in world.brokers:
        world.step(node, FailRequests(OffsetCommitRequest.__api_key__ or 0, code, 0))
    assert world.run(5_000, until=lambda: committed in a.done)
    assert a.done[committed][1] is None


def test_a_coordinator_that_cannot_write_commits_is_looked_up_again() -> None:
    world = World({"t": 1}, brokers=2)
    a = world.consumer(group_id="g", enable_auto_commit=False)
    a.assign({tp("t", 0): 0})
    committed = a.commit({tp("t", 0): 5})
    assert world.run(5_000, until=lambda: committed in a.done)
    coordinator = world.cluster.group_coordinator_of("g")
    world.step(
        coordinator,
        FailRequests(OffsetCommitRequest.__api_key__ or 0, ErrorCode.COORDINATOR_NOT_AVAILABLE, 10**6),
    )
    second_commit = a.commit({tp("t", 0): 6}, timeout_ms=600_000)
    world.run(10_000)
    assert second_commit not in a.done
    world.move_coordinator("g", 3 - coordinator)
    assert world.run(5_000, until=lambda: second_commit in a.done)
    assert world.committed("g", tp("t", 0)) == 6


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_resumes_at_once_when_its_coordinator_returns_after_the_session_timeout(
    strategy: str,
) -> None:
    """Members whose sessions have expired by their own clocks rejoin with their old member ids.

    The restarted coordinator knows the old member ids and restarts the sessions. With new member ids, the
    members would have to wait until the old sessions expire.
    """
    world = World({"t": 4}, brokers=1)
    options = {"group_id": "g", "auto_offset_reset": "earliest", "partition_assignment_strategy": strategy}
    members = [world.consumer(**options) for _ in range(2)]
    for member in members:
        member.subscribe("t")
    assert world.run(until=lambda: all(member.is_stable() for member in members))
    world.stop_broker(1)
    world.run(60_000)
    assert all(member.changes_of("lost") for member in members)
    world.start_broker(1)
    for partition in world.partitions():
        world.write(partition.topic, partition.partition, "x")
    assert world.run(5_000, until=lambda: sum(len(member.values()) for member in members) == 4)
