"""Functions that send and retry requests (rd_kafka_buf_retry), and the action for each error.

The module follows rdkafka_request.c and its rd_kafka_err_action. A request is retried after retry.backoff.ms,
at most twice, unless the caller passes another limit.
"""

from __future__ import annotations

from enum import Flag, auto

from ...error_codes import ErrorCode as E
from ...wire.message import Message
from ..common import negotiate_version
from ..contract import Address, SendRequest
from .state import LibrdkafkaState, Out, RequestBuf

RETRY_BACKOFF_MS = 100
MAX_RETRIES = 2
# RD_KAFKA_RESP_ERR__TRANSPORT: the connection was lost.
TRANSPORT = -195


class ErrAction(Flag):
    """The actions that an error code calls for (RD_KAFKA_ERR_ACTION_*)."""

    NONE = 0
    REFRESH = auto()
    RETRY = auto()
    PERMANENT = auto()


_REFRESH = {
    E.LEADER_NOT_AVAILABLE,
    E.NOT_LEADER_OR_FOLLOWER,
    E.BROKER_NOT_AVAILABLE,
    E.REPLICA_NOT_AVAILABLE,
    E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR,
}
_RETRY = {
    TRANSPORT,
    E.REQUEST_TIMED_OUT,
    E.NOT_ENOUGH_REPLICAS,
    E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    E.CORRUPT_MESSAGE,
    E.COORDINATOR_LOAD_IN_PROGRESS,
}


def err_action(code: int) -> ErrAction:
    """Return the default action for an error code (rd_kafka_err_action)."""
    if code == E.NONE:
        return ErrAction.NONE
    if code in _REFRESH:
        return ErrAction.REFRESH
    if code == E.KAFKA_STORAGE_ERROR:
        return ErrAction.REFRESH | ErrAction.RETRY
    return ErrAction.RETRY if code in _RETRY else ErrAction.PERMANENT


def send_request(
    state: LibrdkafkaState,
    to: Address,
    request: Message,
    out: Out,
    context: object = None,
    timeout_ms: int = 60_000,
) -> None:
    """Send `request` in the highest version that both sides support."""
    api_key = type(request).__api_key__
    assert api_key is not None
    version = negotiate_version(state.versions, state.offered, api_key)
    entry = RequestBuf(SendRequest(to, request, version, timeout_ms), context)
    state.open[id(request)] = entry
    out.append(entry.send)


def retry_request(state: LibrdkafkaState, entry: RequestBuf, max_retries: int = MAX_RETRIES) -> bool:
    """Schedule a retry, and count it. Return False if no retries are left, or if the consumer is closed."""
    if entry.attempts > max_retries or state.closed:
        return False
    entry.attempts += 1
    state.retries.append((state.now + RETRY_BACKOFF_MS, entry))
    return True


def resend_due_requests(state: LibrdkafkaState, out: Out) -> None:
    """Send the requests whose backoff has ended. A request to the coordinator goes to the current
    coordinator, which may differ from the coordinator at the first attempt.
    """
    due = [entry for due_at, entry in state.retries if due_at <= state.now]
    if not due:
        return
    state.retries = [(due_at, entry) for due_at, entry in state.retries if due_at > state.now]
    for entry in due:
        send = entry.send
        if send.to.lane == COORDINATOR and state.coordinator is not None:
            entry.send = SendRequest(state.coordinator, send.request, send.version, send.timeout_ms)
        state.open[id(send.request)] = entry
        out.append(entry.send)


# The names of the client's connections to one address (`Address.lane`).
COORDINATOR, MAIN, BOOTSTRAP = "coordinator", "main", "bootstrap"


def any_usable_broker(state: LibrdkafkaState) -> Address:
    """Return the known broker with the lowest id, or the first bootstrap address if no broker is known.

    Follows rd_kafka_broker_any_usable.
    """
    if state.bootstrapped and state.cluster.brokers:
        node = min(state.cluster.brokers)
        return broker_address(state, node)
    host, port = state.bootstrap[0]
    return Address(host, port, BOOTSTRAP)


def broker_address(state: LibrdkafkaState, node: int) -> Address:
    host, port = state.cluster.brokers[node]
    return Address(host, port, MAIN)
