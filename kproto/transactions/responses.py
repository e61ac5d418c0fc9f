"""How each request to a transaction coordinator is told no.

Rules that hold here:

* Clients that don't know PRODUCER_FENCED yet hear INVALID_PRODUCER_EPOCH (KIP-588).
* AddPartitionsToTxn has no error of its own for a client; every partition carries it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ..error_codes import ErrorCode
from ..messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ..messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from ..messages.end_txn import EndTxnRequest, EndTxnResponse
from ..messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ..wire.message import Message
from .state import Partition, Received, Turn

# From these versions on a client knows PRODUCER_FENCED (KIP-588).
_KNOWS_FENCED: Final[Mapping[type[Message], int]] = {
    InitProducerIdRequest: 4,
    AddPartitionsToTxnRequest: 2,
    AddOffsetsToTxnRequest: 2,
    EndTxnRequest: 2,
}
BATCHED_SINCE: Final = 4  # AddPartitionsToTxn between brokers (KIP-890)


def refuse(turn: Turn, call: Received[Message], code: ErrorCode) -> None:
    """Answer the request with this error and nothing else."""
    turn.reply(call, refusal(call.request, told(call.request, call.version, code), call.version))


def told(request: Message, version: int, code: ErrorCode) -> ErrorCode:
    """The code as a client of this version knows it."""
    if code is ErrorCode.PRODUCER_FENCED and version < _KNOWS_FENCED[type(request)]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def refusal(request: Message, code: ErrorCode, version: int) -> Message:
    """The response that says no. Raises TypeError for a request that has no such answer."""
    match request:
        case InitProducerIdRequest():
            return InitProducerIdResponse(throttle_time_ms=0, error_code=code, producer_epoch=-1)
        case AddOffsetsToTxnRequest():
            return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code)
        case EndTxnRequest():
            return EndTxnResponse(throttle_time_ms=0, error_code=code)
        case AddPartitionsToTxnRequest() if version < BATCHED_SINCE:
            results_by_topic = repeated(request.v3_and_below_topics, code)
            return AddPartitionsToTxnResponse(
                throttle_time_ms=0, results_by_topic_v3_and_below=results_by_topic
            )
        case AddPartitionsToTxnRequest():
            results = [
                AddPartitionsToTxnResult(
                    transactional_id=one.transactional_id, topic_results=repeated(one.topics, code)
                )
                for one in request.transactions
            ]
            return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_transaction=results)
        case _:
            raise TypeError(f"{type(request).__name__} has no answer that only says no")


def repeated(
    topics: Iterable[AddPartitionsToTxnTopic], code: ErrorCode
) -> list[AddPartitionsToTxnTopicResult]:
    """One code for all that a request names."""
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


def by_topic(codes: Mapping[Partition, ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
    """The codes of partitions as AddPartitionsToTxn tells them."""
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (name, index), code in codes.items():
        if name not in topics:
            topics[name] = AddPartitionsToTxnTopicResult(name=name, results_by_partition=[])
        topics[name].results_by_partition.append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        )
    return list(topics.values())
