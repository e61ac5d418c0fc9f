"""A cooperative session spans all generations. The claim of a kept partition continues."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kproto.group.subscription import Subscription, TopicPartition
from kproto.models import sarama
from kproto.models.sarama import (
    balance_strategy,
    consumer_group_session,
    offset_manager,
    sticky_balance_strategy,
)
from kproto.models.sarama.routines import Routine
from tests.models.sarama.stage import (
    USUAL,
    Mutate,
    add_second_member,
    assert_mutant_fails,
    requests_of,
    stage_with_member,
    time_of_request,
    times_printed,
)

COOPERATIVE = {"assignors": ["cooperative-sticky"]}


def test_setup_and_cleanup_are_called_once_for_all_generations() -> None:
    stage, a = stage_with_member(4, **COOPERATIVE)
    b = add_second_member(stage, **COOPERATIVE)
    stage.run(3_000)
    b.run_command("close")
    stage.run(5_000)
    a.run_command("close")
    stage.run(2_000)
    assert [len(times_printed(a, word)) for word in ("setup", "cleanup")] == [1, 1]
    assert a.has_printed("assigned", times=6)


def test_the_first_join_has_no_generation() -> None:
    _, a = stage_with_member(2, **COOPERATIVE)
    for join in requests_of(a, "Join"):
        assert "reason=null cooperative-sticky(v2 topics=t own=none gen=-1 ud=4b:-1)" in join


def test_kept_claims_continue_and_only_revoked_ones_end() -> None:
    stage, a = stage_with_member(4, **COOPERATIVE)
    add_second_member(stage, **COOPERATIVE)
    stage.run(3_000)
    assert sorted(line for *_, line in a.printed if line.startswith("revoked")) == [
        "revoked t:0",
        "revoked t:1",
    ]
    assert len(requests_of(a, "OffsetFetch")) == 4


def test_revoked_claims_are_committed_with_the_new_generation_before_the_second_join() -> None:
    stage, a = stage_with_member(2, auto_commit_ms=60_000, **COOPERATIVE)
    add_second_member(stage, **COOPERATIVE)
    stage.run(3_000)
    commit = next(line for line in a.lines if line.api == "Commit")
    joins = [line for line in a.lines if line.api == "Join"]
    assert str(commit).startswith("Commit v8 gen=2 id=A1 t:0@5")
    assert joins[2].number < commit.number < joins[3].number


def test_the_second_join_has_no_reason_and_reports_the_kept_partitions() -> None:
    stage, a = stage_with_member(2, **COOPERATIVE)
    add_second_member(stage, **COOPERATIVE)
    stage.run(3_000)
    joins = [line.split("reason=")[1].split(" ->")[0] for line in requests_of(a, "Join")]
    assert joins[2] == '"group is rebalancing" cooperative-sticky(v2 topics=t own=t:0,t:1 gen=1 ud=4b:1)'
    assert joins[3] == "null cooperative-sticky(v2 topics=t own=t:1 gen=2 ud=4b:2)"


def test_no_heartbeat_and_no_commit_between_join_and_sync() -> None:
    # As in sarama's TestOffsetManagerSetGeneration, commits wait for the next generation.
    stage, a = stage_with_member(2, **COOPERATIVE)
    a.inject("Heartbeat", 27)
    a.hold("Join", 2_000)
    stage.run(until=lambda: len(requests_of(a, "Join")) == 3)
    a.run_command("commit")
    stage.run(3_000)
    requests_during_join = [
        line for line in a.lines if time_of_request(a, "Join", 2) < line.now < time_of_request(a, "Sync", 1)
    ]
    assert {line.api for line in requests_during_join}.isdisjoint({"Heartbeat", "Commit"})
    assert a.has_printed("commit ok")


def test_a_claim_that_does_not_end_in_time_ends_the_session() -> None:
    # ErrRebalanceTimedOut
    stage, a = stage_with_member(2, max_poll_ms=1_500, **COOPERATIVE)
    a.polling = False
    stage.run(200)
    stage.produce("t", [0, 1], 3)
    stage.run(500)
    b = add_second_member(stage, **COOPERATIVE)
    stage.run(5_000)
    reason = "kafka: ConsumeClaim did not exit within Consumer.Group.Rebalance.Timeout of being revoked"
    assert a.has_printed(f"error errors.errorString {reason}")
    assert b is not None
    a.polling = True
    stage.run(until=lambda: a.has_printed("cleanup"))
    # Consume also returns the error, and the next JoinGroup contains it as its reason.
    assert stage.run(2_000, until=lambda: a.has_printed("setup", times=2))
    assert a.has_printed(f"error errors.errorString {reason}", times=2)
    assert f'reason="{reason}"' in requests_of(a, "Join")[3]


def test_a_member_with_claims_that_becomes_unknown_ends_consume() -> None:
    # The case "returns unknown membership when retained ownership is lost" of sarama's
    # TestConsumerGroupJoinSync.
    stage, a = stage_with_member(2, **COOPERATIVE)
    a.inject("Heartbeat", 27)
    a.inject("Join", 25)
    stage.run(6_000)
    assert a.has_printed("error KError(25)")
    assert a.has_printed("cleanup")
    assert requests_of(a, "Join")[3].startswith("Join v8 id=- ")


def test_a_member_without_claims_that_becomes_unknown_joins_again() -> None:
    # The case "retries unknown membership when no assignment is retained" of sarama's
    # TestConsumerGroupJoinSync.
    stage, a = stage_with_member(1, **COOPERATIVE)
    b = add_second_member(stage, **COOPERATIVE)
    empty = next(member for member in (a, b) if not member.state.group.session.claims)
    empty.inject("Heartbeat", 27)
    empty.inject("Join", 25)
    stage.run(10_000)
    assert not empty.has_printed("error")
    assert not empty.has_printed("cleanup")


def test_the_join_after_a_failed_sync_reports_the_generation_that_was_joined() -> None:
    stage, a = stage_with_member(2, **COOPERATIVE)
    a.inject("Heartbeat", 27)
    a.inject("Sync", 27)
    stage.run(6_000)
    assert "own=t:0,t:1 gen=2" in requests_of(a, "Join")[3]


def test_new_partitions_are_joined_without_ending_a_claim() -> None:
    stage, a = stage_with_member(2, metadata_ms=1_000, **COOPERATIVE)
    stage.grow("t", 3)
    stage.produce("t", [2], 4)
    assert stage.run(until=lambda: len(a.records) == 14)
    assert not a.has_printed("revoked")
    assert 'reason="partitions were added to a subscribed topic"' in requests_of(a, "Join")[2]


@pytest.mark.rule("R227")
def test_the_protocol_is_cooperative_only_if_all_strategies_are() -> None:
    stage, a = stage_with_member(2, assignors=["cooperative-sticky", "range"])
    add_second_member(stage, assignors=["cooperative-sticky", "range"])
    assert a.has_printed("assigned t:0 t:1")
    assert a.has_printed("revoked t:0 t:1")


def partitions_of(*indexes: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("t", index) for index in indexes)


def test_owned_partitions_are_sorted_and_an_older_claim_loses() -> None:
    # As in sarama's TestSubscriptionMetadata, the subscription lists the owned partitions in ascending order.
    data = balance_strategy.subscription("cooperative-sticky", ["t"], None, partitions_of(2, 0, 1), 7, 7)
    assert Subscription.decode(data).owned == partitions_of(0, 1, 2)
    old = Subscription(topics=("t",), owned=partitions_of(0, 1, 2, 3), generation=3)
    new = Subscription(topics=("t",), owned=partitions_of(0, 1), generation=4)
    plan = balance_strategy.assign_partitions("cooperative-sticky", {"old": old, "new": new}, {"t": 4})
    assert set(plan["new"]) == set(partitions_of(0, 1))


@pytest.mark.rule("R216", "R227")
def test_a_partition_that_changes_its_owner_is_assigned_to_no_member_first() -> None:
    current = Subscription(topics=("t",), owned=partitions_of(0, 1, 2, 3), generation=1)
    plan = balance_strategy.assign_partitions(
        "cooperative-sticky", {"a": current, "b": Subscription(topics=("t",))}, {"t": 4}
    )
    assert plan == {"a": list(partitions_of(2, 3)), "b": []}


def test_an_added_topic_whose_metadata_cannot_be_fetched_ends_the_session() -> None:
    stage, a = stage_with_member(4, **COOPERATIVE)
    b = stage.add_member("B", sarama, **{**USUAL, **COOPERATIVE})
    b.run_command("subscribe t")
    assert stage.run(until=lambda: len(requests_of(b, "Sync")) == 2)
    b.inject("Metadata", 29)
    stage.run(1_000)
    assert b.has_printed("error KError(29)")
    assert b.has_printed("cleanup")
    assert not a.has_printed("cleanup")


# -- mutants: mistakes in the model that a test must detect


def commit_during_the_join(patch: pytest.MonkeyPatch) -> None:
    def lock_generation(self: offset_manager.OffsetManager, routine: Routine) -> None:
        self.client.resume(routine, "commits_locked")

    patch.setattr(offset_manager.OffsetManager, "lock_generation", lock_generation)


def send_heartbeats_during_the_join(patch: pytest.MonkeyPatch) -> None:
    def lock_generation(self: consumer_group_session.GroupSession, routine: Routine) -> None:
        self.client.resume(routine, "generation_locked")

    patch.setattr(consumer_group_session.GroupSession, "lock_generation", lock_generation)


def assign_a_revoked_partition_immediately(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sticky_balance_strategy, "_withhold_revoked", lambda has, members: None)


def skip_the_commit_of_revoked_claims(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(offset_manager.OffsetManager, "build_request", lambda offsets, targets: None)


MUTANTS: list[tuple[Mutate, Callable[[], None]]] = [
    (commit_during_the_join, test_no_heartbeat_and_no_commit_between_join_and_sync),
    (send_heartbeats_during_the_join, test_no_heartbeat_and_no_commit_between_join_and_sync),
    (
        assign_a_revoked_partition_immediately,
        test_a_partition_that_changes_its_owner_is_assigned_to_no_member_first,
    ),
    (
        skip_the_commit_of_revoked_claims,
        test_revoked_claims_are_committed_with_the_new_generation_before_the_second_join,
    ),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("mutate", "test"), MUTANTS, ids=[mutate.__name__ for mutate, _ in MUTANTS])
def test_each_mutant_fails_its_test(mutate: Mutate, test: Callable[[], None]) -> None:
    assert_mutant_fails(mutate, test)
