"""ShareGroupDescribe (key 77): describe share groups (KIP-932)."""

from __future__ import annotations

from ..wire.message import Message, Struct
from ..wire.types import Bool, Int16, Int32, String, Uuid


class ShareGroupDescribeRequest(Message, api_key=77, versions="1", flexible="0+"):
    group_ids: list[String]
    include_authorized_operations: Bool


class ShareGroupDescribeResponse(Message, api_key=77, versions="1", flexible="0+"):
    throttle_time_ms: Int32
    groups: list[DescribedGroup]


class DescribedGroup(Struct):
    error_code: Int16
    error_message: String | None = None
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: list[Member]
    # The operations allowed on the group, one bit per AclOperation; -2147483648 if not requested (KIP-430).
    authorized_operations: Int32 = -0x80000000


class Member(Struct):
    member_id: String
    rack_id: String | None = None
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    assignment: Assignment


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class TopicPartitions(Struct):
    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]
