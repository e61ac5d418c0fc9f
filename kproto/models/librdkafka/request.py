"""Requests on their way: sent, sent again (rd_kafka_buf_retry), and what an error asks for.

rdkafka_request.c: rd_kafka_err_action. A request is sent again after retry.backoff.ms, at most twice where it
doesn't say otherwise.
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
# RD_KAFKA_RESP_ERR__TRANSPORT: the connection broke.
TRANSPORT = -195


class ErrAction(Flag):
    """RD_KAFKA_ERR_ACTION_*: what is done about an error."""

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
    """The default column of rd_kafka_err_action."""
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
    about: object = None,
    timeout_ms: int = 60_000,
) -> None:
    """Send `request` in the newest version that both sides know."""
    api_key = type(request).__api_key__
    assert api_key is not None
    version = negotiate_version(state.versions, state.offered, api_key)
    entry = RequestBuf(SendRequest(to, request, version, timeout_ms), about)
    state.open[id(request)] = entry
    out.append(entry.send)


def retry_request(state: LibrdkafkaState, entry: RequestBuf, most: int = MAX_RETRIES) -> bool:
    """Send it again after the backoff; False when it was sent often enough."""
    if entry.attempts > most or state.closed:
        return False
    entry.attempts += 1
    state.retries.append((state.now + RETRY_BACKOFF_MS, entry))
    return True


def resend_due(state: LibrdkafkaState, out: Out) -> None:
    """Send again what waited long enough. What was meant for the coordinator goes to today's."""
    due = [entry for at, entry in state.retries if at <= state.now]
    if not due:
        return
    state.retries = [(at, entry) for at, entry in state.retries if at > state.now]
    for entry in due:
        sent = entry.send
        if sent.to.lane == COORDINATOR and state.coordinator is not None:
            entry.send = SendRequest(state.coordinator, sent.request, sent.version, sent.timeout_ms)
        state.open[id(sent.request)] = entry
        out.append(entry.send)


COORDINATOR, MAIN, BOOTSTRAP = "coordinator", "main", "bootstrap"


def any_usable_broker(state: LibrdkafkaState) -> Address:
    """rd_kafka_broker_any_usable: the lowest known broker; before metadata the first of bootstrap.servers."""
    if state.bootstrapped and state.cluster.brokers:
        node = min(state.cluster.brokers)
        return broker_address(state, node)
    host, port = state.bootstrap[0]
    return Address(host, port, BOOTSTRAP)


def broker_address(state: LibrdkafkaState, node: int) -> Address:
    host, port = state.cluster.brokers[node]
    return Address(host, port, MAIN)
