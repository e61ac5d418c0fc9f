"""Detects unresponsive brokers long before a request times out.

Rules:

* Responses on a connection arrive in the order of the requests. So only the oldest request can be late.

* A request can count as late only if a healthy broker responds to it within a known time.

* A healthy broker responds to metadata requests, lookups and heartbeats immediately, to a fetch within
  `max_wait_ms`, and to a commit within offsets.commit.timeout.ms.

* While a long response is arriving, its request does not count as late.

* Produce and transaction requests may wait for replicas until their timeout. While one is in flight, metadata
  is refreshed repeatedly (`start_liveness_check_if_due`).

* A broker that has stopped responding is fenced after broker.session.timeout.ms (9 s), and is then missing
  from the metadata. The client then closes the connection.
"""

from __future__ import annotations

from kproto.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kproto.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kproto.messages.api_versions import ApiVersionsRequest
from kproto.messages.end_txn import EndTxnRequest
from kproto.messages.fetch import FetchRequest
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.list_offsets import ListOffsetsRequest
from kproto.messages.metadata import MetadataRequest
from kproto.messages.offset_commit import OffsetCommitRequest
from kproto.messages.offset_fetch import OffsetFetchRequest
from kproto.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kproto.messages.produce import ProduceRequest
from kproto.messages.txn_offset_commit import TxnOffsetCommitRequest

from ..timeouts import FIRST_RESPONSE_TIMEOUT_MS, LIVENESS_CHECK_INTERVAL_MS, OFFSETS_COMMIT_TIMEOUT_MS
from .call import Call
from .connection import Connection
from .nodes import SETUP, NodeStates

# Read-only requests, to which a broker responds immediately.
READ_ONLY = frozenset(
    kind.__api_key__
    for kind in (
        ApiVersionsRequest,
        FindCoordinatorRequest,
        ListOffsetsRequest,
        MetadataRequest,
        OffsetFetchRequest,
        OffsetForLeaderEpochRequest,
    )
)


# Requests to which a healthy broker may respond late, because it waits for replicas.
WAITS_FOR_REPLICAS = frozenset(
    kind.__api_key__
    for kind in (
        AddOffsetsToTxnRequest,
        AddPartitionsToTxnRequest,
        EndTxnRequest,
        InitProducerIdRequest,
        ProduceRequest,
        TxnOffsetCommitRequest,
    )
)


class RequestTimeouts:
    """Tracks the oldest call of each connection, and for how long its broker may delay the response."""

    def __init__(self, nodes: NodeStates, request_timeout_ms: int) -> None:
        self._nodes = nodes
        self._request_timeout_ms = request_timeout_ms
        # Connection key -> (oldest call, the time (ms) since which it has been the oldest, how long (ms) a
        # healthy broker may delay its response).
        self._oldest: dict[int, tuple[Call, int, int | None]] = {}
        # Connection key -> when (ms) to refresh metadata, which shows whether the broker has failed.
        self._liveness_checks: dict[int, int] = {}

    def update(self, connection: Connection, now: int) -> None:
        """Record the connection's current oldest call. Called after each request and response.

        If the broker has responded to the previous oldest call within `FIRST_RESPONSE_TIMEOUT_MS`, the
        timeout of this call's API is reset.
        """
        oldest = connection.in_flight[0][1] if connection.in_flight else None
        previous = self._oldest.get(connection.key)
        if previous is not None:
            previous_call, since, _ = previous
            if previous_call is oldest:
                return
            if now - since < FIRST_RESPONSE_TIMEOUT_MS:
                self._nodes.clear_timeouts((connection.host, connection.port), _api_key(previous_call))
        self._liveness_checks.pop(connection.key, None)
        if oldest is None:
            self._oldest.pop(connection.key, None)
        else:
            self._oldest[connection.key] = (oldest, now, _broker_wait_ms(oldest))
            if oldest.message.__api_key__ in WAITS_FOR_REPLICAS:
                self._liveness_checks[connection.key] = now + FIRST_RESPONSE_TIMEOUT_MS

    def on_partial_response(self, connection: Connection, now: int) -> None:
        """Restart the timeout of the oldest call, because a part of its response has arrived."""
        oldest = self._oldest.get(connection.key)
        if oldest is not None:
            call, _, broker_wait_ms = oldest
            self._oldest[connection.key] = (call, now, broker_wait_ms)

    def expires_at(self, connection: Connection) -> int | None:
        """Return the time (ms) at which the connection counts as unresponsive, or None.

        The result is None if no call is in flight, or if it is unknown how long the broker may delay the
        response.
        """
        oldest = self._oldest.get(connection.key)
        if oldest is None:
            return None
        call, since, broker_wait_ms = oldest
        if broker_wait_ms is None:
            return None
        address = (connection.host, connection.port)
        first_ms = FIRST_RESPONSE_TIMEOUT_MS + broker_wait_ms
        timeout_ms = self._nodes.timeout_ms(address, _api_key(call), first_ms, self._request_timeout_ms)
        # The broker reads no requests from a throttled connection, so the timeout counts from the end of the
        # throttling.
        return max(since, connection.throttled_until) + timeout_ms

    def oldest_api_key(self, connection: Connection) -> int:
        """Return the API key of the connection's oldest call.

        The result is SETUP if no call is in flight or the login is not complete.
        """
        oldest = self._oldest.get(connection.key) if connection.ready else None
        return SETUP if oldest is None else _api_key(oldest[0])

    def start_liveness_check_if_due(self, connection: Connection, now: int) -> bool:
        """Return whether a liveness check is due; if it is due, schedule the next check.

        The caller then refreshes the metadata, which shows whether the broker is alive.
        """
        due_at = self._liveness_checks.get(connection.key)
        if due_at is None or due_at > now:
            return False
        self._liveness_checks[connection.key] = now + LIVENESS_CHECK_INTERVAL_MS
        return True

    def add_deadlines(self, connection: Connection, times: list[int]) -> None:
        """Add to `times` the times (ms) at which this connection has to be checked."""
        if (at := self.expires_at(connection)) is not None:
            times.append(at)
        if (at := self._liveness_checks.get(connection.key)) is not None:
            times.append(at)

    def timeout_reason(self, connection: Connection) -> str:
        """Return the error message for an unresponsive connection. A call must be in flight."""
        call, since, _ = self._oldest[connection.key]
        return f"{call.name} was not answered within {(self.expires_at(connection) or since) - since} ms"

    def forget(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._oldest.pop(connection.key, None)
        self._liveness_checks.pop(connection.key, None)


def _api_key(call: Call) -> int:
    key = call.message.__api_key__
    return SETUP if key is None else key


def _broker_wait_ms(call: Call) -> int | None:
    """Return how long (ms) a healthy broker may delay its response; None if that is unknown.

    The delay of a JoinGroup is unknown. The first JoinGroup of a dynamic member is an exception: the broker
    responds immediately with the member id (KIP-394).
    """
    request = call.request
    if isinstance(request, FetchRequest):
        return request.max_wait_ms
    if isinstance(request, OffsetCommitRequest):
        return OFFSETS_COMMIT_TIMEOUT_MS
    if isinstance(request, HeartbeatRequest):
        return 0
    if isinstance(request, JoinGroupRequest):
        is_first_join = call.version >= 4 and not request.member_id and request.group_instance_id is None
        return 0 if is_first_join else None
    return 0 if call.message.__api_key__ in READ_ONLY else None
