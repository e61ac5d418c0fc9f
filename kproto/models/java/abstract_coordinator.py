"""The requests of a join and their responses (AbstractCoordinator).

* M3: A response changes the member only if the generation, member id and protocol have not changed since the
  request was sent.

* M7: Heartbeats start when the JoinGroup response arrives, before the SyncGroup response.

* M8, M10: If the member is reset while JoinGroup or SyncGroup is in flight, the join fails when the response
  arrives. Then the join is retried.

* M14, M15: REBALANCE_IN_PROGRESS in a heartbeat response restarts the session timeout. It makes the member
  rejoin only if the member is STABLE.

* Which state an error resets depends on the release (`JavaRelease.forgets_member_id`).
"""

from __future__ import annotations

from ...error_codes import ErrorCode as E
from ...group.assignors import Assignor
from ...group.classic.member import leadership
from ...group.classic.member.reasons import ENCOUNTERED, FAILED_WITH, GET_MEMBER_ID, MAX_REASON
from ...group.subscription import Assignment, Subscription
from ...messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    ConsumerProtocolSubscriptionTopicPartition,
)
from ...messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ...messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from . import consumer_metadata, coordinator_lookup
from .hash_order import group_by_topic, topic_order
from .release import exception_name
from .state import (
    DISCONNECTED,
    NO_GENERATION,
    InFlightRequest,
    JavaGeneration,
    JavaMemberState,
    JavaState,
    Out,
    move,
    send_request,
)

M = JavaMemberState
JOIN_GRACE_MS = 5_000
# The code for any JoinGroup or SyncGroup error that Java does not expect. Poll then throws a KafkaException.
UNEXPECTED_ERROR = -3
EXPECTED_JOIN_ERRORS = {
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR,
    E.UNKNOWN_MEMBER_ID,
    E.MEMBER_ID_REQUIRED,
    E.REBALANCE_IN_PROGRESS,
    E.FENCED_INSTANCE_ID,
    E.INCONSISTENT_GROUP_PROTOCOL,
    E.INVALID_SESSION_TIMEOUT,
    E.INVALID_GROUP_ID,
    E.GROUP_AUTHORIZATION_FAILED,
    E.GROUP_MAX_SIZE_REACHED,
    E.UNSUPPORTED_VERSION,
}
_EXPECTED_SYNC_ERRORS = EXPECTED_JOIN_ERRORS - {E.COORDINATOR_LOAD_IN_PROGRESS} | {E.ILLEGAL_GENERATION}


def request_rejoin(state: JavaState, reason: str) -> None:
    """Make the next poll join again. JoinGroup contains the reason (requestRejoin, KIP-800)."""
    state.rejoin_needed, state.reason = True, reason


def reset_state_and_rejoin(state: JavaState, reason: str, *, keep_id: bool = False) -> None:
    """Reset the generation, stop heartbeats and request a rejoin (resetStateAndRejoin).

    `keep_id` keeps the member id, unless this release of kafka-clients resets it whenever it resets the
    generation (`JavaRelease.forgets_member_id`).
    """
    member_id = state.generation.member_id if keep_id and not state.release.forgets_member_id else ""
    move(state, M.UNJOINED)
    state.generation = JavaGeneration(-1, member_id) if member_id else NO_GENERATION
    state.heartbeat_enabled = False
    if not state.release.forgets_member_id:
        state.needs_prepare = True
    request_rejoin(state, reason)


def reset_after_error(state: JavaState, code: int, api: str) -> None:
    """Reset the member after an error. The next JoinGroup names the error as its reason (KIP-800)."""
    reset_state_and_rejoin(state, ENCOUNTERED.format(E(code).name, api), keep_id=code == E.ILLEGAL_GENERATION)


# -- JoinGroup


def send_join_group(state: JavaState, out: Out) -> None:
    """Send JoinGroup (sendJoinGroupRequest). Heartbeats stop until the response arrives."""
    assert state.coordinator is not None
    move(state, M.PREPARING_REBALANCE)
    state.joined_topics, state.join_in_flight = state.topics, True
    state.join_result = state.join_error = None
    state.heartbeat_enabled = False
    request = JoinGroupRequest(
        group_id=state.config.group_id,
        session_timeout_ms=state.session_ms,
        rebalance_timeout_ms=state.max_poll_ms,
        member_id=state.generation.member_id,
        group_instance_id=state.config.instance,
        protocol_type="consumer",
        protocols=[
            JoinGroupRequestProtocol(name=assignor.name, metadata=encode_subscription(state, assignor))
            for assignor in state.assignors
        ],
        reason=state.reason[:MAX_REASON] if state.release.reasons else None,
    )
    send_request(state, state.coordinator, request, out, timeout_ms=state.max_poll_ms + JOIN_GRACE_MS)


def encode_subscription(state: JavaState, assignor: Assignor) -> bytes:
    """Encode the subscription for one assignor (ConsumerCoordinator.metadata).

    kafka-clients 2.6 writes version 1 of the subscription, with the topics in the order of a HashSet.
    """
    user_data = assignor.user_data(*state.previous.get(assignor.name, (None, -1)))
    if state.release.subscription_version < 2:
        body = ConsumerProtocolSubscription(
            topics=topic_order(state.topics),
            user_data=None if assignor.cooperative else user_data,
            owned_partitions=[
                ConsumerProtocolSubscriptionTopicPartition(topic=topic, partitions=partitions)
                for topic, partitions in group_by_topic(state.assigned).items()
            ],
        )
        return b"\0\1" + body.encode(1)
    return Subscription(
        topics=tuple(state.topics),
        user_data=user_data,
        owned=tuple(sorted(state.assigned)),
        generation=state.generation.number if state.generation.number >= 0 else None,
        rack_id=state.config.rack or None,
    ).encode(state.release.subscription_version)


def on_join_group_response(
    state: JavaState, entry: InFlightRequest, response: JoinGroupResponse | None, out: Out
) -> None:
    """Handle a JoinGroup response; None means that the connection was lost (JoinGroupResponseHandler)."""
    if not state.join_in_flight:
        return
    if response is None:
        coordinator_lookup.mark_coordinator_unknown(state, out, disconnected=True)
        _fail_join(state, DISCONNECTED)
    elif response.error_code:
        _handle_join_error(state, entry, response, out)
    elif state.state is not M.PREPARING_REBALANCE:
        # The member was reset while JoinGroup was in flight. The join is retried, as after a lost connection.
        _fail_join(state, DISCONNECTED)
    else:
        _handle_join_success(state, response, out)


def _fail_join(state: JavaState, code: int) -> None:
    """End the join with an error. Depending on its code, poll retries the join or throws the error."""
    state.join_in_flight, state.join_error = False, code


def _handle_join_error(
    state: JavaState, entry: InFlightRequest, response: JoinGroupResponse, out: Out
) -> None:
    """Apply a JoinGroup error: reset the member, forget the coordinator or adopt the member id."""
    code = response.error_code
    if code == E.UNKNOWN_MEMBER_ID:
        if entry.generation == state.generation:
            reset_state_and_rejoin(state, FAILED_WITH.format(exception_name(code)))
    elif code in (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR):
        coordinator_lookup.mark_coordinator_unknown(state, out)
    elif code == E.MEMBER_ID_REQUIRED:
        state.generation = JavaGeneration(-1, response.member_id)
        move(state, M.UNJOINED)
        request_rejoin(state, GET_MEMBER_ID.format(response.member_id))
    is_unexpected = code == E.REBALANCE_IN_PROGRESS and not state.release.retries_join_rebalance
    _fail_join(state, UNEXPECTED_ERROR if is_unexpected or code not in EXPECTED_JOIN_ERRORS else code)


def _handle_join_success(state: JavaState, response: JoinGroupResponse, out: Out) -> None:
    """Enter the generation of a JoinGroup response, and start heartbeats.

    A leader assigns the partitions before it sends SyncGroup. It first requests metadata if it does not know
    all topics of the group. A follower sends SyncGroup immediately.
    """
    move(state, M.COMPLETING_REBALANCE)
    state.generation = JavaGeneration(response.generation_id, response.member_id, response.protocol_name)
    state.heartbeat_enabled, state.heartbeat_in_flight, state.heartbeat_failures = True, None, 0
    state.heartbeat_at = state.now + state.heartbeat_ms
    state.session_deadline = state.now + state.session_ms
    state.max_poll_deadline = state.now + state.max_poll_ms
    if response.leader != response.member_id:
        send_sync_group(state, [], out)
        return
    if lookup_assignor(state) is None:
        state.join_in_flight, state.pending_exception = False, unknown_assignor_error(state)
        return
    state.is_leader, state.skip_assignment = True, response.skip_assignment
    state.members = leadership.decode_subscriptions(
        (m.member_id, m.group_instance_id, m.metadata) for m in response.members
    )
    state.group_topics = leadership.topics_of(state.members)
    state.awaiting_metadata = True
    if not state.group_topics <= state.cluster.topics.keys():
        consumer_metadata.request_update_for_new_topics(state)
    else:
        perform_assignment(state, out)


def lookup_assignor(state: JavaState) -> Assignor | None:
    """Return the assignor that the coordinator selected, or None if the member has no such assignor.

    Follows lookupAssignor.
    """
    return next(
        (assignor for assignor in state.assignors if assignor.name == state.generation.protocol), None
    )


def unknown_assignor_error(state: JavaState) -> tuple[str, str]:
    """Return the exception for a protocol that this member did not offer."""
    name = state.generation.protocol
    return "IllegalStateException", f"Coordinator selected invalid assignment protocol: {name}"


# -- the leader's assignment, and SyncGroup


def perform_assignment(state: JavaState, out: Out) -> None:
    """Assign the partitions as the leader, and keep a snapshot of the metadata to detect later changes.

    Java's method is onLeaderElected in version 4.3 of the client, and performAssignment in version 2.6.
    """
    state.awaiting_metadata = False
    if state.state is not M.COMPLETING_REBALANCE:
        _fail_join(state, DISCONNECTED)
        return
    assignor = lookup_assignor(state)
    assert assignor is not None
    metadata = consumer_metadata.known_metadata(state, state.group_topics)
    state.metadata_snapshot = consumer_metadata.take_snapshot(state, state.topics | state.group_topics)
    state.assignment_snapshot = state.metadata_snapshot
    assignments: list[SyncGroupRequestAssignment] = []
    if not state.skip_assignment:
        assignments = leadership.assign(
            assignor,
            state.members,
            metadata,
            {},
            Assignment.encode if state.release.sorts_partitions else encode_assignment_2_6,
        )
    send_sync_group(state, assignments, out)


def encode_assignment_2_6(assignment: Assignment) -> bytes:
    """Encode an assignment as kafka-clients 2.6 does.

    Topics are in the order of a Java hash map, partitions in the order of the assignor.
    """
    topics = group_by_topic(assignment.partitions)
    body = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=partitions)
            for topic, partitions in topics.items()
        ],
        user_data=assignment.user_data,
    )
    return b"\0\1" + body.encode(1)


def send_sync_group(state: JavaState, assignments: list[SyncGroupRequestAssignment], out: Out) -> None:
    """Send SyncGroup (sendSyncGroupRequest). If the coordinator is unknown, the join fails."""
    if state.coordinator is None:
        _fail_join(state, E.COORDINATOR_NOT_AVAILABLE)
        return
    request = SyncGroupRequest(
        group_id=state.config.group_id,
        generation_id=state.generation.number,
        member_id=state.generation.member_id,
        group_instance_id=state.config.instance,
        protocol_type="consumer",
        protocol_name=state.generation.protocol,
        assignments=assignments,
    )
    send_request(state, state.coordinator, request, out)


def on_sync_group_response(
    state: JavaState, entry: InFlightRequest, response: SyncGroupResponse | None, out: Out
) -> None:
    """Handle a SyncGroup response; None means that the connection was lost (SyncGroupResponseHandler)."""
    if not state.join_in_flight:
        return
    if response is None:
        coordinator_lookup.mark_coordinator_unknown(state, out, disconnected=True)
        request_rejoin(state, FAILED_WITH.format("DisconnectException"))
        _fail_join(state, DISCONNECTED)
        return
    code = response.error_code
    if code == E.NONE:
        if state.state is M.COMPLETING_REBALANCE and state.generation != NO_GENERATION:
            move(state, M.STABLE)
            state.rejoin_needed, state.reason = False, ""
            state.join_in_flight, state.join_result = False, response.assignment
        else:
            _fail_join(state, E.ILLEGAL_GENERATION)
        return
    request_rejoin(state, FAILED_WITH.format(exception_name(code)))
    if code in (E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION):
        if entry.generation == state.generation:
            reset_state_and_rejoin(
                state, FAILED_WITH.format(exception_name(code)), keep_id=code == E.ILLEGAL_GENERATION
            )
    elif code in (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR):
        coordinator_lookup.mark_coordinator_unknown(state, out)
    _fail_join(state, code if code in _EXPECTED_SYNC_ERRORS else UNEXPECTED_ERROR)
