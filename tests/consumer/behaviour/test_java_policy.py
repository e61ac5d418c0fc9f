"""`policy="java"`: offsets are committed, and session timeouts are handled, as in Java's consumer.

The orders of requests and callbacks were observed in kafka-clients 4.3.1 with a real broker.
"""

from __future__ import annotations

from typing import Any

import pytest

from consumer.engine import events as ev
from consumer.engine.admin import offsets as offset_plans
from consumer.options import consumer_options
from kproto.error_codes import ErrorCode
from kproto.errors import CommitFailed, Fenced, IllegalState, RebalanceInProgress, Retriable, UnknownTopic
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.leave_group import LeaveGroupRequest
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kproto.messages.offset_fetch import OffsetFetchRequest
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.consumer.stage import Client, Consumer, World, tp

JAVA: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 3000,
    "heartbeat_interval_ms": 500,
    "metadata_max_age_ms": 1000,
    "auto_commit_interval_ms": 60_000,
    "partition_assignment_strategy": "range",
    "policy": "java",
}
KPROTO = {**JAVA, "policy": "kproto"}
REQUEST_NAMES = {
    OffsetCommitRequest: "commit",
    JoinGroupRequest: "join",
    SyncGroupRequest: "sync",
    LeaveGroupRequest: "leave",
}


class MemberLog:
    """Records the group requests and callbacks of one member, in order."""

    def __init__(self, world: World, **options: Any) -> None:
        self.entries: list[str] = []
        self.member: Consumer = world.consumer(**options)
        self.member.listener = lambda kind, partitions: self.entries.append(kind)
        previous = world.tamper

        def record_request(client: Client, request: Any, version: int) -> Any:
            if client is self.member and type(request) in REQUEST_NAMES:
                self.entries.append(REQUEST_NAMES[type(request)])
            return previous(client, request, version) if previous is not None else None

        world.tamper = record_request

    def take(self) -> list[str]:
        """Return the entries that were recorded since the previous call of this method."""
        entries, self.entries = self.entries, []
        return entries


def caught_up_log(world: World, **options: Any) -> MemberLog:
    """Start a member that has read ten records of t-0."""
    world.write("t", 0, *map(str, range(10)))
    log = MemberLog(world, **options)
    log.member.subscribe("t")
    assert world.run(until=lambda: len(log.member.records) == 10)
    world.run(500)
    log.take()
    return log


@pytest.mark.rule("M98")
def test_close_commits_before_the_callback() -> None:
    world = World({"t": 2})
    log = caught_up_log(world, **JAVA)
    log.member.close()
    world.run(500)
    assert log.take() == ["commit", "revoked", "leave"]


@pytest.mark.rule("M98")
def test_close_commits_after_the_callback_with_kprotos_policy() -> None:
    world = World({"t": 2})
    log = caught_up_log(world, **KPROTO)
    log.member.close()
    world.run(500)
    assert log.take() == ["revoked", "commit", "leave"]


@pytest.mark.rule("M75")
def test_an_eager_rebalance_commits_then_revokes_then_joins() -> None:
    world = World({"t": 2})
    log = caught_up_log(world, **JAVA)
    world.consumer(**JAVA).subscribe("t")
    world.run(3000)
    assert log.take() == ["commit", "revoked", "join", "sync", "assigned"]


@pytest.mark.rule("M75")
def test_a_cooperative_rebalance_commits_before_each_join_and_not_after_the_callback() -> None:
    options = {**JAVA, "partition_assignment_strategy": "cooperative-sticky"}
    world = World({"t": 2})
    log = caught_up_log(world, **options)
    world.consumer(**options).subscribe("t")
    world.run(3000)
    assert log.take() == [
        "commit",
        "join",
        "sync",
        "revoked",
        "assigned",
        "commit",
        "join",
        "sync",
        "assigned",
    ]


@pytest.mark.rule("M75")
@pytest.mark.parametrize(
    ("assignor", "expected"),
    [
        ("range", ["revoked", "commit", "join", "sync", "assigned"]),
        ("cooperative-sticky", ["join", "sync", "revoked", "commit", "assigned", "join", "sync", "assigned"]),
    ],
)
def test_a_rebalance_commits_revoked_partitions_after_the_callback_with_kprotos_policy(
    assignor: str, expected: list[str]
) -> None:
    options = {**KPROTO, "partition_assignment_strategy": assignor}
    world = World({"t": 2})
    log = caught_up_log(world, **options)
    world.write("t", 1, *map(str, range(10)))
    assert world.run(until=lambda: len(log.member.records) == 20)
    world.consumer(**options).subscribe("t")
    world.run(3000)
    assert log.take() == expected
    revoked = {tp("t", 0), tp("t", 1)} - (log.member.owns() if assignor == "cooperative-sticky" else set())
    assert {part for part in (tp("t", 0), tp("t", 1)) if world.committed("g", part) == 10} == revoked


@pytest.mark.rule("M99")
def test_unsubscribe_does_not_commit() -> None:
    world = World({"t": 2})
    log = caught_up_log(world, **JAVA)
    log.member.unsubscribe()
    world.run(500)
    assert log.take() == ["revoked", "leave"]
    assert world.committed("g", tp("t", 0)) is None


@pytest.mark.rule("M99")
def test_unsubscribe_commits_after_the_callback_with_kprotos_policy() -> None:
    world = World({"t": 2})
    log = caught_up_log(world, **KPROTO)
    log.member.unsubscribe()
    world.run(500)
    assert log.take() == ["revoked", "commit", "leave"]
    assert world.committed("g", tp("t", 0)) == 10


@pytest.mark.rule("M122")
@pytest.mark.parametrize(("policy", "commits"), [("java", range(9, 12)), ("kproto", range(1, 3))])
def test_every_interval_commits_without_new_offsets(policy: str, commits: range) -> None:
    world = World({"t": 1})
    log = MemberLog(world, **{**JAVA, "auto_commit_interval_ms": 300, "policy": policy})
    world.write("t", 0, "x")
    log.member.subscribe("t")
    world.run(3200)
    assert log.take().count("commit") in commits


def test_a_start_offset_is_not_committed_before_the_first_record() -> None:
    world = World({"t": 1})
    log = MemberLog(world, **JAVA)
    log.member.subscribe("t")
    world.run(3000)
    assert "commit" not in log.take()


def test_new_partitions_use_the_same_reset_policy() -> None:
    assert consumer_options({"policy": "java"}).on_new_partition == "latest"
    assert consumer_options({"policy": "java", "on_new_partition": "earliest"}).on_new_partition == "earliest"
    assert consumer_options({}).on_new_partition == "earliest"


@pytest.mark.parametrize(("asked_node", "lookups"), [("the coordinator", 0), ("another broker", 1)])
def test_committed_offsets_are_requested_from_the_known_coordinator_by_name(
    asked_node: str, lookups: int
) -> None:
    world = World({"t": 2}, brokers=2)
    member = caught_up_log(world, **JAVA).member
    member.commit({tp("t", 0): 7})
    world.run(500)
    core, node = member.engine.core, member.engine.coordinator.node
    assert node is not None
    if asked_node == "another broker":
        node = 3 - node
    earlier = len(world.requests_of(member, FindCoordinatorRequest))
    plan = offset_plans.committed_offsets(
        core.view, "g", [tp("t", 0)], core.clock, coordinator=node, by_name=True
    )
    token = member.run(plan)
    assert world.run(until=lambda: token in member.done)
    offsets, error = member.done[token]
    assert error is None
    assert offsets[tp("t", 0)].offset == 7
    assert len(world.requests_of(member, FindCoordinatorRequest)) - earlier == lookups
    versions = [
        request[2]
        for request in world.requests
        if request[0] is member and isinstance(request[1], OffsetFetchRequest)
    ]
    assert max(versions) == 9


def test_a_request_for_committed_offsets_finds_the_consumers_coordinator() -> None:
    world = World({"t": 1})
    member = world.consumer(**JAVA)
    member.assign({tp("t", 0): 0})
    core, coordinator = member.engine.core, member.engine.coordinator
    plan = offset_plans.committed_offsets(
        core.view, "g", [tp("t", 0)], core.clock, on_coordinator=coordinator.learn
    )
    token = member.run(plan)
    assert world.run(until=lambda: token in member.done)
    token = member.commit({tp("t", 0): 7})
    assert world.run(until=lambda: token in member.done)
    assert member.done[token][1] is None
    assert len(world.requests_of(member, FindCoordinatorRequest)) == 1


@pytest.mark.parametrize(("options", "commits"), [(JAVA, 1), (KPROTO, 0)])
def test_a_partition_of_another_member_can_be_committed(options: dict[str, Any], commits: int) -> None:
    world = World({"t": 2})
    member = caught_up_log(world, **options).member
    world.consumer(**options).subscribe("t")
    assert world.run(until=lambda: len(member.engine.partitions) == 1)
    world.run(500)
    foreign = ({tp("t", 0), tp("t", 1)} - set(member.engine.partitions)).pop()
    earlier = len(world.requests_of(member, OffsetCommitRequest))
    token = member.commit({foreign: 3})
    assert world.run(until=lambda: token in member.done)
    assert isinstance(member.done[token][1], type(None) if commits else CommitFailed)
    assert len(world.requests_of(member, OffsetCommitRequest)) - earlier == commits


def test_the_session_timeout_loses_no_partitions() -> None:
    world = World({"t": 1})
    log = caught_up_log(world, **JAVA)
    world.down = True
    world.run(10_000)
    assert log.member.changes_of("lost") == []


def test_a_fenced_member_raises_once_and_rejoins() -> None:
    """After FENCED_INSTANCE_ID for a heartbeat, the member raises Fenced once and rejoins.

    The member rejoins with the same instance id, and thus fences the other process. The other process may
    then rejoin and fence the member again: see docs/differences.md.
    """
    world = World({"t": 1})
    log = caught_up_log(world, **JAVA, group_instance_id="one")

    def fence(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, HeartbeatRequest):
            world.tamper = None
            return HeartbeatResponse(error_code=82)
        return None

    world.tamper = fence
    world.run(3000)
    assert [type(error) for error in log.member.errors] == [Fenced]
    last = world.requests_of(log.member, JoinGroupRequest)[-1]
    assert (last.member_id, last.reason) == ("", "encountered FENCED_INSTANCE_ID from HEARTBEAT response")
    assert log.member.owns() == {tp("t", 0)}


def test_a_member_fenced_between_polls_raises_before_it_rejoins() -> None:
    """A member that is fenced between two polls raises Fenced before it rejoins.

    The application can then stop. A member that rejoined would fence the newer process, which has the same
    `group_instance_id`.
    """
    world = World({"t": 1})
    log = caught_up_log(world, **JAVA, group_instance_id="one")

    def fence(client: Client, request: Any, version: int) -> Any:
        return HeartbeatResponse(error_code=82) if isinstance(request, HeartbeatRequest) else None

    log.member.pause_polling()
    world.tamper = fence
    world.run(2000)
    joins = len(world.requests_of(log.member, JoinGroupRequest))
    while not log.member.errors:
        log.member.poll()
        world.run(100)
    assert len(world.requests_of(log.member, JoinGroupRequest)) == joins


def test_callbacks_run_although_the_commit_before_them_fails() -> None:
    world = World({"t": 2})
    log = caught_up_log(world, **JAVA, request_timeout_ms=1000)

    def drop_commits(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, OffsetCommitRequest) and client is log.member:
            world.cut(client)
        return None

    world.tamper = drop_commits
    token = log.member.close(timeout_ms=5000)
    assert world.run(6000, until=lambda: token in log.member.done)
    assert "revoked" in log.take() or "lost" in log.entries
    assert log.member.done[token][1] is not None


@pytest.mark.rule("M95")
@pytest.mark.parametrize(("options", "fails"), [(JAVA, True), (KPROTO, False)])
def test_a_commit_during_a_rebalance_fails_or_is_retried_by_kprotos_policy(
    options: dict[str, Any], fails: bool
) -> None:
    """The coordinator answers a commit with REBALANCE_IN_PROGRESS. The commit fails with Java's policy
    (RebalanceInProgressException), and is retried with kproto's.
    """
    world = World({"t": 2})
    log = caught_up_log(world, **options)
    refuse_one_commit(world, ErrorCode.REBALANCE_IN_PROGRESS)
    token = log.member.commit({tp("t", 0): 4})
    world.run(3_000)
    assert isinstance(log.member.done[token][1], RebalanceInProgress if fails else type(None))


@pytest.mark.rule("M95")
@pytest.mark.parametrize(("options", "fails"), [(JAVA, True), (KPROTO, False)])
def test_a_commit_while_join_group_is_in_flight_fails_or_waits(options: dict[str, Any], fails: bool) -> None:
    """With Java's policy, a commit during a JoinGroup fails immediately, and no request is sent.

    With kproto's policy the commit waits for the join and then succeeds. Java's behaviour was observed in
    kafka-clients 4.3.1.
    """
    world = World({"t": 2}, latency=(50, 50))
    log = caught_up_log(world, **{**options, "partition_assignment_strategy": "cooperative-sticky"})
    log.member.rejoin()
    assert world.run(200, until=lambda: log.member.is_joining)
    token = log.member.commit({tp("t", 0): 4})
    world.run(3_000)
    assert isinstance(log.member.done[token][1], RebalanceInProgress if fails else type(None))
    # 10 is the offset that Java committed before JoinGroup.
    assert world.committed("g", tp("t", 0)) == (10 if fails else 4)


@pytest.mark.rule("M95")
def test_a_commit_without_a_membership_fails_with_commit_failed() -> None:
    world = World({"t": 2})
    log = caught_up_log(world, **JAVA, max_poll_interval_ms=4_000)
    log.member.pause_polling()
    world.run(6_000)
    token = log.member.commit({tp("t", 0): 4})
    world.run(1_000)
    error = log.member.done[token][1]
    assert type(error) is CommitFailed


@pytest.mark.rule("M26")
@pytest.mark.parametrize(("options", "lookups"), [(JAVA, 1), (KPROTO, 0)])
def test_an_idle_connection_to_the_coordinator_that_breaks_starts_a_lookup(
    options: dict[str, Any], lookups: int
) -> None:
    """When an idle connection to the coordinator breaks, Java's member looks up the coordinator again.

    The member keeps its generation. Java's behaviour was observed in kafka-clients 4.3.1.
    """
    world = World({"t": 2})
    log = caught_up_log(world, **options, fetch_max_wait_ms=100)
    assert world.run(1_000, until=lambda: world.requests_of(log.member, HeartbeatRequest) != [])
    world.run(100)
    earlier = len(world.requests_of(log.member, FindCoordinatorRequest))
    world.cut(log.member)
    world.run(3_000)
    assert len(world.requests_of(log.member, FindCoordinatorRequest)) - earlier == lookups
    assert log.take() == []


@pytest.mark.rule("M61", "M123")
@pytest.mark.parametrize(("options", "raised"), [(JAVA, False), (KPROTO, True)])
@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_COMMIT_OFFSET_SIZE])
def test_the_error_of_an_automatic_commit_is_raised_by_kprotos_policy_only(
    options: dict[str, Any], raised: bool, code: ErrorCode
) -> None:
    world = World({"t": 2})
    log = caught_up_log(world, **{**options, "auto_commit_interval_ms": 1_000})
    world.write("t", 0, "new")
    refuse_one_commit(world, code)
    world.run(3_000)
    assert bool(log.member.errors) is raised
    assert world.committed("g", tp("t", 0)) == 11
    assert "uncommitted" in {change.kind for change in log.member.changes} or not raised


@pytest.mark.rule("M53")
@pytest.mark.parametrize(("options", "raised"), [(JAVA, True), (KPROTO, False)])
def test_a_loading_coordinator_at_sync_group_is_raised_by_javas_policy(
    options: dict[str, Any], raised: bool
) -> None:
    world = World({"t": 2})
    a = world.consumer(**options)
    refused: list[int] = []

    def load(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, SyncGroupRequest) and not refused:
            refused.append(version)
            return SyncGroupResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, assignment=b"")
        return None

    world.tamper = load
    a.subscribe("t")
    assert world.run(5_000, until=lambda: a.owns() == {tp("t", 0), tp("t", 1)})
    assert [type(error) is Retriable for error in a.errors] == [False] * raised


def test_the_default_assignors_are_javas() -> None:
    assert consumer_options({"group_id": "g", "policy": "java"}).partition_assignment_strategy == (
        "range",
        "cooperative-sticky",
    )
    sticky_options = {"group_id": "g", "policy": "java", "partition_assignment_strategy": "sticky"}
    assert consumer_options(sticky_options).partition_assignment_strategy == ("sticky",)


@pytest.mark.rule("M130")
@pytest.mark.parametrize(("options", "once", "sent"), [(JAVA, True, 1), (JAVA, False, 2), (KPROTO, False, 2)])
@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_an_asynchronous_commit_is_retried_by_kprotos_policy_only(
    options: dict[str, Any], once: bool, sent: int, code: ErrorCode
) -> None:
    """Only kproto's policy retries a failed asynchronous commit. Later commits wait for the retry."""
    world = World({"t": 2})
    log = caught_up_log(world, **options)
    refuse_one_commit(world, code)
    earlier = len(world.requests_of(log.member, OffsetCommitRequest))
    log.member.do(ev.Commit("c", {tp("t", 0): (4, None, "")}, 5_000, once=once))
    world.run(3_000)
    assert isinstance(log.member.done["c"][1], Retriable if once else type(None))
    assert len(world.requests_of(log.member, OffsetCommitRequest)) - earlier == sent


def test_an_asynchronous_commit_fails_with_its_connection() -> None:
    world = World({"t": 2})
    log = caught_up_log(world, **JAVA)
    previous = world.tamper

    def drop_commits(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, OffsetCommitRequest) and client is log.member:
            world.cut(client)
        return previous(client, request, version) if previous is not None else None

    world.tamper = drop_commits
    log.member.do(ev.Commit("c", {tp("t", 0): (4, None, "")}, 5_000, once=True))
    world.run(3_000)
    assert log.member.done["c"][1] is not None
    assert len(world.requests_of(log.member, OffsetCommitRequest)) == 1


@pytest.mark.parametrize(("options", "fails"), [(JAVA, False), (KPROTO, True)])
def test_a_commit_of_an_unknown_topic_is_retried(options: dict[str, Any], fails: bool) -> None:
    world = World({"t": 2})
    log = caught_up_log(world, **options)
    refuse_one_commit(world, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    token = log.member.commit({tp("t", 0): 4})
    world.run(3_000)
    assert isinstance(log.member.done[token][1], UnknownTopic if fails else type(None))


def test_a_fenced_commit_is_raised_and_does_not_change_the_member() -> None:
    """As in Java, a fenced commit fails, but the member keeps its partitions and does not rejoin.

    The original is ConsumerCoordinator.OffsetCommitResponseHandler.
    """
    world = World({"t": 1})
    log = caught_up_log(world, **JAVA, group_instance_id="one")
    joins = len(world.requests_of(log.member, JoinGroupRequest))
    refuse_one_commit(world, ErrorCode.FENCED_INSTANCE_ID)
    token = log.member.commit({tp("t", 0): 4})
    world.run(3_000)
    assert isinstance(log.member.done[token][1], Fenced)
    assert (log.member.errors, log.member.changes_of("lost")) == ([], [])
    assert len(world.requests_of(log.member, JoinGroupRequest)) == joins


@pytest.mark.parametrize("by_time", [True, False], ids=["by time", "commit_async"])
def test_a_fenced_asynchronous_commit_is_raised_by_every_poll(by_time: bool) -> None:
    """After a fenced asynchronous commit, the consumer no longer reads, commits or joins.

    Java's consumer behaves in the same way (ConsumerCoordinator.asyncCommitFenced).
    """
    world = World({"t": 1})
    options = {**JAVA, "auto_commit_interval_ms": 2_000, "enable_auto_commit": by_time}
    log = caught_up_log(world, **options, group_instance_id="one")
    member = log.member
    joins = len(world.requests_of(member, JoinGroupRequest))
    refuse_one_commit(world, ErrorCode.FENCED_INSTANCE_ID)
    if not by_time:
        member.do(ev.Commit("token", {tp("t", 0): (4, None, "")}, 5_000, once=True))
    assert world.run(5_000, until=lambda: bool(member.errors))
    commits = len(world.requests_of(member, OffsetCommitRequest))
    world.write("t", 0, "more")
    world.run(5_000)
    assert len(member.errors) > 3
    assert {type(error) for error in member.errors} == {Fenced}
    token = member.commit({tp("t", 0): 4})
    world.run(100)
    assert isinstance(member.done[token][1], Fenced)
    assert (len(member.records), member.changes_of("lost")) == (10, [])
    assert len(world.requests_of(member, OffsetCommitRequest)) == commits
    assert len(world.requests_of(member, JoinGroupRequest)) == joins


@pytest.mark.parametrize(("options", "may_change"), [(JAVA, False), (KPROTO, True)])
def test_topics_and_a_pattern_exclude_each_other(options: dict[str, Any], may_change: bool) -> None:
    world = World({"t": 1})
    member = caught_up_log(world, **options).member
    for topics, pattern in ((), "t.*"), (("t",), None):
        if may_change:
            member.subscribe(*topics, pattern=pattern)
        else:
            with pytest.raises(IllegalState, match="subscribed, and policy="):
                member.subscribe(*topics, pattern=pattern)
        member.unsubscribe()
        world.run(1_000)
        member.subscribe(*topics, pattern=pattern)
        assert world.run(until=lambda: member.owns() == {tp("t", 0)})


@pytest.mark.parametrize("options", [JAVA, KPROTO])
def test_a_member_with_a_manual_assignment_before_joins_the_group(options: dict[str, Any]) -> None:
    """The first JoinGroup after `unsubscribe` gives as its reason that the consumer left the group.

    As in Java, the JoinGroup has this reason even if the consumer had a manual assignment and was never a
    member.
    """
    world = World({"t": 1})
    member = world.consumer(**options)
    member.assign({tp("t", 0): None})
    world.run(1_000)
    member.unsubscribe()
    world.run(1_000)
    member.subscribe("t")
    assert world.run(until=lambda: member.owns() == {tp("t", 0)})
    assert len(world.requests_of(member, FindCoordinatorRequest)) == 1
    first = world.requests_of(member, JoinGroupRequest)[0]
    assert first.reason == "consumer pro-actively leaving the group"


def refuse_one_commit(world: World, code: ErrorCode) -> None:
    """Answer the next OffsetCommit with `code`."""
    previous, answered = world.tamper, []

    def once(client: Client, request: Any, version: int) -> Any:
        response = previous(client, request, version) if previous is not None else None
        if isinstance(request, OffsetCommitRequest) and not answered:
            answered.append(request)
            return offset_commit_refusal(request, code)
        return response

    world.tamper = once


def offset_commit_refusal(request: OffsetCommitRequest, code: int) -> OffsetCommitResponse:
    """Return a response with `code` for every partition of the request."""
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
