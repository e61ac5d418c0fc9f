"""The models of Java's consumer behave like the releases 4.3.1 and 2.6.2, and differ where these releases
differ.
"""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from kproto.error_codes import ErrorCode
from kproto.group.subscription import Assignment, TopicPartition
from kproto.messages.fetch import FetchRequest
from kproto.models import contract as c
from kproto.models import java
from kproto.models.java import consumer_coordinator, hash_order, heartbeat_thread, java_2_6
from kproto.models.java.release import JAVA_2_6, JAVA_4_3
from kproto.models.java.state import JavaGeneration, JavaMemberState, new_consumer
from kproto.testing.world import World

from ..stage import Stage, StageMember

T0 = TopicPartition("t", 0)
TIMES = {"session_ms": 6000, "heartbeat_ms": 300, "auto_commit_ms": 1000, "metadata_ms": 1000}
BOTH = pytest.mark.parametrize("release", [java, java_2_6], ids=["4.3", "2.6"])
COOP = {"assignors": ["cooperative-sticky"]}


def add_member(stage: Stage, release: ModuleType, name: str = "A", **conf: object) -> StageMember:
    return stage.add_member(name, release, **{"reset": "earliest", "assignors": ["range"], **TIMES, **conf})


def stage_with_member(release: ModuleType, topics: int = 2, **conf: object) -> tuple[Stage, StageMember]:
    stage = Stage({"t": topics})
    stage.produce("t", range(topics), 10)
    a = add_member(stage, release, **conf)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: a.has_printed("assigned"))
    stage.run(400)
    return stage, a


def add_second_member(stage: Stage, release: ModuleType, **conf: object) -> StageMember:
    b = add_member(stage, release, "B", **conf)
    b.run_command("subscribe t")
    assert stage.run(until=lambda: b.has_printed("assigned"))
    stage.run(600)
    return b


def requests_of(member: StageMember, *apis: str) -> list[str]:
    return [line for line in member.requests if line.split()[0] in apis]


def callbacks_of(member: StageMember) -> list[str]:
    return [line.strip() for *_, line in member.printed if line.split()[0] in ("assigned", "revoked", "lost")]


def join_member_ids(member: StageMember) -> list[str]:
    return [line.split()[2] for line in requests_of(member, "Join")]


# ---- requests


def test_a_join_of_2_6_sends_the_originals_requests() -> None:
    _, a = stage_with_member(java_2_6)
    join = "sess=6000 reb=300000 reason=null range(v1 topics=t own=none)"
    assert a.requests == [
        "Metadata v9 t",
        "Find v3 g -> 0",
        f"Join v7 id=- {join} -> 79 id=A1",
        f"Join v7 id=A1 {join} -> 0 gen=1 id=A1 leader of 1 proto=range",
        "Sync v5 gen=1 id=A1 assign A1=t:0,t:1 -> 0 got=t:0,t:1",
        "OffsetFetch v7 stable=True t:0,t:1 -> 0 t:0@-1,t:1@-1",
        "ListOffsets v5 iso=0 t:0@-2,t:1@-2 -> 0 t:0@0,t:1@0",
        "Heartbeat v4 gen=1 id=A1 -> 0",
    ]


def test_a_join_of_4_3_carries_a_reason() -> None:
    _, a = stage_with_member(java)
    assert [line.split("reason=")[1].split(" range")[0] for line in requests_of(a, "Join")] == [
        '""',
        '"need to re-join with the given member-id: A1"',
    ]


@BOTH
def test_request_versions_are_those_of_the_original(release: ModuleType) -> None:
    stage, a = stage_with_member(release, isolation="read_committed")
    add_second_member(stage, release)
    stage.run(1500)
    a.run_command("close")
    stage.run(until=lambda: a.closed)
    versions = {line.split()[0]: int(line.split()[1][1:]) for line in a.requests}
    names = ("Find", "Join", "Sync", "Heartbeat", "Leave", "Commit", "OffsetFetch", "ListOffsets", "EpochEnd")
    expected = (6, 9, 5, 4, 5, 9, 9, 11, 4) if release is java else (3, 7, 5, 4, 4, 8, 7, 5, 3)
    assert tuple(versions[name] for name in names) == expected


@BOTH
def test_an_eager_rebalance_commits_then_revokes_then_joins(release: ModuleType) -> None:
    stage, a = stage_with_member(release)
    add_second_member(stage, release)
    index = a.requests.index("Heartbeat v4 gen=1 id=A1 -> 27")
    assert [line.split()[0] for line in a.requests[index : index + 5]] == [
        "Heartbeat",
        "Commit",
        "Join",
        "Sync",
        "OffsetFetch",
    ]
    commit = next(line for line in a.lines if str(line).startswith("Commit"))
    revoked = next(number for _, number, line in a.printed if line.startswith("revoked"))
    join = [line for line in a.lines if line.api == "Join"][2]
    assert commit.number < revoked < join.number


@BOTH
def test_committed_positions_are_validated_before_they_are_fetched_from(release: ModuleType) -> None:
    stage, _ = stage_with_member(release)
    b = add_second_member(stage, release)
    assert requests_of(b, "EpochEnd")[0].split(" ", 2)[2] == "t:1@e0 -> 0"


@BOTH
def test_auto_commit_repeats_unchanged_offsets_at_each_interval(release: ModuleType) -> None:
    stage, a = stage_with_member(release)
    stage.run(5000)
    assert len(requests_of(a, "Commit")) >= 4
    assert len(set(requests_of(a, "Commit"))) == 1


@BOTH
def test_only_the_leader_watches_its_partitions(release: ModuleType) -> None:
    stage, a = stage_with_member(release)
    b = add_second_member(stage, release)
    follower = b if "follower" in requests_of(b, "Join")[-1] else a
    stage.grow("t", 4)
    assert stage.run(until=lambda: a.has_printed("assigned", 3) and b.has_printed("assigned", 2))
    last_join = requests_of(follower, "Join")[-1]
    assert release is java_2_6 or 'reason="group is already rebalancing"' in last_join


@BOTH
def test_a_missing_topic_does_not_prevent_the_join_and_is_requested_again(release: ModuleType) -> None:
    stage = Stage(**{"auto.create.topics.enable": "false"})
    a = add_member(stage, release)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: a.has_printed("assigned"))
    stage.run(1000)
    assert len(requests_of(a, "Metadata")) > 5
    stage.topic("t", 1)
    assert stage.run(until=lambda: a.has_printed("assigned t:0"))
    assert callbacks_of(a) == ["assigned", "revoked", "assigned t:0"]


@BOTH
def test_close_commits_revokes_and_leaves(release: ModuleType) -> None:
    stage, a = stage_with_member(release)
    a.run_command("close")
    assert stage.run(until=lambda: a.closed)
    last = [line.split()[0] for line in a.requests[-3:]]
    assert last == (["Commit", "Leave", "Fetch"] if release is java else ["Heartbeat", "Commit", "Leave"])
    assert callbacks_of(a)[-1].startswith("revoked")


@BOTH
def test_unsubscribe_leaves_without_a_commit(release: ModuleType) -> None:
    stage, a = stage_with_member(release)
    a.run_command("unsubscribe")
    stage.run(100)
    assert requests_of(a, "Commit") == []
    assert len(requests_of(a, "Leave")) == 1
    assert callbacks_of(a)[-1] == "revoked t:0 t:1"


@BOTH
def test_a_static_member_never_leaves(release: ModuleType) -> None:
    stage, a = stage_with_member(release, instance="ia")
    a.run_command("unsubscribe")
    stage.run(100)
    a.run_command("close")
    assert stage.run(until=lambda: a.closed)
    assert requests_of(a, "Leave") == []


def test_a_static_leader_that_restarts_sends_an_empty_sync_group() -> None:
    stage, a = stage_with_member(java, instance="ia")
    a.run_command("close")
    stage.run(until=lambda: a.closed)
    restarted = add_member(stage, java, "A", instance="ia")
    restarted.run_command("subscribe t")
    assert stage.run(until=lambda: restarted.has_printed("assigned"))
    assert "skip" in requests_of(restarted, "Join")[0]
    assert "empty" in requests_of(restarted, "Sync")[0]


@BOTH
def test_a_member_without_polls_leaves_and_its_next_poll_calls_on_partitions_lost(
    release: ModuleType,
) -> None:
    stage, a = stage_with_member(release, max_poll_ms=6000)
    a.run_command("sleep 9000")
    stage.run(until=lambda: bool(requests_of(a, "Leave")))
    assert not a.has_printed("lost")
    assert stage.run(until=lambda: a.has_printed("lost t:0 t:1"))
    assert stage.run(until=lambda: a.has_printed("assigned", 2))


@BOTH
def test_a_pattern_requests_all_topics_before_each_join(release: ModuleType) -> None:
    stage = Stage({"t": 1})
    a = add_member(stage, release)
    a.run_command("pattern t.*")
    assert stage.run(until=lambda: a.has_printed("assigned t:0"))
    stage.topic("tb", 1)
    assert stage.run(until=lambda: a.has_printed("assigned t:0 tb:0"))
    order = [line.split()[0] for line in requests_of(a, "Metadata", "Join")]
    assert order[order.index("Join") - 1] == "Metadata"
    assert all("all" in line for line in requests_of(a, "Metadata"))


@pytest.mark.rule("M29")
@BOTH
def test_a_lost_coordinator_connection_causes_a_lookup_but_no_rejoin(release: ModuleType) -> None:
    stage, a = stage_with_member(release)
    a.drop_connections()
    stage.run(2000)
    assert len(requests_of(a, "Find")) >= 2
    assert a.state.generation.number == 1
    assert len(requests_of(a, "Join")) == 2


@pytest.mark.rule("M119")
@BOTH
def test_a_poll_without_a_subscription_throws(release: ModuleType) -> None:
    stage = Stage()
    a = add_member(stage, release)
    a.poll(10)
    assert a.has_printed("error IllegalStateException")


@BOTH
def test_s0_14_assign_after_subscribe_throws(release: ModuleType) -> None:
    _, a = stage_with_member(release)
    a.do(c.AssignCalled({T0: 2}))
    assert a.has_printed("error IllegalStateException Subscription to topics")


@BOTH
def test_subscribe_after_assign_throws_and_keeps_the_assignment(release: ModuleType) -> None:
    stage = Stage({"t": 1})
    a = add_member(stage, release)
    a.do(c.AssignCalled({T0: 2}))
    for event in (c.SubscribeCalled(("t",)), c.SubscribeCalled(pattern="t.*")):
        a.do(event)
    text = "error IllegalStateException Subscription to topics, partitions and pattern are mutually exclusive"
    assert a.has_printed(text, 2)
    assert (set(a.state.assigned), a.state.auto_assigned) == ({T0}, False)


@BOTH
def test_an_unexpected_error_fails_the_commit(release: ModuleType) -> None:
    stage, a = stage_with_member(release, auto_commit=False)
    a.inject("Commit", ErrorCode.INVALID_REQUEST)
    a.run_command("commit")
    assert stage.run(until=lambda: a.has_printed("commit"))
    assert a.has_printed("commit KafkaException Unexpected error in commit: KafkaException")


def test_the_join_after_a_sync_group_error_has_the_error_as_its_reason() -> None:
    stage = Stage({"t": 1})
    a = add_member(stage, java)
    a.inject("Sync", ErrorCode.REBALANCE_IN_PROGRESS)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: a.has_printed("assigned"))
    reasons = [line.request.reason for line in a.lines if line.api == "Join"]
    assert reasons[-1] == "rebalance failed due to RebalanceInProgressException"


@BOTH
def test_a_heartbeat_in_flight_sets_no_deadline_for_the_next_one(release: ModuleType) -> None:
    stage, a = stage_with_member(release)
    a.hold("Heartbeat", 1_000)
    assert stage.run(until=lambda: a.state.heartbeat_in_flight is not None)
    assert (heartbeat_thread.deadline(a.state) or 0) > a.state.heartbeat_at


@BOTH
def test_a_failed_lookup_of_the_coordinator_is_repeated_after_the_backoff(release: ModuleType) -> None:
    stage = Stage({"t": 1})
    a = add_member(stage, release)
    a.inject("Find", *[ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3)
    a.run_command("subscribe t")
    assert stage.run(until=lambda: a.has_printed("assigned"))
    times = [line.now for line in a.lines if line.api == "Find"]
    assert len(times) == 4
    assert all(later - earlier >= 100 for earlier, later in pairwise(times))


# ---- error codes


@BOTH
@pytest.mark.parametrize("code", [22, 25])
def test_heartbeat_errors_that_reset_the_member_call_on_partitions_lost(
    release: ModuleType, code: int
) -> None:
    stage, a = stage_with_member(release)
    a.inject("Heartbeat", code)
    assert stage.run(until=lambda: a.has_printed("lost") or a.has_printed("revoked"))
    stage.run(50)
    keeps = release is java and code == 22
    assert callbacks_of(a)[1] == "lost t:0 t:1"
    assert join_member_ids(a)[2] == ("id=A1" if keeps else "id=-")


@BOTH
def test_a_fenced_member_throws_once_loses_its_partitions_and_rejoins(release: ModuleType) -> None:
    stage, a = stage_with_member(release, instance="ia")
    a.inject("Heartbeat", 82)
    assert stage.run(until=lambda: a.has_printed("error FencedInstanceIdException"))
    assert not a.has_printed("lost")
    assert stage.run(until=lambda: a.has_printed("assigned", 2))
    assert callbacks_of(a)[1] == "lost t:0 t:1"
    assert join_member_ids(a)[-1] == "id=-"


@pytest.mark.parametrize(
    ("code", "id_of_2_6", "id_of_4_3"), [(14, "id=-", "id=A1"), (15, "id=-", "id=A1"), (16, "id=-", "id=A1")]
)
def test_a_retried_join_of_2_6_forgets_the_member_id_and_4_3_keeps_it(
    code: int, id_of_2_6: str, id_of_4_3: str
) -> None:
    for release, expected in ((java_2_6, id_of_2_6), (java, id_of_4_3)):
        stage, a = stage_with_member(release)
        a.inject("Join", code)
        b = add_member(stage, release, "B")
        b.run_command("subscribe t")
        stage.run(until=lambda a=a: len(requests_of(a, "Join")) >= 4)
        assert join_member_ids(a)[2:4] == ["id=A1", expected]


def test_rebalance_in_progress_in_a_join_group_response_is_thrown_by_2_6_only() -> None:
    for release, thrown in ((java_2_6, True), (java, False)):
        stage, a = stage_with_member(release)
        a.inject("Join", 27)
        b = add_member(stage, release, "B")
        b.run_command("subscribe t")
        stage.run(until=lambda a=a: a.has_printed("assigned", 2))
        assert a.has_printed("error KafkaException") is thrown


@BOTH
@pytest.mark.parametrize("code", [14, 30, 82])
def test_an_unexpected_sync_group_error_is_thrown_and_the_next_poll_rejoins(
    release: ModuleType, code: int
) -> None:
    stage, a = stage_with_member(release)
    a.inject("Sync", code)
    b = add_member(stage, release, "B")
    b.run_command("subscribe t")
    assert stage.run(until=lambda: a.has_printed("error"))
    assert stage.run(until=lambda: a.has_printed("assigned", 2))
    assert callbacks_of(a).count("revoked t:0 t:1") == 1


def test_s2_26_a_cooperative_2_6_keeps_its_partitions_under_a_new_member_id() -> None:
    stage, a = stage_with_member(java_2_6, **COOP)
    a.inject("Sync", 25)
    b = add_member(stage, java_2_6, "B", **COOP)
    b.run_command("subscribe t")
    assert stage.run(until=lambda: a.has_printed("revoked"))
    assert not a.has_printed("lost")
    assert "own=t:0,t:1" in requests_of(a, "Join")[3]
    assert join_member_ids(a)[3] == "id=-"


def test_m76_a_cooperative_4_3_calls_on_partitions_lost() -> None:
    stage, a = stage_with_member(java, **COOP)
    a.inject("Sync", 25)
    b = add_member(stage, java, "B", **COOP)
    b.run_command("subscribe t")
    assert stage.run(until=lambda: a.has_printed("lost t:0 t:1"))


@pytest.mark.parametrize(
    ("number", "member_id", "is_lost_in_2_6", "is_lost_in_4_3"),
    [(-1, "", True, True), (-1, "id", False, True), (3, "", False, True), (3, "id", False, False)],
)
def test_s2_26_lost_needs_no_generation_and_no_id_in_2_6_but_either_in_4_3(
    number: int, member_id: str, is_lost_in_2_6: bool, is_lost_in_4_3: bool
) -> None:
    for rules, expected in ((JAVA_2_6, is_lost_in_2_6), (JAVA_4_3, is_lost_in_4_3)):
        state = new_consumer(c.ModelConfig(client_id="a", group_id="g"), rules)
        state.generation = JavaGeneration(number, member_id)
        assert consumer_coordinator.is_lost(state) is expected


# ---- commits


def test_s2_25_the_commit_before_a_join_blocks_the_poll_of_2_6_but_not_of_4_3() -> None:
    finished_polls = {}
    for release in (java_2_6, java):
        stage, a = stage_with_member(release, auto_commit_ms=60_000)
        a.hold("Commit", 3000)
        b = add_member(stage, release, "B", auto_commit_ms=60_000)
        b.run_command("subscribe t")
        stage.run(until=lambda a=a: bool(requests_of(a, "Commit")))
        polls = 0
        until = stage.now + 2500
        while stage.now < until:
            before = a.waiting
            stage.run(10)
            polls += before and not a.waiting
        finished_polls[release] = polls
        assert stage.run(until=lambda a=a: a.has_printed("revoked"))
    assert finished_polls[java_2_6] == 0


@pytest.mark.parametrize(
    ("code", "wait"),
    [(14, 100), (0, 1000), (12, 1000)],
    ids=["retriable", "done", "failed for good"],
)
def test_s2_17_to_19_auto_commit_has_three_results(code: int, wait: int) -> None:
    stage, a = stage_with_member(java_2_6)
    a.inject("Commit", code)
    stage.run(until=lambda: len(requests_of(a, "Commit")) == 2)
    first, then = (line for line in a.lines if line.api == "Commit")
    assert wait <= then.now - first.now <= wait + 60


@pytest.mark.parametrize("release", [java, java_2_6], ids=["4.3", "2.6"])
def test_a_retriable_error_of_the_commit_before_a_join_is_retried(release: ModuleType) -> None:
    stage, a = stage_with_member(release, auto_commit_ms=60_000)
    a.inject("Commit", *[14] * 30)
    b = add_member(stage, release, "B", auto_commit_ms=60_000)
    b.run_command("subscribe t")
    assert stage.run(until=lambda: a.has_printed("revoked"))
    assert len(requests_of(a, "Commit")) == 31


@BOTH
def test_m130_a_fenced_auto_commit_is_thrown_by_every_later_poll(release: ModuleType) -> None:
    stage, a = stage_with_member(release)
    a.inject("Commit", 82)
    assert stage.run(until=lambda: a.has_printed("error FencedInstanceIdException", 5))
    assert len(requests_of(a, "Commit")) == 1
    assert callbacks_of(a) == ["assigned t:0 t:1"]


def test_m95_a_commit_during_a_join_is_empty_if_eager_and_fails_if_cooperative() -> None:
    for conf, expected in (({}, "commit ok"), (COOP, "commit RebalanceInProgressException")):
        stage, a = stage_with_member(java, auto_commit=False, **conf)
        a.hold("Join", 1500)
        b = add_member(stage, java, "B", auto_commit=False, **conf)
        b.run_command("subscribe t")
        stage.run(until=lambda a=a: a.state.state is JavaMemberState.PREPARING_REBALANCE)
        a.run_command("commit")
        assert stage.run(until=lambda a=a: a.has_printed("commit"))
        assert a.has_printed(expected)
        assert requests_of(a, "Commit") == []


def test_s2_35_an_assignment_outside_the_subscription_rejoins_without_a_callback() -> None:
    state = new_consumer(c.ModelConfig(client_id="a", group_id="g"), JAVA_2_6)
    state.topics, state.auto_assigned = frozenset({"u"}), True
    state.state, state.generation = JavaMemberState.STABLE, JavaGeneration(1, "id", "range")
    state.join_result = Assignment(partitions=(T0,)).encode()
    out: list[c.ModelAction] = []
    consumer_coordinator.on_join_complete(state, out)
    assert [(action.kind, action.name) for action in out if isinstance(action, c.Notify)] == [("log", "WARN")]
    assert len(out) == 1
    assert state.rejoin_needed
    assert state.assigned == {}


def test_s2_37_38_a_cooperative_member_revokes_before_it_rejoins() -> None:
    stage, a = stage_with_member(java_2_6, 4, **COOP)
    add_second_member(stage, java_2_6, **COOP)
    stage.run(1500)
    assert [line.split()[0] for line in callbacks_of(a)] == ["assigned", "revoked", "assigned", "assigned"]
    assert len(requests_of(a, "Join")) == 4


def test_s2_40_a_pattern_adopts_topics_that_only_the_leader_knew() -> None:
    state = new_consumer(c.ModelConfig(client_id="a", group_id="g"), JAVA_4_3)
    state.pattern, state.auto_assigned, state.topics = "t.*", True, frozenset({"t"})
    state.joined_topics = frozenset({"t"})
    state.state, state.generation = JavaMemberState.STABLE, JavaGeneration(1, "id", "range")
    state.join_result = Assignment(partitions=(TopicPartition("tb", 0),)).encode()
    consumer_coordinator.on_join_complete(state, [])
    assert state.topics == state.joined_topics == {"t", "tb"}


@pytest.mark.parametrize(("topic", "order"), [("t", [3, 2, 1, 0]), ("fh1", [0, 3, 1, 2])])
def test_2_6_keeps_partitions_in_the_order_of_its_hash_table(topic: str, order: list[int]) -> None:
    partitions = [TopicPartition(topic, number) for number in range(4)]
    assert [tp.partition for tp in hash_order.partition_order(partitions)] == order


@pytest.mark.parametrize(
    ("release", "topic", "moved"),
    [(java_2_6, "t", {0, 1}), (java_2_6, "fh1", {0, 2}), (java, "t", {2, 3}), (java, "fh1", {2, 3})],
)
def test_the_last_partitions_in_the_releases_order_move(
    release: ModuleType, topic: str, moved: set[int]
) -> None:
    """When a member joins, the same partitions move as with the original kafka-clients 2.6.2 and 4.3.1.

    When poll has returned records of a partition, kafka-clients 2.6 moves the partition to the end of its
    order (movePartitionToEnd). A rebalance revokes the partitions at the end of this order.

    Only the topic fh1 has a record. It is in partition 0, and the first member reads it before the second
    member joins.
    """
    world = World({topic: 4})
    if topic == "fh1":
        world.write(topic, 0, "x")
    config: Any = {"group_id": "g", "reset": "earliest", "assignors": ("cooperative-sticky",)}
    a = world.join("a", release, topics=[topic], **config)
    world.run(2_000)
    world.join("b", release, topics=[topic], **config)
    world.run(8_000)
    (revoked,) = [set(partitions) for kind, partitions in a.calls if kind == "revoked"]
    assert {tp.partition for tp in revoked} == moved


def test_2_6_writes_topics_in_the_order_of_its_hash_set() -> None:
    assert hash_order.hash_code("t") == 116
    assert hash_order.hash_order(["b", "a", "q"]) == ["a", "q", "b"]


@BOTH
@pytest.mark.parametrize("at", range(0, 60, 3))
def test_all_records_arrive_although_connections_break_at_any_time(release: ModuleType, at: int) -> None:
    stage = Stage({"t": 2})
    stage.produce("t", range(2), 10)
    a = add_member(stage, release)
    a.run_command("subscribe t")
    stage.run(at + 1)
    a.drop_connections()
    all_records = {(TopicPartition("t", partition), offset) for partition in range(2) for offset in range(10)}
    assert stage.run(
        8000, until=lambda: {(record.partition, record.offset) for record in a.records} >= all_records
    )


@BOTH
@pytest.mark.rule("M156")
def test_a_partition_with_buffered_records_is_not_fetched(release: ModuleType) -> None:
    world = World({"t": 1})
    world.write("t", 0, *map(str, range(10)))
    a = world.join("a", release, topics=["t"], group_id="g", reset="earliest")
    a.limit = 4
    fetched_at: list[tuple[int, int]] = []

    def count(client: Any, request: Any, version: int) -> None:
        if isinstance(request, FetchRequest) and request.topics:
            fetched_at.append((request.topics[0].partitions[0].fetch_offset, len(a.records)))

    world.tamper = count
    assert world.run(until=lambda: len(a.records) == 10)
    world.run(1_000)
    assert [offset for offset, _ in fetched_at] == [0, 10]
    assert fetched_at[1][1] in (8, 10)


@BOTH
@pytest.mark.rule("M119")
def test_the_next_fetch_is_sent_before_poll_returns_records(release: ModuleType) -> None:
    sent_before_records: list[type] = []

    def step(state: Any, event: Any, now: int) -> Any:
        actions = release.step(state, event, now)
        if any(isinstance(action, c.FinishPoll) and action.records for action in actions):
            sent_before_records.extend(
                type(action.request) for action in actions[:-1] if isinstance(action, c.SendRequest)
            )
        return actions

    stage = Stage({"t": 1})
    stage.produce("t", [0], 5)
    a = stage.add_member("A", SimpleNamespace(**{**vars(release), "step": step}), reset="earliest")
    a.run_command("subscribe t")
    assert stage.run(until=lambda: len(a.records) == 5)
    assert sent_before_records == [FetchRequest]


@BOTH
@pytest.mark.rule("M156")
def test_a_paused_partition_is_not_fetched(release: ModuleType) -> None:
    world = World({"t": 2})
    a = world.join("a", release, topics=["t"], group_id="g", reset="earliest")
    assert world.run(until=lambda: bool(a.owned))
    world.run(1_000)
    a.do(c.PauseCalled((T0,)))
    world.run(2_000)
    forgotten = [
        topic for request in world.requests_of(a, FetchRequest) for topic in request.forgotten_topics_data
    ]
    assert [topic.partitions for topic in forgotten] == [[0]]


@BOTH
@pytest.mark.rule("M203")
def test_records_written_to_a_new_partition_before_it_is_noticed_are_never_read(release: ModuleType) -> None:
    world = World({"t": 1})
    a = world.join("a", release, topics=["t"], group_id="g", reset="latest", metadata_ms=1_000)
    world.run(3_000)
    world.grow("t", 2)
    world.write("t", 1, "early")
    world.run(5_000)
    world.write("t", 1, "late")
    world.run(2_000)
    assert a.values("t", 1) == ["late"]
