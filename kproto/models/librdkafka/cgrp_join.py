"""JoinGroup, the leader's assignment and SyncGroup (rdkafka_cgrp.c).

* A join needs metadata for all subscribed topics, and at least one topic that exists.

* A JoinGroup is sent at least one second after the previous one, or two seconds if the previous one failed.
  But after MEMBER_ID_REQUIRED, an unassign or a Metadata response, it is sent immediately.

* JoinGroup errors: UNKNOWN_MEMBER_ID resets the member id, and ILLEGAL_GENERATION resets the generation. A
  response with MEMBER_ID_REQUIRED contains the member id for the next JoinGroup. After ILLEGAL_GENERATION or
  MEMBER_ID_REQUIRED, a cooperative member loses its partitions.

* Permanent JoinGroup errors are reported, but the member still rejoins. FENCED_INSTANCE_ID is fatal for a
  static member.

* SyncGroup errors: after COORDINATOR_LOAD_IN_PROGRESS, the request is repeated. After any other error the
  member rejoins. After UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION, a cooperative member also loses its
  partitions.

* A response is dropped if the group has left the state that waits for the response.

* Heartbeats are sent in STEADY, and while a rebalance event waits for its answer, but not while JoinGroup or
  SyncGroup is in flight. The main loop sends each heartbeat in its first iteration after the interval.
"""

from __future__ import annotations

from ...error_codes import ErrorCode as E
from ...errors import KprotoError
from ...group.assignors import Assignor
from ...group.classic.member import leadership
from ...group.protocol import MetadataUpdated
from ...group.subscription import Assignment, Subscription, sticky_user_data
from ...messages.heartbeat import HeartbeatRequest
from ...messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ...messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from . import metadata
from .cgrp_rebalance import handle_assignment, rejoin, revoke_all_rejoin
from .constants import UNKNOWN_PROTOCOL, err2name
from .err_texts import err2str
from .request import TRANSPORT, ErrAction, err_action, retry_request, send_request
from .state import (
    CgrpJoinState,
    CgrpState,
    ErrorOp,
    InternalOp,
    LibrdkafkaState,
    Out,
    RequestBuf,
    move,
    set_fatal,
)

J = CgrpJoinState
JOIN_INTERVAL_MS = 1_000
JOIN_BACKOFF_MS = 1_000
JOIN_GRACE_MS = 3_000


def join(state: LibrdkafkaState, out: Out) -> None:
    """Start a join, which requests missing metadata first (rd_kafka_cgrp_join).

    Do nothing if the coordinator is unknown, a join is in progress, no subscribed topic exists, or the
    application still exceeds max.poll.interval.ms.
    """
    if (
        state.coord.state is not CgrpState.UP
        or state.state is not J.INIT
        or state.join_or_sync_in_flight is not None
    ):
        return
    is_poll_overdue = state.open_poll is None and state.now - state.last_poll >= state.max_poll_ms
    if state.max_poll_exceeded and is_poll_overdue:
        return
    state.max_poll_exceeded = False
    if metadata.refresh_for_join(state, out):
        move(state, J.WAIT_METADATA)
        return
    if not state.subscribed_topics:
        metadata.update_check(state, False, out)
    if not state.subscribed_topics:
        return
    _send_join(state, out)
    move(state, J.WAIT_JOIN)


def _send_join(state: LibrdkafkaState, out: Out) -> None:
    assert state.coordinator is not None
    request = JoinGroupRequest(
        group_id=state.config.group_id,
        session_timeout_ms=state.session_ms,
        rebalance_timeout_ms=state.max_poll_ms,
        member_id=state.member_id,
        group_instance_id=state.config.instance,
        protocol_type="consumer",
        protocols=[
            JoinGroupRequestProtocol(name=assignor.name, metadata=encode_subscription(state, assignor))
            for assignor in state.assignors
        ],
    )
    state.join_or_sync_in_flight = request
    send_request(state, state.coordinator, request, out, timeout_ms=state.max_poll_ms + JOIN_GRACE_MS)


def encode_subscription(state: LibrdkafkaState, assignor: Assignor) -> bytes:
    """Encode the subscription, which contains the owned partitions if the assignor is cooperative.

    Follows rkas_get_metadata_cb.
    """
    has_previous = assignor.cooperative and state.previous_assignment is not None
    subscription = Subscription(
        topics=tuple(state.subscribed_topics),
        user_data=sticky_user_data(state.previous_assignment or (), state.previous_generation)
        if has_previous
        else b"",
        owned=(state.group_assignment or ()) if assignor.cooperative else (),
        generation=state.previous_generation if has_previous else None,
        rack_id=state.config.rack or (None if state.is_old_release else ""),
    )
    return subscription.encode(1 if state.is_old_release else 3)


def on_join_group_response(
    state: LibrdkafkaState, entry: RequestBuf, response: JoinGroupResponse | None, out: Out
) -> None:
    """Handle a JoinGroup response or a lost connection (rd_kafka_cgrp_handle_JoinGroup).

    `response` is None if the connection was lost.
    """
    state.join_or_sync_in_flight = None
    if state.terminating or state.state is not J.WAIT_JOIN:
        return
    code = TRANSPORT if response is None else response.error_code
    if response is None or code:
        state.join_interval.backoff = JOIN_BACKOFF_MS
        _handle_join_error(state, code, response, out)
        return
    selected = next(
        (assignor for assignor in state.assignors if assignor.name == response.protocol_name), None
    )
    if selected is None:
        state.join_interval.backoff = JOIN_BACKOFF_MS
        state.queue.append(ErrorOp(UNKNOWN_PROTOCOL, "JoinGroup failed: Local: Unknown protocol"))
        rejoin(state, out)
        return
    state.member_id, state.generation, state.assignor = response.member_id, response.generation_id, selected
    if response.leader == response.member_id:
        _request_assignor_metadata(state, entry, response, out)
    else:
        send_sync_group(state, [], out)


def _handle_join_error(
    state: LibrdkafkaState, code: int, response: JoinGroupResponse | None, out: Out
) -> None:
    """Reset the state that an error of JoinGroup invalidates, and rejoin. Report a permanent error."""
    actions = ErrAction.NONE if code in _IGNORED_BY_ERR_ACTION else err_action(code)
    if ErrAction.REFRESH in actions:
        state.internal_ops.append(InternalOp.QUERY_COORDINATOR)
    if code == E.FENCED_INSTANCE_ID:
        set_fatal(state, code)
    elif ErrAction.PERMANENT in actions:
        state.queue.append(ErrorOp(err2name(code), f"JoinGroup failed: {err2str(code)}"))
    if code == E.UNKNOWN_MEMBER_ID:
        state.member_id = ""
    elif code == E.ILLEGAL_GENERATION:
        state.generation = -1
    elif code == E.MEMBER_ID_REQUIRED and response is not None:
        state.member_id = response.member_id
        state.join_interval.reset()
    if state.cooperative and code in (E.ILLEGAL_GENERATION, E.MEMBER_ID_REQUIRED):
        revoke_all_rejoin(state, lost=True, out=out)
    else:
        rejoin(state, out)


# Errors of JoinGroup that cause none of the actions of `ErrAction`.
_IGNORED_BY_ERR_ACTION = {E.UNKNOWN_MEMBER_ID, E.MEMBER_ID_REQUIRED, E.ILLEGAL_GENERATION}


# -- the leader


def _request_assignor_metadata(
    state: LibrdkafkaState, entry: RequestBuf, response: JoinGroupResponse, out: Out
) -> None:
    """Decode the members' subscriptions, and request the metadata of all their topics."""
    state.group_members = leadership.decode_subscriptions(
        (m.member_id, m.group_instance_id, m.metadata) for m in response.members
    )
    move(state, J.WAIT_METADATA)
    topics = sorted(leadership.topics_of(state.group_members))
    metadata.request_assignor_metadata(state, topics, entry.send.to, out)


def assignor_run(state: LibrdkafkaState, out: Out) -> None:
    """Run the assignor when metadata of all members' topics has arrived; rejoin if the assignor fails.

    Follows rd_kafka_cgrp_assignor_run.
    """
    if state.state is not J.WAIT_METADATA or not state.group_members or state.assignor is None:
        return
    topics = leadership.topics_of(state.group_members)
    racks = {topic: tuple(sets) for topic, sets in state.cluster.rack_sets(topics).items()}
    metadata_of_topics = MetadataUpdated(state.cluster.partition_counts(topics), racks=racks)
    try:
        assignments = leadership.assign(state.assignor, state.group_members, metadata_of_topics, {})
    except KprotoError:
        rejoin(state, out)
        return
    send_sync_group(state, assignments, out)


def send_sync_group(state: LibrdkafkaState, assignments: list[SyncGroupRequestAssignment], out: Out) -> None:
    """Send SyncGroup, with assignments if this is the leader (rd_kafka_SyncGroupRequest)."""
    assert state.coordinator is not None
    move(state, J.WAIT_SYNC)
    request = SyncGroupRequest(
        group_id=state.config.group_id,
        generation_id=state.generation,
        member_id=state.member_id,
        group_instance_id=state.config.instance,
        protocol_type="consumer",
        protocol_name=state.assignor.name if state.assignor is not None else None,
        assignments=assignments,
    )
    state.join_or_sync_in_flight = request
    send_request(state, state.coordinator, request, out, timeout_ms=state.session_ms)


def on_sync_group_response(
    state: LibrdkafkaState, entry: RequestBuf, response: SyncGroupResponse | None, out: Out
) -> None:
    """Handle a SyncGroup response: retry, rejoin, or queue the assignment for the application.

    rd_kafka_cgrp_handle_SyncGroup and rd_kafka_cgrp_handle_SyncGroup_memberstate.
    """
    if state.state is not J.WAIT_SYNC:
        state.join_or_sync_in_flight = None
        return
    code = TRANSPORT if response is None else response.error_code
    actions = err_action(code)
    if ErrAction.REFRESH in actions:
        state.internal_ops.append(InternalOp.QUERY_COORDINATOR)
    if ErrAction.RETRY in actions and retry_request(state, entry):
        return
    state.join_or_sync_in_flight = None
    if response is None or code or state.terminating:
        _handle_sync_error(state, code, out)
        return
    partitions = Assignment.decode(response.assignment).partitions
    state.session_deadline = state.now + state.session_ms
    if state.assignor is not None and state.assignor.cooperative:
        state.previous_assignment, state.previous_generation = tuple(sorted(partitions)), state.generation
    handle_assignment(state, tuple(sorted(partitions)), out)


def _handle_sync_error(state: LibrdkafkaState, code: int, out: Out) -> None:
    """Reset the generation or member id if SyncGroup's error says that it is invalid, and rejoin."""
    if code == E.FENCED_INSTANCE_ID:
        set_fatal(state, code)
    elif code == E.ILLEGAL_GENERATION:
        state.generation = -1
    elif code == E.UNKNOWN_MEMBER_ID:
        state.member_id = ""
    if state.cooperative and code in (E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID):
        revoke_all_rejoin(state, lost=True, out=out)
    else:
        rejoin(state, out)


# -- staying


def send_heartbeat(state: LibrdkafkaState, out: Out) -> None:
    """Send a heartbeat if the heartbeat interval has passed since the last one (rd_kafka_cgrp_heartbeat).

    No heartbeat is sent while another is in flight, or after max.poll.interval.ms was exceeded.
    """
    if state.subscription is None or not state.heartbeat_interval.restart_if_due(
        state.heartbeat_ms, state.now
    ):
        return
    if state.max_poll_exceeded or state.heartbeat_in_flight or state.coordinator is None:
        return
    state.heartbeat_in_flight = True
    request = HeartbeatRequest(
        group_id=state.config.group_id,
        generation_id=state.generation,
        member_id=state.member_id,
        group_instance_id=state.config.instance,
    )
    send_request(state, state.coordinator, request, out, timeout_ms=state.session_ms)
