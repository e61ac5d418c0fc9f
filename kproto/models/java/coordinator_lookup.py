"""The lookup of the coordinator, and the events after which the coordinator is unknown.

The module follows AbstractCoordinator.

* M26, M29: When the connection to the coordinator is lost, the coordinator becomes unknown.

* M28: One FindCoordinator is in flight at a time. The next one is sent after a backoff.
"""

from __future__ import annotations

from ...error_codes import ErrorCode as E
from ...messages.find_coordinator import FindCoordinatorResponse
from ..common import find_coordinator_request, parse_find_coordinator
from ..contract import Address, CloseConnection
from .release import exception_name
from .state import (
    COORDINATOR,
    DISCONNECTED,
    RETRIABLE,
    RETRY_BACKOFF_MS,
    JavaState,
    Out,
    least_loaded_node,
    request_version,
    send_request,
)


def lookup_coordinator(state: JavaState, out: Out) -> None:
    """Send FindCoordinator, unless one is in flight or the backoff has not ended (lookupCoordinator)."""
    if state.coordinator is not None or state.find_in_flight or state.now < state.find_retry_at:
        return
    state.find_in_flight = True
    send_request(
        state,
        least_loaded_node(state),
        find_coordinator_request(state.config.group_id, request_version(state, api_key=10)),
        out,
    )


def on_find_coordinator_response(
    state: JavaState, response: FindCoordinatorResponse | None, out: Out
) -> None:
    """Handle a FindCoordinator response, or None for a lost connection (FindCoordinatorResponseHandler)."""
    state.find_in_flight = False
    code = DISCONNECTED if response is None else parse_find_coordinator(response).error
    if code == E.NONE and response is not None:
        coordinator = parse_find_coordinator(response)
        state.coordinator = Address(coordinator.host, coordinator.port, COORDINATOR)
        state.cluster.brokers.setdefault(coordinator.node, (coordinator.host, coordinator.port))
        state.session_deadline = state.now + state.session_ms
        state.find_failures = 0
        return
    state.find_failures += 1
    state.find_retry_at = state.now + RETRY_BACKOFF_MS
    if code == DISCONNECTED or code in RETRIABLE:
        state.metadata_update_requested = True
    else:
        text = (
            f"Not authorized to access group: {state.config.group_id}"
            if code == E.GROUP_AUTHORIZATION_FAILED
            else exception_name(code)
        )
        state.find_error = (exception_name(code), text)


def mark_coordinator_unknown(state: JavaState, out: Out, *, disconnected: bool = False) -> None:
    """Forget the coordinator (markCoordinatorUnknown), and close its connection unless `disconnected`."""
    if state.coordinator is None:
        return
    address, state.coordinator = state.coordinator, None
    if not disconnected:
        out.append(CloseConnection(address))
