"""Joining the group: detect that a rejoin is due, release partitions, send JoinGroup, handle its response."""

from __future__ import annotations

import re

from ....error_codes import ErrorCode
from ....errors import BrokerError
from ....messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ...assignors import Assignor
from ...protocol import MemberEvent, Purpose, Received, Rejoining, RevokePurpose, Send, WantMetadata
from ...subscription import Subscription
from . import leadership
from .assignment import assign_group, send_sync
from .coordinator_lookup import find_coordinator
from .membership import assignor_failed, broker_error, fail, fence, join_later, lose_coordinator, reset
from .reasons import (
    FAILED_WITH,
    GET_MEMBER_ID,
    JAVA_EXCEPTIONS,
    JAVA_OTHER,
    MAX_REASON,
    METADATA_CHANGED,
    NOT_OUR_PLAN,
    NOT_OUR_SUBSCRIPTION,
    REVOKED_SOME,
    SUBSCRIPTION_CHANGED,
    java_name,
)
from .revocation import revoke
from .state import (
    PROTOCOL_TYPE,
    Actions,
    Member,
    S,
    back_off_from_repeated_joins,
    is_subscribed,
    move,
    request_rejoin,
    restart_poll_interval,
)

UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
# AbstractCoordinator.JOIN_GROUP_TIMEOUT_LAPSE.
JOIN_GROUP_TIMEOUT_LAPSE_MS = 5_000


def join_if_due(member: Member, event: MemberEvent, now: int, out: Actions) -> None:
    """Look up the coordinator if it is unknown; otherwise prepare the join after the backoff (M21)."""
    if member.coordinator is None:
        find_coordinator(member, event, now, out)
    elif member.join_at is None or now >= member.join_at:
        prepare_join(member, out)


def rejoin_if_needed(member: Member, event: MemberEvent, now: int, out: Actions) -> None:
    """Prepare a join if a rejoin was requested, or if the metadata or the subscription has changed (M92).

    As in Java, a member with an `assignment_error` rejoins only after its membership has ended.
    """
    if member.assignment_error is not None:
        find_coordinator(member, event, now, out)
        return
    rejoin_after_changes(member)
    if member.coordinator is None:
        find_coordinator(member, event, now, out)
    elif member.rejoin_needed:
        join_if_due(member, event, now, out)


def rejoin_after_changes(member: Member) -> None:
    """Request a rejoin if the metadata or the subscription has changed (M19, M92).

    A rejoin that has already been requested keeps its reason.
    """
    if member.assignment_snapshot is not None and not member.rejoin_needed:
        with_racks = member.config.rack_id is not None
        topics = leadership.topics_of(member.subscriptions) if member.is_leader else member.joined_topics
        if leadership.take_snapshot(topics, member.metadata, with_racks) != member.assignment_snapshot:
            request_rejoin(member, METADATA_CHANGED)
    if member.joined_topics != member.topics and not member.rejoin_needed:
        request_rejoin(member, SUBSCRIPTION_CHANGED)


def prepare_join(member: Member, out: Actions) -> None:
    """Revoke the partitions that the member cannot keep during the join, then send JoinGroup (M21).

    An eager member revokes all its partitions (M77). A cooperative member revokes the partitions of
    unsubscribed topics (M78). If the member revokes, JoinGroup follows after `Released`. Otherwise it is sent
    immediately.
    """
    if not member.is_prepared:
        member.is_leader, member.subscriptions = False, {}
        revoked = member.owned
        if member.cooperative:
            topics = {partition.topic for partition in member.owned}
            unsubscribed_topics = {topic for topic in topics if not is_subscribed(member, topic)}
            revoked = tuple(partition for partition in member.owned if partition.topic in unsubscribed_topics)
        # As in Java, an eager member runs the `revoked` callback even if it owns no partitions. An eager
        # member without a generation, such as a new member, runs no callback.
        if member.generation is not None and (revoked or not member.cooperative):
            revoke(member, revoked, RevokePurpose.JOIN, member.rejoin_reason, out)
            move(member, S.RELEASING)
            return
        member.is_prepared = True
    send_join(member, out)


def send_join(member: Member, out: Actions) -> None:
    """Send JoinGroup with one subscription for each assignor (M6, M24, M74)."""
    config = member.config
    protocols: list[JoinGroupRequestProtocol] = []
    for assignor in member.assignors:
        try:
            metadata = _create_subscription(member, assignor).encode()
        except Exception as error:
            assignor_failed(member, assignor, error, out)
            return
        protocols.append(JoinGroupRequestProtocol(name=assignor.name, metadata=metadata))
    member.joined_topics = member.topics
    member.joins += 1
    request = JoinGroupRequest(
        group_id=config.group_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.rebalance_timeout_ms,
        member_id=member.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=protocols,
        reason=member.rejoin_reason[:MAX_REASON],
    )
    member.rebalance_request, member.join_at = request, None
    if not member.policy.lose_on_session_timeout:
        # In Java, the heartbeat thread checks the session and poll timeouts. It pauses during a join.
        member.session_ends_at = member.poll_ends_at = None
    revokes_again = member.rejoin_reason == REVOKED_SOME and member.is_rejoining_repeatedly
    was_unusable = member.rejoin_reason in (NOT_OUR_SUBSCRIPTION, NOT_OUR_PLAN) or revokes_again
    out.append(Rejoining(member.rejoin_reason, after_unusable_assignment=was_unusable))
    timeout_ms = config.rebalance_timeout_ms + JOIN_GROUP_TIMEOUT_LAPSE_MS
    out.append(Send(request, timeout_ms=timeout_ms, purpose=Purpose.JOIN))
    move(member, S.JOINING)


def _create_subscription(member: Member, assignor: Assignor) -> Subscription:
    return Subscription(
        topics=tuple(member.topics),
        user_data=assignor.user_data(member.last_assigned, member.last_generation),
        owned=member.owned,
        generation=member.generation,
        rack_id=member.config.rack_id,
    )


def on_join_response(member: Member, event: Received, now: int, out: Actions) -> None:
    """After a successful join, let a leader assign and a follower send SyncGroup (M7).

    If the join failed, react to the error code. A response is ignored if the member no longer waits for it
    (M8).
    """
    if event.request is not member.rebalance_request:
        return
    request, response = event.request, event.response
    assert isinstance(request, JoinGroupRequest)
    assert isinstance(response, JoinGroupResponse)
    member.rebalance_request = None
    code = response.error_code
    if code == ErrorCode.NONE:
        _on_joined(member, request, response, now, out)
    elif code == ErrorCode.MEMBER_ID_REQUIRED:
        member.generation, member.member_id, member.protocol = None, response.member_id, None
        request_rejoin(member, GET_MEMBER_ID.format(response.member_id))
        move(member, S.UNJOINED)
    elif code == ErrorCode.FENCED_INSTANCE_ID:
        fence(member, "JoinGroup", out)
    elif code == ErrorCode.UNKNOWN_MEMBER_ID:
        reset(member, FAILED_WITH.format(java_name(code)), out, keep_id=False)
    elif code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
        join_later(member, java_name(code), now, member.config.retry_backoff_ms)
        lose_coordinator(member, now)
    elif code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        join_later(member, java_name(code), now, member.config.retry_backoff_ms)
    elif code == ErrorCode.REBALANCE_IN_PROGRESS:
        join_later(member, java_name(code), now, 0)
    else:
        # In Java ILLEGAL_GENERATION is an unexpected error of JoinGroup, so the reason in the next JoinGroup
        # names KafkaException (M39).
        name = JAVA_OTHER if code == ErrorCode.ILLEGAL_GENERATION else java_name(code)
        fail(member, broker_error(code, "JoinGroup", member), name, out)
    back_off_from_repeated_joins(member, now)


def _on_joined(
    member: Member, request: JoinGroupRequest, response: JoinGroupResponse, now: int, out: Actions
) -> None:
    """Adopt the new generation and restart the timers (M7, M117).

    A leader then assigns the partitions. A follower sends SyncGroup without assignments.
    """
    names = {assignor.name for assignor in member.assignors}
    protocol_type = response.protocol_type or PROTOCOL_TYPE
    if protocol_type != PROTOCOL_TYPE or response.protocol_name not in names:
        detail = (
            f"the group uses {protocol_type} {response.protocol_name}, "
            f"this member {PROTOCOL_TYPE} {sorted(names)}"
        )
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        fail(member, BrokerError(code, "JoinGroup", detail), JAVA_EXCEPTIONS[code], out)
        return
    is_unannounced_leader = _is_unannounced_leader(member, response)
    is_leader = is_unannounced_leader or response.leader == response.member_id
    may_skip = member.config.group_instance_id is not None or not member.policy.check_inherited_plan
    skips_assignment = is_unannounced_leader or (response.skip_assignment and may_skip)
    is_listed = any(m.member_id == response.member_id for m in response.members)
    if is_leader and not skips_assignment and not is_listed:
        # The response must list the leader as a member. Otherwise Java's leader assigns all partitions to the
        # listed members, and owns nothing itself.
        detail = f"this member is the leader, but none of the {len(response.members)} members in the response"
        fail(member, BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "JoinGroup", detail), JAVA_OTHER, out)
        return
    _start_generation(member, response, now)
    member.is_leader = is_leader
    member.assignment_snapshot = None
    if is_leader:
        _start_assignment(member, request, response, skips_assignment, out)
        return
    # This member is not the leader of the new generation, so it no longer has to check the assignment that
    # was made before its restart (`inherits_assignment`).
    member.inherits_assignment = False
    if member.policy.every_member_watches:
        with_racks = member.config.rack_id is not None
        member.assignment_snapshot = leadership.take_snapshot(member.topics, member.metadata, with_racks)
    send_sync(member, [], out)


def _start_generation(member: Member, response: JoinGroupResponse, now: int) -> None:
    """Adopt the generation, member id and protocol of the response, and restart all timers."""
    config = member.config
    member.generation = response.generation_id
    member.member_id = response.member_id
    member.protocol = response.protocol_name
    member.failed_heartbeats = 0
    member.heartbeat_at = now + config.heartbeat_interval_ms
    member.session_ends_at = now + config.session_timeout_ms
    restart_poll_interval(member, now)


def _start_assignment(
    member: Member,
    request: JoinGroupRequest,
    response: JoinGroupResponse,
    skips_assignment: bool,
    out: Actions,
) -> None:
    """Store all members' subscriptions, and assign as soon as the metadata of their topics is known.

    If the response lists no members, the leader knows only its own subscription.
    """
    metadata = {m.member_id: m.metadata for m in response.members}
    if member.policy.check_inherited_plan and not skips_assignment:
        # The leader uses the subscription that it sent instead of its subscription in the response. If the
        # latter lacked the leader's topics, the leader would own nothing, and no rebalance would follow.
        metadata[response.member_id] = _sent_metadata(request, response.protocol_name)
    subscriptions = leadership.decode_subscriptions(
        (m.member_id, m.group_instance_id, metadata[m.member_id]) for m in response.members
    )
    own_subscription = Subscription(topics=tuple(member.joined_topics))
    member.subscriptions = subscriptions or {member.member_id: own_subscription}
    member.skips_assignment = skips_assignment
    topics = leadership.topics_of(member.subscriptions)
    move(member, S.ASSIGNING)
    if topics <= member.metadata.partitions.keys():
        assign_group(member, out)
    else:
        out.append(WantMetadata(topics))


def _sent_metadata(request: JoinGroupRequest, protocol: str | None) -> bytes:
    """Return the metadata that a JoinGroup request contains for a protocol."""
    return next(bytes(item.metadata) for item in request.protocols if item.name == protocol)


def _is_unannounced_leader(member: Member, response: JoinGroupResponse) -> bool:
    """Return whether a restarted static member leads the group under its former member id.

    Below v9, `leader` in the JoinGroup response to this member is still its former member id.
    """
    instance_id = member.config.group_instance_id
    if instance_id is None or not member.policy.check_inherited_plan:
        return False
    # Coordinators form the member id of a static member from its instance id and a UUID.
    is_own_id = re.fullmatch(re.escape(instance_id) + "-" + UUID, response.leader) is not None
    return is_own_id and response.leader != response.member_id
