"""The sticky assignors take a partition from its owner only to improve the balance."""

from __future__ import annotations

import pytest

from kproto.group.assignors import ASSIGNORS
from kproto.group.subscription import Subscription, cooperative_user_data, sticky_user_data
from tests.group.assignors.stage import (
    Plan,
    assign,
    moved_partitions,
    no_single_move_improves_the_balance,
    rejoined,
    text,
    tp,
    wants,
)
from tests.rules import rule

BOTH = pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])


def rounds(name: str, topics: dict[str, int], members: dict[str, Subscription]) -> dict[str, Subscription]:
    """Run three rebalances. Return the subscriptions with which the members would rejoin afterwards."""
    for generation in range(10, 13):
        plan = assign(name, topics, None, **members)
        members = rejoined(plan, members, generation)
    return members


def owned_partitions(members: dict[str, Subscription]) -> dict[str, str]:
    return {m: " ".join(sorted(map(str, partition.owned))) for m, partition in members.items()}


# Members that subscribe to the same topics


@rule("R193", "R196")
def test_the_extra_partition_goes_to_the_first_member() -> None:
    """Mirrors Kafka's testConsumerOwningMinQuotaExpectedMaxQuota."""
    plan = assign("sticky", {"t": 2, "u": 3}, a=wants("t u", "t-0 u-1", 1), b=wants("t u", "t-1 u-2", 1))
    assert text(plan) == {"a": "t-0 u-0 u-1", "b": "t-1 u-2"}


@rule("R196")
def test_one_of_too_many_large_members_loses_its_last_partition() -> None:
    """Mirrors Kafka's testMaxQuotaConsumerMoreThanNumExpectedMaxCapacityMembers."""
    members = {
        "a": wants("t u", "t-0 u-0", 1),
        "b": wants("t u", "t-1 u-1", 1),
        "c": wants("t u", "u-2 t-2", 1),
    }
    members["d"] = wants("t u")
    plan = assign("sticky", {"t": 3, "u": 3}, None, **members)
    assert sorted(len(partitions) for partitions in plan.values()) == [1, 1, 2, 2]
    assert len(moved_partitions(plan, members)) == 1


def test_a_member_below_its_quota_keeps_its_partitions_and_gets_more() -> None:
    """Mirrors Kafka's testAllConsumersAreUnderMinQuota."""
    plan = assign(
        "sticky", {"t": 2, "u": 3}, a=wants("t u", "t-0", 1), b=wants("t u", "t-1", 1), c=wants("t u")
    )
    assert text(plan) == {"a": "t-0 u-1", "b": "t-1 u-2", "c": "u-0"}


@BOTH
def test_a_new_member_gets_its_share_and_no_other_partition_moves(name: str) -> None:
    """Mirrors Kafka's testAddRemoveConsumerOneTopic, testReassignmentAfterOneConsumerAdded."""
    members = rounds(name, {"t": 6}, {"a": wants(), "b": wants()})
    before = owned_partitions(members)
    members = rounds(name, {"t": 6}, {**members, "c": wants()})
    after = owned_partitions(members)
    assert len(members["c"].owned) == 2
    assert all(set(after[m].split()) < set(before[m].split()) for m in "ab")


@BOTH
def test_partitions_of_a_leaving_member_are_shared_and_no_other_partition_moves(name: str) -> None:
    """Mirrors Kafka's testReassignmentAfterOneConsumerLeaves, testStickiness."""
    members = rounds(name, {"t": 8}, {m: wants() for m in "abcd"})
    before = owned_partitions(members)
    after = owned_partitions(
        rounds(name, {"t": 8}, {m: partition for m, partition in members.items() if m != "b"})
    )
    assert all(set(after[m].split()) > set(before[m].split()) for m in "ac")
    assert sorted(len(parts.split()) for parts in after.values()) == [2, 3, 3]


@BOTH
def test_a_new_member_gets_partitions_of_both_topics(name: str) -> None:
    """Mirrors Kafka's testTopicBalanceAfterReassignment."""
    members = rounds(name, {"t": 12, "u": 12}, {"a": wants("t u"), "b": wants("t u")})
    members = rounds(name, {"t": 12, "u": 12}, {**members, "c": wants("t u")})
    assert {partition.topic for partition in members["c"].owned} == {"t", "u"}


@BOTH
def test_two_members_join_and_two_leave(name: str) -> None:
    """Mirrors Kafka's testAddRemoveTwoConsumersTwoTopics."""
    topics = {"t": 3, "u": 4}
    members = rounds(name, topics, {"a": wants("t u"), "b": wants("t u")})
    members = rounds(name, topics, {**members, "c": wants("t u"), "d": wants("t u")})
    assert sorted(len(partition.owned) for partition in members.values()) == [1, 2, 2, 2]
    retained = owned_partitions(members)
    members = rounds(name, topics, {m: members[m] for m in "cd"})
    assert all(set(owned_partitions(members)[m].split()) >= set(retained[m].split()) for m in "cd")


@BOTH
def test_a_new_topic_is_shared_and_no_other_partition_moves(name: str) -> None:
    """Mirrors Kafka's testAddRemoveTopicTwoConsumers."""
    members = rounds(name, {"t": 3}, {"a": wants("t u"), "b": wants("t u")})
    before = owned_partitions(members)
    members = rounds(name, {"t": 3, "u": 3}, members)
    assert all(set(owned_partitions(members)[m].split()) > set(before[m].split()) for m in "ab")
    members = rounds(name, {"u": 3}, members)
    assert sorted(len(partition.owned) for partition in members.values()) == [1, 2]


@BOTH
def test_partitions_of_a_deleted_topic_are_not_assigned(name: str) -> None:
    """testAssignmentUpdatedForDeletedTopic, testNoExceptionThrownWhenOnlySubscribedTopicDeleted."""
    members = rounds(name, {"t": 1, "u": 3}, {"a": wants("t u")})
    assert owned_partitions(rounds(name, {"t": 1}, members)) == {"a": "t-0"}
    assert owned_partitions(rounds(name, {}, members)) == {"a": ""}


def test_the_last_partition_goes_to_the_empty_member() -> None:
    """Mirrors Kafka's testAllConsumersReachExpectedQuotaAndAreConsideredFilled."""
    plan = assign("sticky", {"t": 4}, a=wants("t", "t-0 t-1", 1), b=wants("t", "t-2", 1), c=wants("t", "", 1))
    assert text(plan) == {"a": "t-0 t-1", "b": "t-2", "c": "t-3"}


@BOTH
def test_two_hundred_members_stay_balanced_when_one_leaves(name: str) -> None:
    """Mirrors Kafka's testSameSubscriptions."""
    topics = {f"t{n}": n % 10 + 1 for n in range(1, 16)}
    everything = " ".join(sorted(topics))
    members = rounds(name, topics, {f"m{n:03}": wants(everything) for n in range(9)})
    del members["m005"]
    members = rounds(name, topics, members)
    sizes = [len(partition.owned) for partition in members.values()]
    assert max(sizes) - min(sizes) <= 1


# Reported owners and generations


@rule("R194")
@BOTH
@pytest.mark.parametrize("older", [1, None])
def test_the_older_of_two_reported_owners_is_ignored(name: str, older: int | None) -> None:
    """testOwnedPartitionsAreInvalidatedForConsumerWithStaleGeneration, ...WithNoGeneration."""
    members = {
        "a": wants("t u", "t-0 t-2 u-1", 5),
        "b": wants("t u", "t-1 u-0 u-2", 5),
        "c": wants("t u", "t-0 t-2 u-1", older),
    }
    plan = assign(name, {"t": 3, "u": 3}, None, **members)
    assert set(plan["a"]) <= {tp("t-0"), tp("t-2"), tp("u-1")}
    assert set(plan["b"]) <= {tp("t-1"), tp("u-0"), tp("u-2")}
    assert (len(plan["a"]), len(plan["b"])) == (2, 2)


@rule("R194", "R215")
@BOTH
def test_each_partition_stays_with_the_owner_of_the_newest_generation(name: str) -> None:
    """Mirrors Kafka's testEnsurePartitionsAssignedToHighestGeneration."""
    members = {
        "a": wants("t u v", "t-0 u-0 v-0", 10),
        "b": wants("t u v", "t-1 u-1 v-1 t-0 u-0 v-0", 9),
        "c": wants("t u v", "t-2 u-2 v-2 u-0", 8),
    }
    assert text(assign(name, {"t": 3, "u": 3, "v": 3}, None, **members)) == {
        "a": "t-0 u-0 v-0",
        "b": "t-1 u-1 v-1",
        "c": "t-2 u-2 v-2",
    }


@rule("R194")
@BOTH
def test_an_old_owner_without_a_newer_one_keeps_its_partitions(name: str) -> None:
    """Mirrors Kafka's testNoReassignmentOnCurrentMembers."""
    members = {
        "a": wants("t u", "t-0 u-0", 7),
        "b": wants("t u", "t-1 u-1", 5),
        "c": wants("t u", "", None),
    }
    plan = assign(name, {"t": 3, "u": 3}, None, **members)
    assert text(plan) == {"a": "t-0 u-0", "b": "t-1 u-1", "c": "t-2 u-2"}


@rule("R194")
@BOTH
def test_an_old_claim_without_a_newer_one_counts(name: str) -> None:
    members = {"a": wants("t", "t-0", 7), "b": wants("t", "t-2", 5), "c": wants("t")}
    assert text(assign(name, {"t": 3}, None, **members)) == {"a": "t-0", "b": "t-2", "c": "t-1"}


@rule("R194")
@BOTH
def test_a_newer_claim_counts_although_two_older_ones_cancel_each_other(name: str) -> None:
    members = {"a": wants("t", "t-0", 1), "b": wants("t", "t-0", 1), "c": wants("t", "t-0", 2)}
    assert text(assign(name, {"t": 3}, None, **members))["c"] == "t-0"


@BOTH
def test_the_newest_of_three_generations_has_the_partition(name: str) -> None:
    """Mirrors Kafka's testSubscriptionNotEqualAndAssignSamePartitionWith3Generation."""
    members = {
        "a": wants("t u", "t-0", 1),
        "b": wants("t v", "t-0", 2),
        "c": wants("t w", "t-0", 3),
    }
    plan = assign(name, {"t": 1, "u": 1, "v": 1, "w": 1}, None, **members)
    for m in "ab":
        assert tp("t-0") not in plan[m]


@rule("R194")
@pytest.mark.parametrize("topics", [{"t": 3}, {"t": 4}])
def test_a_partition_with_two_owners_in_one_generation_is_taken_from_both(topics: dict[str, int]) -> None:
    """CooperativeStickyAssignorTest.testAllConsumersHaveOwnedPartitionInvalidatedWhenClaimedBy...Equal..."""
    members = {"a": wants("t", "t-0 t-1", 1), "b": wants("t", "t-0 t-2", 1), "c": wants("t", "", 1)}
    plan = assign("cooperative-sticky", topics, None, **members)
    assert tp("t-0") not in [partition for partitions in plan.values() for partition in partitions]
    members = rejoined(plan, members, 2)
    plan = assign("cooperative-sticky", topics, None, **members)
    assert sum(map(len, plan.values())) == topics["t"]


def test_a_member_that_missed_a_generation_gets_back_unassigned_partitions() -> None:
    """Mirrors StickyAssignorTest.testAssignmentWithMultipleGenerations1."""
    topics = {"t": 6}
    first = assign("sticky", topics, a=wants(), b=wants(), c=wants())
    joined = rejoined(first, {"a": wants(), "b": wants(), "c": wants()}, 1)
    second = assign("sticky", topics, a=joined["a"], b=joined["b"])
    members = rejoined(second, {"a": wants(), "b": wants()}, 2)
    del members["a"]
    plan = assign("sticky", topics, b=members["b"], c=joined["c"])
    assert set(plan["b"]) <= set(members["b"].owned)
    assert len(plan["b"]) == len(plan["c"]) == 3


def test_conflicting_old_owners_do_not_disturb_the_balance() -> None:
    """Mirrors StickyAssignorTest.testAssignmentWithConflictingPreviousGenerations."""
    members = {
        "a": wants("t", "t-0 t-1 t-4", 1),
        "b": wants("t", "t-0 t-2 t-3", 1),
        "c": wants("t", "t-3 t-4 t-5", 2),
    }
    plan = assign("sticky", {"t": 6}, None, **members)
    assert sorted(len(partitions) for partitions in plan.values()) == [2, 2, 2]


# Owned partitions in user data (the assignor "sticky")


@rule("R212")
def test_the_sticky_assignor_reads_only_user_data() -> None:
    """Mirrors StickyAssignorTest.testMemberDataWillHonorUserData."""
    data = sticky_user_data([tp("t-1")], 3)
    members = {
        "a": Subscription(topics=("t",), owned=(tp("t-0"),), generation=9, user_data=data),
        "b": Subscription(topics=("t",)),
    }
    assert text(ASSIGNORS["sticky"].assign({"t": 2}, members, {})) == {"a": "t-1", "b": "t-0"}


@rule("R212")
def test_the_sticky_assignor_ignores_the_generation_of_the_subscription() -> None:
    members = {
        "a": Subscription(topics=("t",), generation=9, user_data=sticky_user_data([tp("t-0")], 3)),
        "b": Subscription(topics=("t",), generation=1, user_data=sticky_user_data([tp("t-0")], 4)),
    }
    assert text(ASSIGNORS["sticky"].assign({"t": 2}, members, {})) == {"a": "t-1", "b": "t-0"}


def test_the_sticky_assignor_reads_user_data_without_a_generation() -> None:
    """Mirrors StickyAssignorTest.testSchemaBackwardCompatibility."""
    members = {
        "a": Subscription(topics=("t",), user_data=sticky_user_data([tp("t-1")], 1)),
        "b": Subscription(topics=("t",), user_data=sticky_user_data([tp("t-0"), tp("t-1")], 1)[:-4]),
    }
    assert text(ASSIGNORS["sticky"].assign({"t": 2}, members, {})) == {"a": "t-1", "b": "t-0"}


@rule("R215")
@pytest.mark.parametrize("form", [cooperative_user_data(3), sticky_user_data([tp("t-1")], 3)])
def test_the_cooperative_assignor_reads_the_generation_of_older_members_from_user_data(form: bytes) -> None:
    """Mirrors Kafka's testMemberDataWithInconsistentData, testAssignorWithOldVersionSubscriptions."""
    members = {
        "a": Subscription(topics=("t",), owned=(tp("t-0"),), user_data=form),
        "b": Subscription(topics=("t",), owned=(tp("t-0"),), user_data=cooperative_user_data(2)),
    }
    assert tp("t-0") in ASSIGNORS["cooperative-sticky"].assign({"t": 2}, members, {})["a"]


def test_a_member_without_partitions_is_accepted_in_every_generation() -> None:
    """Mirrors CooperativeStickyAssignorTest.testMemberDataWithEmptyPartitionsAndHigherGeneration."""
    plan = assign("cooperative-sticky", {"t": 2}, a=wants("t", "", 9), b=wants("t", "t-0", 1))
    assert text(plan) == {"a": "t-1", "b": "t-0"}


# Partitions that stay unassigned until their owner has revoked them (cooperative-sticky)


@rule("R216")
def test_a_moved_partition_is_withheld_for_one_round() -> None:
    """Mirrors CooperativeStickyAssignorTest.testUniformSubscriptionTransferOwnershipListIsRight."""
    members = {"a": wants("t", "t-0 t-1 t-2 t-3", 1), "b": wants("t")}
    first = assign("cooperative-sticky", {"t": 4}, None, **members)
    assert text(first) == {"a": "t-0 t-1", "b": ""}
    second = assign("cooperative-sticky", {"t": 4}, None, **rejoined(first, members, 2))
    assert text(second) == {"a": "t-0 t-1", "b": "t-2 t-3"}


@rule("R217")
def test_a_partition_without_an_owner_is_assigned_at_once() -> None:
    members = {"a": wants("t", "t-0", 1), "b": wants("t")}
    assert text(assign("cooperative-sticky", {"t": 2}, None, **members)) == {"a": "t-0", "b": "t-1"}


def test_a_partition_moved_because_of_racks_is_withheld_for_one_round() -> None:
    racks = {"t": [frozenset("a"), frozenset("b")]}
    members = {"a": wants("t", "t-1", 1, rack_id="a"), "b": wants("t", "t-0", 1, rack_id="b")}
    first = assign("cooperative-sticky", {"t": 2}, racks, **members)
    assert text(first) == {"a": "", "b": ""}
    second = assign("cooperative-sticky", {"t": 2}, racks, **rejoined(first, members, 2))
    assert text(second) == {"a": "t-0", "b": "t-1"}


# Members that subscribe to different topics


@rule("R193", "R205")
@BOTH
def test_members_with_different_topics_share_the_common_ones(name: str) -> None:
    """Mirrors Kafka's testMultipleConsumersMixedTopicSubscriptions."""
    plan = assign(name, {"t": 3, "u": 2}, a=wants("t"), b=wants("t u"), c=wants("t"))
    assert text(plan) == {"a": "t-0 t-2", "b": "u-0 u-1", "c": "t-1"}


@rule("R208")
def test_the_sticky_assignor_is_balanced_where_round_robin_is_not() -> None:
    """Mirrors Kafka's testPoorRoundRobinAssignmentScenario."""
    members = {
        "a": wants("t1 t2 t3 t4 t5"),
        "b": wants("t1 t3 t5"),
        "c": wants("t1 t3 t5"),
        "d": wants("t1 t2 t3 t4 t5"),
    }
    plan = assign("sticky", {f"t{n}": 2 if n % 2 == 0 else 1 for n in range(1, 6)}, None, **members)
    assert sorted(len(partitions) for partitions in plan.values()) == [1, 2, 2, 2]


@rule("R193", "R208")
def test_a_new_topic_makes_partitions_move_towards_balance() -> None:
    """Mirrors Kafka's testNewSubscription, testMoveExistingAssignments."""
    members = {
        "a": wants("t u", "t-0 t-1 t-2 t-3", 1),
        "b": wants("t u v", "u-0", 1),
        "c": wants("u v", "", 1),
    }
    plan: Plan = assign("sticky", {"t": 4, "u": 2, "v": 1}, None, **members)
    no_single_move_improves_the_balance(members, plan)
    assert sorted(len(partitions) for partitions in plan.values()) == [2, 2, 3]


@rule("R193")
@BOTH
def test_members_with_different_topics_keep_their_partitions(name: str) -> None:
    members = {"a": wants("t", "t-1", 1), "b": wants("t u", "t-0 u-0", 1)}
    assert text(assign(name, {"t": 2, "u": 1}, None, **members)) == {"a": "t-1", "b": "t-0 u-0"}


@rule("R221")
def test_members_with_different_topics_do_not_swap_partitions() -> None:
    """Member b gives u-2 to member c, so b must not get another partition of topic u from c in exchange."""
    members = {
        "a": wants("t"),
        "b": wants("t u", "t-0 t-1 t-2 t-3 u-1 u-2", 5),
        "c": wants("t u", "u-0", 5),
    }
    plan = text(assign("sticky", {"t": 4, "u": 4}, None, **members))
    assert (plan["b"], plan["c"]) == ("t-2 t-3 u-1", "u-0 u-2 u-3")


def test_a_partition_moves_back_to_its_previous_owner() -> None:
    """A partition that moves goes to its previous owner rather than to the member with the fewest partitions.

    The partition t-0 moves from a to c, its previous owner, although b has the fewest partitions.
    """
    members = {
        "a": wants("t", "t-0 t-1 t-2", 5),
        "b": wants("t u"),
        "c": wants("t", "t-0", 4),
    }
    plan = assign("sticky", {"t": 3}, None, **members)
    assert tp("t-0") in plan["c"]


@rule("R205")
def test_racks_are_used_with_different_topics() -> None:
    """Mirrors Kafka's testRackAwareAssignmentWithNonEqualSubscription."""
    racks = {"t": [frozenset("a"), frozenset("b")], "u": [frozenset("b"), frozenset("a")]}
    plan = assign(
        "sticky",
        {"t": 2, "u": 2},
        racks,
        a=wants("t u", rack_id="a"),
        b=wants("t u", rack_id="b"),
        c=wants("x", rack_id="c"),
    )
    assert text(plan) == {"a": "t-0 u-1", "b": "t-1 u-0", "c": ""}


def test_racks_are_used_with_the_same_topics() -> None:
    """Mirrors Kafka's testRackAwareAssignmentWithUniformSubscription."""
    racks = {"t": [frozenset("b"), frozenset("a"), frozenset("b"), frozenset("a")]}
    plan = assign("sticky", {"t": 4}, racks, a=wants(rack_id="a"), b=wants(rack_id="b"))
    assert text(plan) == {"a": "t-1 t-3", "b": "t-0 t-2"}
