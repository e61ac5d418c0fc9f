"""Who may write, read and look offsets up. What takes a topic makes the refusal of it."""

from __future__ import annotations

from typing import Any, cast

from ....messages.delete_records import DeleteRecordsPartitionResult, DeleteRecordsTopicResult
from ....messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from ....messages.offset_for_leader_epoch import EpochEndOffset, OffsetForLeaderTopicResult
from ....messages.produce import PartitionProduceResponse, TopicProduceResponse
from ....wire.message import Message
from ...call import CloseConnection
from .. import produce as handler
from ..authorization import TOPIC_FAILED, Gated, May, Op, cut_down


def produce(may: May, request: Any) -> Gated:
    if not handler.may_write_in_transactions(may.broker, may.call, request):
        return handler.not_in_transactions(request)
    allowed, denied = may.parted(Op.WRITE, request.topic_data)
    if not denied:
        return may.call
    if request.acks == 0:
        # What is allowed is written before the connection is closed over the rest.
        handler.produce(may.broker, cut_down(may, topic_data=allowed))
        return CloseConnection("a produce with acks=0 failed: TOPIC_AUTHORIZATION_FAILED")

    def refuse(topic: Any) -> TopicProduceResponse:
        return TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                PartitionProduceResponse(index=one.index, error_code=TOPIC_FAILED, base_offset=-1)
                for one in topic.partition_data
            ],
        )

    def amend(response: Any) -> Message:
        response.responses.extend(map(refuse, denied))
        return cast("Message", response)

    return cut_down(may, amend, topic_data=allowed)


def list_offsets(topic: Any) -> ListOffsetsTopicResponse:
    return ListOffsetsTopicResponse(
        name=topic.name,
        partitions=[
            ListOffsetsPartitionResponse(partition_index=one.partition_index, error_code=TOPIC_FAILED)
            for one in topic.partitions
        ],
    )


def epochs(topic: Any) -> OffsetForLeaderTopicResult:
    return OffsetForLeaderTopicResult(
        topic=topic.topic,
        partitions=[
            EpochEndOffset(error_code=TOPIC_FAILED, partition=one.partition) for one in topic.partitions
        ],
    )


def delete_records(topic: Any) -> DeleteRecordsTopicResult:
    return DeleteRecordsTopicResult(
        name=topic.name,
        partitions=[
            DeleteRecordsPartitionResult(
                partition_index=one.partition_index, low_watermark=-1, error_code=TOPIC_FAILED
            )
            for one in topic.partitions
        ],
    )


def leader_epochs(may: May, request: Any) -> Gated:
    allowed = [topic for topic in request.topics if may.topic(Op.DESCRIBE, topic.topic)]
    denied = [topic for topic in request.topics if not may.topic(Op.DESCRIBE, topic.topic)]

    def amend(response: Any) -> Message:
        response.topics.extend(map(epochs, denied))
        return cast("Message", response)

    return cut_down(may, amend, topics=allowed) if denied else may.call
