"""A failure is reported if it lasts longer than FAILURE_REPORT_DELAY_MS, and then at increasing intervals."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from consumer.engine.failure_reports import FailureReports
from consumer.engine.metadata.cluster import BrokerAddress
from consumer.engine.timeouts import FAILURE_REPORT_DELAY_MS, FIRST_REPORT_INTERVAL_MS
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
from kproto.testing.world.clients import Wire
from tests.consumer.stage import Consumer, World, tp

GROUP: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 600_000,
    "enable_auto_commit": False,
}
T0 = tp("t", 0)
FAILURES: list[tuple[Any, ErrorCode]] = [
    (FindCoordinatorRequest, ErrorCode.COORDINATOR_NOT_AVAILABLE),
    (JoinGroupRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    (SyncGroupRequest, ErrorCode.NOT_COORDINATOR),
    (OffsetFetchRequest, ErrorCode.UNSTABLE_OFFSET_COMMIT),
    (ListOffsetsRequest, ErrorCode.LEADER_NOT_AVAILABLE),
    (OffsetCommitRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    (MetadataRequest, ErrorCode.LEADER_NOT_AVAILABLE),
    (FetchRequest, ErrorCode.KAFKA_STORAGE_ERROR),
]


def fail_requests(world: World, request: Any, code: ErrorCode, times: int = 10**6) -> None:
    world.step(1, FailRequests(request.__api_key__, code, times))


def member_with_failures(request: Any, code: ErrorCode, for_ms: int) -> tuple[World, Consumer]:
    world = World({"t": 1})
    world.write("t", 0, "x")
    fail_requests(world, request, code)
    a = world.consumer(**GROUP)
    a.subscribe("t")
    world.run(for_ms)
    return world, a


@pytest.mark.parametrize(("request_", "code"), FAILURES, ids=lambda value: getattr(value, "__name__", ""))
def test_a_lasting_failure_is_reported_with_the_brokers_error(request_: Any, code: ErrorCode) -> None:
    _, a = member_with_failures(request_, code, FAILURE_REPORT_DELAY_MS + 5_000)
    [change] = a.changes_of("refused")
    assert change.reason.startswith(request_.__name__.removesuffix("Request"))
    assert code.name in change.reason
    assert "retrying" in change.reason
    assert a.records == []


def test_a_failing_position_validation_is_reported() -> None:
    world = World({"t": 1})
    world.write("t", 0, "x")
    a = world.consumer(**GROUP)
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == 1)
    fail_requests(world, OffsetForLeaderEpochRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.elect("t", 0)
    world.run(FAILURE_REPORT_DELAY_MS + 5_000)
    [change] = a.changes_of("refused")
    assert change.partitions == (T0,)
    assert change.reason.startswith("OffsetForLeaderEpoch has failed for 5 s: NOT_LEADER_OR_FOLLOWER")


def test_failing_heartbeats_are_reported_before_the_session_expires() -> None:
    world = World({"t": 1})
    a = world.consumer(**GROUP)
    a.subscribe("t")
    assert world.run(until=lambda: a.changes_of("assigned"))
    fail_requests(world, HeartbeatRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    world.run(FAILURE_REPORT_DELAY_MS + 5_000)
    [change] = a.changes_of("refused")
    assert re.match(r"Heartbeat has failed for \d+ s: GROUP_AUTHORIZATION_FAILED", change.reason)
    assert "needs an ACL that allows READ on the group; retrying" in change.reason
    fail_requests(world, HeartbeatRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED, 0)
    world.run(120_000)
    assert not a.changes_of("lost")


@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID])
def test_an_expected_heartbeat_error_is_not_reported_as_a_failure(code: ErrorCode) -> None:
    _, a = member_with_failures(HeartbeatRequest, code, 60_000)
    assert not [change for change in a.changes_of("refused") if change.reason.startswith("Heartbeat")]


def test_a_short_failure_is_not_reported() -> None:
    for request, code in FAILURES:
        world, a = member_with_failures(request, code, FAILURE_REPORT_DELAY_MS - 1_000)
        fail_requests(world, request, code, 0)
        assert world.run(until=lambda a=a: len(a.records) == 1)
        world.run(4 * FAILURE_REPORT_DELAY_MS)
        assert a.changes_of("refused") == []


def test_a_failure_is_reported_again_at_growing_intervals() -> None:
    _, a = member_with_failures(OffsetCommitRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 240_000)
    times = [change.at for change in a.changes_of("refused")]
    gaps = [later - sooner for sooner, later in pairwise(times)]
    assert [round(gap / FIRST_REPORT_INTERVAL_MS) for gap in gaps] == [1, 2, 4]


def test_failures_of_many_partitions_are_one_report() -> None:
    reports: list[tuple[list[TopicPartition], str]] = []
    failures = FailureReports(lambda partitions, why: reports.append((list(partitions), why)), 2_000)
    partitions_of_t = [tp("t", index) for index in range(1000)]
    for now in range(0, FAILURE_REPORT_DELAY_MS + 2_000, 1_000):
        for partition in partitions_of_t:
            failures.add_failure("Fetch", "X (1)", now, partition, repeated=now > 0)
    assert [partitions for partitions, _ in reports] == [partitions_of_t]


def test_failures_of_many_topics_are_one_report_that_names_the_first_ones() -> None:
    reports: list[tuple[list[TopicPartition], str]] = []
    failures = FailureReports(lambda partitions, why: reports.append((list(partitions), why)), 2_000)
    for now in range(0, FAILURE_REPORT_DELAY_MS + 2_000, 1_000):
        for index in range(100, 1000):
            failures.add_failure("Metadata", "X (1)", now, f"t{index}", repeated=now > 0)
    first = ", ".join(f"'t{index}'" for index in range(100, 110))
    assert reports == [([], f"Metadata has failed for 5 s: topics {first} and 890 more: X (1); retrying")]


def test_many_missing_topics_are_one_report_with_their_number() -> None:
    world = World({})
    a = world.consumer(**GROUP)
    a.subscribe(*[f"t{index}" for index in range(100, 600)])
    world.run(60_000)
    [change] = a.changes_of("missing")
    first = ", ".join(f"'t{index}'" for index in range(100, 110))
    assert change.reason == f"topics {first} and 490 more do not exist (yet)"


def test_many_topics_without_permission_raise_one_error() -> None:
    world = World({f"t{index}": 1 for index in range(100, 150)})
    fail_requests(world, MetadataRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    a = world.consumer(**GROUP)
    a.subscribe(*[f"t{index}" for index in range(100, 150)])
    world.run(60_000)
    [error] = a.errors
    assert "topics 't100', 't101'" in str(error)
    assert "and 40 more" in str(error)


def test_failures_far_apart_are_not_one_lasting_failure() -> None:
    reports: list[str] = []
    failures = FailureReports(lambda partitions, why: reports.append(why), 2_000)
    for now in range(0, 100_000, 5_000):
        failures.add_failure("Fetch", "X (1)", now, T0, repeated=True)
    for now in range(100_000, 110_000, 500):
        failures.add_failure("Fetch", "X (1)", now, T0, repeated=False)
    assert reports == []


def test_a_success_ends_a_failure_even_if_the_next_one_has_two_reasons() -> None:
    reports: list[str] = []
    failures = FailureReports(lambda partitions, why: reports.append(why), 30_000)
    failures.add_failure("OffsetCommit", "X (1)", 0, T0, repeated=False)
    failures.add_failure("OffsetCommit", "no broker", 20_000, T0, repeated=False)
    for now in range(20_100, 24_000, 500):
        failures.add_failure("OffsetCommit", "X (1)", now, T0, repeated=True)
    assert reports == []


def test_a_failure_that_begins_again_is_not_counted_for_another_request() -> None:
    reports: list[str] = []
    failures = FailureReports(lambda partitions, why: reports.append(why), 30_000)
    failures.add_failure("OffsetCommit", "X (1)", 0, T0, repeated=False)
    failures.add_failure("Fetch", "Y (2)", 0, repeated=False)
    failures.add_failure("OffsetCommit", "X (1)", 1_000, T0, repeated=False)
    assert failures.current_failure("OffsetCommit", T0, 1_000) == "X (1)"
    assert failures.current_failure("Fetch", T0, 1_000) is None
    failures.add_failure("OffsetCommit", "X (1)", 1_000 + FAILURE_REPORT_DELAY_MS, T0, repeated=True)
    assert reports == ["OffsetCommit has failed for 5 s: X (1); retrying"]


def test_close_does_not_retry_a_failing_initial_commit_and_reports_it() -> None:
    world, a = member_with_failures(OffsetCommitRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 3_000)
    closed_at = world.now
    a.close()
    assert world.run(until=lambda: a.engine.closed)
    assert world.now - closed_at < 1_500
    [change] = a.changes_of("uncommitted")
    assert change.partitions == (T0,)
    assert "COORDINATOR_LOAD_IN_PROGRESS" in change.reason


def test_an_unknown_assigned_partition_is_reported_at_once_and_again_later() -> None:
    world = World({"t": 1})
    a = world.consumer(auto_offset_reset="earliest")
    a.assign({T0: None, tp("t", 9): None})
    world.run(1_000)
    [change] = a.changes_of("missing")
    assert (change.partitions, change.reason) == ((tp("t", 9),), "topic 't' has 1 partition (yet)")
    world.run(FAILURE_REPORT_DELAY_MS + 5_000)
    [repeated] = a.changes_of("refused")
    assert repeated.partitions == (tp("t", 9),)
    world.grow("t", 10)
    world.write("t", 9, "x")
    assert world.run(until=lambda: a.values() == ["x"])
    assert len(a.changes_of("missing")) == 1


def test_an_assignment_of_an_unsubscribed_topic_is_reported_and_the_member_rejoins() -> None:
    """A member that is assigned a topic to which it is not subscribed reports the topic and rejoins.

    The test uses Java's policy. With kproto's policy, this member, which is the leader, would rejoin for
    another reason: the assignment differs from the one that it sent.
    """
    world = World({"t": 1, "u": 1})
    world.write("t", 0, "x")
    a = world.consumer(**GROUP, policy="java", partition_assignment_strategy=["cooperative-sticky"])
    foreign = Assignment(partitions=(tp("u", 0),)).encode()

    def assign_another_topic(client: Any, request: Any, version: int) -> Any:
        if isinstance(request, SyncGroupRequest):
            protocol = {"protocol_type": "consumer", "protocol_name": "cooperative-sticky"}
            return SyncGroupResponse(throttle_time_ms=0, error_code=0, assignment=foreign, **protocol)
        return None

    world.tamper = assign_another_topic
    a.subscribe("t")
    world.run(FAILURE_REPORT_DELAY_MS + 5_000)
    [change] = a.changes_of("refused")
    assert change.reason.startswith("Assignment has failed for ")
    assert "does not match the current subscription; retrying" in change.reason
    world.tamper = None
    assert world.run(60_000, until=lambda: a.values() == ["x"])
    world.run(2 * FIRST_REPORT_INTERVAL_MS)
    assert len(a.changes_of("refused")) == 1


class ChangingAssignments(World):
    """A simulated cluster whose SyncGroup responses assign t-0 and t-1 alternately.

    `lies` is the number of changed responses. If it is None, no response is changed.
    """

    lies: int | None = 0

    def _send_response(self, wire: Wire, body: bytes) -> None:
        key, version = self.pending_requests[wire.conn]
        if key == SyncGroupRequest.__api_key__ and self.lies is not None:
            correlation_id, response = decode_response(body, SyncGroupResponse, version)
            assert isinstance(response, SyncGroupResponse)
            response.assignment = Assignment(partitions=(tp("t", self.lies % 2),)).encode()
            body = encode_response(response, version, correlation_id)
            self.lies += 1
        super()._send_response(wire, body)


def test_an_assignment_that_changes_each_time_is_reported_and_joins_back_off() -> None:
    """An assignment that changes with each generation is reported.

    The member backs off before each join. Otherwise a cooperative member would rejoin endlessly, because each
    assignment requires it to revoke a partition.
    """
    world = ChangingAssignments({"t": 2})
    world.write("t", 0, "x")
    a = world.consumer(**GROUP, policy="java", partition_assignment_strategy=["cooperative-sticky"])
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


def test_alternating_reasons_are_reported_once_each() -> None:
    """A report of a new reason contains the reasons of all addresses.

    A reason that was already reported causes no further report.
    """
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
    reasons = [change.reason for change in a.changes_of("unreachable")]
    assert [[place.host in why for place in places[1:]] for why in reasons] == [
        [False, False],
        [True, False],
        [False, True],
    ]
    world.start_broker(1)
    assert world.run(30_000, until=lambda: bool(a.changes_of("reachable")))
    world.stop_broker(1)
    world.run(10_000)
    # A failure after a recovery counts as a new failure and is reported.
    assert len(a.changes_of("unreachable")) > len(reasons)


def test_an_unreachable_cluster_is_reported_at_growing_intervals_and_its_recovery_once() -> None:
    world = World({"t": 1})
    a = world.consumer(**GROUP)
    a.subscribe("t")
    assert world.run(until=a.is_stable)
    world.stop_broker(1)
    world.run(4 * FIRST_REPORT_INTERVAL_MS)
    assert a.changes_of("reachable") == []
    repeated = [change for change in a.changes_of("unreachable") if "s now" in change.reason]
    assert [
        round(int(report.reason.split()[-3]) * 1000 / FIRST_REPORT_INTERVAL_MS) for report in repeated
    ] == [
        1,
        3,
    ]
    world.start_broker(1)
    assert world.run(30_000, until=lambda: bool(a.changes_of("reachable")))
    assert len(a.changes_of("reachable")) == 1
