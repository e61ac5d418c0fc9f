"""Produce (key 0): append one batch to each partition of the request.

Rules, as in Kafka's ReplicaManager.appendRecords and LogValidator:

* acks=1 and acks=-1 have the same effect on this broker.

* A request with acks=0 has no response. If the request fails, the broker closes the connection to report the
  failure to the producer.

* A partition accepts exactly one batch of magic 2 per request. The batch must not be a control batch, and
  must not be larger than `max.message.bytes`.

* A transactional batch requires a transactional id in the request, and its partition must be in the
  transaction.

* From v12 on, the Produce request itself adds the partition to the transaction (KIP-890). Up to v11, the
  client sends AddPartitionsToTxn first.

* If an error of the transaction coordinator is too new for the version of the request, the response contains
  an older error, which the client knows.

* The bytes that the CRC covers are stored unchanged. Records are decoded only for validation
  (`record_validation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from ...error_codes import ErrorCode
from ...errors import RecordError
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
from ...wire.message import Message
from ..broker import Broker
from ..call import Call, CloseWithoutResponse, Result
from ..producer_state import StoredBatch, last_sequence
from ..record_validation import records_fault, timestamp_limits
from ..security.acls import Operation, Resource
from ..topics import Partition, Topic
from .api import Api
from .authorization import (
    TOPIC_FAILED,
    TRANSACTIONAL_ID_FAILED,
    Access,
    Authorization,
    Authorized,
    topic_requirement,
    transactional_id_requirement,
)
from .partitions import missing_topic
from .transaction_coordinator import verify_partitions

# The first version of Produce with zstd (KIP-110).
ZSTD_SINCE: Final = 7
# The first version in which a partition's error contains the current leader (KIP-951).
LEADER_SINCE: Final = 10
# The first version whose clients know TRANSACTION_ABORTABLE (KIP-890).
KNOWS_ABORTABLE_SINCE: Final = 11
# The first version in which a write adds its partition to the transaction (KIP-890).
ADDS_SINCE: Final = 12
# The first version with topic ids (KIP-516).
BY_ID_SINCE: Final = 13

# Byte positions of fields in the header of a batch of magic 2. These fields are read before the batch is
# parsed.
_MAGIC_AT, _ATTRIBUTES_AT, _PRODUCER_ID_AT, _EPOCH_AT, _SEQUENCE_AT = 16, 22, 43, 51, 53
# The flag of transactional batches in the low byte of the attributes. This byte is at `_ATTRIBUTES_AT`.
_TRANSACTIONAL_FLAG: Final = 0x10
# Kafka's Records.LOG_OVERHEAD: the total size of the first two fields of a batch, the base offset and the
# batch size.
_SIZE_END: Final = 12
# Kafka's LegacyRecord.RECORD_OVERHEAD_V0: the smallest valid value of the batch size.
_MIN_BATCH_SIZE: Final = 14
_MAGIC: Final = 2

# Errors of the transaction coordinator that a producer cannot handle. They are replaced by
# NOT_ENOUGH_REPLICAS, after which producers retry.
_REPLACED_ERRORS: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


def handle_produce(broker: Broker, call: Call) -> Result:
    """Append the batches of the request; each partition succeeds or fails independently.

    With acks=0 there is no response: return None if all partitions succeed, and close the connection if one
    fails.
    """
    request = call.request
    assert isinstance(request, ProduceRequest)
    parts = [part for data in request.topic_data for part in data.partition_data]
    if any(_is_unreadable(part.records or b"") for part in parts):
        return _refuse(request, ErrorCode.CORRUPT_MESSAGE)
    if not _may_write_transactions(broker, call, request):
        return _refuse(request, TRANSACTIONAL_ID_FAILED)
    by_id = call.version >= BY_ID_SINCE
    topics = _without_duplicates(request.topic_data)
    transaction_errors = _transaction_errors(broker, call, request, topics, by_id=by_id)
    if transaction_errors is None:
        return _refuse(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    responses: list[TopicProduceResponse] = []
    changed: list[Partition] = []
    for data in topics:
        topic = broker.topics.with_id(data.topic_id) if by_id else broker.topics.named(data.name)
        results: list[PartitionProduceResponse] = []
        for part in data.partition_data:
            partition = topic.partition(part.index) if topic else None
            if topic is None:
                results.append(_refuse_partition(part.index, missing_topic(by_id=by_id)))
            elif partition is None:
                results.append(_refuse_partition(part.index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            elif not broker.is_leader(partition, part.index):
                results.append(_refuse_with_leader(broker, partition, part.index, call.version))
            elif error := transaction_errors.get((topic.name, part.index)):
                results.append(_refuse_partition(part.index, error, _transaction_message(error)))
            elif request.acks not in (-1, 0, 1):
                results.append(_refuse_partition(part.index, ErrorCode.INVALID_REQUIRED_ACKS))
            else:
                results.append(_append(broker, topic, partition, part, call.version))
                changed.append(partition)
        responses.append(
            TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=results)
        )
    broker.on_partitions_changed(changed)
    all_results = [result for response in responses for result in response.partition_responses]
    if request.acks == 0:
        errors = [result.error_code for result in all_results if result.error_code]
        return _close_without_acks(ErrorCode(errors[0])) if errors else None
    leaders = [result.current_leader.leader_id for result in all_results]
    endpoints = [
        NodeEndpoint(node_id=node.id, host=host, port=port, rack=node.rack)
        for node, host, port in broker.cluster.endpoints(leaders, call.listener)
    ]
    return ProduceResponse(responses=responses, node_endpoints=endpoints)


def _close_without_acks(error: ErrorCode) -> CloseWithoutResponse:
    return CloseWithoutResponse(f"a produce with acks=0 failed: {error.name}")


def _without_duplicates(topics: Sequence[TopicProduceData]) -> Sequence[TopicProduceData]:
    """Return the topics without duplicate partitions: the last entry of each partition is kept."""
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return topics
    unique: dict[tuple[str, UUID], dict[int, PartitionProduceData]] = {}
    for data in topics:
        for part in data.partition_data:
            unique.setdefault((data.name, data.topic_id), {})[part.index] = part
    return [
        TopicProduceData(name=name, topic_id=topic_id, partition_data=list(parts.values()))
        for (name, topic_id), parts in unique.items()
    ]


def _transactional_producer(records: bytes | None) -> tuple[int, int] | None:
    """Return the producer id and epoch of a transactional batch; None for any other batch."""
    if records is None or not _is_transactional(records):
        return None
    producer_id = int.from_bytes(records[_PRODUCER_ID_AT:_EPOCH_AT], "big", signed=True)
    epoch = int.from_bytes(records[_EPOCH_AT:_SEQUENCE_AT], "big", signed=True)
    return None if producer_id < 0 else (producer_id, epoch)


def _base_sequence(records: bytes) -> int:
    return int.from_bytes(records[_SEQUENCE_AT : _SEQUENCE_AT + 4], "big", signed=True)


def _is_transactional(records: bytes | None) -> bool:
    """Return whether the transactional flag is set in the header of a batch."""
    if records is None or len(records) < _SEQUENCE_AT or records[_MAGIC_AT] != _MAGIC:
        return False
    return bool(records[_ATTRIBUTES_AT] & _TRANSACTIONAL_FLAG)


def _may_write_transactions(broker: Broker, call: Call, request: ProduceRequest) -> bool:
    """Return whether the client may write the request's transactional batches; true if there are none."""
    if not any(
        _is_transactional(part.records) for data in request.topic_data for part in data.partition_data
    ):
        return True
    transactional_id = request.transactional_id
    return transactional_id is not None and broker.is_authorized(
        call, Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id
    )


def _is_unreadable(records: bytes) -> bool:
    """Return whether Kafka rejects the first batch's size or magic (ByteBufferLogInputStream)."""
    if len(records) < _SIZE_END:
        return False
    size = int.from_bytes(records[_SIZE_END - 4 : _SIZE_END], "big", signed=True)
    return size < _MIN_BATCH_SIZE or (len(records) > _MAGIC_AT and records[_MAGIC_AT] > _MAGIC)


def _refuse_with_leader(
    broker: Broker, partition: Partition, index: int, version: int
) -> PartitionProduceResponse:
    """Return NOT_LEADER_OR_FOLLOWER for a partition, with its leader and leader epoch (KIP-951)."""
    response = _refuse_partition(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    leader = broker.cluster.leader(partition, index)
    if version >= LEADER_SINCE and leader >= 0:
        epoch = partition.log.leader_epoch
        response.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
    return response


def _without_truncated_batch(records: bytes) -> bytes:
    """Return `records` without a truncated second batch, because Kafka ignores such a batch.

    A second batch that is complete or unreadable is kept, so that the later validation rejects both batches.
    """
    if len(records) < _MAGIC_AT + 1:
        return records
    first_end = _SIZE_END + int.from_bytes(records[_SIZE_END - 4 : _SIZE_END], "big", signed=True)
    remaining_size = len(records) - first_end
    if first_end <= 0 or remaining_size <= 0:
        return records
    size_end = first_end + _SIZE_END
    second_size = int.from_bytes(records[size_end - 4 : size_end], "big", signed=True)
    stays = remaining_size >= _SIZE_END and (
        _is_unreadable(records[first_end:]) or remaining_size >= _SIZE_END + second_size
    )
    return records if stays else records[:first_end]


def refuse(request: ProduceRequest, error: ErrorCode, version: int) -> Message:
    """Return a response with an error for every partition of the request."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=data.name,
                topic_id=data.topic_id,
                partition_responses=[_refuse_partition(part.index, error) for part in data.partition_data],
            )
            for data in _without_duplicates(request.topic_data)
        ]
    )


def _refuse(request: ProduceRequest, error: ErrorCode) -> Message | CloseWithoutResponse:
    """Return a response with the error for every partition, or close the connection if acks=0."""
    return _close_without_acks(error) if request.acks == 0 else refuse(request, error, version=0)


def _transaction_errors(
    broker: Broker,
    call: Call,
    request: ProduceRequest,
    topics: Sequence[TopicProduceData],
    *,
    by_id: bool,
) -> dict[tuple[str, int], ErrorCode] | None:
    """Verify transactional batches with the transaction coordinator (X6).

    Only partitions in which the transaction has no batch yet are verified. First, the attempt to write this
    batch is recorded for each of them (`start_verification`). Returns the error code of each verified
    partition, which may be NONE.

    Returns None if the batches have several producer ids or epochs.
    """
    # (Topic, partition index) -> the partition, and the base sequence of the batch.
    to_verify: dict[tuple[str, int], tuple[Partition, int]] = {}
    producers: set[tuple[int, int]] = set()
    for data in topics:
        topic = broker.topics.with_id(data.topic_id) if by_id else broker.topics.named(data.name)
        for part in data.partition_data:
            producer = _transactional_producer(part.records)
            partition = topic.partition(part.index) if topic else None
            if topic is None or producer is None or partition is None:
                continue
            producers.add(producer)
            # Only the first batch of a transaction in a partition is verified. After that batch, the
            # partition knows that the transaction is ongoing (`is_writing`).
            if broker.is_leader(partition, part.index) and not partition.is_writing(*producer):
                to_verify[topic.name, part.index] = partition, _base_sequence(part.records or b"")
    if len(producers) > 1:
        return None
    if not to_verify:
        return {}
    (producer,) = producers
    producer_id, epoch = producer
    adds = call.version >= ADDS_SINCE
    for partition, base_sequence in to_verify.values():
        partition.producers.start_verification(
            producer_id, epoch, base_sequence, broker.wall_clock, starts_at_zero=adds
        )
    errors = verify_partitions(
        broker,
        call,
        request.transactional_id or "",
        producer,
        to_verify,
        adds=adds,
        knows_abortable=call.version >= KNOWS_ABORTABLE_SINCE,
    )
    # Clients that add the partition by writing to it can retry after CONCURRENT_TRANSACTIONS. Older clients
    # get the retriable error NOT_ENOUGH_REPLICAS instead.
    replaced_errors = _REPLACED_ERRORS if adds else (*_REPLACED_ERRORS, ErrorCode.CONCURRENT_TRANSACTIONS)
    return {
        partition: ErrorCode.NOT_ENOUGH_REPLICAS if error in replaced_errors else error
        for partition, error in errors.items()
    }


def _transaction_message(error: ErrorCode) -> str | None:
    """Return Kafka's message for an error of the transaction coordinator; None if Kafka sends no message."""
    if error is ErrorCode.INVALID_TXN_STATE:
        return "Partition was not added to the transaction"
    if error is ErrorCode.NOT_ENOUGH_REPLICAS:
        return "Unable to verify the partition has been added to the transaction."
    return None


def _append(
    broker: Broker, topic: Topic, partition: Partition, data: PartitionProduceData, version: int
) -> PartitionProduceResponse:
    """Validate the batch of one partition. Append it if it is valid, otherwise return an error.

    A duplicate of a stored batch is not appended: the result of the stored batch is returned.
    """
    log, settings, now = partition.log, broker.settings, broker.wall_clock
    records = _without_truncated_batch(data.records or b"")
    append_time = now if topic.config("message.timestamp.type", settings) == "LogAppendTime" else None
    log_start = log.start_offset
    if len(records) > _MAGIC_AT and records[_MAGIC_AT] != _MAGIC:
        message = f"batches must have magic 2, not {records[_MAGIC_AT]}"
        return _refuse_partition(data.index, ErrorCode.INVALID_RECORD, message)
    try:
        parsed_batches = list(batches(records, check_crc=False))
        max_size = int(topic.config("max.message.bytes", settings))
        if (header_fault := _header_fault(parsed_batches, len(records), max_size, version)) is not None:
            return _refuse_partition(data.index, *header_fault)
        batch = parsed_batches[0]
        if (batch_fault := _batch_fault(batch)) is not None:
            return _refuse_partition(data.index, ErrorCode.INVALID_RECORD, batch_fault, log_start)
        records_to_store = assign_offsets(
            records, log.end_offset, log.leader_epoch, log_append_time=append_time
        )
        limits = timestamp_limits(topic, settings, now) if append_time is None else None
        is_compacted = "compact" in topic.config("cleanup.policy", settings)
        fault = records_fault(batch, limits, is_compacted=is_compacted)
        if fault is not None:
            return _refuse_partition(data.index, fault.error, fault.message, log_start, fault.record_errors)
    except RecordError as error:
        if error.field in ("crc", "size"):
            return _refuse_partition(data.index, ErrorCode.CORRUPT_MESSAGE, str(error))
        return _refuse_partition(data.index, ErrorCode.INVALID_RECORD, str(error), log_start)
    stored = StoredBatch(
        batch.base_sequence,
        last_sequence(batch.base_sequence, batch.count),
        log.end_offset,
        batch.max_timestamp if append_time is None else append_time,
    )
    if batch.producer_id >= 0:
        check_result = partition.producers.check(
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.count,
            starts_transaction=batch.is_transactional
            and not partition.is_writing(batch.producer_id, batch.producer_epoch),
        )
        if isinstance(check_result, StoredBatch):
            # For a duplicate batch, Kafka returns the timestamp of the stored batch as the append time, even
            # with CreateTime.
            duplicate = check_result
            return _accept_partition(data.index, duplicate.base_offset, duplicate.max_timestamp, log_start)
        if check_result is not ErrorCode.NONE:
            return _refuse_partition(data.index, check_result, None, log_start)
        if not batch.is_transactional and partition.transactions.start_of(batch.producer_id) is not None:
            message = "the producer has an ongoing transaction in this partition"
            return _refuse_partition(data.index, ErrorCode.INVALID_TXN_STATE, message, log_start)
        partition.producers.on_batch_appended(batch.producer_id, batch.producer_epoch, stored)
        if batch.is_transactional:
            partition.transactions.on_batch_appended(batch.producer_id, stored.base_offset)
    log.append(records_to_store, batch.count, stored.max_timestamp, topic.limits(settings))
    return _accept_partition(
        data.index, stored.base_offset, -1 if append_time is None else append_time, log_start
    )


def _header_fault(
    parsed_batches: list[Batch], size: int, max_size: int, version: int
) -> tuple[ErrorCode, str] | None:
    """Return the error and message for invalid batch headers of one partition; None for valid headers.

    `size` is the size in bytes of the partition's records, and `version` the version of the request.
    """
    if len(parsed_batches) != 1:
        message = f"a partition takes exactly one batch per request, not {len(parsed_batches)}"
        return ErrorCode.INVALID_RECORD, message
    batch = parsed_batches[0]
    if batch.magic != _MAGIC:
        return ErrorCode.INVALID_RECORD, f"batches must have magic 2, not {batch.magic}"
    if size > max_size:
        return ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, max.message.bytes is {max_size}"
    if batch.compression == "zstd" and version < ZSTD_SINCE:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce v{ZSTD_SINCE} or newer"
    return None


def _batch_fault(batch: Batch) -> str | None:
    """Return why a client may not produce this batch; None if the batch is acceptable."""
    if batch.base_offset != 0:
        return f"a client's batch begins at offset 0, not {batch.base_offset}"
    if batch.count < 1:
        return "the batch has no records"
    if batch.last_offset != batch.count - 1:
        return f"the last offset of {batch.count} records is {batch.count - 1}, not {batch.last_offset}"
    if batch.is_control:
        return "clients may not write control batches"
    if batch.producer_id >= 0 and batch.base_sequence < 0:
        return f"a producer's batch has the sequence {batch.base_sequence}"
    return None


def _accept_partition(
    index: int, base_offset: int, append_time: int, log_start: int
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=base_offset,
        log_append_time_ms=append_time,
        log_start_offset=log_start,
    )


def _refuse_partition(
    index: int,
    error: ErrorCode,
    message: str | None = None,
    log_start: int = -1,
    record_errors: Sequence[BatchIndexAndErrorMessage] = (),
) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=error,
        base_offset=-1,
        log_start_offset=log_start,
        record_errors=list(record_errors),
        error_message=message,
    )


def _authorize(access: Access, request: ProduceRequest) -> Authorized:
    """Require WRITE on each topic and, for transactional batches, on the transactional id."""
    if not _may_write_transactions(access.broker, access.call, request):
        return _refuse(request, TRANSACTIONAL_ID_FAILED)
    permitted, denied = access.split_topics(Operation.WRITE, request.topic_data)
    if not denied:
        return access.call
    refusals = [
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=[
                PartitionProduceResponse(index=part.index, error_code=TOPIC_FAILED, base_offset=-1)
                for part in topic.partition_data
            ],
        )
        for topic in denied
    ]
    narrowed = access.narrow(lambda response: response.responses.extend(refusals), topic_data=permitted)
    if request.acks == 0:
        # With acks=0, denied batches close the connection, but the permitted batches are appended first.
        handle_produce(access.broker, narrowed)
        return _close_without_acks(TOPIC_FAILED)
    return narrowed


API = Api(
    request=ProduceRequest,
    handle=handle_produce,
    authorization=Authorization(
        (transactional_id_requirement(Operation.WRITE), topic_requirement(Operation.WRITE)), _authorize
    ),
    refuse=refuse,
    # Kafka 4 advertises v0 (KAFKA-18659): old versions of librdkafka assume that a broker without v0 does not
    # support compression. Requests of v0 to v2 are rejected nevertheless.
    min_version=0,
)
