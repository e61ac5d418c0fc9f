"""Java's consumer adopts or rejects its assignment, and commits before it joins (ConsumerCoordinator)."""

from __future__ import annotations

from types import ModuleType

import pytest

from kproto.group.subscription import Assignment, TopicPartition
from kproto.messages.heartbeat import HeartbeatResponse
from kproto.models import contract as c
from kproto.models import java
from kproto.models.java import consumer_coordinator, java_2_6
from kproto.models.java.release import JAVA_2_6, JAVA_4_3, JavaRelease
from kproto.models.java.state import JavaGeneration, JavaMemberState, JavaState, new_consumer
from tests.models.java.stage import JavaStage, committed, found_coordinator, metadata_of

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
BOTH = pytest.mark.parametrize("release", [JAVA_4_3, JAVA_2_6], ids=["4.3", "2.6"])


def member(release: JavaRelease, data: bytes, assignor: str = "range", **conf: object) -> JavaState:
    """Return a member of generation 3 that has received an assignment in its SyncGroup response."""
    config = c.ModelConfig(client_id="a", group_id="g", assignors=(assignor,), **conf)  # type: ignore[arg-type]
    state = new_consumer(config, release)
    state.auto_assigned, state.topics = True, frozenset({"t"})
    state.joined_topics, state.needs_prepare = state.topics, False
    state.state, state.generation = JavaMemberState.STABLE, JavaGeneration(3, "id", assignor)
    state.join_result = data
    return state


def complete(state: JavaState) -> list[c.ModelAction]:
    out: list[c.ModelAction] = []
    consumer_coordinator.on_join_complete(state, out)
    return out


@BOTH
def test_an_assignment_of_another_topic_is_logged_and_rejoined(release: JavaRelease) -> None:
    state = member(release, Assignment(partitions=(T0, U0)).encode())
    (log,) = complete(state)
    assert isinstance(log, c.Notify)
    assert (log.kind, log.name) == ("log", "INFO" if release is JAVA_4_3 else "WARN")
    assert "[t-0, u-0]" in log.text
    assert "Subscribe(t)" in log.text
    assert state.rejoin_needed
    assert state.reason == "received assignment does not match the current subscription"
    assert (state.join_result, state.needs_prepare, state.assigned) == (None, True, {})


@BOTH
@pytest.mark.parametrize(
    ("data", "name"),
    [(b"\0", "IllegalStateException"), (b"\0\1", "SchemaException"), (b"", "IllegalStateException")],
)
def test_an_unreadable_assignment_is_thrown(release: JavaRelease, data: bytes, name: str) -> None:
    state = member(release, data)
    assert complete(state) == []
    assert state.pending_exception is not None
    assert state.pending_exception[0] == name
    assert state.join_result == data


@BOTH
def test_an_assignor_that_was_not_offered_is_thrown(release: JavaRelease) -> None:
    state = member(release, Assignment(partitions=(T0,)).encode())
    state.generation = JavaGeneration(3, "id", "mine")
    assert complete(state) == []
    assert state.pending_exception == (
        "IllegalStateException",
        "Coordinator selected invalid assignment protocol: mine",
    )


@BOTH
def test_an_assignment_of_a_lost_generation_is_dropped(release: JavaRelease) -> None:
    state = member(release, Assignment(partitions=(T0,)).encode())
    state.state, state.generation = JavaMemberState.UNJOINED, JavaGeneration(-1, "id")
    assert complete(state) == []
    assert state.rejoin_needed
    assert state.reason == (
        "rebalance failed since the generation/state was modified by heartbeat thread to "
        "Generation{generationId=-1, memberId='id', protocol='null'}/UNJOINED "
        "before the rebalance callback triggered"
    )
    assert (state.join_result, state.assigned, state.needs_prepare) == (None, {}, True)


@BOTH
def test_an_eager_member_gets_all_partitions_of_its_assignment(release: JavaRelease) -> None:
    state = member(release, Assignment(partitions=(T0, T1)).encode(), auto_commit=True, auto_commit_ms=700)
    state.now = 10_000
    (callback,) = complete(state)
    assert isinstance(callback, c.RunCallback)
    assert (callback.kind, set(callback.partitions)) == ("assigned", {T0, T1})
    assert set(state.assigned) == {T0, T1}
    assert not state.positions_settled
    assert state.auto_commit_at == 10_700
    assert state.group_metadata == state.generation


@BOTH
def test_a_cooperative_member_revokes_what_its_assignment_lacks_and_adds_what_is_new(
    release: JavaRelease,
) -> None:
    state = member(release, Assignment(partitions=(T0,)).encode(), "cooperative-sticky")
    complete(state)
    first = state.assigned[T0]
    state.join_result = Assignment(partitions=(T1,)).encode()
    (revoked,) = complete(state)
    assert isinstance(revoked, c.RunCallback)
    assert (revoked.kind, revoked.partitions) == ("revoked", (T0,))
    assert state.added_partitions == (T1,)
    state.join_result = Assignment(partitions=(T0, T1)).encode()
    (assigned,) = complete(state)
    assert isinstance(assigned, c.RunCallback)
    assert (assigned.kind, assigned.partitions) == ("assigned", (T1,))
    # A partition that stays assigned keeps its state, and thus its position.
    assert state.assigned[T0] is first


def test_a_pattern_decides_whether_an_assigned_topic_matches() -> None:
    state = member(JAVA_4_3, Assignment(partitions=(T0, TopicPartition("t2", 0))).encode())
    state.pattern = "t.*"
    (callback,) = complete(state)
    assert isinstance(callback, c.RunCallback)
    assert state.topics == state.joined_topics == {"t", "t2"}
    matching = member(JAVA_4_3, Assignment(partitions=(TopicPartition("at", 0),)).encode())
    matching.pattern = "t.*"
    (log,) = complete(matching)
    assert isinstance(log, c.Notify)
    assert "Subscribe(t.*)" in log.text


# ---- onJoinPrepare

RELEASES = pytest.mark.parametrize("release", [java, java_2_6], ids=["4.3", "2.6"])


def kinds_of(consumer: JavaStage) -> list[str]:
    return [call.kind for call in consumer.actions_of(c.RunCallback)]


@RELEASES
@pytest.mark.rule("M78")
def test_a_cooperative_member_revokes_only_partitions_of_topics_that_it_no_longer_subscribes_to(
    release: ModuleType,
) -> None:
    consumer = JavaStage(release, assignors=("cooperative-sticky",)).stable(T0, U0)
    consumer.state.cluster.update(metadata_of(t=2, u=1))
    consumer.rebalance()
    (callback,) = consumer.actions_of(c.RunCallback)
    assert (callback.kind, callback.partitions) == ("revoked", (U0,))
    assert set(consumer.state.assigned) == {T0}
    assert len(consumer.requests_of("JoinGroup")) == 1


@RELEASES
def test_a_cooperative_member_that_keeps_its_topics_joins_without_a_callback(release: ModuleType) -> None:
    consumer = JavaStage(release, assignors=("cooperative-sticky",)).stable()
    consumer.rebalance()
    assert kinds_of(consumer) == []
    assert set(consumer.state.assigned) == {T0, T1}


@RELEASES
@pytest.mark.rule("M77")
def test_an_eager_member_without_partitions_is_called_with_none(release: ModuleType) -> None:
    consumer = JavaStage(release).stable()
    consumer.state.assigned = {}
    consumer.rebalance()
    (callback,) = consumer.actions_of(c.RunCallback)
    assert (callback.kind, callback.partitions) == ("revoked", ())


@RELEASES
@pytest.mark.rule("M76")
def test_a_lost_member_without_partitions_is_not_called(release: ModuleType) -> None:
    consumer = JavaStage(release).stable()
    consumer.state.assigned, consumer.state.generation = {}, JavaGeneration()
    consumer.rebalance()
    assert kinds_of(consumer) == []
    assert len(consumer.requests_of("JoinGroup")) == 1


def committing(release: ModuleType, **conf: object) -> JavaStage:
    """Return a member of a rebalancing group whose commit before the join is in flight."""
    consumer = JavaStage(release, auto_commit=True, auto_commit_ms=60_000, **conf).stable()
    consumer.do(c.RebalanceCalled())
    consumer.do(c.PollCalled(0))
    assert len(consumer.requests_of("OffsetCommit")) == 1
    assert kinds_of(consumer) == []
    return consumer


@RELEASES
@pytest.mark.rule("M75")
def test_a_member_without_positions_joins_without_a_commit(release: ModuleType) -> None:
    consumer = JavaStage(release, auto_commit=True, auto_commit_ms=60_000).stable()
    consumer.state.assigned = {}
    consumer.rebalance()
    assert consumer.requests_of("OffsetCommit") == []
    assert len(consumer.requests_of("JoinGroup")) == 1


@RELEASES
@pytest.mark.rule("M75")
@pytest.mark.parametrize("code", [0, 12, 22, 27, 29])
def test_the_join_follows_the_commit_although_it_failed_for_good(release: ModuleType, code: int) -> None:
    consumer = committing(release)
    consumer.return_callbacks(consumer.answer("OffsetCommit", committed(code)))
    consumer.poll()
    assert len(consumer.requests_of("OffsetCommit")) == 1
    assert len(consumer.requests_of("JoinGroup")) == 1


@RELEASES
@pytest.mark.rule("M75")
def test_a_retriable_error_of_the_commit_is_retried_after_the_backoff(release: ModuleType) -> None:
    consumer = committing(release)
    consumer.answer("OffsetCommit", committed(14))
    consumer.poll()
    consumer.wait(99)
    consumer.poll()
    assert len(consumer.requests_of("OffsetCommit")) == 1
    consumer.wait(1)
    consumer.poll()
    assert len(consumer.requests_of("OffsetCommit")) == 2
    assert consumer.requests_of("JoinGroup") == []
    consumer.return_callbacks(consumer.answer("OffsetCommit", committed(0)))
    consumer.poll()
    assert len(consumer.requests_of("JoinGroup")) == 1


@RELEASES
@pytest.mark.rule("M75")
def test_the_commit_is_retried_with_the_coordinator_that_is_looked_up_again(release: ModuleType) -> None:
    consumer = committing(release)
    consumer.answer("OffsetCommit", committed(16))
    consumer.wait(200)
    consumer.poll()
    (lookup,) = consumer.requests_of("FindCoordinator")
    assert lookup is not None
    assert len(consumer.requests_of("OffsetCommit")) == 1
    consumer.answer("FindCoordinator", found_coordinator())
    consumer.poll()
    consumer.wait(100)
    consumer.poll()
    assert len(consumer.requests_of("OffsetCommit")) == 2


@RELEASES
@pytest.mark.rule("M75")
@pytest.mark.parametrize("answered", [True, False])
def test_a_member_joins_when_the_rebalance_timeout_has_passed_without_a_commit(
    release: ModuleType, answered: bool
) -> None:
    """After max.poll.interval.ms the member stops retrying the commit, revokes and joins.

    In kafka-clients 2.6 the commit may block poll for max.poll.interval.ms. The heartbeat thread then leaves
    the group, and the partitions are lost.
    """
    consumer = committing(release, max_poll_ms=1_000)
    for _ in range(9):
        if answered and consumer.open:
            consumer.answer("OffsetCommit", committed(14))
        consumer.wait(100)
        consumer.poll()
    assert consumer.requests_of("JoinGroup") == []
    if answered and consumer.open:
        consumer.answer("OffsetCommit", committed(14))
    consumer.wait(100)
    consumer.return_callbacks(consumer.said[-1:])
    consumer.poll()
    assert kinds_of(consumer) == ["revoked" if release is java else "lost"]
    assert len(consumer.requests_of("JoinGroup")) == 1


@RELEASES
@pytest.mark.rule("M75")
def test_a_member_that_is_removed_during_the_commit_joins_with_an_empty_id(release: ModuleType) -> None:
    consumer = committing(release, heartbeat_ms=50)
    consumer.answer("OffsetCommit", committed(14))
    consumer.wait(50)
    consumer.answer("Heartbeat", HeartbeatResponse(error_code=25))
    for _ in range(5):
        consumer.wait(100)
        consumer.return_callbacks(consumer.said[-1:])
        consumer.poll()
    assert kinds_of(consumer) == ["lost"]
    assert [request.member_id for request in consumer.requests_of("JoinGroup")] == [""]


@pytest.mark.rule("M75")
def test_an_eager_4_3_returns_no_records_while_it_commits_before_a_join() -> None:
    for assignor, fetches in (("range", 0), ("cooperative-sticky", 1)):
        consumer = committing(java, assignors=(assignor,))
        consumer.poll()
        assert len(consumer.requests_of("Fetch")) == fetches
