"""UpdateRaftVoter (key 82): a voter reports its new endpoints to the quorum's leader (KIP-853)."""

from __future__ import annotations

from ..wire.message import FRESH, Message, Struct, field
from ..wire.types import Int16, Int32, String, UInt16, Uuid


class UpdateRaftVoterRequest(Message, api_key=82, versions="0", flexible="0+"):
    cluster_id: String | None
    current_leader_epoch: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener]
    k_raft_version_feature: KRaftVersionFeature


class Listener(Struct):
    name: String = field(map_key=True)
    host: String
    port: UInt16


class KRaftVersionFeature(Struct):
    min_supported_version: Int16
    max_supported_version: Int16


class UpdateRaftVoterResponse(Message, api_key=82, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    current_leader: CurrentLeader = field(default=FRESH, tag=0)


class CurrentLeader(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    host: String
    port: Int32
