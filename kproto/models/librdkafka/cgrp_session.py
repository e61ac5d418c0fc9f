"""The handling of heartbeat responses, the session timeout and max.poll.interval.ms (rdkafka_cgrp.c).

* Errors in heartbeat responses that arrive during a join are ignored.

* M111: A member loses its whole assignment if no heartbeat response with NONE or REBALANCE_IN_PROGRESS
  arrives for session.timeout.ms. The member measures the timeout by its own clock, and checks it only in
  STEADY.

* M112: max.poll.interval.ms is checked twice a second. When it expires, the member reports an error, leaves
  (unless it is static) and loses its whole assignment. It joins again only after the next poll.
"""

from __future__ import annotations

from ...error_codes import ErrorCode as E
from ...messages.heartbeat import HeartbeatResponse
from .cgrp_leave import leave
from .cgrp_rebalance import MAX_POLL_CHECK_MS, group_is_rebalancing, revoke_all_rejoin_maybe
from .constants import MAX_POLL_EXCEEDED
from .request import TRANSPORT, ErrAction, err_action, retry_request
from .state import CgrpJoinState, ErrorOp, InternalOp, LibrdkafkaState, Out, RequestBuf, set_fatal

J = CgrpJoinState
# After these errors of a heartbeat, the member looks up its coordinator again.
_QUERY_COORDINATOR_CODES = {E.NOT_COORDINATOR, E.COORDINATOR_NOT_AVAILABLE, TRANSPORT}


def on_heartbeat_response(
    state: LibrdkafkaState, entry: RequestBuf, response: HeartbeatResponse | None, out: Out
) -> None:
    """Handle a Heartbeat response or a lost connection (rd_kafka_cgrp_handle_Heartbeat).

    `response` is None if the connection was lost.
    """
    state.heartbeat_in_flight = False
    code = TRANSPORT if response is None else response.error_code
    is_joining = state.state is J.INIT or J.INIT < state.state <= J.WAIT_SYNC
    if code == E.NONE:
        update_session_timeout(state)
    elif is_joining:
        return
    elif code in _QUERY_COORDINATOR_CODES:
        state.internal_ops.append(InternalOp.QUERY_COORDINATOR)
    elif code == E.REBALANCE_IN_PROGRESS:
        update_session_timeout(state)
        if not state.waits_for_call:
            group_is_rebalancing(state, out)
    elif code == E.UNKNOWN_MEMBER_ID:
        state.member_id = ""
        revoke_all_rejoin_maybe(state, lost=True, out=out)
    elif code == E.ILLEGAL_GENERATION:
        state.generation = -1
        revoke_all_rejoin_maybe(state, lost=True, out=out)
    elif code == E.FENCED_INSTANCE_ID:
        set_fatal(state, code)
        revoke_all_rejoin_maybe(state, lost=True, out=out)
    else:
        action = err_action(code)
        if ErrAction.REFRESH in action:
            state.internal_ops.append(InternalOp.QUERY_COORDINATOR)
        if ErrAction.RETRY in action and retry_request(state, entry):
            state.heartbeat_in_flight = True


def update_session_timeout(state: LibrdkafkaState) -> None:
    """Restart the session timer, unless the session has expired (rd_kafka_cgrp_update_session_timeout)."""
    if state.session_deadline is not None:
        state.session_deadline = state.now + state.session_ms


def check_session_timeout(state: LibrdkafkaState, out: Out) -> None:
    """Revoke the assignment as lost if the session has expired (rd_kafka_cgrp_session_timeout_check)."""
    if state.state is J.STEADY and state.session_deadline is not None and state.now >= state.session_deadline:
        state.session_deadline, state.member_id = None, ""
        revoke_all_rejoin_maybe(state, lost=True, out=out)


def check_max_poll_interval(state: LibrdkafkaState, out: Out) -> None:
    """Leave the group and revoke the assignment as lost after max.poll.interval.ms without a poll.

    A static member sends no LeaveGroup. The function follows rd_kafka_cgrp_max_poll_interval_check_tmr_cb.
    """
    state.max_poll_at = state.now + MAX_POLL_CHECK_MS
    exceeded_ms = state.now - state.last_poll - state.max_poll_ms
    if state.open_poll is not None or exceeded_ms <= 0:
        return
    text = f"Application maximum poll interval ({state.max_poll_ms}ms) exceeded by {exceeded_ms}ms"
    state.queue.append(ErrorOp(MAX_POLL_EXCEEDED, text))
    state.max_poll_exceeded, state.max_poll_at = True, None
    if not state.is_static:
        leave(state, out)
    state.member_id = ""
    revoke_all_rejoin_maybe(state, lost=True, out=out)
