"""AddRaftVoter (key 80): add a controller to the metadata quorum (KIP-853)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int16, Int32, String, UInt16, Uuid


class AddRaftVoterRequest(Message, api_key=80, versions="0-1", flexible="0+"):
    cluster_id: String | None
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    # Whether the leader answers only when the new voter set is committed. If false, it answers as soon as the
    # voter set is in its log.
    ack_when_committed: Bool = field("1+", default=True)


class Listener(Struct):
    name: String = field(map_key=True)
    host: String
    port: UInt16


class AddRaftVoterResponse(Message, api_key=80, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
