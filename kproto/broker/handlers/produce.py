"""Produce (key 0): append one batch to each of some partitions.

Rules, as Kafka's ReplicaManager.appendRecords and LogValidator:
  * acks 1 and -1 are the same with one broker. acks 0 wants no answer; when such a request fails, the
    connection is closed, which is all that a producer can be told.
  * A partition gets exactly one batch of magic 2, no control batch, not larger than `max.message.bytes`.
  * Batches of a transaction are refused: this broker has no transactions.
  * What the CRC covers is taken as it is; records are not decoded to see whether they are well formed, but
    in a compacted topic, where each must have a key (validateKey).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...error_codes import ErrorCode
from ...errors import MissingExtra, RecordError
from ...messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ...records import Batch, assign_offsets, batches
from ..broker import Broker
from ..call import Call, Closing, Result
from ..producers import Stored, last_sequence
from ..topics import Partition, Topic
from .lookup import missing_topic

ZSTD_SINCE: Final = 7  # KIP-110


def produce(broker: Broker, call: Call) -> Result:
    request = call.envelope.request
    assert isinstance(request, ProduceRequest)
    by_id = call.version >= 13  # KIP-516
    responses: list[TopicProduceResponse] = []
    changed: list[Partition] = []
    for data in request.topic_data:
        topic = broker.topics.with_id(data.topic_id) if by_id else broker.topics.named(data.name)
        answers: list[PartitionProduceResponse] = []
        for part in data.partition_data:
            partition = topic.partition(part.index) if topic else None
            if request.acks not in (-1, 0, 1):
                answers.append(_refused(part.index, ErrorCode.INVALID_REQUIRED_ACKS, None))
            elif topic is None:
                answers.append(_refused(part.index, missing_topic(by_id=by_id), None))
            elif partition is None:
                answers.append(_refused(part.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None))
            elif not broker.leads(partition, part.index):
                answers.append(_refused(part.index, ErrorCode.NOT_LEADER_OR_FOLLOWER, None))
            else:
                answers.append(_append(topic, partition, part, call))
                changed.append(partition)
        responses.append(
            TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=answers)
        )
    broker.wake(changed)
    if request.acks != 0:
        return ProduceResponse(responses=responses)
    failed = [
        answer.error_code
        for response in responses
        for answer in response.partition_responses
        if answer.error_code
    ]
    return Closing(f"a produce with acks=0 failed: {ErrorCode(failed[0]).name}") if failed else None


def _append(
    topic: Topic, partition: Partition, data: PartitionProduceData, call: Call
) -> PartitionProduceResponse:
    """Store the batch of one partition, or say why not."""
    log = partition.log
    records = data.records or b""
    append_time = call.now if topic.config("message.timestamp.type") == "LogAppendTime" else None
    start = log.start_offset
    try:
        found = list(batches(records, check_crc=False))
        refusal = _refusal(found, len(records), int(topic.config("max.message.bytes")), call.version)
        if refusal is not None:
            return _refused(data.index, *refusal)
        if found[0].is_control:
            return _refused(
                data.index, ErrorCode.INVALID_RECORD, "clients may not write control batches", start
            )
        batch = found[0]
        stamped = assign_offsets(records, log.end_offset, log.leader_epoch, log_append_time=append_time)
        latest = call.now + int(topic.config("message.timestamp.after.max.ms"))
        if "compact" in topic.config("cleanup.policy"):
            keyless = _keyless(batch, latest if append_time is None else None)
            if keyless:
                why = f"records without a key, in a compacted topic: {len(keyless)}"
                return _refused(data.index, ErrorCode.INVALID_RECORD, why, start, keyless)
        if append_time is None and batch.max_timestamp > latest:
            why = f"a record is of {batch.max_timestamp} ms, and none may be later than {latest} ms"
            return _refused(data.index, ErrorCode.INVALID_TIMESTAMP, why, start)
    except RecordError as error:
        corrupt = error.field in ("crc", "size")
        code = ErrorCode.CORRUPT_MESSAGE if corrupt else ErrorCode.INVALID_RECORD
        return _refused(data.index, code, str(error), -1 if corrupt else start)
    stored = Stored(
        batch.base_sequence,
        last_sequence(batch.base_sequence, batch.count),
        log.end_offset,
        batch.max_timestamp if append_time is None else append_time,
    )
    if batch.producer_id >= 0:
        verdict = partition.producers.check(
            batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.count
        )
        if isinstance(verdict, Stored):
            # With CreateTime too: Kafka answers a duplicate with the time that it remembers.
            return _accepted(data.index, verdict.base_offset, verdict.max_timestamp, start)
        if verdict is not ErrorCode.NONE:
            return _refused(data.index, verdict, None, start)
        partition.producers.remember(batch.producer_id, batch.producer_epoch, stored)
    log.append(stamped, batch.count, stored.max_timestamp)
    return _accepted(data.index, stored.base_offset, -1 if append_time is None else append_time, start)


def _refusal(found: list[Batch], size: int, largest: int, version: int) -> tuple[ErrorCode, str] | None:
    """Why these batches can't be appended to one partition, judged by their headers alone."""
    if len(found) != 1:
        return ErrorCode.INVALID_RECORD, f"a partition takes exactly one batch per request, not {len(found)}"
    batch = found[0]
    if batch.magic != 2:
        return ErrorCode.INVALID_RECORD, f"batches must have magic 2, not {batch.magic}"
    if size > largest:
        return ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, max.message.bytes is {largest}"
    if batch.is_transactional:
        return ErrorCode.INVALID_TXN_STATE, "this broker has no transactions"
    if batch.count < 1:
        return ErrorCode.INVALID_RECORD, "the batch has no records"
    if batch.compression == "zstd" and version < ZSTD_SINCE:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce v{ZSTD_SINCE} or newer"
    return None


def _accepted(index: int, base_offset: int, append_time: int, log_start: int) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=base_offset,
        log_append_time_ms=append_time,
        log_start_offset=log_start,
    )


def _keyless(batch: Batch, latest: int | None) -> list[BatchIndexAndErrorMessage]:
    """Which records of the batch have no key; none where it can't be decompressed here, or where one with a
    key is later than `latest`: of the two that is what Kafka tells.
    """
    try:
        records = batch.records()
    except MissingExtra:
        return []
    if latest is not None and any(one.key is not None and one.timestamp > latest for one in records):
        return []
    return [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message="it has no key")
        for index, record in enumerate(records)
        if record.key is None
    ]


def _refused(
    index: int,
    error: ErrorCode,
    message: str | None,
    log_start: int = -1,
    records: Sequence[BatchIndexAndErrorMessage] = (),
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=error,
        base_offset=-1,
        log_start_offset=log_start,
        record_errors=list(records),
        error_message=message,
    )
