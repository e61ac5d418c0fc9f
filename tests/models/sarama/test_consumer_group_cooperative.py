"""A cooperative session: one for all generations; what is kept runs on."""

from __future__ import annotations

from kproto.group.subscription import Subscription, TopicPartition
from kproto.models.sarama import balance_strategy
from tests.models.sarama.stage import at, joined, moments, said, second

COOPERATIVE = {"assignors": ["cooperative-sticky"]}


def test_setup_and_cleanup_are_called_once_over_all_generations() -> None:
    stage, a = joined(4, **COOPERATIVE)
    b = second(stage, **COOPERATIVE)
    stage.run(3_000)
    b.tell("close")
    stage.run(5_000)
    a.tell("close")
    stage.run(2_000)
    assert [len(moments(a, word)) for word in ("setup", "cleanup")] == [1, 1]
    assert a.heard("assigned", times=6)


def test_kept_claims_run_on_and_revoked_ones_end_alone() -> None:
    stage, a = joined(4, **COOPERATIVE)
    second(stage, **COOPERATIVE)
    stage.run(3_000)
    assert sorted(line for *_, line in a.said if line.startswith("revoked")) == ["revoked t:0", "revoked t:1"]
    assert len(said(a, "OffsetFetch")) == 4


def test_revoked_claims_are_committed_with_the_new_generation_before_the_second_join() -> None:
    stage, a = joined(2, auto_commit_ms=60_000, **COOPERATIVE)
    second(stage, **COOPERATIVE)
    stage.run(3_000)
    commit = next(line for line in a.lines if line.api == "Commit")
    joins = [line for line in a.lines if line.api == "Join"]
    assert str(commit).startswith("Commit v8 gen=2 id=A1 t:0@5")
    assert joins[2].number < commit.number < joins[3].number


def test_the_second_join_has_no_reason_and_says_what_is_left() -> None:
    stage, a = joined(2, **COOPERATIVE)
    second(stage, **COOPERATIVE)
    stage.run(3_000)
    joins = [line.split("reason=")[1].split(" ->")[0] for line in said(a, "Join")]
    assert joins[2] == '"group is rebalancing" cooperative-sticky(v2 topics=t own=t:0,t:1 gen=1 ud=4b:1)'
    assert joins[3] == "null cooperative-sticky(v2 topics=t own=t:1 gen=2 ud=4b:2)"


def test_no_heartbeat_and_no_commit_between_join_and_sync() -> None:
    # TestOffsetManagerSetGeneration: commits wait for the next generation
    stage, a = joined(2, **COOPERATIVE)
    a.inject("Heartbeat", 27)
    a.hold("Join", 2_000)
    stage.run(until=lambda: len(said(a, "Join")) == 3)
    a.tell("commit")
    stage.run(3_000)
    between = [line for line in a.lines if at(a, "Join", 2) < line.now < at(a, "Sync", 1)]
    assert {line.api for line in between}.isdisjoint({"Heartbeat", "Commit"})
    assert a.heard("commit ok")


def test_a_claim_that_does_not_end_in_time_ends_the_session() -> None:
    # ErrRebalanceTimedOut
    stage, a = joined(2, max_poll_ms=1_500, **COOPERATIVE)
    a.polling = False
    stage.run(200)
    stage.produce("t", [0, 1], 3)
    stage.run(500)
    b = second(stage, **COOPERATIVE)
    stage.run(5_000)
    assert a.heard("error errors.errorString")
    assert b is not None
    a.polling = True
    stage.run(until=lambda: a.heard("cleanup"))
    assert a.heard("cleanup")


def test_losing_the_membership_with_claims_ends_consume() -> None:
    # TestConsumerGroupJoinSync: returns unknown membership when retained ownership is lost
    stage, a = joined(2, **COOPERATIVE)
    a.inject("Heartbeat", 27)
    a.inject("Join", 25)
    stage.run(6_000)
    assert a.heard("error KError(25)")
    assert a.heard("cleanup")
    assert said(a, "Join")[3].startswith("Join v8 id=- ")


def test_losing_the_membership_without_claims_joins_again() -> None:
    # TestConsumerGroupJoinSync: retries unknown membership when no assignment is retained
    stage, a = joined(1, **COOPERATIVE)
    b = second(stage, **COOPERATIVE)
    empty = next(one for one in (a, b) if not one.state.group.session.claims)
    empty.inject("Heartbeat", 27)
    empty.inject("Join", 25)
    stage.run(10_000)
    assert not empty.heard("error")
    assert not empty.heard("cleanup")


def test_a_sync_that_has_to_be_repeated_reports_the_generation_that_was_joined() -> None:
    stage, a = joined(2, **COOPERATIVE)
    a.inject("Heartbeat", 27)
    a.inject("Sync", 27)
    stage.run(6_000)
    assert "own=t:0,t:1 gen=2" in said(a, "Join")[3]


def test_growth_is_joined_without_ending_anything() -> None:
    stage, a = joined(2, metadata_ms=1_000, **COOPERATIVE)
    stage.grow("t", 3)
    stage.produce("t", [2], 4)
    assert stage.run(until=lambda: len(a.records) == 14)
    assert not a.heard("revoked")
    assert 'reason="partitions were added to a subscribed topic"' in said(a, "Join")[2]


def test_the_protocol_is_cooperative_only_if_all_strategies_are() -> None:
    stage, a = joined(2, assignors=["cooperative-sticky", "range"])
    second(stage, assignors=["cooperative-sticky", "range"])
    assert a.heard("assigned t:0 t:1")
    assert a.heard("revoked t:0 t:1")


def tp(*indexes: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("t", index) for index in indexes)


def test_owned_partitions_are_said_in_order_and_an_older_claim_loses() -> None:
    # TestSubscriptionMetadata: owned partitions are reported sorted
    data = balance_strategy.subscription("cooperative-sticky", ["t"], None, tp(2, 0, 1), 7, 7)
    assert Subscription.decode(data).owned == tp(0, 1, 2)
    old = Subscription(topics=("t",), owned=tp(0, 1, 2, 3), generation=3)
    new = Subscription(topics=("t",), owned=tp(0, 1), generation=4)
    plan = balance_strategy.divide("cooperative-sticky", {"old": old, "new": new}, {"t": 4})
    assert set(plan["new"]) == set(tp(0, 1))


def test_a_partition_that_changes_hands_is_given_to_nobody_first() -> None:
    has = Subscription(topics=("t",), owned=tp(0, 1, 2, 3), generation=1)
    plan = balance_strategy.divide(
        "cooperative-sticky", {"a": has, "b": Subscription(topics=("t",))}, {"t": 4}
    )
    assert plan == {"a": list(tp(2, 3)), "b": []}
