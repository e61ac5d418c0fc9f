"""Responses of the group coordinator: errors, and results of partitions grouped by topic.

* R1: an error response to JoinGroup contains no generation, protocol, leader or members.

* R41: if the broker does not coordinate the group, or is loading it, the error response to JoinGroup contains
  the member id of the request.

* R68: an error response to SyncGroup contains an empty assignment and no protocol.

* R3: below v3, LeaveGroup names a single member, and the response has a single error code.

* R76, R77: from v3 on, each member of the LeaveGroup response has an error code. A response that rejects the
  whole request lists no members.

* R90: the responses to OffsetCommit and TxnOffsetCommit have no error code for the whole request. If the
  group rejects the request, each partition that exists has the error code of the rejection. A partition that
  does not exist keeps its own error code.

* Results of partitions are ordered as in Kafka's OffsetCommitResponse.Builder. Partitions that do not exist
  come first, with one entry for each topic. If other partitions of the topic exist, their results follow in
  the same entry.

* If all partitions of a request exist, the response has one entry for each topic entry of the request. So a
  topic that the request names twice has two entries. Topic entries without partitions are omitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from ....error_codes import ErrorCode
from ....machine import RequestReceived
from ....messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ....messages.join_group import JoinGroupRequest, JoinGroupResponse
from ....messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ....messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ....messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ....messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ....messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ....wire.message import Message
from ....wire.types import ZERO_UUID
from .state import GroupContext

_NULLABLE_PROTOCOL_VERSION = 7  # JoinGroup, KIP-559

# The position of a topic in a request, and its partitions with their error codes.
TopicResult: TypeAlias = tuple[int, list[tuple[int, int]]]


# Errors.


def send_error(context: GroupContext, call: RequestReceived[Message], code: ErrorCode) -> None:
    """Answer a request with an error."""
    context.reply(call, error_response(call.request, code, call.version))


def send_join_error(
    context: GroupContext, call: RequestReceived[JoinGroupRequest], code: ErrorCode, member_id: str
) -> None:
    """Answer a JoinGroup with an error and `member_id`, which may differ from the id in the request."""
    context.reply(call, join_error_response(code, member_id, call.version))


def error_response(request: Message, code: ErrorCode, version: int) -> Message:
    """Return a response that only reports an error (R41, R68, R90).

    Raises TypeError for a request whose response cannot report an error for the whole request.
    """
    match request:
        case JoinGroupRequest():
            return join_error_response(code, request.member_id, version)
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=code, assignment=b"")
        case HeartbeatRequest():
            return HeartbeatResponse(error_code=code)
        case LeaveGroupRequest():
            return LeaveGroupResponse(error_code=code)
        case OffsetDeleteRequest():
            return OffsetDeleteResponse(error_code=code, throttle_time_ms=0, topics=[])
        case OffsetCommitRequest():
            return commit_response(request, with_one_code(request.topics, code))
        case TxnOffsetCommitRequest():
            return txn_commit_response(request, with_one_code(request.topics, code))
        case _:
            raise TypeError(f"{type(request).__name__} has no response that only reports an error")


def join_error_response(code: ErrorCode, member_id: str, version: int) -> JoinGroupResponse:
    """Return a JoinGroup response that reports an error and contains a member id (R1)."""
    return JoinGroupResponse(
        error_code=code,
        protocol_name=wire_protocol_name(None, version),
        leader="",
        member_id=member_id,
        members=[],
    )


def wire_protocol_name(name: str | None, version: int) -> str | None:
    """Return the protocol name in the form that a JoinGroup response of this version requires (R1).

    Below v7 the name is not nullable, and an empty string means that the group has no protocol.
    """
    if version >= _NULLABLE_PROTOCOL_VERSION:
        return name or None
    return name or ""


# Results of partitions.


def group_by_topic(
    topics: Sequence[Any], codes: Sequence[int], existing: Collection[int]
) -> list[TopicResult]:
    """Return the results of a request about partitions, grouped by topic.

    `topics` are the topics of the request. `codes` has one error code for each partition of the request, in
    order. `existing` contains the indexes (in `codes`) of the partitions that exist. The module's docstring
    describes the order of the results.
    """
    existing_results: list[TopicResult] = []
    # The results of each topic, merged from all its entries in the request. The key is the position of the
    # topic's first entry with a missing partition, or of its first entry if all its partitions exist. The
    # first loop adds the results of missing partitions, and the last loop those of existing partitions.
    merged: dict[int, list[tuple[int, int]]] = {}
    merged_positions: dict[tuple[str, UUID], int] = {}
    index = 0

    def merged_entry(position: int) -> list[tuple[int, int]]:
        topic = topics[position]
        key = (topic.name, getattr(topic, "topic_id", ZERO_UUID))
        return merged.setdefault(merged_positions.setdefault(key, position), [])

    for position, topic in enumerate(topics):
        results: list[tuple[int, int]] = []
        for partition in topic.partitions:
            result = (partition.partition_index, codes[index])
            (results if index in existing else merged_entry(position)).append(result)
            index += 1
        if results:
            existing_results.append((position, results))
    if not merged:
        return existing_results
    for position, results in existing_results:
        merged_entry(position).extend(results)
    return list(merged.items())


def with_one_code(topics: Sequence[Any], code: int) -> list[TopicResult]:
    """Return results with `code` for every partition of a request, one entry for each topic."""
    return [
        (position, [(partition.partition_index, code) for partition in topic.partitions])
        for position, topic in enumerate(topics)
    ]


def commit_response(request: OffsetCommitRequest, results: Iterable[TopicResult]) -> OffsetCommitResponse:
    """Return the response to an OffsetCommit."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=request.topics[position].name,
                topic_id=request.topics[position].topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=index, error_code=code)
                    for index, code in partitions
                ],
            )
            for position, partitions in results
        ]
    )


def txn_commit_response(
    request: TxnOffsetCommitRequest, results: Iterable[TopicResult]
) -> TxnOffsetCommitResponse:
    """Return the response to a TxnOffsetCommit."""
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            TxnOffsetCommitResponseTopic(
                name=request.topics[position].name,
                topic_id=request.topics[position].topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=index, error_code=code)
                    for index, code in partitions
                ],
            )
            for position, partitions in results
        ],
    )
