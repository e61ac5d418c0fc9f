"""The records of control batches and snapshots: transaction markers, leader changes, voters.

The key of a control record is an int16 version and a `ControlRecordTypeSchema`. The type in the schema
determines the message of the value.

The value of a transaction marker starts with an int16 version. In the values of all other control
records, the version is the message's first field.
"""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import ZERO_UUID, Int16, Int32, Int64, String, UInt16, Uuid


class ControlRecordTypeSchema(Message, versions="0"):
    # The type: 0 abort, 1 commit, 2 leader change, 3 snapshot header, 4 snapshot footer, 5 KRaft version, 6
    # KRaft voters.
    type: Int16


class EndTxnMarker(Message, versions="0"):
    # The epoch of the transaction coordinator. Brokers reject markers with an older epoch, which a former
    # coordinator sends.
    coordinator_epoch: Int32


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    version: Int16  # The version of this record. Kafka writes version 0.
    leader_id: Int32
    voters: list[LeaderChangeMessageVoter]
    granting_voters: list[LeaderChangeMessageVoter]


class LeaderChangeMessageVoter(Struct):
    voter_id: Int32
    voter_directory_id: Uuid = field("1+", default=ZERO_UUID)


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    version: Int16
    last_contained_log_timestamp: Int64


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    version: Int16


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    version: Int16
    k_raft_version: Int16


class VotersRecord(Message, versions="0", flexible="0+"):
    version: Int16
    voters: list[VotersRecordVoter]


class VotersRecordVoter(Struct):
    voter_id: Int32
    voter_directory_id: Uuid
    endpoints: list[Endpoint]
    k_raft_version_feature: KRaftVersionFeature


class Endpoint(Struct):
    name: String = field(map_key=True)
    host: String
    port: UInt16


class KRaftVersionFeature(Struct):
    min_supported_version: Int16
    max_supported_version: Int16
