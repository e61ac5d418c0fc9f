"""The part of a Fetch response for one partition (sarama consumer.go, parseResponse, parseRecords, v1.61.1).

* Records below the requested offset are dropped. If the response has records, a batch without a record at or
  above the requested offset advances the offset by one.

* Control batches advance the offset and yield no message. Under read_committed, the same applies to batches
  of aborted transactions.

* If the response has only an incomplete batch, the fetch size increases to the size in the batch's header, or
  doubles if that size is not larger. Fetch.Max limits the fetch size. If the fetch size is already Fetch.Max,
  the message is reported as too large, and skipped (M190).

* If compaction has emptied all batches of a response, the offset advances to the end of the last batch. The
  offset does not change if this end is above the high watermark (M191).

* The high watermark is updated only by responses with records (M192).
"""

from __future__ import annotations

from ...errors import RecordError
from ...group.subscription import TopicPartition
from ...messages.fetch import PartitionData
from ...records import AbortedTransactions, Batch, batches
from ...records import Record as DecodedRecord
from ..contract import ModelRecord
from . import errors
from .broker_consumer import Subscriber
from .errors import GoError

_INT32_MAX = 0x7FFFFFFF


def parse(child: Subscriber, block: PartitionData) -> tuple[list[ModelRecord], GoError | None]:
    """Return the messages or the error in a response, and update the partition consumer (`child`)."""
    if block.error_code:
        return [], errors.kafka(block.error_code)
    data = block.records or b""
    if not data and block.preferred_read_replica == -1:
        return [], None
    aborted_transactions = block.aborted_transactions or ()
    aborted = AbortedTransactions(
        [(transaction.producer_id, transaction.first_offset) for transaction in aborted_transactions]
    )
    try:
        decoded = [(batch, batch.records(), aborted.skips(batch)) for batch in batches(data)]
    except RecordError as error:
        return [], GoError("sarama.PacketDecodingError", str(error))
    if block.preferred_read_replica != -1:
        child.prefer(block.preferred_read_replica)
    if not any(records for _, records, _ in decoded):
        _on_response_without_records(child, block, [batch for batch, _, _ in decoded], data)
        return [], None
    child.fetch_size = child.settings.fetch_default
    child.high_watermark = block.high_watermark
    messages: list[ModelRecord] = []
    for batch, batch_records, is_aborted in decoded:
        records = _records_from_offset(child, batch_records)
        is_visible = child.settings.consumer_isolation == 0 or not is_aborted
        if is_visible and not batch.is_control:
            messages += records
    return messages, None


def _records_from_offset(child: Subscriber, batch_records: list[DecodedRecord]) -> list[ModelRecord]:
    """Return the batch's records from the partition consumer's offset on, and advance this offset."""
    partition = TopicPartition(*child.partition)
    records = [
        ModelRecord(partition, record.offset, record.timestamp, record.key, record.value)
        for record in batch_records
        if record.offset >= child.offset
    ]
    child.offset = records[-1].offset + 1 if records else child.offset + 1
    return records


def _on_response_without_records(
    child: Subscriber, block: PartitionData, empty_batches: list[Batch], data: bytes
) -> None:
    """Advance the offset after empty batches; increase the fetch size after an incomplete batch."""
    settings = child.settings
    if empty_batches:
        end_offset = empty_batches[-1].last_offset + 1
        if end_offset <= block.high_watermark:
            child.offset = end_offset
        return
    if not data:
        return
    if settings.fetch_max and child.fetch_size == settings.fetch_max:
        child.report_error(errors.MESSAGE_TOO_LARGE)
        child.offset += 1
        return
    # The batch's header starts with the base offset (8 bytes) and the length (4 bytes). The length counts the
    # bytes after itself.
    batch_size = int.from_bytes(data[8:12], "big") + 12 if len(data) >= 12 else 0
    child.fetch_size = min(batch_size if batch_size > child.fetch_size else child.fetch_size * 2, _INT32_MAX)
    if settings.fetch_max:
        child.fetch_size = min(child.fetch_size, settings.fetch_max)
