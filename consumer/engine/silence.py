"""Who is silent where it should answer: such a connection is given up long before the request's own time is
over.

* Answers come in the order of the requests, so only the oldest one can be late.
* Only who can say when an answer is due calls that late: metadata, look-ups and heartbeats are answered at
  once, a fetch when the time is over that it gave the broker, a commit when the coordinator has given its
  replicas up. Whoever sends a long answer is not silent.
"""

from __future__ import annotations

from kproto.messages.fetch import FetchRequest
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.list_offsets import ListOffsetsRequest
from kproto.messages.metadata import MetadataRequest
from kproto.messages.offset_commit import OffsetCommitRequest
from kproto.messages.offset_fetch import OffsetFetchRequest
from kproto.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

from .connection import Call, Connection
from .peers import Peers

# How long a question that brokers answer from memory may take, before another connection is tried; doubled
# by each silence. Two lost SYNs cost 3 s (RFC 6298).
ANSWER_PATIENCE_MS = 5_000

# offsets.commit.timeout.ms: how long a coordinator waits for the replicas of what is committed.
COMMIT_MS = 5_000

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


class Silence:
    """Of each connection the call that is to be answered next, and since when it is."""

    def __init__(self, peers: Peers, request_timeout_ms: int) -> None:
        self._peers = peers
        self._most = request_timeout_ms
        self._heads: dict[int, tuple[Call, int]] = {}

    def watch(self, connection: Connection, now: int) -> None:
        """To be called when something was asked or answered."""
        head = connection.in_flight[0][1] if connection.in_flight else None
        known = self._heads.get(connection.key)
        if known is not None and known[0] is head:
            return
        if known is not None and now - known[1] < ANSWER_PATIENCE_MS:
            self._peers.spoke((connection.host, connection.port))
        if head is None:
            self._heads.pop(connection.key, None)
        else:
            self._heads[connection.key] = (head, now)

    def coming(self, connection: Connection, now: int) -> None:
        """A part of the next answer came."""
        head = self._heads.get(connection.key)
        if head is not None:
            self._heads[connection.key] = (head[0], now)

    def at(self, connection: Connection) -> int | None:
        """When the connection has been silent for too long."""
        head = self._heads.get(connection.key)
        waits = None if head is None else _broker_waits(head[0])
        if head is None or waits is None:
            return None
        address = (connection.host, connection.port)
        # A connection that is to be quiet isn't read from meanwhile.
        since = max(head[1], connection.quiet_until)
        return since + self._peers.patience(address, ANSWER_PATIENCE_MS + waits, self._most)

    def why(self, connection: Connection) -> str:
        """What to say when it was."""
        call, since = self._heads[connection.key]
        return f"{call.name} was not answered within {(self.at(connection) or since) - since} ms"

    def forget(self, connection: Connection) -> None:
        self._heads.pop(connection.key, None)


def _broker_waits(call: Call) -> int | None:
    """How many ms a healthy broker may wait before it answers; None when nobody can say. Of JoinGroups only
    the first is answered at once, which brings no more than the member's id (KIP-394)."""
    request = call.request
    if isinstance(request, FetchRequest):
        return request.max_wait_ms
    if isinstance(request, OffsetCommitRequest):
        return COMMIT_MS
    if isinstance(request, HeartbeatRequest):
        return 0
    if isinstance(request, JoinGroupRequest):
        first = call.version >= 4 and not request.member_id and request.group_instance_id is None
        return 0 if first else None
    return 0 if call.message.__api_key__ in AT_ONCE else None
