"""Keys and values of `__consumer_offsets` for classic groups: offsets and group metadata.

Every key in the topic starts with an int16, the record type (`kproto.messages.index.RECORDS`). Every value
starts with an int16, its version. The messages of this module do not contain these numbers.
"""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import ZERO_UUID, Bytes, Int32, Int64, String, Uuid


class LegacyOffsetCommitKey(Message, versions="0"):
    group: String
    topic: String
    partition: Int32


class LegacyOffsetCommitValue(Message, versions="0"):
    offset: Int64
    metadata: String
    commit_timestamp: Int64


class OffsetCommitKey(Message, versions="0"):
    group: String
    topic: String
    partition: Int32


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    offset: Int64
    leader_epoch: Int32 = field("3+", default=-1, ignorable=True)
    metadata: String
    commit_timestamp: Int64
    # The time at which the committed offset expires. Only v1 has this field. Since v2 the state of the group
    # decides the expiration (KIP-211).
    expire_timestamp: Int64 = field("1", default=-1, ignorable=True)
    # The topic id. A re-created topic has the same name but another id, and the offset does not apply to it
    # (KIP-848).
    topic_id: Uuid = field("4+", default=ZERO_UUID, tag=0, ignorable=True)


class GroupMetadataKey(Message, versions="0"):
    group: String


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    protocol_type: String
    generation: Int32
    protocol: String | None
    leader: String | None
    current_state_timestamp: Int64 = field("2+", default=-1, ignorable=True)
    members: list[MemberMetadata]


class MemberMetadata(Struct):
    member_id: String
    group_instance_id: String | None = field("3+", default=None, ignorable=True)
    client_id: String
    client_host: String
    rebalance_timeout: Int32 = field("1+", default=-1, ignorable=True)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes
