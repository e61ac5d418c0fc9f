"""The coordinator lookup of rdkafka_cgrp.c.

The module follows rd_kafka_cgrp_coord_query, _coord_update, _handle_FindCoordinator and _serve.

The model sends the requests that release 2.16 was observed to send. Metadata and FindCoordinator first go to
the bootstrap address.

Metadata and FindCoordinator are sent again when the first connection to a broker with a known node id opens.
FindCoordinator is sent a third time while the connection to the coordinator is being opened.
"""

from __future__ import annotations

from ...error_codes import ErrorCode as E
from ...machine import ensure_state
from ...messages.find_coordinator import FindCoordinatorResponse
from ..common import find_coordinator_request, metadata_request, parse_find_coordinator
from ..contract import Address
from .constants import err2name
from .err_texts import err2str
from .request import BOOTSTRAP, COORDINATOR, TRANSPORT, ErrAction, any_usable_broker, err_action, send_request
from .state import COORD_EDGES, UP, CgrpState, ErrorOp, InternalOp, LibrdkafkaState, Out, RequestBuf

# The minimum interval between two FindCoordinator requests while the coordinator is unknown.
QUERY_INTERVAL_MS = 500
# The time from the loss of the connection to the coordinator until the connection is open again.
RECONNECT_MS = 100
# Default of coordinator.query.interval.ms.
RELAXED_QUERY_INTERVAL_MS = 600_000


def coord_query(state: LibrdkafkaState, out: Out) -> None:
    """Send FindCoordinator (rd_kafka_cgrp_coord_query)."""
    if not state.bootstrap:
        return
    send_request(state, any_usable_broker(state), find_coordinator_request(state.config.group_id, 2), out)
    if state.coord.state is CgrpState.QUERY_COORD:
        ensure_state(state.coord, CgrpState.WAIT_COORD, COORD_EDGES)
    state.coord.query_interval.last = state.now
    state.coord.query_interval.backoff = 0


def coord_dead(state: LibrdkafkaState, out: Out) -> None:
    """Forget the coordinator and look it up immediately (rd_kafka_cgrp_coord_dead)."""
    state.coordinator, state.coord.up_at = None, None
    ensure_state(state.coord, CgrpState.QUERY_COORD, COORD_EDGES)
    coord_query(state, out)


def on_coordinator_disconnect(state: LibrdkafkaState) -> None:
    """Reconnect to the coordinator, which stays known until a lookup names another broker."""
    if state.coord.state is UP:
        ensure_state(state.coord, CgrpState.QUERY_COORD, COORD_EDGES)
        state.coord.up_at = state.now + RECONNECT_MS


def on_find_coordinator_response(
    state: LibrdkafkaState, entry: RequestBuf, response: FindCoordinatorResponse, out: Out
) -> None:
    """Adopt the coordinator, and start to connect to it (rd_kafka_cgrp_handle_FindCoordinator)."""
    coordinator = parse_find_coordinator(response)
    if coordinator.error:
        on_find_coordinator_error(state, coordinator.error, coordinator.message, out)
        return
    if state.coord.state is CgrpState.TERM:
        return
    address = Address(coordinator.host, coordinator.port, COORDINATOR)
    state.cluster.brokers.setdefault(coordinator.node, (coordinator.host, coordinator.port))
    is_from_bootstrap = entry.send.to.lane == BOOTSTRAP
    has_changed = address != state.coordinator
    state.coordinator = address
    if state.coord.state is not UP:
        ensure_state(state.coord, CgrpState.WAIT_BROKER_TRANSPORT, COORD_EDGES)
        if is_from_bootstrap:
            on_first_broker_connection(state, out)
        elif has_changed:
            coord_query(state, out)
            if state.coord.up_at is None:
                state.coord.up_at = state.now


def on_first_broker_connection(state: LibrdkafkaState, out: Out) -> None:
    """Repeat Metadata and FindCoordinator when the first broker connection is open.

    A connection to a bootstrap address does not count as a broker connection, because the node id of its
    broker is unknown.
    """
    if state.bootstrapped:
        return
    state.bootstrapped = True
    state.coordinator = None
    send_request(state, any_usable_broker(state), metadata_request(()), out, "brokers")
    if state.local_topics:
        # These partitions were assigned before any broker was known. Their metadata is requested in the next
        # millisecond, because the timers of the current millisecond have already run.
        state.metadata_at = state.now + 1
    coord_query(state, out)


def on_find_coordinator_error(state: LibrdkafkaState, code: int, message: str | None, out: Out) -> None:
    """Handle an error of FindCoordinator, after which the lookup is repeated.

    An error that is not retriable is reported, unless it is the error that was reported last.
    """
    is_retriable = code == TRANSPORT or ErrAction.RETRY in err_action(code)
    if code in (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR):
        state.coordinator = None
    elif not is_retriable and code != state.coord.last_error:
        state.coord.last_error = code
        text = f"FindCoordinator response error: {message or err2str(code)}"
        state.queue.append(ErrorOp(err2name(code), text))
    if state.coord.state is not UP:
        ensure_state(state.coord, CgrpState.QUERY_COORD, COORD_EDGES)


def serve(state: LibrdkafkaState, out: Out) -> bool:
    """Perform the next step of the lookup; return whether the coordinator is connected."""
    if state.coord.state is CgrpState.QUERY_COORD:
        if state.coord.query_interval.restart_if_due(QUERY_INTERVAL_MS, state.now):
            coord_query(state, out)
    elif state.coord.state is CgrpState.WAIT_BROKER_TRANSPORT:
        if state.coord.up_at is not None and state.coord.up_at <= state.now:
            ensure_state(state.coord, UP, COORD_EDGES)
            state.coord.up_at = None
            state.coord.last_error = 0
            state.internal_ops.append(InternalOp.SERVE_ASSIGNMENT)
    elif state.coord.state is UP and state.coord.query_interval.restart_if_due(
        RELAXED_QUERY_INTERVAL_MS, state.now
    ):
        coord_query(state, out)
    return state.coord.state is UP
