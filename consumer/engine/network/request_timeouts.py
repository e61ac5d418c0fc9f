"""Who is silent where it should answer: such a connection is given up long before the request's own time is
over.

* Answers come in the order of the requests, so only the oldest one can be late.
* Only who can say when an answer is due calls that late: metadata, look-ups and heartbeats are answered at
  once, a fetch when the time is over that it gave the broker, a commit when the coordinator has given its
  replicas up. Whoever sends a long answer is not silent.
* Records, and ends of transactions, may wait for replicas as long as the request lives. While they do,
  metadata is asked for again and again (`doubts`): a broker that stands still is none any more for the others
  after broker.session.timeout.ms (9 s), and the connection to it is given up then.
"""

from __future__ import annotations

from kproto.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kproto.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
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

from ..timing import FIRST_RESPONSE_TIMEOUT_MS, LIVENESS_CHECK_INTERVAL_MS, OFFSETS_COMMIT_TIMEOUT_MS
from .connection import Call, Connection
from .nodes import SETUP, NodeStates

# They change nothing, and no broker waits for anything before it answers.
AT_ONCE = frozenset(
    kind.__api_key__
    for kind in (
        FindCoordinatorRequest,
        ListOffsetsRequest,
        MetadataRequest,
        OffsetFetchRequest,
        OffsetForLeaderEpochRequest,
    )
)


# They change something, and a healthy broker may wait for its replicas before it answers.
MAY_WAIT = frozenset(
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
    """Of each connection the call that is to be answered next, since when it is, and how many ms a healthy
    broker may wait before it answers."""

    def __init__(self, peers: NodeStates, request_timeout_ms: int) -> None:
        self._peers = peers
        self._most = request_timeout_ms
        self._heads: dict[int, tuple[Call, int, int | None]] = {}
        # Of those that may wait: when to doubt again that somebody is there.
        self._doubts: dict[int, int] = {}

    def watch(self, connection: Connection, now: int) -> None:
        """To be called when something was asked or answered."""
        head = connection.in_flight[0][1] if connection.in_flight else None
        known = self._heads.get(connection.key)
        if known is not None and known[0] is head:
            return
        if known is not None and now - known[1] < FIRST_RESPONSE_TIMEOUT_MS:
            self._peers.spoke((connection.host, connection.port), _what(known[0]))
        self._doubts.pop(connection.key, None)
        if head is None:
            self._heads.pop(connection.key, None)
        else:
            self._heads[connection.key] = (head, now, _broker_waits(head))
            if head.message.__api_key__ in MAY_WAIT:
                self._doubts[connection.key] = now + FIRST_RESPONSE_TIMEOUT_MS

    def coming(self, connection: Connection, now: int) -> None:
        """A part of the next answer came."""
        head = self._heads.get(connection.key)
        if head is not None:
            self._heads[connection.key] = (head[0], now, head[2])

    def at(self, connection: Connection) -> int | None:
        """When the connection has been silent for too long."""
        head = self._heads.get(connection.key)
        if head is None or head[2] is None:
            return None
        address = (connection.host, connection.port)
        # A connection that is to be quiet isn't read from meanwhile.
        since = max(head[1], connection.quiet_until)
        return since + self._peers.patience(
            address, _what(head[0]), FIRST_RESPONSE_TIMEOUT_MS + head[2], self._most
        )

    def what(self, connection: Connection) -> int:
        """What it is silent to."""
        head = self._heads.get(connection.key) if connection.ready else None
        return SETUP if head is None else _what(head[0])

    def doubts(self, connection: Connection, now: int) -> bool:
        """Whether it is time to ask others whether this broker is there."""
        at = self._doubts.get(connection.key)
        if at is None or at > now:
            return False
        self._doubts[connection.key] = now + LIVENESS_CHECK_INTERVAL_MS
        return True

    def add_due(self, connection: Connection, times: list[int]) -> None:
        """When to look at this connection."""
        if (at := self.at(connection)) is not None:
            times.append(at)
        if (at := self._doubts.get(connection.key)) is not None:
            times.append(at)

    def why(self, connection: Connection) -> str:
        """What to say when it was."""
        call, since, _ = self._heads[connection.key]
        return f"{call.name} was not answered within {(self.at(connection) or since) - since} ms"

    def forget(self, connection: Connection) -> None:
        self._heads.pop(connection.key, None)
        self._doubts.pop(connection.key, None)


def _what(call: Call) -> int:
    key = call.message.__api_key__
    return SETUP if key is None else key


def _broker_waits(call: Call) -> int | None:
    """How many ms a healthy broker may wait before it answers; None when nobody can say. Of JoinGroups only
    the first is answered at once, which brings no more than the member's id (KIP-394)."""
    request = call.request
    if isinstance(request, FetchRequest):
        return request.max_wait_ms
    if isinstance(request, OffsetCommitRequest):
        return OFFSETS_COMMIT_TIMEOUT_MS
    if isinstance(request, HeartbeatRequest):
        return 0
    if isinstance(request, JoinGroupRequest):
        first = call.version >= 4 and not request.member_id and request.group_instance_id is None
        return 0 if first else None
    return 0 if call.message.__api_key__ in AT_ONCE else None
