"""ConsumerGroupDescribe (key 69): describe groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Int8, Int16, Int32, String, Uuid


class ConsumerGroupDescribeRequest(Message, api_key=69, versions="0-1", flexible="0+"):
    group_ids: list[String]
    include_authorized_operations: Bool


class ConsumerGroupDescribeResponse(Message, api_key=69, versions="0-1", flexible="0+"):
    throttle_time_ms: Int32
    groups: list[DescribedGroup]  # The described groups, in the order of the request.


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
    instance_id: String | None = None
    rack_id: String | None = None
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None = None
    assignment: Assignment
    target_assignment: Assignment
    member_type: Int8 = field("1+", default=-1, ignorable=True)


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class TopicPartitions(Struct):
    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]
