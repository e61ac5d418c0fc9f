"""The heartbeat thread and leaving the group (AbstractCoordinator.HeartbeatThread).

* M6, M7: Heartbeats start when the JoinGroup response arrives, before the SyncGroup response. While a
  JoinGroup is in flight, no heartbeat is sent.

* M28: If the coordinator is unknown, the thread looks it up.

* If no heartbeat response arrives within the session timeout, the thread marks the coordinator unknown. The
  member stays in its generation.

* When max.poll.interval.ms expires, the thread sends LeaveGroup, unless the member is static, and resets the
  generation. The next poll calls onPartitionsLost.

* FENCED_INSTANCE_ID ends the thread. The next poll throws, and the poll after it joins again.

* M118: A heartbeat response that arrives after the member left its generation changes nothing.
"""

from __future__ import annotations

from ...error_codes import ErrorCode as E
from ...group.classic.member.reasons import ALREADY_REBALANCING, LEFT_BY_ITSELF
from ...group.protocol import POLL_TIMEOUT
from ...messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ...messages.leave_group import LeaveGroupRequest, MemberIdentity
from . import coordinator_lookup
from .abstract_coordinator import request_rejoin, reset_after_error, reset_state_and_rejoin
from .state import (
    POLLING,
    RETRY_BACKOFF_MS,
    InFlightRequest,
    JavaMemberState,
    JavaState,
    Out,
    request_version,
    send_request,
)

M = JavaMemberState
STATES_WITHOUT_HEARTBEATS = (M.UNJOINED, M.PREPARING_REBALANCE)
FENCED = (
    "FencedInstanceIdException",
    "The broker rejected this static consumer since another consumer with the same group.instance.id has"
    " registered with a different member.id.",
)


def deadline(state: JavaState) -> int | None:
    """Return the time at which the thread wakes next, or None if no timer runs."""
    if not state.heartbeat_enabled or state.heartbeat_exception is not None:
        return None
    if state.coordinator is None:
        return None if state.find_in_flight else max(state.now, state.find_retry_at)
    earliest = state.session_deadline
    if state.thread.state is not POLLING and state.max_poll_deadline < earliest:
        earliest = state.max_poll_deadline
    if state.heartbeat_in_flight is None and state.heartbeat_at < earliest:
        earliest = state.heartbeat_at
    return earliest


def run(state: JavaState, out: Out) -> None:
    """Run one iteration of the thread's loop (HeartbeatThread.run)."""
    if not state.heartbeat_enabled or state.heartbeat_exception is not None:
        return
    if state.state in STATES_WITHOUT_HEARTBEATS:
        return
    if state.coordinator is None:
        coordinator_lookup.lookup_coordinator(state, out)
    elif state.now >= state.session_deadline:
        coordinator_lookup.mark_coordinator_unknown(state, out)
    elif state.now >= state.max_poll_deadline and not _is_polling(state):
        maybe_leave_group(state, POLL_TIMEOUT, out)
    elif state.heartbeat_in_flight is None and state.now >= state.heartbeat_at:
        _send_heartbeat(state, out)


def _is_polling(state: JavaState) -> bool:
    return state.thread.state is POLLING


def _send_heartbeat(state: JavaState, out: Out) -> None:
    assert state.coordinator is not None
    request = HeartbeatRequest(
        group_id=state.config.group_id,
        generation_id=state.generation.number,
        member_id=state.generation.member_id,
        group_instance_id=state.config.instance,
    )
    state.heartbeat_in_flight, state.heartbeat_at = request, state.now + state.heartbeat_ms
    send_request(state, state.coordinator, request, out)


def on_heartbeat_response(
    state: JavaState, entry: InFlightRequest, response: HeartbeatResponse | None, out: Out
) -> None:
    """Handle a Heartbeat response; None means that the connection was lost (HeartbeatResponseHandler)."""
    if entry.send.request is state.heartbeat_in_flight:
        state.heartbeat_in_flight = None
    is_current_generation = entry.generation == state.generation
    code = -1 if response is None else response.error_code
    if response is None:
        coordinator_lookup.mark_coordinator_unknown(state, out, disconnected=True)
        _delay_next_heartbeat(state)
    elif code == E.NONE:
        _reset_session_timer(state)
    elif code in (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR):
        coordinator_lookup.mark_coordinator_unknown(state, out)
        _delay_next_heartbeat(state)
    elif code == E.REBALANCE_IN_PROGRESS:
        _reset_session_timer(state)
        if state.state is M.STABLE:
            request_rejoin(state, ALREADY_REBALANCING)
    elif code in (E.ILLEGAL_GENERATION, E.UNKNOWN_MEMBER_ID, E.FENCED_INSTANCE_ID):
        if is_current_generation:
            reset_after_error(state, code, "HEARTBEAT")
            if code == E.FENCED_INSTANCE_ID:
                state.heartbeat_exception = FENCED
    else:
        _delay_next_heartbeat(state)


def _reset_session_timer(state: JavaState) -> None:
    state.session_deadline, state.heartbeat_failures = state.now + state.session_ms, 0


def _delay_next_heartbeat(state: JavaState) -> None:
    """After a failed heartbeat, delay the next one by the backoff.

    In Kafka 4.3, the backoff grows with each consecutive failure.
    """
    factor = 1 if state.release.commits_synchronously else 2 ** min(state.heartbeat_failures, 4)
    state.heartbeat_at = state.now + min(RETRY_BACKOFF_MS * factor, 1_000)
    state.heartbeat_failures += 1


def maybe_leave_group(state: JavaState, reason: str, out: Out) -> bool:
    """Send LeaveGroup if this is a dynamic member with a member id (maybeLeaveGroup, M60).

    Returns whether LeaveGroup was sent. The generation is reset in either case.
    """
    is_sent = False
    is_dynamic = state.config.instance is None
    is_member = state.state is not M.UNJOINED and bool(state.generation.member_id)
    if is_dynamic and is_member and state.coordinator is not None:
        identity = MemberIdentity(
            member_id=state.generation.member_id, reason=reason if state.release.reasons else None
        )
        if request_version(state, api_key=13) < 3:
            request = LeaveGroupRequest(group_id=state.config.group_id, member_id=identity.member_id)
        else:
            request = LeaveGroupRequest(group_id=state.config.group_id, members=[identity])
        send_request(state, state.coordinator, request, out)
        is_sent = True
    reset_state_and_rejoin(state, LEFT_BY_ITSELF)
    state.needs_prepare = True
    state.join_in_flight, state.join_result, state.awaiting_metadata = False, None, False
    return is_sent
