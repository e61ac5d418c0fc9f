"""`policy="java"`: what is committed when, and what silence means, as Java's consumer has it.

The orders are those that kafka-clients 4.3.1 was seen to keep before a real broker.
"""

from __future__ import annotations

from typing import Any

import pytest

from consumer.engine import admin
from consumer.engine import events as ev
from consumer.options import consumer_options
from kproto.error_codes import ErrorCode
from kproto.errors import CommitFailed, Fenced, IllegalState, Retriable, UnknownTopic
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
from kproto.messages.sync_group import SyncGroupRequest
from tests.consumer.world import Client, Consumer, World, tp

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
OURS = {**JAVA, "policy": "kproto"}
STORY = {
    OffsetCommitRequest: "commit",
    JoinGroupRequest: "join",
    SyncGroupRequest: "sync",
    LeaveGroupRequest: "leave",
}


class Story:
    """What one member asks of the group and calls back, in order."""

    def __init__(self, world: World, **options: Any) -> None:
        self.told: list[str] = []
        self.member: Consumer = world.consumer(**options)
        self.member.listener = lambda kind, partitions: self.told.append(kind)
        before = world.tamper

        def note(client: Client, request: Any, version: int) -> Any:
            if client is self.member and type(request) in STORY:
                self.told.append(STORY[type(request)])
            return before(client, request, version) if before is not None else None

        world.tamper = note

    def after(self) -> list[str]:
        """What was told since the last look."""
        told, self.told = self.told, []
        return told


def reading(world: World, **options: Any) -> Story:
    world.write("t", 0, *map(str, range(10)))
    story = Story(world, **options)
    story.member.subscribe("t")
    assert world.run(until=lambda: len(story.member.records) == 10)
    world.run(500)
    story.after()
    return story


@pytest.mark.rule("M98")
def test_closing_commits_before_the_callback() -> None:
    world = World({"t": 2})
    story = reading(world, **JAVA)
    story.member.close()
    world.run(500)
    assert story.after() == ["commit", "revoked", "leave"]


def test_ours_commits_after_the_callback() -> None:
    world = World({"t": 2})
    story = reading(world, **OURS)
    story.member.close()
    world.run(500)
    assert story.after() == ["revoked", "commit", "leave"]


@pytest.mark.rule("M75")
def test_an_eager_rebalance_commits_then_revokes_then_joins() -> None:
    world = World({"t": 2})
    story = reading(world, **JAVA)
    world.consumer(**JAVA).subscribe("t")
    world.run(3000)
    assert story.after() == ["commit", "revoked", "join", "sync", "assigned"]


@pytest.mark.rule("M75")
def test_a_cooperative_rebalance_commits_before_each_join_and_not_after_the_callback() -> None:
    options = {**JAVA, "partition_assignment_strategy": "cooperative-sticky"}
    world = World({"t": 2})
    story = reading(world, **options)
    world.consumer(**options).subscribe("t")
    world.run(3000)
    assert story.after() == [
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


@pytest.mark.rule("M99")
def test_unsubscribing_does_not_commit() -> None:
    world = World({"t": 2})
    story = reading(world, **JAVA)
    story.member.unsubscribe()
    world.run(500)
    assert story.after() == ["revoked", "leave"]
    assert world.committed("g", tp("t", 0)) is None


def test_unsubscribing_commits_where_it_is_ours() -> None:
    world = World({"t": 2})
    story = reading(world, **OURS)
    story.member.unsubscribe()
    world.run(500)
    assert world.committed("g", tp("t", 0)) == 10


@pytest.mark.rule("M122")
@pytest.mark.parametrize(("policy", "commits"), [("java", range(9, 12)), ("kproto", range(1, 3))])
def test_each_interval_commits_though_nothing_is_new(policy: str, commits: range) -> None:
    world = World({"t": 1})
    story = Story(world, **{**JAVA, "auto_commit_interval_ms": 300, "policy": policy})
    world.write("t", 0, "x")
    story.member.subscribe("t")
    world.run(3200)
    assert story.after().count("commit") in commits


def test_a_start_that_the_policy_chose_is_not_committed_before_its_first_record() -> None:
    world = World({"t": 1})
    story = Story(world, **JAVA)
    story.member.subscribe("t")
    world.run(3000)
    assert "commit" not in story.after()


def test_new_partitions_start_where_every_partition_does() -> None:
    assert consumer_options({"policy": "java"}).on_new_partition == "latest"
    assert consumer_options({"policy": "java", "on_new_partition": "earliest"}).on_new_partition == "earliest"
    assert consumer_options({}).on_new_partition == "earliest"


@pytest.mark.parametrize(("asked_first", "look_ups"), [("the coordinator", 0), ("another broker", 1)])
def test_committed_offsets_are_asked_of_whom_is_known_and_by_names(asked_first: str, look_ups: int) -> None:
    world = World({"t": 2}, brokers=2)
    member = reading(world, **JAVA).member
    member.commit({tp("t", 0): 7})
    world.run(500)
    core, node = member.engine.core, member.engine.coordinator.node
    assert node is not None
    if asked_first == "another broker":
        node = 3 - node
    before = len(world.requests_of(member, FindCoordinatorRequest))
    plan = admin.committed_offsets(core.view, "g", [tp("t", 0)], core.clock, coordinator=node, by_name=True)
    token = member.run(plan)
    assert world.run(until=lambda: token in member.done)
    found, error = member.done[token]
    assert error is None
    assert found[tp("t", 0)].offset == 7
    assert len(world.requests_of(member, FindCoordinatorRequest)) - before == look_ups
    versions = [
        request[2]
        for request in world.requests
        if request[0] is member and isinstance(request[1], OffsetFetchRequest)
    ]
    assert max(versions) == 9


def test_who_asks_what_is_committed_teaches_the_consumer_its_coordinator() -> None:
    world = World({"t": 1})
    member = world.consumer(**JAVA)
    member.assign({tp("t", 0): 0})
    core, coordinator = member.engine.core, member.engine.coordinator
    plan = admin.committed_offsets(core.view, "g", [tp("t", 0)], core.clock, found=coordinator.learn)
    token = member.run(plan)
    assert world.run(until=lambda: token in member.done)
    token = member.commit({tp("t", 0): 7})
    assert world.run(until=lambda: token in member.done)
    assert member.done[token][1] is None
    assert len(world.requests_of(member, FindCoordinatorRequest)) == 1


@pytest.mark.parametrize(("options", "commits"), [(JAVA, 1), (OURS, 0)])
def test_what_another_member_has_may_be_committed_as_java(options: dict[str, Any], commits: int) -> None:
    world = World({"t": 2})
    member = reading(world, **options).member
    world.consumer(**options).subscribe("t")
    assert world.run(until=lambda: len(member.engine.partitions) == 1)
    world.run(500)
    other = ({tp("t", 0), tp("t", 1)} - set(member.engine.partitions)).pop()
    before = len(world.requests_of(member, OffsetCommitRequest))
    token = member.commit({other: 3})
    assert world.run(until=lambda: token in member.done)
    assert isinstance(member.done[token][1], type(None) if commits else CommitFailed)
    assert len(world.requests_of(member, OffsetCommitRequest)) - before == commits


def test_silence_for_longer_than_the_session_loses_nothing() -> None:
    world = World({"t": 1})
    story = reading(world, **JAVA)
    world.down = True
    world.run(10_000)
    assert story.member.changes_of("lost") == []


def test_a_fenced_member_raises_once_and_joins_again() -> None:
    """And fences the other one back, for ever: see docs/differences.md."""
    world = World({"t": 1})
    story = reading(world, **JAVA, group_instance_id="one")

    def fence(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, HeartbeatRequest):
            world.tamper = None
            return HeartbeatResponse(error_code=82)
        return None

    world.tamper = fence
    world.run(3000)
    assert [type(error) for error in story.member.errors] == [Fenced]
    last = world.requests_of(story.member, JoinGroupRequest)[-1]
    assert (last.member_id, last.reason) == ("", "encountered FENCED_INSTANCE_ID from HEARTBEAT response")
    assert story.member.owns() == {tp("t", 0)}


def test_a_member_that_was_fenced_while_away_raises_before_it_joins_again() -> None:
    """As Java's: whoever stops because of the error has not fenced the other one."""
    world = World({"t": 1})
    story = reading(world, **JAVA, group_instance_id="one")

    def fence(client: Client, request: Any, version: int) -> Any:
        return HeartbeatResponse(error_code=82) if isinstance(request, HeartbeatRequest) else None

    story.member.pause_polling()
    world.tamper = fence
    world.run(2000)
    joins = len(world.requests_of(story.member, JoinGroupRequest))
    while not story.member.errors:
        story.member.poll()
        world.run(100)
    assert len(world.requests_of(story.member, JoinGroupRequest)) == joins


def test_the_callbacks_of_a_commit_that_hangs_are_called_in_the_end() -> None:
    world = World({"t": 2})
    story = reading(world, **JAVA, request_timeout_ms=1000)

    def silent(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, OffsetCommitRequest) and client is story.member:
            world.cut(client)
        return None

    world.tamper = silent
    token = story.member.close(timeout_ms=5000)
    assert world.run(6000, until=lambda: token in story.member.done)
    assert "revoked" in story.after() or "lost" in story.told
    assert story.member.done[token][1] is not None


@pytest.mark.rule("M95")
@pytest.mark.parametrize(("options", "fails"), [(JAVA, True), (OURS, False)])
def test_a_commit_during_a_rebalance_fails_as_javas_and_ours_is_sent_again(
    options: dict[str, Any], fails: bool
) -> None:
    """RebalanceInProgressException: the group was already rebalancing when the commit came."""
    world = World({"t": 2})
    story = reading(world, **options)
    refuse_one_commit(world, ErrorCode.REBALANCE_IN_PROGRESS)
    token = story.member.commit({tp("t", 0): 4})
    world.run(3_000)
    assert isinstance(story.member.done[token][1], CommitFailed if fails else type(None))


@pytest.mark.rule("M130")
@pytest.mark.parametrize(("options", "once", "sent"), [(JAVA, True, 1), (JAVA, False, 2), (OURS, False, 2)])
@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_commit_that_nobody_waits_for_is_not_sent_twice_as_java(
    options: dict[str, Any], once: bool, sent: int, code: ErrorCode
) -> None:
    """M130. A client of ours sends it again, and those behind it wait."""
    world = World({"t": 2})
    story = reading(world, **options)
    refuse_one_commit(world, code)
    before = len(world.requests_of(story.member, OffsetCommitRequest))
    story.member.do(ev.Commit("c", {tp("t", 0): (4, None, "")}, 5_000, once=once))
    world.run(3_000)
    assert isinstance(story.member.done["c"][1], Retriable if once else type(None))
    assert len(world.requests_of(story.member, OffsetCommitRequest)) - before == sent


def test_a_commit_that_nobody_waits_for_ends_with_its_connection_as_java() -> None:
    world = World({"t": 2})
    story = reading(world, **JAVA)
    before = world.tamper

    def silent(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, OffsetCommitRequest) and client is story.member:
            world.cut(client)
        return before(client, request, version) if before is not None else None

    world.tamper = silent
    story.member.do(ev.Commit("c", {tp("t", 0): (4, None, "")}, 5_000, once=True))
    world.run(3_000)
    assert story.member.done["c"][1] is not None
    assert len(world.requests_of(story.member, OffsetCommitRequest)) == 1


@pytest.mark.parametrize(("options", "fails"), [(JAVA, False), (OURS, True)])
def test_a_commit_of_a_topic_that_the_coordinator_does_not_know_is_sent_again_as_java(
    options: dict[str, Any], fails: bool
) -> None:
    world = World({"t": 2})
    story = reading(world, **options)
    refuse_one_commit(world, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    token = story.member.commit({tp("t", 0): 4})
    world.run(3_000)
    assert isinstance(story.member.done[token][1], UnknownTopic if fails else type(None))


def test_a_fenced_commit_is_raised_and_the_member_stays_until_its_heartbeat_says_so() -> None:
    """ConsumerCoordinator.OffsetCommitResponseHandler: the commit fails, and changes nothing else."""
    world = World({"t": 1})
    story = reading(world, **JAVA, group_instance_id="one")
    joins = len(world.requests_of(story.member, JoinGroupRequest))
    refuse_one_commit(world, ErrorCode.FENCED_INSTANCE_ID)
    token = story.member.commit({tp("t", 0): 4})
    world.run(3_000)
    assert isinstance(story.member.done[token][1], Fenced)
    assert (story.member.errors, story.member.changes_of("lost")) == ([], [])
    assert len(world.requests_of(story.member, JoinGroupRequest)) == joins


@pytest.mark.parametrize("by_time", [True, False], ids=["by time", "commit_async"])
def test_a_fenced_commit_that_nobody_waits_for_is_raised_by_every_poll(by_time: bool) -> None:
    """ConsumerCoordinator.asyncCommitFenced. Nothing more is read, or committed, or joined."""
    world = World({"t": 1})
    options = {**JAVA, "auto_commit_interval_ms": 2_000, "enable_auto_commit": by_time}
    story = reading(world, **options, group_instance_id="one")
    member = story.member
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


@pytest.mark.parametrize(("options", "again"), [(JAVA, False), (OURS, True)])
def test_topics_and_a_pattern_exclude_each_other_as_java(options: dict[str, Any], again: bool) -> None:
    world = World({"t": 1})
    member = reading(world, **options).member
    for topics, pattern in ((), "t.*"), (("t",), None):
        if again:
            member.subscribe(*topics, pattern=pattern)
        else:
            with pytest.raises(IllegalState, match="subscribed, and policy="):
                member.subscribe(*topics, pattern=pattern)
        member.unsubscribe()
        world.run(1_000)
        member.subscribe(*topics, pattern=pattern)
        assert world.run(until=lambda: member.owns() == {tp("t", 0)})


@pytest.mark.parametrize("options", [JAVA, OURS])
def test_who_read_by_hand_before_joins_where_it_committed(options: dict[str, Any]) -> None:
    """And says as Java's that it has left before: any unsubscribe leaves the group."""
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
    before, refused = world.tamper, []

    def once(client: Client, request: Any, version: int) -> Any:
        answer = before(client, request, version) if before is not None else None
        if isinstance(request, OffsetCommitRequest) and not refused:
            refused.append(request)
            return offset_commit_refusal(request, code)
        return answer

    world.tamper = once


def offset_commit_refusal(request: OffsetCommitRequest, code: int) -> OffsetCommitResponse:
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
