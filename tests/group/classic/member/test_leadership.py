"""The leader awaits and watches metadata, assigns partitions, and sends the initial partition counts."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproto.error_codes import ErrorCode
from kproto.errors import IllegalState, UnsupportedVersion
from kproto.group.assignors import ASSIGNORS, Assignor
from kproto.group.classic.member import (
    KPROTO,
    MetadataUpdated,
    Policy,
    Received,
    SendFailed,
    SendRefused,
    WantMetadata,
    leadership,
)
from kproto.group.classic.member.reasons import EMPTY_BY_MISTAKE, NOT_OUR_PLAN
from kproto.group.protocol import RevokePurpose
from kproto.group.subscription import Assignment, TopicPartition
from kproto.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.sync_group import SyncGroupRequest
from tests.group.classic.member.stage import (
    COOPERATIVE,
    EAGER,
    AdoptAssignment,
    Fatal,
    Lose,
    MemberState,
    Revoke,
    Solo,
    Subscription,
    parts,
)
from tests.rules import rule

CHANGED = "cached metadata has changed"


def wants(*topics: str, **fields: object) -> Subscription:
    return Subscription(topics=topics, **fields)  # type: ignore[arg-type]


# Assignment


@rule("M80")
def test_the_leader_assigns_partitions_to_all_members() -> None:
    """Mirrors ConsumerCoordinatorTest.testNormalJoinGroupLeader."""
    solo = Solo().joining()
    plan = solo.become_leader(you=wants("t"))
    assert {member: a.partitions for member, a in plan.items()} == {
        "me": parts("t", 0, 1),
        "you": parts("t", 2),
    }
    assert solo.pop_action(AdoptAssignment).owned == parts("t", 0, 1)


@rule("M80")
def test_every_member_gets_an_assignment_even_an_empty_one() -> None:
    plan = Solo(topics={"t": 1}).joining().become_leader(you=wants("t"), zoe=wants())
    assert {member: len(a.partitions) for member, a in plan.items()} == {"me": 1, "you": 0, "zoe": 0}


@rule("M80")
def test_the_leader_uses_the_assignor_that_the_group_selected() -> None:
    solo = Solo(("range", "roundrobin"), {"t": 4}).joining()
    mine = wants("t")
    solo.answer_join(members={"me": mine, "you": mine}, protocol="roundrobin")
    assert solo.sync_own_plan()["me"].partitions == parts("t", 0, 2)


@rule("M80", "M200")
def test_the_leader_waits_for_metadata_of_topics_that_only_others_subscribe() -> None:
    """The leader requests metadata of all topics to which members subscribe, and assigns only afterwards.

    Kafka's test is ConsumerCoordinatorTest.testNormalJoinGroupLeader.
    """
    solo = Solo().joining()
    solo.answer_join(members={"me": wants("t"), "you": wants("u")})
    assert solo.pop_action(WantMetadata).topics == {"t", "u"}
    assert solo.state is MemberState.ASSIGNING
    assert not solo.has_request(SyncGroupRequest)
    solo.apply(MetadataUpdated({"t": 3, "u": 2}, requested=frozenset({"t", "u"})))
    assert solo.sync_own_plan()["you"].partitions == parts("u", 0, 1)
    assert solo.member.topics_of_interest == {"t", "u"}


@rule("M80")
def test_metadata_of_other_topics_does_not_end_the_wait() -> None:
    solo = Solo().joining()
    solo.answer_join(members={"me": wants("t"), "you": wants("u")})
    solo.apply(MetadataUpdated({"t": 3}, requested=frozenset({"t"})))
    assert solo.state is MemberState.ASSIGNING


@rule("M80")
def test_a_topic_that_does_not_exist_is_not_assigned() -> None:
    solo = Solo().joining()
    solo.answer_join(members={"me": wants("t"), "you": wants("nope")})
    solo.apply(MetadataUpdated({"t": 3}, requested=frozenset({"t", "nope"})))
    assert solo.sync_own_plan()["you"].partitions == ()


@rule("M7")
def test_heartbeats_are_sent_while_the_leader_waits_for_metadata() -> None:
    solo = Solo().joining()
    solo.answer_join(members={"me": wants("t"), "you": wants("u")})
    solo.next_heartbeat()


@rule("M59")
def test_a_heartbeat_error_ends_the_wait_for_metadata() -> None:
    solo = Solo().joining()
    solo.answer_join(members={"me": wants("t"), "you": wants("u")})
    solo.answer_heartbeat(25)
    solo.pop_request(JoinGroupRequest)
    solo.apply(MetadataUpdated({"t": 3, "u": 1}))
    assert not solo.has_request(SyncGroupRequest)


def test_a_member_with_unreadable_metadata_gets_no_partitions() -> None:
    group = leadership.decode_subscriptions([("a", None, b"\0"), ("b", None, wants("t").encode())])
    assert (group["a"].topics, group["b"].topics) == ((), ("t",))


def test_equal_metadata_is_decoded_once() -> None:
    data = wants("t").encode()
    group = leadership.decode_subscriptions([("a", None, data), ("b", None, data)])
    assert group["a"] is group["b"]


@rule("M55")
def test_an_assignor_that_fails_is_fatal() -> None:
    def broken(*_: object) -> dict[str, list[TopicPartition]]:
        raise ZeroDivisionError("division by zero")

    solo = Solo((Assignor("mine", broken),)).joining()  # type: ignore[arg-type]
    solo.answer_join(members={"me": wants("t")})
    error = solo.pop_action(Fatal).error
    assert isinstance(error, IllegalState)
    assert "mine" in str(error)
    assert "division by zero" in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)


@rule("M55")
@pytest.mark.parametrize("user_data", [lambda *_: "text", lambda *_: 1 // 0], ids=["a text", "raises"])
def test_an_assignor_that_fails_to_make_user_data_is_fatal_and_retried_by_the_next_poll(
    user_data: Any,
) -> None:
    """If an assignor cannot create user data, poll reports the error, and the next poll tries again.

    The assignor's exception must not end the consumer's thread.
    """
    solo = Solo((Assignor("mine", ASSIGNORS["range"].assign, user_data),))
    solo.subscribe("t")
    solo.find_coordinator()
    error = solo.pop_action(Fatal).error
    assert isinstance(error, IllegalState)
    assert "the assignor 'mine' failed" in str(error)
    assert solo.state is MemberState.FAILED
    solo.actions.clear()
    solo.poll()
    assert "the assignor 'mine' failed" in str(solo.pop_action(Fatal).error)


@rule("M80")
def test_a_cooperative_assignor_must_not_move_a_partition_in_one_step() -> None:
    """Mirrors ConsumerCoordinatorTest.testPerformAssignmentShouldValidateCooperativeAssignment."""
    mine = Assignor("mine", ASSIGNORS["sticky"].assign, cooperative=True)
    solo = Solo((mine,)).joining()  # type: ignore[arg-type]
    solo.answer_join(members={"me": wants("t"), "you": wants("t", owned=parts("t", 0, 1, 2), generation=0)})
    assert solo.has_action(Fatal)


@rule("M80")
def test_the_cooperative_sticky_assignor_is_not_checked() -> None:
    """Mirrors Kafka's ...ShouldSkipValidateCooperativeAssignmentForBuiltInCooperativeStickyAssignor."""
    held = wants("t", owned=parts("t", 0, 1, 2), generation=0)
    solo = Solo(COOPERATIVE).joining()
    solo.answer_join(members={"me": wants("t"), "you": held})
    assert sorted(len(a.partitions) for a in solo.sync_own_plan().values()) == [0, 2]


@rule("M80")
def test_a_restarted_static_leader_sends_no_assignment_but_watches_metadata() -> None:
    """testOnLeaderElectedShouldSkipAssignment, testStaticLeaderRejoinsGroupAndCanTriggersRebalance."""
    solo = Solo(group_instance_id="i").joining()
    solo.answer_join(members={"me": wants("t"), "you": wants("u")}, skip=True, generation=3)
    solo.apply(MetadataUpdated({"t": 3, "u": 1}))
    request = solo.pop_request(SyncGroupRequest)
    assert request.assignments == []
    solo.answer_sync(*parts("t", 0), request=request)
    solo.apply(MetadataUpdated({"t": 3, "u": 2}))
    solo.release()
    assert solo.reasons[-1] == CHANGED


@pytest.mark.parametrize("ours", [False, True])
def test_a_dynamic_leader_ignores_skip_assignment(ours: bool) -> None:
    """With `check_inherited_plan`, a dynamic leader assigns even if the response says to skip the assignment.

    Without this policy the leader skips the assignment, as Java's leader does, so no member owns a partition.
    """
    solo = Solo(policy=Policy(check_inherited_plan=ours)).joining()
    solo.answer_join(members={"me": wants("t")}, skip=True, generation=3)
    planned = [member.member_id for member in solo.pop_request(SyncGroupRequest).assignments]
    assert planned == (["me"] if ours else [])


CHECKS: dict[str, Any] = {"group_instance_id": "i", "policy": Policy(check_inherited_plan=True)}
FORMER = "i-c56a4180-65aa-42ec-a945-5fd21dec0538"


def described(*assignments: bytes, code: int = 0) -> DescribeGroupsResponse:
    members = [
        DescribedGroupMember(
            member_id="x", client_id="", client_host="", member_metadata=b"", member_assignment=member
        )
        for member in assignments
    ]
    group = DescribedGroup(
        group_id="g",
        error_code=code,
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=members,
    )
    return DescribeGroupsResponse(groups=[group])


def has(topic: str, *numbers: int) -> bytes:
    return Assignment(partitions=parts(topic, *numbers)).encode()


@pytest.mark.parametrize(
    ("answer", "rejoins"),
    [
        (described(has("t", 0, 1, 2), has("t", 3, 4)), False),
        (described(has("t", 0, 1, 2, 3, 4), has("gone", 0), b""), False),
        (described(has("t", 0, 1, 2)), True),
        (described(has("t", *range(6))), True),
        (described(b"\0"), True),
        (described(code=ErrorCode.GROUP_AUTHORIZATION_FAILED), True),
        (UnsupportedVersion("DescribeGroups", -1, "the broker doesn't know it"), True),
    ],
)
def test_a_restarted_static_leader_checks_whether_the_assignment_is_complete(
    answer: DescribeGroupsResponse | UnsupportedVersion, rejoins: bool
) -> None:
    """A restarted static leader checks whether the group's assignment is complete.

    Java assumes that the assignment was made with the current metadata. Partitions that were created while
    the leader was down therefore get no owner until the next rebalance.
    """
    solo = Solo(COOPERATIVE, topics={"t": 5}, **CHECKS).joining()
    solo.answer_join(members={"me": wants("t"), "you": wants("t")}, skip=True, generation=7)
    solo.answer_sync(*parts("t", 0, 1, 2))
    assert not solo.has_request(DescribeGroupsRequest)
    solo.answer_heartbeat()
    request = solo.pop_request(DescribeGroupsRequest)
    assert request.groups == ["g"]
    if isinstance(answer, DescribeGroupsResponse):
        solo.apply(Received(request, answer))
    else:
        solo.apply(SendRefused(request, answer))
    assert (CHANGED in solo.reasons) is rejoins
    if not rejoins:
        solo.answer_heartbeat()
        assert not solo.has_request(DescribeGroupsRequest)
        solo.apply(MetadataUpdated({"t": 6}))
        assert solo.reasons[-1] == CHANGED


def test_a_restarted_static_leader_asks_until_it_receives_a_response() -> None:
    solo = Solo(COOPERATIVE, topics={"t": 5}, **CHECKS).joining()
    solo.answer_join(members={"me": wants("t")}, skip=True, generation=7)
    solo.answer_sync(*parts("t", 0, 1, 2))
    solo.answer_heartbeat()
    solo.apply(SendFailed(solo.pop_request(DescribeGroupsRequest)))
    solo.answer_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    solo.release()
    solo.answer_join(members={"me": wants("t")}, skip=True, generation=7)
    solo.answer_sync(*parts("t", 0, 1, 2))
    solo.answer_heartbeat()
    solo.apply(Received(solo.pop_request(DescribeGroupsRequest), described(has("t", 0, 1, 2))))
    assert solo.reasons[-1] == CHANGED


def test_a_member_that_no_longer_leads_does_not_check_the_assignment() -> None:
    solo = Solo(COOPERATIVE, topics={"t": 5}, **CHECKS).joining()
    solo.answer_join(members={"me": wants("t")}, skip=True, generation=7)
    solo.answer_sync(*parts("t", 0, 1, 2))
    solo.answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    solo.answer_join(leader="you", generation=8)
    solo.answer_sync(*parts("t", 0, 1, 2), request=solo.member.rebalance_request)
    solo.answer_heartbeat()
    assert not solo.has_request(DescribeGroupsRequest)


def test_a_leader_that_has_assigned_itself_does_not_check_the_assignment() -> None:
    solo = Solo(COOPERATIVE, **CHECKS).leading()
    solo.answer_heartbeat()
    assert not solo.has_request(DescribeGroupsRequest)


def test_a_leader_rejoins_if_its_assignment_is_not_the_one_that_it_has_sent() -> None:
    solo = Solo(policy=KPROTO).joining()
    solo.answer_join(members={"me": wants("t")})
    solo.answer_sync()
    assert solo.member.rejoin_reason == NOT_OUR_PLAN
    solo.release()
    solo.answer_join(members={"me": wants("t")}, generation=2)
    solo.sync_own_plan()
    assert solo.member.owned == parts("t", 0, 1, 2)


def follower_without_partitions(**options: Any) -> Solo:
    solo = Solo(topics={"t": 2}, policy=KPROTO, **options).joining()
    solo.answer_join()
    solo.answer_sync()
    assert not solo.has_request(DescribeGroupsRequest)
    return solo


@pytest.mark.parametrize(
    ("owners", "rejoins"),
    [
        ({"me": b"", "you": has("t", 0, 1)}, False),
        # The owner is revoking the other partition.
        ({"me": b"", "you": has("t", 0)}, False),
        # Another member is the leader, but does not know it and has sent no assignment.
        ({"me": b"", "you": b""}, True),
        # This member owns t-1, but its SyncGroup response was empty.
        ({"me": has("t", 1), "you": has("t", 0)}, True),
        ({"me": b"", "you": has("other", 0)}, True),
        ({"you": has("t", 0, 1)}, False),
        ({"me": b"\0"}, False),
    ],
)
def test_a_follower_without_partitions_checks_the_group_once(owners: dict[str, bytes], rejoins: bool) -> None:
    solo = follower_without_partitions()
    solo.answer_heartbeat()
    answer = described(*owners.values())
    for member, name in zip(answer.groups[0].members, owners, strict=True):
        member.member_id = name
    solo.apply(Received(solo.pop_request(DescribeGroupsRequest), answer))
    assert (solo.member.rejoin_reason == EMPTY_BY_MISTAKE) is rejoins
    if rejoins:
        solo.release()
        solo.answer_join(generation=2)
        solo.answer_sync()
    solo.answer_heartbeat()
    assert not solo.has_request(DescribeGroupsRequest)


def test_a_follower_checks_again_after_it_has_owned_partitions() -> None:
    solo = follower_without_partitions()
    solo.answer_heartbeat()
    solo.apply(Received(solo.pop_request(DescribeGroupsRequest), described(b"")))
    solo.answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    solo.release()
    solo.answer_join(generation=2)
    solo.answer_sync(*parts("t", 0))
    solo.answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    solo.release()
    solo.answer_join(generation=3)
    solo.answer_sync()
    solo.answer_heartbeat()
    assert solo.has_request(DescribeGroupsRequest)


def test_a_follower_of_a_missing_topic_does_not_rejoin() -> None:
    solo = follower_without_partitions()
    solo.apply(MetadataUpdated({}))
    solo.answer_heartbeat()
    answer = described(b"")
    answer.groups[0].members[0].member_id = "me"
    solo.apply(Received(solo.pop_request(DescribeGroupsRequest), answer))
    assert not solo.member.rejoin_needed


@pytest.mark.parametrize(
    ("named", "leads"), [(FORMER, True), ("i-1" + FORMER[1:], False), ("i-x", False), ("", False)]
)
def test_a_static_leader_recognizes_its_former_member_id_below_join_group_v9(named: str, leads: bool) -> None:
    """A static member leads if a JoinGroup response below v9 names its former id as leader.

    Java's member compares only its new member id with the leader's id, and so considers itself a follower.
    Then no member of the group watches the metadata.
    """
    solo = Solo(COOPERATIVE, **CHECKS).joining()
    solo.answer_join(member_id="i-" + "0" * 36, leader=named or None, generation=7)
    assert solo.pop_request(SyncGroupRequest).assignments == []
    assert solo.member.is_leader is leads
    solo.answer_sync(*parts("t", 0, 1, 2), request=solo.member.rebalance_request)
    solo.apply(MetadataUpdated({"t": 4}))
    assert (CHANGED in solo.reasons) is leads


def test_javas_static_leader_does_not_check_the_assignment() -> None:
    solo = Solo(COOPERATIVE, topics={"t": 5}, group_instance_id="i").joining()
    solo.answer_join(leader=FORMER, generation=7)
    assert not solo.member.is_leader
    solo.answer_sync(*parts("t", 0, 1, 2))
    solo.answer_heartbeat()
    assert not solo.has_request(DescribeGroupsRequest)


# How the leader watches the topics' metadata


@rule("M19", "M92", "M93")
@pytest.mark.parametrize("counts", [{"t": 4}, {"t": 2}, {}])
def test_a_leader_rejoins_when_the_number_of_partitions_changes(counts: dict[str, int]) -> None:
    """Mirrors Kafka's testRebalanceWithMetadataChange, testMetadataChangeTriggersRebalance."""
    solo = Solo(COOPERATIVE).leading()
    solo.apply(MetadataUpdated(counts))
    assert solo.pop_request(JoinGroupRequest).reason == CHANGED


@rule("M77")
def test_an_eager_leader_revokes_before_it_rejoins_for_new_partitions() -> None:
    solo = Solo(EAGER).leading()
    solo.apply(MetadataUpdated({"t": 4}))
    revoke = solo.pop_action(Revoke)
    assert (revoke.partitions, revoke.reason) == (parts("t", 0, 1, 2), CHANGED)
    assert revoke.purpose is RevokePurpose.JOIN
    assert not solo.has_request(JoinGroupRequest)


@rule("M92")
def test_unchanged_metadata_causes_no_rejoin() -> None:
    solo = Solo().leading()
    solo.apply(MetadataUpdated({"t": 3, "other": 9}))
    assert solo.actions == []


@rule("M81", "M92")
def test_the_leader_watches_topics_that_only_others_subscribe() -> None:
    """Mirrors Kafka's testStaticLeaderRejoinsGroupAndCanDetectMetadataChangesForOtherMembers."""
    solo = Solo(COOPERATIVE, {"t": 3, "u": 1}).leading(you=wants("u"))
    solo.apply(MetadataUpdated({"t": 3, "u": 2}))
    assert solo.pop_request(JoinGroupRequest).reason == CHANGED


@rule("M81", "M93")
def test_followers_do_not_watch_metadata() -> None:
    solo = Solo().stable()
    solo.apply(MetadataUpdated({"t": 9}))
    assert solo.actions == []


@rule("M93")
def test_followers_watch_metadata_if_the_policy_says_so() -> None:
    solo = Solo(COOPERATIVE, policy=Policy(every_member_watches=True)).stable()
    solo.apply(MetadataUpdated({"t": 9}))
    assert solo.pop_request(JoinGroupRequest).reason == CHANGED


@rule("M81", "M82")
def test_leadership_ends_with_the_next_join() -> None:
    solo = Solo(COOPERATIVE).leading()
    solo.apply(MetadataUpdated({"t": 4}))
    solo.answer_join(generation=2)
    solo.answer_sync(*parts("t", 0, 1, 2))
    assert solo.state is MemberState.STABLE
    solo.actions.clear()
    solo.apply(MetadataUpdated({"t": 5}))
    assert solo.actions == []


@rule("M94")
def test_partitions_created_during_sync_group_cause_a_second_rebalance() -> None:
    """Mirrors ConsumerCoordinatorTest.testUpdateMetadataDuringRebalance."""
    solo = Solo(COOPERATIVE).joining()
    solo.answer_join(members={"me": wants("t")})
    request = solo.pop_request(SyncGroupRequest)
    solo.apply(MetadataUpdated({"t": 4}))
    solo.answer_sync(*parts("t", 0, 1, 2), request=request)
    assert solo.pop_action(AdoptAssignment).owned == parts("t", 0, 1, 2)
    assert solo.pop_request(JoinGroupRequest).reason == CHANGED


@rule("M92")
def test_a_topic_that_reappears_causes_a_rebalance() -> None:
    """Mirrors ConsumerCoordinatorTest.testRebalanceAfterTopicUnavailableWithSubscribe."""
    solo = Solo(COOPERATIVE, {"u": 1}).joining("t")
    solo.answer_join(members={"me": wants("t")})
    solo.apply(MetadataUpdated({}, requested=frozenset({"t"})))
    solo.sync_own_plan()
    solo.actions.clear()
    solo.apply(MetadataUpdated({"t": 1}))
    assert solo.pop_request(JoinGroupRequest).reason == CHANGED


def test_partial_metadata_does_not_change_other_topics() -> None:
    solo = Solo(COOPERATIVE, {"t": 3, "u": 1}).leading("t", "u")
    solo.apply(MetadataUpdated({"u": 1}, requested=frozenset({"u"})))
    assert solo.actions == []


@rule("M116")
def test_a_leader_with_a_pattern_gives_changed_metadata_as_its_reason() -> None:
    """If a leader's pattern matches new topics, its JoinGroup says that the metadata changed.

    As in Java, the reason is changed metadata even if the subscription has also changed.
    """
    solo = Solo(COOPERATIVE, {"t1": 1}).joining("t1", pattern="t.")
    solo.become_leader()
    solo.subscribe("t1", "t2", pattern="t.")
    assert solo.pop_request(JoinGroupRequest).reason == CHANGED


RACKS = {"t": tuple(frozenset({rack}) for rack in "aab")}
CASES = [
    (
        "a",
        {"t": tuple(frozenset({rack}) for rack in "abb")},
        True,
        "testRackAwareConsumerRebalanceWithDifferentRacks",
    ),
    (
        None,
        {"t": tuple(frozenset({r}) for r in "abb")},
        False,
        "testNonRackAwareConsumerRebalanceWithDifferentRacks",
    ),
    (
        "a",
        {"t": tuple(map(frozenset, ("ac", "a", "b")))},
        True,
        "testRackAwareConsumerRebalanceWithAdditionalRacks",
    ),
    ("a", {"t": tuple(map(frozenset, ("", "a", "b")))}, True, "testRackAwareConsumerRebalanceWithLessRacks"),
    ("a", RACKS, False, "testRackAwareConsumerRebalanceWithNoRackChange"),
]


@rule("M92")
@pytest.mark.parametrize(("rack", "later", "rejoins", "name"), CASES, ids=[case[3] for case in CASES])
def test_changed_racks_cause_a_rejoin_if_the_member_has_a_rack(
    rack: str | None, later: dict[str, tuple[frozenset[str], ...]], rejoins: bool, name: str
) -> None:
    solo = Solo(COOPERATIVE, rack_id=rack)
    solo.apply(MetadataUpdated({"t": 3}, racks=RACKS))
    solo.leading()
    solo.apply(MetadataUpdated({"t": 3}, racks=later))
    assert solo.has_request(JoinGroupRequest) is rejoins


# Initial partition counts


def existed(user_data: bytes | None) -> dict[str, int]:
    initial_counts = leadership.decode_initial_counts(user_data)
    assert initial_counts is not None
    return initial_counts


@rule("M206")
def test_the_leader_sends_the_initial_partition_counts_to_all_members() -> None:
    plan = Solo().joining().become_leader(you=wants("t"))
    assert existed(plan["you"].user_data) == {"t": 3}


@rule("M206")
def test_partitions_beyond_the_initial_count_are_new() -> None:
    solo = Solo(topics={"t": 5}).syncing(generation=8)
    solo.answer_sync(*parts("t", 0, 3, 4), user_data=leadership.encode_initial_counts({"t": 3}))
    assign = solo.pop_action(AdoptAssignment)
    assert assign.new == set(parts("t", 3, 4))
    assert (assign.first, assign.initial_counts) == (False, {"t": 3})


@rule("M206")
def test_no_partition_is_new_if_the_initial_counts_are_unknown() -> None:
    solo = Solo().syncing(generation=8)
    solo.answer_sync(*parts("t", 0, 1))
    assert solo.pop_action(AdoptAssignment).new == frozenset()


@rule("M206")
def test_a_later_leader_passes_on_the_initial_counts() -> None:
    solo = Solo(COOPERATIVE, topics={"t": 5}).syncing(generation=8)
    solo.answer_sync(*parts("t", 0), user_data=leadership.encode_initial_counts({"t": 3}))
    solo.actions.clear()
    solo.answer_heartbeat(27)
    plan = solo.become_leader(9)
    assert existed(plan["me"].user_data) == {"t": 3}


@rule("M206")
def test_a_leader_without_initial_counts_adds_none_in_a_later_generation() -> None:
    plan = Solo().joining().become_leader(7)
    assert existed(plan["me"].user_data) == {}


@rule("M206")
def test_a_group_that_starts_again_counts_again() -> None:
    solo = Solo(COOPERATIVE).leading()
    solo.apply(MetadataUpdated({"t": 5}))
    solo.answer_join(25)
    solo.release()
    plan = solo.become_leader(1)
    assert existed(plan["me"].user_data) == {"t": 5}


@rule("M206")
def test_all_partitions_of_a_topic_that_did_not_exist_are_new() -> None:
    solo = Solo(COOPERATIVE, {}).joining("t")
    solo.answer_join(members={"me": wants("t")}, generation=3)
    solo.apply(MetadataUpdated({}, requested=frozenset({"t"})))
    solo.sync_own_plan()
    solo.actions.clear()
    solo.apply(MetadataUpdated({"t": 2}))
    solo.become_leader(4)
    assert solo.pop_action(AdoptAssignment).new == set(parts("t", 0, 1))


@rule("M206")
def test_a_topic_that_appeared_under_a_pattern_is_new_if_all_topics_were_known() -> None:
    solo = Solo(COOPERATIVE)
    solo.apply(MetadataUpdated({"t1": 1}, complete=True))
    solo.joining("t1", pattern="t.")
    solo.become_leader()
    solo.apply(MetadataUpdated({"t1": 1, "t2": 2}, complete=True))
    solo.subscribe("t1", "t2", pattern="t.")
    solo.actions = [action for action in solo.actions if not isinstance(action, AdoptAssignment)]
    solo.become_leader(2)
    assert solo.pop_action(AdoptAssignment).new == set(parts("t2", 0, 1))


@rule("M206")
def test_a_topic_that_is_subscribed_later_is_not_known_to_be_new() -> None:
    solo = Solo(COOPERATIVE, {"t": 1, "u": 1}).leading("t")
    solo.subscribe("t", "u")
    solo.become_leader(2)
    assert solo.pop_action(AdoptAssignment).new == frozenset()


@rule("M206")
def test_a_recreated_topic_has_only_new_partitions() -> None:
    old, new = UUID(int=1), UUID(int=2)
    before = MetadataUpdated({"t": 3}, ids={"t": old})
    metadata = MetadataUpdated({"t": 2}, ids={"t": new})
    assert leadership.update_initial_counts({"t": 3}, ["t"], metadata, before, False) == {"t": 0}
    assert leadership.update_initial_counts({"t": 3}, ["t"], before, before, False) == {"t": 3}


def test_user_data_of_other_clients_has_no_initial_counts() -> None:
    data = leadership.encode_initial_counts({"t": 3})
    assert leadership.decode_initial_counts(None) is None
    assert leadership.decode_initial_counts(b"\0\0\0\0") is None
    assert leadership.decode_initial_counts(data[:-1]) is None
    assert leadership.decode_initial_counts(data) == {"t": 3}


def test_sticky_assignments_have_no_initial_counts() -> None:
    """The user data of the assignor "sticky" does not contain the initial partition counts (M206).

    sarama's members copy the user data of their assignment into their next JoinGroup. If the assignment
    contained the initial counts, their JoinGroup would contain these counts, too.
    """
    plan = Solo(("sticky",)).joining().become_leader()
    assert plan["me"] == Assignment(partitions=parts("t", 0, 1, 2))


def test_leadership_revokes_no_partitions() -> None:
    solo = Solo().joining()
    solo.become_leader()
    assert not solo.has_action(Lose)
    assert not solo.has_action(Revoke)
    assert not solo.has_request(HeartbeatRequest)


@rule("M80")
@pytest.mark.parametrize("cooperative", [True, False])
def test_only_a_cooperative_assignor_must_not_move_a_partition_that_is_not_revoked(cooperative: bool) -> None:
    def take_all(partitions: Any, members: Any, racks: Any) -> dict[str, list[TopicPartition]]:
        return {"me": list(parts("t", 0, 1, 2)), "you": []}

    assignor = Assignor("mine", take_all, ASSIGNORS["range"].user_data, cooperative=cooperative)
    members = {"me": wants("t"), "you": wants("t", owned=parts("t", 0))}
    metadata = MetadataUpdated({"t": 3})
    if cooperative:
        with pytest.raises(IllegalState, match="the assignor moves t-0 to another member before you"):
            leadership.assign(assignor, members, metadata, {})
    else:
        mine, yours = leadership.assign(assignor, members, metadata, {})
        assert Assignment.decode(mine.assignment).partitions == parts("t", 0, 1, 2)
        assert Assignment.decode(yours.assignment).partitions == ()


def test_a_leader_that_the_response_does_not_list_fails() -> None:
    solo = Solo(policy=KPROTO).joining()
    solo.answer_join(members={"you": wants("t")}, leader="me")
    error = solo.pop_action(Fatal).error
    assert "this member is the leader, but none of the 1 members in the response" in str(error)
    assert solo.state is MemberState.FAILED


def test_an_assignment_that_cannot_be_decoded_is_not_empty_by_mistake() -> None:
    described = DescribeGroupsResponse(
        groups=[
            DescribedGroup(
                error_code=0,
                group_id="g",
                group_state="Stable",
                protocol_type="consumer",
                protocol_data="range",
                members=[
                    DescribedGroupMember(
                        member_id="me",
                        client_id="",
                        client_host="",
                        member_metadata=b"",
                        member_assignment=b"\0\1",
                    )
                ],
            )
        ]
    )
    assert not leadership.is_empty_by_mistake(described, "me", {"t"})
    described.groups[0].members[0].member_assignment = Assignment(partitions=parts("t", 0)).encode()
    assert leadership.is_empty_by_mistake(described, "me", {"t"})
