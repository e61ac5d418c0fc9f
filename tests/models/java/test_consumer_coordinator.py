"""The assignment that a member receives (ConsumerCoordinator.onJoinComplete), and what it loses."""

from __future__ import annotations

import pytest

from kproto.group.subscription import Assignment, TopicPartition
from kproto.models import contract as c
from kproto.models.java import consumer_coordinator
from kproto.models.java.release import JAVA_2_6, JAVA_4_3, JavaRelease
from kproto.models.java.state import JavaGeneration, JavaMemberState, JavaState, new_consumer

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
    assert state.assigned[T0] is first  # The position of a kept partition stays.


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
