"""A member joins its group by JoinGroup and SyncGroup, and reacts to each of their errors."""

from __future__ import annotations

import pytest

from kproto.errors import BrokerError, ConfigError, DecodeError, Fenced, IllegalState, NotAuthorized
from kproto.group.classic.member import (
    KPROTO,
    CoordinatorLost,
    FindCoordinator,
    Member,
    MemberConfig,
    Policy,
    Received,
    RejoinRequested,
    Send,
    SendFailed,
)
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.leave_group import LeaveGroupRequest
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.group.classic.member.stage import (
    BACKOFF,
    COOPERATIVE,
    EAGER,
    POLL,
    AdoptAssignment,
    ErrorCode,
    Fatal,
    Lose,
    MemberState,
    Revoke,
    Solo,
    Subscription,
    parts,
)
from tests.rules import rule

BOTH = [EAGER, COOPERATIVE]


# Before the JoinGroup


@rule("M2")
def test_a_new_member_has_no_identity_and_needs_to_rejoin() -> None:
    member = Solo().member
    assert (member.generation, member.member_id, member.coordinator) == (None, "", None)
    assert member.rejoin_needed


@rule("M2")
def test_a_member_without_a_subscription_does_nothing() -> None:
    solo = Solo()
    solo.find_coordinator()
    solo.wait(POLL)
    assert solo.all_actions == []


@rule("M21")
def test_the_coordinator_is_looked_up_before_anything_is_sent() -> None:
    solo = Solo()
    solo.subscribe()
    assert solo.actions == [FindCoordinator()]


@rule("M28")
def test_the_coordinator_is_looked_up_only_once_at_a_time() -> None:
    """Mirrors AbstractCoordinatorTest.testLookupCoordinator."""
    solo = Solo()
    solo.subscribe()
    solo.poll()
    solo.wait(POLL)
    assert solo.actions == [FindCoordinator()]


@rule("M28")
def test_failed_lookups_are_repeated_with_a_growing_backoff() -> None:
    """Mirrors AbstractCoordinatorTest.testCoordinatorDiscoveryExponentialBackoff."""
    solo = Solo()
    solo.subscribe()
    at: list[int] = []
    for _ in range(6):
        solo.pop_action(FindCoordinator)
        start = solo.now
        solo.apply(CoordinatorLost("nobody knows"))
        while not solo.has_action(FindCoordinator):
            solo.wait(1)
        at.append(solo.now - start)
    assert at == [100, 200, 400, 800, 1000, 1000]


@rule("M24")
def test_the_first_join_group_has_all_fields() -> None:
    solo = Solo(COOPERATIVE, rack_id="r1").joining("t", "u")
    request = solo.pop_request(JoinGroupRequest)
    assert (request.group_id, request.member_id, request.group_instance_id) == ("g", "", None)
    assert (request.session_timeout_ms, request.rebalance_timeout_ms) == (10_000, POLL)
    assert (request.protocol_type, request.reason) == ("consumer", "")
    assert [p.name for p in request.protocols] == ["cooperative-sticky"]


@rule("M74")
def test_client_rack_is_in_the_subscription() -> None:
    """Mirrors ConsumerCoordinatorTest.testSubscriptionRackId."""
    request = Solo(rack_id="r1").joining().pop_request(JoinGroupRequest)
    assert Subscription.decode(request.protocols[0].metadata).rack_id == "r1"


@rule("M24")
def test_every_assignor_is_offered_in_the_configured_order() -> None:
    request = Solo(("sticky", "range", "roundrobin")).joining().pop_request(JoinGroupRequest)
    assert [p.name for p in request.protocols] == ["sticky", "range", "roundrobin"]


@rule("M24")
def test_join_group_may_take_the_rebalance_timeout_and_five_seconds() -> None:
    """Mirrors AbstractCoordinatorTest.testJoinGroupRequestTimeout."""
    solo = Solo().joining()
    assert solo.pop_action(Send).timeout_ms == POLL + 5_000


@rule("M77")
def test_the_first_join_runs_no_callback() -> None:
    solo = Solo().joining()
    assert not solo.has_action(Revoke)
    assert not solo.has_action(Lose)


# Configuration


@rule("M71")
@pytest.mark.parametrize(
    ("assignors", "cooperative"),
    [
        (("range",), False),
        (("range", "cooperative-sticky"), False),
        (("cooperative-sticky", "range"), False),
        (("cooperative-sticky",), True),
    ],
)
def test_the_newest_protocol_that_all_assignors_support_is_used(
    assignors: tuple[str, ...], cooperative: bool
) -> None:
    """Mirrors ConsumerCoordinatorTest.testSelectRebalanceProtocol."""
    assert Solo(assignors).member.cooperative is cooperative


@rule("M72", "M105", "M115")
@pytest.mark.parametrize(
    "options",
    [
        {"assignors": ()},
        {"assignors": ("range", "range")},
        {"assignors": ("fair",)},
        {"heartbeat_interval_ms": 10_000},
        {"group_instance_id": ""},
        {"group_instance_id": ".."},
        {"group_instance_id": "a b"},
        {"group_instance_id": "x" * 250},
    ],
)
def test_a_configuration_that_cannot_work_is_refused(options: dict[str, object]) -> None:
    """ConsumerPartitionAssignorTest.shouldThrowKafkaExceptionOnAssignorsWithSameName, and its like."""
    with pytest.raises(ConfigError):
        Member(MemberConfig(**{"group_id": "g", "session_timeout_ms": 10_000, **options}))  # type: ignore[arg-type]


@rule("M115")
def test_an_instance_id_has_at_most_249_letters_digits_dots_underscores_and_hyphens() -> None:
    instance_id = "aZ09._-".ljust(249, "x")
    assert Member(MemberConfig(group_id="g", group_instance_id=instance_id)).state is MemberState.IDLE


# A successful join


@rule("M5", "M22", "M40")
def test_member_id_required_rejoins_at_once_with_the_member_id() -> None:
    """Mirrors AbstractCoordinatorTest.testJoinGroupRequestWithMemberIdRequired."""
    solo = Solo().joining()
    solo.answer_join(ErrorCode.MEMBER_ID_REQUIRED, member_id="me-7")
    request = solo.pop_request(JoinGroupRequest)
    assert (request.member_id, request.reason) == (
        "me-7",
        "need to re-join with the given member-id: me-7",
    )
    assert (solo.member.identity, solo.member.generation) == (None, None)


@rule("M1", "M9")
def test_a_follower_sends_no_assignments_and_adopts_its_own() -> None:
    """Mirrors ConsumerCoordinatorTest.testNormalJoinGroupFollower."""
    solo = Solo().joining()
    solo.answer_join(generation=4)
    request = solo.pop_request(SyncGroupRequest)
    assert (request.generation_id, request.member_id, request.assignments) == (4, "me", [])
    assert (request.protocol_type, request.protocol_name) == ("consumer", "range")
    solo.answer_sync(*parts("t", 0, 2), request=request)
    assign = solo.pop_action(AdoptAssignment)
    assert (assign.added, assign.owned, assign.generation) == (parts("t", 0, 2), parts("t", 0, 2), 4)
    assert solo.state is MemberState.STABLE


@rule("M89")
def test_an_empty_assignment_runs_the_assigned_callback() -> None:
    solo = Solo().syncing()
    request = solo.pop_request(SyncGroupRequest)
    solo.answer_sync(request=request)
    assert solo.pop_action(AdoptAssignment).owned == ()


def test_assigned_partitions_are_sorted_and_unique() -> None:
    solo = Solo().syncing()
    solo.answer_sync(*parts("t", 2, 0, 2))
    assert solo.pop_action(AdoptAssignment).owned == parts("t", 0, 2)


@rule("M206")
def test_only_the_first_generation_is_the_groups_first() -> None:
    first, later = Solo().syncing(1), Solo().syncing(2)
    first.answer_sync()
    later.answer_sync()
    assert (first.pop_action(AdoptAssignment).first, later.pop_action(AdoptAssignment).first) == (True, False)


@rule("M4")
def test_the_identity_is_known_when_partitions_are_assigned() -> None:
    """Mirrors ConsumerCoordinatorTest.testGetGroupMetadata."""
    solo = Solo(group_instance_id="i")
    assert solo.member.identity is None
    solo.syncing(3)
    assert solo.member.identity is None
    solo.answer_sync()
    identity = solo.member.identity
    assert identity is not None
    assert (identity.generation, identity.member_id) == (3, "me")
    assert (identity.group_instance_id, identity.protocol) == ("i", "range")


@rule("M7")
def test_heartbeats_are_sent_while_sync_group_is_in_flight() -> None:
    """Mirrors AbstractCoordinatorTest.testHeartbeatSentWhenCompletingRebalance."""
    assert Solo().syncing().next_heartbeat().generation_id == 1


@rule("M6")
def test_no_heartbeat_is_sent_while_join_group_is_in_flight() -> None:
    solo = Solo().joining()
    solo.wait(POLL)
    assert not solo.has_request(HeartbeatRequest)


@rule("M8")
def test_the_response_to_an_earlier_join_group_is_ignored() -> None:
    solo = Solo().joining()
    old = solo.pop_request(JoinGroupRequest)
    solo.apply(CoordinatorLost())
    solo.find_coordinator()
    solo.wait(BACKOFF)
    solo.answer_join(generation=9, request=old)
    assert solo.state is MemberState.JOINING
    assert solo.member.generation is None


# Errors of JoinGroup


@rule("M36", "M37")
@pytest.mark.parametrize(
    ("code", "name"),
    [
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, "CoordinatorNotAvailableException"),
        (ErrorCode.NOT_COORDINATOR, "NotCoordinatorException"),
    ],
)
def test_join_group_to_the_wrong_coordinator_is_retried_after_a_backoff(code: ErrorCode, name: str) -> None:
    solo = Solo().joining()
    solo.actions.clear()
    request = solo.member.rebalance_request
    assert isinstance(request, JoinGroupRequest)
    solo.answer_join(code, request=request)
    solo.pop_action(FindCoordinator)
    solo.find_coordinator()
    assert not solo.has_request(JoinGroupRequest)
    solo.wait(BACKOFF)
    assert solo.pop_request(JoinGroupRequest).reason == f"rebalance failed due to {name}"


@rule("M35")
def test_join_group_to_a_loading_coordinator_is_retried_after_a_backoff() -> None:
    """Mirrors AbstractCoordinatorTest.testBackoffAndRetryUponRetriableError."""
    solo = Solo().joining()
    solo.answer_join(ErrorCode.MEMBER_ID_REQUIRED, member_id="me-7")
    solo.answer_join(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    solo.wait(BACKOFF - 1)
    assert not solo.has_request(JoinGroupRequest)
    solo.wait(1)
    request = solo.pop_request(JoinGroupRequest)
    reason = "rebalance failed due to CoordinatorLoadInProgressException"
    assert (request.member_id, request.reason) == ("me-7", reason)
    assert solo.member.coordinator == "node"


@rule("M22", "M41")
def test_rebalance_in_progress_rejoins_at_once_with_the_same_member_id() -> None:
    """Mirrors AbstractCoordinatorTest.testJoinGroupRequestWithRebalanceInProgress."""
    solo = Solo().stable()
    solo.apply(RejoinRequested("because"))
    solo.pop_action(Revoke)
    solo.release()
    solo.answer_join(ErrorCode.REBALANCE_IN_PROGRESS)
    request = solo.pop_request(JoinGroupRequest)
    assert (request.member_id, request.reason) == (
        "me",
        "rebalance failed due to RebalanceInProgressException",
    )
    assert not solo.has_action(Revoke)


@rule("M22", "M38")
def test_an_unknown_member_id_rejoins_at_once_without_a_member_id() -> None:
    """Mirrors AbstractCoordinatorTest.testJoinGroupRequestWithGroupInstanceIdNotFound."""
    solo = Solo(COOPERATIVE).stable()
    solo.apply(RejoinRequested("because"))
    solo.answer_join(ErrorCode.UNKNOWN_MEMBER_ID)
    assert solo.pop_action(Lose).partitions == parts("t", 0, 1)
    assert not solo.has_request(JoinGroupRequest)
    solo.release()
    request = solo.pop_request(JoinGroupRequest)
    assert (request.member_id, request.reason) == ("", "rebalance failed due to UnknownMemberIdException")


def test_joins_back_off_if_the_coordinator_always_requests_a_rejoin() -> None:
    """From the sixth rejoin on, the member backs off before each rejoin, until a join succeeds.

    Java's member rejoins immediately after each of these errors.
    """
    solo = Solo().joining()
    at: list[int] = []
    request = [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS]
    for code in request * 3:
        solo.answer_join(code)
        start = solo.now
        while not solo.has_request(JoinGroupRequest):
            solo.wait(1)
        at.append(solo.now - start)
    assert at == [0, 0, 0, 0, 0, 200, 400, 800, 1000]
    solo.answer_join()
    solo.answer_sync(*parts("t", 0, 1))
    solo.apply(RejoinRequested("because"))
    solo.release()
    solo.answer_join(ErrorCode.UNKNOWN_MEMBER_ID)
    assert solo.has_request(JoinGroupRequest)


@pytest.mark.parametrize("synced", [False, True])
def test_joins_back_off_if_the_application_polls_after_each_error(synced: bool) -> None:
    """The poll after an error rejoins. From the sixth rejoin on, there is a backoff, whatever the errors."""
    solo = Solo().joining()
    at: list[int] = []
    for code in [ErrorCode.INVALID_SESSION_TIMEOUT, ErrorCode.GROUP_MAX_SIZE_REACHED, 9999] * 3:
        if synced:
            solo.answer_join()
            solo.answer_sync(code=code)
        else:
            solo.answer_join(code)
        assert solo.pop_action(Fatal)
        start = solo.now
        solo.poll()
        while not solo.has_request(JoinGroupRequest):
            solo.wait(1)
        at.append(solo.now - start)
    assert at == [0, 0, 0, 0, 0, 200, 400, 800, 1000]


def test_joins_back_off_if_each_assignment_revokes_a_partition() -> None:
    """The member rejoins after each assignment. After five JoinGroups without a delay, it backs off.

    A single cooperative revocation is not delayed, because it takes only two JoinGroups.
    """
    solo = Solo(COOPERATIVE).stable(*parts("t", 0))
    solo.apply(RejoinRequested("because"))
    at: list[int] = []
    for index in range(1, 10):
        solo.answer_join()
        solo.answer_sync(*parts("t", index % 2))
        solo.release()
        start = solo.now
        while not solo.has_request(JoinGroupRequest):
            solo.wait(1)
        at.append(solo.now - start)
    assert at == [0, 0, 0, 0, 0, 200, 400, 800, 1000]
    assert solo.state is MemberState.JOINING
    solo.answer_join()
    # The member gets the same assignment again, so it has nothing to revoke.
    solo.answer_sync(*parts("t", 1))
    solo.apply(RejoinRequested("because"))
    solo.answer_join()
    solo.answer_sync(*parts("t", 0))
    solo.release()
    assert solo.has_request(JoinGroupRequest)


@rule("M43", "M44", "M46")
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_an_error_that_the_application_has_to_mend_is_fatal(code: ErrorCode) -> None:
    """testGroupMaxSizeExceptionIsFatal, testInvalidSessionTimeout, testJoinGroupInvalidGroupId."""
    solo = Solo().joining()
    solo.answer_join(code)
    fatal = solo.pop_action(Fatal)
    assert isinstance(fatal.error, BrokerError)
    assert (fatal.error.code, fatal.final) == (code, False)
    solo.wait(POLL)
    assert not solo.has_request(JoinGroupRequest)


@rule("M43")
def test_a_member_keeps_its_id_after_an_error_that_the_application_has_to_mend() -> None:
    solo = Solo(COOPERATIVE).stable()
    member_id = solo.member.member_id
    solo.apply(RejoinRequested("because"))
    solo.answer_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    assert solo.pop_action(Fatal).final is False
    assert solo.member.member_id == member_id != ""


@rule("M43")
def test_the_error_of_an_invalid_session_timeout_names_the_brokers_settings() -> None:
    solo = Solo(session_timeout_ms=7_000).joining()
    solo.answer_join(ErrorCode.INVALID_SESSION_TIMEOUT)
    actions = str(solo.pop_action(Fatal).error)
    assert "session.timeout.ms=7000" in actions
    assert "group.min.session.timeout.ms and group.max.session.timeout.ms" in actions


@rule("M43")
def test_the_error_of_a_group_with_other_assignors_names_the_assignors_of_the_member() -> None:
    solo = Solo(assignors=("roundrobin", "range")).joining()
    solo.answer_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    error = str(solo.pop_action(Fatal).error)
    assert "partition.assignment.strategy=roundrobin,range: all members need one assignor in common" in error


@rule("M43")
def test_the_error_of_a_full_group_names_the_brokers_setting() -> None:
    solo = Solo().joining()
    solo.answer_join(ErrorCode.GROUP_MAX_SIZE_REACHED)
    assert "group.max.size" in str(solo.pop_action(Fatal).error)


@rule("M43")
def test_a_group_without_read_permission_is_not_authorized() -> None:
    """Mirrors ConsumerCoordinatorTest.testGroupReadUnauthorized."""
    solo = Solo().joining()
    solo.answer_join(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    error = solo.pop_action(Fatal).error
    assert isinstance(error, NotAuthorized)
    assert "'g'" in error.detail


@rule("M116")
def test_the_poll_after_a_fatal_error_rejoins_with_that_reason() -> None:
    solo = Solo().joining()
    solo.answer_join(ErrorCode.GROUP_MAX_SIZE_REACHED)
    solo.poll()
    assert solo.pop_request(JoinGroupRequest).reason == "rebalance failed due to GroupMaxSizeReachedException"


@rule("M116")
@pytest.mark.parametrize(
    ("code", "name"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "GroupAuthorizationException"),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "KafkaException"),
        (ErrorCode.REQUEST_TIMED_OUT, "KafkaException"),
    ],
)
def test_the_poll_after_a_failed_sync_rejoins_with_javas_reason(code: ErrorCode, name: str) -> None:
    """The poll after a failed SyncGroup rejoins with the reason that kafka-clients 4.3.1 sends.

    The original is AbstractCoordinator.SyncGroupResponseHandler.
    """
    solo = Solo().syncing()
    solo.answer_sync(code=code)
    solo.poll()
    assert solo.pop_request(JoinGroupRequest).reason == f"rebalance failed due to {name}"


def test_a_member_that_fails_to_rejoin_loses_its_partitions() -> None:
    solo = Solo(COOPERATIVE).stable()
    solo.apply(RejoinRequested("because"))
    solo.answer_join(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    assert solo.pop_action(Lose).partitions == parts("t", 0, 1)
    solo.poll()
    assert not solo.has_request(JoinGroupRequest)
    solo.release()
    assert solo.has_request(JoinGroupRequest)


@rule("M45")
def test_a_group_of_another_protocol_type_is_fatal() -> None:
    """Mirrors AbstractCoordinatorTest.testJoinGroupProtocolTypeAndName."""
    solo = Solo().joining()
    solo.answer_join(protocol_type="connect")
    error = solo.pop_action(Fatal).error
    assert isinstance(error, BrokerError)
    assert error.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@rule("M45")
def test_a_missing_protocol_type_is_accepted() -> None:
    """Mirrors AbstractCoordinatorTest.testJoinGroupProtocolTypeAndName."""
    solo = Solo().joining()
    solo.answer_join(protocol_type=None)
    assert solo.state is MemberState.SYNCING


@rule("M22", "M26")
@pytest.mark.parametrize("assignors", BOTH)
def test_a_lost_connection_keeps_the_member_id_and_rejoins(assignors: tuple[str, ...]) -> None:
    """Mirrors AbstractCoordinatorTest.testRetainMemberIdAfterJoinGroupDisconnect; testDisconnectInJoin."""
    solo = Solo(assignors).stable()
    solo.apply(RejoinRequested("because"))
    if assignors == EAGER:
        solo.release()
        solo.pop_action(Revoke)
    request = solo.pop_request(JoinGroupRequest)
    solo.apply(SendFailed(request, "broken"))
    solo.pop_action(FindCoordinator)
    solo.find_coordinator()
    solo.wait(BACKOFF - 1)
    assert not solo.has_request(JoinGroupRequest)
    solo.wait(1)
    second_join = solo.pop_request(JoinGroupRequest)
    assert (second_join.member_id, second_join.reason) == (
        "me",
        "rebalance failed due to DisconnectException",
    )
    assert not solo.has_action(Revoke)
    assert not solo.has_action(Lose)


# Errors of SyncGroup


@rule("M47")
def test_rebalance_in_progress_of_sync_group_rejoins_at_once_with_the_same_member_id() -> None:
    """Mirrors ConsumerCoordinatorTest.testRebalanceInProgressOnSyncGroup."""
    solo = Solo().syncing()
    solo.answer_sync(code=ErrorCode.REBALANCE_IN_PROGRESS)
    request = solo.pop_request(JoinGroupRequest)
    assert (request.member_id, request.reason) == (
        "me",
        "rebalance failed due to RebalanceInProgressException",
    )


@rule("M74")
def test_a_generation_without_an_assignment_is_in_the_next_subscription() -> None:
    """After a failed SyncGroup, the next subscription contains the SyncGroup's generation.

    It also contains the partitions that the member still owns. Java does the same.
    """
    solo = Solo(COOPERATIVE).stable(generation=4)
    solo.apply(RejoinRequested("because"))
    solo.answer_join(generation=5)
    solo.answer_sync(code=ErrorCode.REBALANCE_IN_PROGRESS)
    actions = Subscription.decode(solo.pop_request(JoinGroupRequest).protocols[0].metadata)
    assert (actions.owned, actions.generation) == (parts("t", 0, 1), 5)


@rule("M48", "M49")
@pytest.mark.parametrize(
    ("code", "member_id", "name"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, "", "UnknownMemberIdException"),
        (ErrorCode.ILLEGAL_GENERATION, "me", "IllegalGenerationException"),
    ],
)
def test_a_sync_group_of_an_unknown_member_or_generation_loses_all_partitions(
    code: ErrorCode, member_id: str, name: str
) -> None:
    """shouldLoseAllOwnedPartitionsBeforeRejoiningAfterDroppingOutOfTheGroup, ...ResettingGenerationId."""
    solo = Solo(COOPERATIVE).stable()
    solo.apply(RejoinRequested("because"))
    solo.answer_join(generation=2)
    solo.answer_sync(code=code)
    assert solo.pop_action(Lose).partitions == parts("t", 0, 1)
    assert not solo.has_request(JoinGroupRequest)
    solo.release()
    request = solo.pop_request(JoinGroupRequest)
    assert (request.member_id, request.reason) == (member_id, f"rebalance failed due to {name}")
    actions = Subscription.decode(request.protocols[0].metadata)
    assert (actions.owned, actions.generation) == ((), None)


@rule("M48")
def test_an_eager_member_has_nothing_to_lose_after_a_failed_sync() -> None:
    """Mirrors ConsumerCoordinatorTest.testUnknownMemberIdOnSyncGroup."""
    solo = Solo().syncing()
    solo.answer_sync(code=ErrorCode.UNKNOWN_MEMBER_ID)
    assert solo.pop_request(JoinGroupRequest).member_id == ""
    assert not solo.has_action(Lose)


@rule("M50")
@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR])
def test_sync_group_to_the_wrong_coordinator_looks_it_up_and_rejoins(code: ErrorCode) -> None:
    solo = Solo().syncing()
    solo.actions = [a for a in solo.actions if not isinstance(a, FindCoordinator)]
    solo.answer_sync(code=code)
    solo.pop_action(FindCoordinator)
    solo.find_coordinator()
    solo.wait(BACKOFF)
    assert solo.pop_request(JoinGroupRequest).member_id == "me"


@rule("M53")
def test_sync_group_to_a_loading_coordinator_is_fatal_in_java() -> None:
    """After a SyncGroup response with COORDINATOR_LOAD_IN_PROGRESS, poll raises the error.

    The next poll sends a JoinGroup with the last generation, and with the reason KafkaException. Both polls
    do the same in kafka-clients 4.3.1.
    """
    solo = Solo().syncing()
    solo.answer_sync(code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert isinstance(solo.pop_action(Fatal).error, BrokerError)
    solo.poll()
    request = solo.pop_request(JoinGroupRequest)
    assert request.reason == "rebalance failed due to KafkaException"
    assert Subscription.decode(request.protocols[0].metadata).generation == 1


@rule("M39")
def test_an_illegal_generation_at_join_group_is_fatal() -> None:
    solo = Solo().stable()
    solo.apply(RejoinRequested("again"))
    solo.release()
    solo.answer_join(code=ErrorCode.ILLEGAL_GENERATION)
    error = solo.pop_action(Fatal).error
    assert isinstance(error, BrokerError)
    assert (error.code, error.request) == (ErrorCode.ILLEGAL_GENERATION, "JoinGroup")
    solo.poll()
    assert solo.pop_request(JoinGroupRequest).reason == "rebalance failed due to KafkaException"


@rule("M53")
def test_sync_group_to_a_loading_coordinator_rejoins_after_a_backoff_with_kprotos_policy() -> None:
    solo = Solo(policy=KPROTO).syncing()
    solo.answer_sync(code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert not solo.has_action(Fatal)
    solo.wait(BACKOFF)
    reason = "rebalance failed due to CoordinatorLoadInProgressException"
    assert solo.pop_request(JoinGroupRequest).reason == reason


@rule("M52", "M53")
@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_other_errors_of_sync_group_are_fatal(code: ErrorCode) -> None:
    """Mirrors ConsumerCoordinatorTest.testUnexpectedErrorOnSyncGroup."""
    solo = Solo().syncing()
    solo.answer_sync(code=code)
    error = solo.pop_action(Fatal).error
    assert isinstance(error, BrokerError)
    assert (error.code, error.request) == (code, "SyncGroup")


@rule("M54")
@pytest.mark.parametrize(("name", "kind"), [("roundrobin", "consumer"), ("range", "connect")])
def test_a_sync_group_response_of_another_protocol_is_fatal(name: str, kind: str) -> None:
    """Mirrors AbstractCoordinatorTest.testJoinGroupProtocolTypeAndName."""
    solo = Solo().syncing()
    solo.answer_sync(protocol=name, protocol_type=kind)
    assert solo.has_action(Fatal)
    assert not solo.has_action(AdoptAssignment)


@rule("M26")
def test_a_lost_connection_during_sync_group_keeps_the_member_id() -> None:
    """Mirrors AbstractCoordinatorTest.testRetainMemberIdAfterSyncGroupDisconnect."""
    solo = Solo().syncing()
    solo.apply(SendFailed(solo.pop_request(SyncGroupRequest), "broken"))
    solo.find_coordinator()
    solo.wait(BACKOFF)
    assert solo.pop_request(JoinGroupRequest).member_id == "me"


@rule("M10")
def test_the_response_to_sync_group_is_ignored_after_a_heartbeat_error() -> None:
    """Mirrors ConsumerCoordinatorTest.testPrepareJoinAndRejoinAfterFailedRebalance."""
    solo = Solo().syncing()
    request = solo.pop_request(SyncGroupRequest)
    solo.answer_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    second_join = solo.pop_request(JoinGroupRequest)
    solo.answer_sync(*parts("t", 0), request=request, protocol="range")
    assert not solo.has_action(AdoptAssignment)
    assert (solo.state, second_join.member_id) == (MemberState.JOINING, "")


@rule("M10")
def test_the_response_to_an_earlier_sync_group_is_ignored() -> None:
    solo = Solo().syncing()
    old = solo.pop_request(SyncGroupRequest)
    solo.answer_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    solo.answer_join(generation=2)
    solo.answer_sync(*parts("t", 0), request=old)
    assert solo.state is MemberState.SYNCING
    assert not solo.has_action(AdoptAssignment)


@pytest.mark.parametrize(
    ("data", "error"), [(b"", IllegalState), (b"\0", DecodeError), (b"\0\1\0\0\0\2", DecodeError)]
)
def test_javas_member_keeps_the_membership_after_an_unreadable_assignment(
    data: bytes, error: type[Exception]
) -> None:
    """In Java, each later poll calls onJoinComplete again, which raises the same error."""
    solo = Solo(COOPERATIVE).stable()
    solo.answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    solo.answer_join(generation=2)
    solo.apply(Received(solo.pop_request(SyncGroupRequest), SyncGroupResponse(error_code=0, assignment=data)))
    assert isinstance(solo.pop_action(Fatal).error, error)
    assert isinstance(solo.member.assignment_error, error)
    assert solo.member.owned == parts("t", 0, 1)
    assert not solo.has_action(AdoptAssignment)
    solo.answer_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    solo.poll()
    assert not solo.has_request(JoinGroupRequest)
    solo.answer_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert solo.member.assignment_error is None
    assert solo.pop_action(Lose).partitions == parts("t", 0, 1)
    solo.release()
    request = solo.pop_request(JoinGroupRequest)
    assert request.member_id == ""
    assert (request.reason or "").startswith("rebalance failed since the generation/state was modified")


def test_an_assignment_that_cannot_be_decoded_is_fatal() -> None:
    solo = Solo(policy=KPROTO).syncing()
    solo.apply(
        Received(solo.pop_request(SyncGroupRequest), SyncGroupResponse(error_code=0, assignment=b"\0"))
    )
    assert solo.has_action(Fatal)
    assert solo.state is MemberState.FAILED


def test_no_bytes_are_an_empty_assignment() -> None:
    solo = Solo(policy=KPROTO).syncing()
    solo.apply(Received(solo.pop_request(SyncGroupRequest), SyncGroupResponse(error_code=0, assignment=b"")))
    assert solo.pop_action(AdoptAssignment).owned == ()


# Fencing


@rule("M42", "M51")
@pytest.mark.parametrize("phase", ["join", "sync", "heartbeat", "commit"])
def test_a_fenced_member_stops_for_good_and_names_its_instance_id(phase: str) -> None:
    """A fenced member stops. Java's member joins again at the next poll, and fences the newer process."""
    solo = Solo(COOPERATIVE, group_instance_id="gate-7")
    if phase == "join":
        solo.joining()
        solo.answer_join(ErrorCode.FENCED_INSTANCE_ID)
    elif phase == "sync":
        solo.syncing()
        solo.answer_sync(code=ErrorCode.FENCED_INSTANCE_ID)
    elif phase == "heartbeat":
        solo.stable().answer_heartbeat(ErrorCode.FENCED_INSTANCE_ID)
    else:
        solo.stable().answer_commit(ErrorCode.FENCED_INSTANCE_ID)
    fatal = solo.pop_action(Fatal)
    assert isinstance(fatal.error, Fenced)
    assert fatal.final
    assert "'gate-7'" in str(fatal.error)
    assert solo.has_action(Lose) is (phase in ("heartbeat", "commit"))
    solo.actions.clear()
    solo.release()
    solo.poll()
    solo.subscribe("u")
    solo.apply(RejoinRequested("once more"))
    solo.find_coordinator()
    solo.wait(POLL)
    assert solo.actions == []


@rule("M24", "M115")
def test_a_static_member_sends_its_instance_id_in_every_request() -> None:
    solo = Solo(group_instance_id="i").joining()
    join = solo.pop_request(JoinGroupRequest)
    solo.answer_join(request=join)
    sync = solo.pop_request(SyncGroupRequest)
    heartbeat = solo.next_heartbeat()
    actions = (join.group_instance_id, sync.group_instance_id, heartbeat.group_instance_id)
    assert actions == ("i", "i", "i")


# ---- assignments that do not match the subscription


@rule("M83")
def test_an_assignment_for_an_old_subscription_is_not_adopted() -> None:
    """Mirrors ConsumerCoordinatorTest.testOutdatedCoordinatorAssignment."""
    solo = Solo(COOPERATIVE).syncing()
    solo.answer_sync(*parts("other", 0))
    assert not solo.has_action(AdoptAssignment)
    assert solo.pop_request(JoinGroupRequest).reason == (
        "received assignment does not match the current subscription"
    )


@rule("M85")
def test_a_follower_with_a_pattern_adopts_topics_that_it_does_not_know_yet() -> None:
    """Mirrors ConsumerCoordinatorTest.testPatternJoinGroupFollower."""
    solo = Solo().joining("t1", pattern="t.*")
    solo.answer_join()
    solo.answer_sync(*parts("t1", 0), *parts("t2", 0))
    assert solo.pop_action(AdoptAssignment).owned == parts("t1", 0) + parts("t2", 0)
    assert solo.member.topics == {"t1", "t2"}
    assert solo.state is MemberState.STABLE


@rule("M201")
def test_a_pattern_has_to_match_the_whole_name() -> None:
    solo = Solo().joining("t1", pattern="t.")
    solo.answer_join()
    solo.answer_sync(*parts("t10", 0))
    assert not solo.has_action(AdoptAssignment)


@rule("M60")
def test_a_member_that_only_joins_sends_no_leave_group() -> None:
    assert not Solo().stable().has_request(LeaveGroupRequest)


@pytest.mark.parametrize("again", [True, False])
def test_a_final_fence_forgets_the_member_id_and_another_fence_keeps_it(again: bool) -> None:
    solo = Solo(policy=Policy(fenced_join_again=again), group_instance_id="i").stable()
    solo.apply(RejoinRequested("because"))
    solo.release()
    solo.answer_join(ErrorCode.FENCED_INSTANCE_ID)
    assert solo.pop_action(Fatal).final is not again
    assert solo.member.member_id == ("me" if again else "")
