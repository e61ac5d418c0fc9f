"""What brokers refuse again and again is told: once it takes longer than a moment, then ever more seldom."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from consumer.engine.failure_reports import FailureReports
from consumer.engine.metadata.cluster import BrokerAddress
from consumer.engine.timing import FAILURE_REPORT_DELAY_MS, FIRST_REPORT_INTERVAL_MS
from kproto.broker.machine import FailRequests
from kproto.error_codes import ErrorCode
from kproto.group.subscription import Assignment, TopicPartition
from kproto.messages.fetch import FetchRequest
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.headers import decode_response, encode_response
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.list_offsets import ListOffsetsRequest
from kproto.messages.metadata import MetadataRequest
from kproto.messages.offset_commit import OffsetCommitRequest
from kproto.messages.offset_fetch import OffsetFetchRequest
from kproto.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kproto.testing.world.network import Wire
from tests.consumer.stage import Consumer, World, tp

GROUP: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 600_000,
    "enable_auto_commit": False,
}
T0 = tp("t", 0)
AT_THE_START: list[tuple[Any, ErrorCode]] = [
    (FindCoordinatorRequest, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (JoinGroupRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    (SyncGroupRequest, ErrorCode.NOT_COORDINATOR),
    (OffsetFetchRequest, ErrorCode.UNSTABLE_OFFSET_COMMIT),
    (ListOffsetsRequest, ErrorCode.LEADER_NOT_AVAILABLE),
    (OffsetCommitRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    (MetadataRequest, ErrorCode.LEADER_NOT_AVAILABLE),
    (FetchRequest, ErrorCode.KAFKA_STORAGE_ERROR),
]


def refuse(world: World, request: Any, code: ErrorCode, times: int = 10**6) -> None:
    world.step(1, FailRequests(request.__api_key__, code, times))


def refused(request: Any, code: ErrorCode, for_ms: int) -> tuple[World, Consumer]:
    world = World({"t": 1})
    world.write("t", 0, "x")
    refuse(world, request, code)
    a = world.consumer(**GROUP)
    a.subscribe("t")
    world.run(for_ms)
    return world, a


@pytest.mark.parametrize(("request_", "code"), AT_THE_START, ids=lambda one: getattr(one, "__name__", ""))
def test_what_is_refused_for_longer_than_a_moment_is_told_with_the_brokers_error(
    request_: Any, code: ErrorCode
) -> None:
    _, a = refused(request_, code, FAILURE_REPORT_DELAY_MS + 5_000)
    [change] = a.changes_of("refused")
    assert change.reason.startswith(request_.__name__.removesuffix("Request"))
    assert code.name in change.reason
    assert "retrying" in change.reason
    assert a.records == []


def test_a_check_of_the_position_that_is_refused_is_told() -> None:
    world = World({"t": 1})
    world.write("t", 0, "x")
    a = world.consumer(**GROUP)
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == 1)
    refuse(world, OffsetForLeaderEpochRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.elect("t", 0)
    world.run(FAILURE_REPORT_DELAY_MS + 5_000)
    [change] = a.changes_of("refused")
    assert change.partitions == (T0,)
    assert change.reason.startswith("OffsetForLeaderEpoch has failed for 5 s: NOT_LEADER_OR_FOLLOWER")


def test_heartbeats_that_are_refused_are_told_before_they_cost_the_partitions() -> None:
    world = World({"t": 1})
    a = world.consumer(**GROUP)
    a.subscribe("t")
    assert world.run(until=lambda: a.changes_of("assigned"))
    refuse(world, HeartbeatRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    world.run(FAILURE_REPORT_DELAY_MS + 5_000)
    [change] = a.changes_of("refused")
    assert re.match(r"Heartbeat has failed for \d+ s: GROUP_AUTHORIZATION_FAILED", change.reason)
    assert "needs an ACL that allows READ on the group; retrying" in change.reason
    refuse(world, HeartbeatRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED, 0)
    world.run(600_000)
    assert not a.changes_of("lost")


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID])
def test_an_answer_to_a_heartbeat_that_is_none_of_it_is_no_refusal(code: ErrorCode) -> None:
    _, a = refused(HeartbeatRequest, code, 60_000)
    assert not [one for one in a.changes_of("refused") if one.reason.startswith("Heartbeat")]


def test_what_is_refused_for_a_moment_is_no_news() -> None:
    for request, code in AT_THE_START:
        world, a = refused(request, code, FAILURE_REPORT_DELAY_MS - 1_000)
        refuse(world, request, code, 0)
        assert world.run(until=lambda a=a: len(a.records) == 1)
        world.run(60_000)
        assert a.changes_of("refused") == []


def test_it_is_told_again_after_growing_gaps() -> None:
    _, a = refused(OffsetCommitRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 240_000)
    at = [change.at for change in a.changes_of("refused")]
    gaps = [later - sooner for sooner, later in pairwise(at)]
    assert [round(gap / FIRST_REPORT_INTERVAL_MS) for gap in gaps] == [1, 2, 4]


def test_many_partitions_that_wait_for_the_same_are_one_report() -> None:
    told: list[tuple[list[TopicPartition], str]] = []
    refusals = FailureReports(lambda partitions, why: told.append((list(partitions), why)), 2_000)
    many = [tp("t", index) for index in range(1000)]
    for now in range(0, FAILURE_REPORT_DELAY_MS + 2_000, 1_000):
        for partition in many:
            refusals.add_failure("Fetch", "X (1)", now, partition, again=now > 0)
    assert [partitions for partitions, _ in told] == [many]


def test_refusals_far_apart_are_no_row() -> None:
    told: list[str] = []
    refusals = FailureReports(lambda partitions, why: told.append(why), 2_000)
    for now in range(0, 100_000, 5_000):
        refusals.add_failure("Fetch", "X (1)", now, T0, again=True)
    for now in range(100_000, 110_000, 500):
        refusals.add_failure("Fetch", "X (1)", now, T0, again=False)
    assert told == []


def test_what_succeeded_in_between_is_no_row_though_the_next_refusals_have_two_reasons() -> None:
    told: list[str] = []
    refusals = FailureReports(lambda partitions, why: told.append(why), 30_000)
    refusals.add_failure("OffsetCommit", "X (1)", 0, T0, again=False)
    refusals.add_failure("OffsetCommit", "no broker", 20_000, T0, again=False)
    for now in range(20_100, 24_000, 500):
        refusals.add_failure("OffsetCommit", "X (1)", now, T0, again=True)
    assert told == []


def test_close_doesnt_wait_for_a_start_that_is_refused_and_tells_that_it_isnt_saved() -> None:
    world, a = refused(OffsetCommitRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 3_000)
    before = world.now
    a.close()
    assert world.run(until=lambda: a.engine.closed)
    assert world.now - before < 1_500
    [change] = a.changes_of("uncommitted")
    assert change.partitions == (T0,)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in change.reason


def test_an_assigned_partition_that_there_is_not_is_told_at_once_and_again_when_it_stays_away() -> None:
    world = World({"t": 1})
    a = world.consumer(auto_offset_reset="earliest")
    a.assign({T0: None, tp("t", 9): None})
    world.run(1_000)
    [change] = a.changes_of("missing")
    assert (change.partitions, change.reason) == ((tp("t", 9),), "topic 't' has 1 partition (yet)")
    world.run(FAILURE_REPORT_DELAY_MS + 5_000)
    [again] = a.changes_of("refused")
    assert again.partitions == (tp("t", 9),)
    world.grow("t", 10)
    world.write("t", 9, "x")
    assert world.run(until=lambda: a.values() == ["x"])
    assert len(a.changes_of("missing")) == 1


def test_a_group_that_assigns_what_was_not_subscribed_is_told_and_the_member_waits_for_better() -> None:
    world = World({"t": 1, "u": 1})
    world.write("t", 0, "x")
    a = world.consumer(**GROUP)
    other = Assignment(partitions=(tp("u", 0),)).encode()

    def lie(client: Any, request: Any, version: int) -> Any:
        if isinstance(request, SyncGroupRequest):
            said = {"protocol_type": "consumer", "protocol_name": "cooperative-sticky"}
            return SyncGroupResponse(throttle_time_ms=0, error_code=0, assignment=other, **said)
        return None

    world.tamper = lie
    a.subscribe("t")
    world.run(FAILURE_REPORT_DELAY_MS + 5_000)
    [change] = a.changes_of("refused")
    assert change.reason.startswith("Assignment has failed for ")
    assert "does not match the current subscription; retrying" in change.reason
    world.tamper = None
    assert world.run(60_000, until=lambda: a.values() == ["x"])
    world.run(2 * FIRST_REPORT_INTERVAL_MS)
    assert len(a.changes_of("refused")) == 1


class Fickle(World):
    """Its group assigns t-0 and t-1 by turns, while `lies` is a number."""

    lies: int | None = 0

    def _reply(self, wire: Wire, body: bytes) -> None:
        key, version = self.pending_requests[wire.conn]
        if key == SyncGroupRequest.__api_key__ and self.lies is not None:
            number, answer = decode_response(body, SyncGroupResponse, version)
            assert isinstance(answer, SyncGroupResponse)
            answer.assignment = Assignment(partitions=(tp("t", self.lies % 2),)).encode()
            body = encode_response(answer, version, number)
            self.lies += 1
        super()._reply(wire, body)


def test_a_group_that_assigns_something_else_each_time_is_told_and_asked_less_and_less() -> None:
    """A cooperative member lets go of what it doesn't get again, and joins for the rest: for ever, then."""
    world = Fickle({"t": 2})
    world.write("t", 0, "x")
    a = world.consumer(**GROUP, partition_assignment_strategy=["cooperative-sticky"])
    a.subscribe("t")
    assert world.run(until=a.is_stable)
    a.rejoin()
    world.run(FAILURE_REPORT_DELAY_MS + 5_000)
    assert world.lies is not None
    assert 10 <= world.lies <= 20
    [change] = a.changes_of("refused")
    assert change.reason.startswith("Assignment has failed for ")
    assert "need to revoke partitions and re-join; retrying" in change.reason
    world.lies = None
    world.write("t", 1, "y")
    assert world.run(60_000, until=lambda: set(a.values()) == {"x", "y"})
    world.run(2 * FIRST_REPORT_INTERVAL_MS)
    assert len(a.changes_of("refused")) == 1


def test_reasons_that_take_turns_are_told_once_each() -> None:
    """What is new is told with all there is to say of it; what was told of each address is not told again."""
    world = World({"t": 1}, brokers=3)
    a = world.consumer(**GROUP)
    a.subscribe("t")
    assert world.run(until=a.is_stable)
    for node in (1, 2, 3):
        world.stop_broker(node)
    brokers = a.engine.core.view.brokers
    places = [brokers[2], BrokerAddress(2, "where it was", 1), BrokerAddress(2, "where else", 1)]
    for place in (*places, *places):
        brokers[2] = place
        world.run((FIRST_REPORT_INTERVAL_MS - 2_000) // 6)
    told = [change.reason for change in a.changes_of("unreachable")]
    assert [[place.host in why for place in places[1:]] for why in told] == [
        [False, False],
        [True, False],
        [False, True],
    ]
    world.start_broker(1)
    assert world.run(30_000, until=lambda: bool(a.changes_of("reachable")))
    world.stop_broker(1)
    world.run(10_000)
    assert len(a.changes_of("unreachable")) > len(told)  # it is news again


def test_a_cluster_that_stays_away_is_told_again_after_growing_gaps_and_that_it_is_back() -> None:
    world = World({"t": 1})
    a = world.consumer(**GROUP)
    a.subscribe("t")
    assert world.run(until=a.is_stable)
    world.stop_broker(1)
    world.run(4 * FIRST_REPORT_INTERVAL_MS)
    assert a.changes_of("reachable") == []
    repeated = [change for change in a.changes_of("unreachable") if "s now" in change.reason]
    assert [round(int(one.reason.split()[-3]) * 1000 / FIRST_REPORT_INTERVAL_MS) for one in repeated] == [
        1,
        3,
    ]
    world.start_broker(1)
    assert world.run(30_000, until=lambda: bool(a.changes_of("reachable")))
    assert len(a.changes_of("reachable")) == 1
