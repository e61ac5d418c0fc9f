"""Produce (key 0): append one batch to each of some partitions.

Rules, as Kafka's ReplicaManager.appendRecords and LogValidator:
  * acks 1 and -1 are the same with one broker. acks 0 wants no answer; when such a request fails, the
    connection is closed, which is all that a producer can be told.
  * A partition gets exactly one batch of magic 2, no control batch, not larger than `max.message.bytes`.
  * Batches of a transaction need its id, and their partition has to take part in it: up to v11 clients say
    so before they write, from v12 on writing is enough (KIP-890). Kafka's words for what is wrong there are
    translated for clients that don't know them.
  * What the CRC covers is taken as it is; records are not decoded to see whether they are well formed, but
    in a compacted topic, where each must have a key (validateKey).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from ...error_codes import ErrorCode
from ...errors import MissingExtra, RecordError
from ...messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ...records import Batch, assign_offsets, batches
from ..broker import Broker
from ..call import Call, CloseConnection, Result
from ..producer_state import Stored, last_sequence
from ..security.acls import Operation, Resource
from ..topics import Partition, Topic
from .lookup import missing_topic
from .transactions import take_part

ZSTD_SINCE: Final = 7  # KIP-110
LEADER_SINCE: Final = 10  # KIP-951
ABORTABLE_SINCE: Final = 11  # KIP-890: a client knows TRANSACTION_ABORTABLE
ADDS_SINCE: Final = 12  # KIP-890: writing is taking part

# Where the header of a batch of magic 2 has what is asked before the batch is believed.
_MAGIC_AT, _ATTRIBUTES_AT, _PRODUCER_AT, _EPOCH_AT, _SEQUENCE_AT = 16, 22, 43, 51, 53
_TRANSACTIONAL: Final = 0x10
_BEFORE_SIZE: Final = 12  # Records.LOG_OVERHEAD
_SMALLEST: Final = 14  # LegacyRecord.RECORD_OVERHEAD_V0
_NEWEST_MAGIC: Final = 2

# What the coordinator says, for clients that can't take it from Produce: they try again.
_TRY_AGAIN: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


def produce(broker: Broker, call: Call) -> Result:
    request = call.envelope.request
    assert isinstance(request, ProduceRequest)
    parts = [part for data in request.topic_data for part in data.partition_data]
    if any(_unreadable(part.records or b"") for part in parts):
        return _all_refused(request, ErrorCode.CORRUPT_MESSAGE)
    if not may_write_in_transactions(broker, call, request):
        return not_in_transactions(request)
    by_id = call.version >= 13  # KIP-516
    wanted = _each_once(request.topic_data)
    verdicts = _verdicts(broker, call, request, wanted, by_id=by_id)
    if verdicts is None:
        return _all_refused(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    responses: list[TopicProduceResponse] = []
    changed: list[Partition] = []
    for data in wanted:
        topic = broker.topics.with_id(data.topic_id) if by_id else broker.topics.named(data.name)
        answers: list[PartitionProduceResponse] = []
        for part in data.partition_data:
            partition = topic.partition(part.index) if topic else None
            if topic is None:
                answers.append(_refused(part.index, missing_topic(by_id=by_id), None))
            elif partition is None:
                answers.append(_refused(part.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None))
            elif not broker.is_leader(partition, part.index):
                answers.append(_led_elsewhere(broker, partition, part.index, call.version))
            elif (why := verdicts.get((topic.name, part.index))) is not None and why is not ErrorCode.NONE:
                answers.append(_refused(part.index, why, _why(why)))
            elif request.acks not in (-1, 0, 1):
                answers.append(_refused(part.index, ErrorCode.INVALID_REQUIRED_ACKS, None))
            else:
                answers.append(_append(broker, topic, partition, part, call.version))
                changed.append(partition)
        responses.append(
            TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=answers)
        )
    broker.wake(changed)
    if request.acks != 0:
        leaders = [one.current_leader.leader_id for told in responses for one in told.partition_responses]
        endpoints = [
            NodeEndpoint(node_id=node.id, host=host, port=port)
            for node, host, port in broker.cluster.endpoints(leaders, call.listener)
        ]
        return ProduceResponse(responses=responses, node_endpoints=endpoints)
    failed = [
        answer.error_code
        for response in responses
        for answer in response.partition_responses
        if answer.error_code
    ]
    return CloseConnection(f"a produce with acks=0 failed: {ErrorCode(failed[0]).name}") if failed else None


def _each_once(topics: Sequence[TopicProduceData]) -> Sequence[TopicProduceData]:
    """What is to be appended: of a partition that is there twice, the last."""
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return topics
    found: dict[tuple[str, UUID], dict[int, PartitionProduceData]] = {}
    for data in topics:
        for part in data.partition_data:
            found.setdefault((data.name, data.topic_id), {})[part.index] = part
    return [
        TopicProduceData(name=name, topic_id=topic_id, partition_data=list(parts.values()))
        for (name, topic_id), parts in found.items()
    ]


def _transactional(records: bytes | None) -> tuple[int, int] | None:
    """The producer id and epoch of the transaction that the batch says it belongs to."""
    if records is None or not _claims_one(records):
        return None
    producer_id, epoch = (
        int.from_bytes(records[at:end], "big", signed=True)
        for at, end in ((_PRODUCER_AT, _EPOCH_AT), (_EPOCH_AT, _SEQUENCE_AT))
    )
    return None if producer_id < 0 else (producer_id, epoch)


def _sequence(records: bytes) -> int:
    """The first one of a batch."""
    return int.from_bytes(records[_SEQUENCE_AT : _SEQUENCE_AT + 4], "big", signed=True)


def _claims_one(records: bytes | None) -> bool:
    """Does the batch say that it belongs to a transaction?"""
    if records is None or len(records) < _SEQUENCE_AT or records[_MAGIC_AT] != 2:
        return False
    return bool(records[_ATTRIBUTES_AT] & _TRANSACTIONAL)


def may_write_in_transactions(broker: Broker, call: Call, request: ProduceRequest) -> bool:
    """Does the request have the id of its transaction, and may its client write under that id?"""
    if not any(_claims_one(part.records) for data in request.topic_data for part in data.partition_data):
        return True
    name = request.transactional_id
    return name is not None and broker.is_authorized(call, Operation.WRITE, Resource.TRANSACTIONAL_ID, name)


def not_in_transactions(request: ProduceRequest) -> ProduceResponse | CloseConnection:
    """Nothing of the request is done."""
    return _all_refused(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)


def _unreadable(records: bytes) -> bool:
    """Is the head of the first batch one at which Kafka stops reading (ByteBufferLogInputStream)?"""
    if len(records) < _BEFORE_SIZE:
        return False
    size = int.from_bytes(records[_BEFORE_SIZE - 4 : _BEFORE_SIZE], "big", signed=True)
    return size < _SMALLEST or (len(records) > _MAGIC_AT and records[_MAGIC_AT] > _NEWEST_MAGIC)


def _led_elsewhere(
    broker: Broker, partition: Partition, index: int, version: int
) -> PartitionProduceResponse:
    """A refusal that says who leads now, and in which epoch (KIP-951)."""
    refused = _refused(index, ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    leader = broker.cluster.leader(partition, index)
    if version >= LEADER_SINCE and leader >= 0:
        refused.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=partition.log.leader_epoch)
    return refused


def _without_a_tail(records: bytes) -> bytes:
    """The records up to a batch that was cut off, which Kafka passes over; the first is never passed over."""
    if len(records) < _MAGIC_AT + 1:
        return records
    end = _BEFORE_SIZE + int.from_bytes(records[_BEFORE_SIZE - 4 : _BEFORE_SIZE], "big", signed=True)
    rest = len(records) - end
    if end <= 0 or rest <= 0:
        return records
    size = int.from_bytes(records[end + _BEFORE_SIZE - 4 : end + _BEFORE_SIZE], "big", signed=True)
    whole = rest >= _BEFORE_SIZE and (_unreadable(records[end:]) or rest >= _BEFORE_SIZE + size)
    return records if whole else records[:end]


def _all_refused(request: ProduceRequest, code: ErrorCode) -> ProduceResponse | CloseConnection:
    if request.acks == 0:
        return CloseConnection(f"a produce with acks=0 failed: {code.name}")
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=data.name,
                topic_id=data.topic_id,
                partition_responses=[_refused(part.index, code, None) for part in data.partition_data],
            )
            for data in _each_once(request.topic_data)
        ]
    )


def _verdicts(
    broker: Broker,
    call: Call,
    request: ProduceRequest,
    wanted: Sequence[TopicProduceData],
    *,
    by_id: bool,
) -> dict[tuple[str, int], ErrorCode] | None:
    """What the transaction coordinator says to the batches of a transaction, by partition (X6); None where
    they are of more than one producer.
    """
    asked: dict[tuple[str, int], tuple[int, int]] = {}
    tried: list[tuple[Partition, int]] = []
    producers: set[tuple[int, int]] = set()
    for data in wanted:
        topic = broker.topics.with_id(data.topic_id) if by_id else broker.topics.named(data.name)
        for part in data.partition_data:
            producer = _transactional(part.records)
            partition = topic.partition(part.index) if topic else None
            if topic is None or producer is None or partition is None:
                continue
            producers.add(producer)
            # Once its first batch is in the log, the log knows.
            if broker.is_leader(partition, part.index) and not partition.is_writing(*producer):
                asked[topic.name, part.index] = producer
                tried.append((partition, _sequence(part.records or b"")))
    if len(producers) > 1:
        return None
    for partition, sequence in tried:
        producer_id, epoch = next(iter(producers))
        from_zero = call.version >= ADDS_SINCE
        partition.producers.tries(producer_id, epoch, sequence, broker.wall_clock, from_zero=from_zero)
    if not asked:
        return {}
    codes = take_part(
        broker,
        call,
        request.transactional_id or "",
        next(iter(asked.values())),
        asked,
        adds=call.version >= ADDS_SINCE,
        knows_abortable=call.version >= ABORTABLE_SINCE,
    )
    again = (*_TRY_AGAIN, *([] if call.version >= ADDS_SINCE else [ErrorCode.CONCURRENT_TRANSACTIONS]))
    return {one: ErrorCode.NOT_ENOUGH_REPLICAS if code in again else code for one, code in codes.items()}


def _why(code: ErrorCode) -> str | None:
    if code is ErrorCode.INVALID_TXN_STATE:
        return "Partition was not added to the transaction"
    if code is ErrorCode.NOT_ENOUGH_REPLICAS:
        return "Unable to verify the partition has been added to the transaction."
    return None


def _append(
    broker: Broker, topic: Topic, partition: Partition, data: PartitionProduceData, version: int
) -> PartitionProduceResponse:
    """Store the batch of one partition, or say why not."""
    log, settings, now = partition.log, broker.settings, broker.wall_clock
    records = _without_a_tail(data.records or b"")
    append_time = now if topic.config("message.timestamp.type", settings) == "LogAppendTime" else None
    start = log.start_offset
    if len(records) > _MAGIC_AT and records[_MAGIC_AT] != _NEWEST_MAGIC:
        why = f"batches must have magic 2, not {records[_MAGIC_AT]}"
        return _refused(data.index, ErrorCode.INVALID_RECORD, why)
    try:
        found = list(batches(records, check_crc=False))
        refusal = _refusal(found, len(records), int(topic.config("max.message.bytes", settings)), version)
        if refusal is not None:
            return _refused(data.index, *refusal)
        batch = found[0]
        if batch.base_offset != 0:
            why = f"a client's batch begins at offset 0, not {batch.base_offset}"
            return _refused(data.index, ErrorCode.INVALID_RECORD, why, start)
        if batch.count < 1:
            return _refused(data.index, ErrorCode.INVALID_RECORD, "the batch has no records", start)
        if batch.is_control:
            why = "clients may not write control batches"
            return _refused(data.index, ErrorCode.INVALID_RECORD, why, start)
        if batch.producer_id >= 0 and batch.base_sequence < 0:
            why = f"a producer's batch has the sequence {batch.base_sequence}"
            return _refused(data.index, ErrorCode.INVALID_RECORD, why, start)
        stamped = assign_offsets(records, log.end_offset, log.leader_epoch, log_append_time=append_time)
        latest = now + int(topic.config("message.timestamp.after.max.ms", settings))
        if "compact" in topic.config("cleanup.policy", settings):
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
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.count,
            begins=batch.is_transactional
            and not partition.is_writing(batch.producer_id, batch.producer_epoch),
        )
        if isinstance(verdict, Stored):
            # With CreateTime too: Kafka answers a duplicate with the time that it remembers.
            return _accepted(data.index, verdict.base_offset, verdict.max_timestamp, start)
        if verdict is not ErrorCode.NONE:
            return _refused(data.index, verdict, None, start)
        if not batch.is_transactional and partition.transactions.start_of(batch.producer_id) is not None:
            why = "the producer has a transaction open here"
            return _refused(data.index, ErrorCode.INVALID_TXN_STATE, why, start)
        partition.producers.remember(batch.producer_id, batch.producer_epoch, stored)
        if batch.is_transactional:
            partition.transactions.wrote(batch.producer_id, stored.base_offset)
    log.append(stamped, batch.count, stored.max_timestamp, topic.limits(settings))
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
