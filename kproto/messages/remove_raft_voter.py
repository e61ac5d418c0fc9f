"""RemoveRaftVoter (key 81): remove a controller from the metadata quorum (KIP-853)."""

from __future__ import annotations

from ..wire.message import Message
from ..wire.types import Int16, Int32, String, Uuid


class RemoveRaftVoterRequest(Message, api_key=81, versions="0", flexible="0+"):
    cluster_id: String | None
    voter_id: Int32
    voter_directory_id: Uuid


class RemoveRaftVoterResponse(Message, api_key=81, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
