"""Build the transaction coordinator's error responses, and the results of each partition.

* Clients that do not know PRODUCER_FENCED receive INVALID_PRODUCER_EPOCH instead (KIP-588).

* Up to v3 of AddPartitionsToTxn, a response has no error code for the whole request. An error of the whole
  request is then set for every partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ..error_codes import ErrorCode
from ..machine import RequestReceived
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
from .state import TransactionContext, TransactionPartition

# Maps each request to its first version in which the response may contain PRODUCER_FENCED (KIP-588).
_PRODUCER_FENCED_VERSION: Final[Mapping[type[Message], int]] = {
    InitProducerIdRequest: 4,
    AddPartitionsToTxnRequest: 2,
    AddOffsetsToTxnRequest: 2,
    EndTxnRequest: 2,
}
# From this version on, AddPartitionsToTxn is sent by brokers and contains several transactions (KIP-890).
BATCH_VERSION: Final = 4


def send_error(context: TransactionContext, call: RequestReceived[Message], code: ErrorCode) -> None:
    """Answer a request with an error code that clients of its version know."""
    known_code = code_for_version(call.request, call.version, code)
    context.reply(call, error_response(call.request, known_code, call.version))


def code_for_version(request: Message, version: int, code: ErrorCode) -> ErrorCode:
    """Return `code`; PRODUCER_FENCED becomes INVALID_PRODUCER_EPOCH in versions without this error."""
    if code is ErrorCode.PRODUCER_FENCED and version < _PRODUCER_FENCED_VERSION[type(request)]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def error_response(request: Message, code: ErrorCode, version: int) -> Message:
    """Return the response that rejects the whole request with an error.

    Raises TypeError if the response to this request has no field for an error of the whole request.
    """
    match request:
        case InitProducerIdRequest():
            return InitProducerIdResponse(throttle_time_ms=0, error_code=code, producer_epoch=-1)
        case AddOffsetsToTxnRequest():
            return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code)
        case EndTxnRequest():
            return EndTxnResponse(throttle_time_ms=0, error_code=code)
        case AddPartitionsToTxnRequest() if version < BATCH_VERSION:
            results_by_topic = with_one_code(request.v3_and_below_topics, code)
            return AddPartitionsToTxnResponse(
                throttle_time_ms=0, results_by_topic_v3_and_below=results_by_topic
            )
        case AddPartitionsToTxnRequest():
            results = [
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=with_one_code(transaction.topics, code),
                )
                for transaction in request.transactions
            ]
            return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_transaction=results)
        case _:
            raise TypeError(
                f"{type(request).__name__} is not a request that the transaction coordinator can reject"
            )


def with_one_code(
    topics: Iterable[AddPartitionsToTxnTopic], code: ErrorCode
) -> list[AddPartitionsToTxnTopicResult]:
    """Return the results for `topics`, with the error code `code` for every partition."""
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


def group_by_topic(codes: Mapping[TransactionPartition, ErrorCode]) -> list[AddPartitionsToTxnTopicResult]:
    """Return the results of partitions, grouped by topic."""
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (name, index), code in codes.items():
        if name not in topics:
            topics[name] = AddPartitionsToTxnTopicResult(name=name, results_by_partition=[])
        topics[name].results_by_partition.append(
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        )
    return list(topics.values())
