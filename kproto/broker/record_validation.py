"""Checks of the records in a produced batch: offsets, keys and timestamps (Kafka's LogValidator).

* Records are decoded only if they are compressed, if the topic is compacted, or if their timestamps must be
  checked one by one.

* Timestamps are checked one by one if the maximum timestamp in the batch header is too late, or if
  `message.timestamp.before.max.ms` is set.

* A compressed batch of a few kilobytes may have millions of records. So records are decoded in parts, and the
  decoding ends at the first wrong offset, or after `MAX_RECORD_ERRORS` invalid records.

* Unlike in Kafka, the numbers of records and headers in a compressed batch are limited.

* Compressed records may take up to 16 MiB when decompressed, or up to 16 times the size of the batch if that
  is more.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

from ..error_codes import ErrorCode
from ..errors import MissingExtra
from ..messages.produce import BatchIndexAndErrorMessage
from ..records import Batch
from ..records.batch import SMALLEST_RECORD
from ..records.compression import allowance
from ..records.record_stream import record_lists
from .settings import Settings
from .topics import Topic

# A compressed batch may have more records than this number only if it has at least seven bytes per record,
# the size of the smallest uncompressed record. Decoding this many records takes 0.1 s. Kafka has no such
# limit. A batch with too many records fails with MESSAGE_TOO_LARGE, and the producer splits it.
MAX_COMPRESSED_RECORDS: Final = 50_000

# The maximum number of headers in a compressed batch is this number times the maximum number of records.
# Decoding 250,000 headers takes 0.1 s.
MAX_HEADERS_OF_A_RECORD: Final = 5

# The maximum number of invalid records that the error of one batch names.
MAX_RECORD_ERRORS: Final = 100

# The value for a missing timestamp. The timestamp limits do not apply to this value.
_NO_TIMESTAMP: Final = -1

# The number of records that are decoded together.
_PART_RECORDS: Final = 1000


class RecordsFault(NamedTuple):
    """The error of a batch with invalid records."""

    error: ErrorCode
    message: str
    record_errors: Sequence[BatchIndexAndErrorMessage] = ()


def timestamp_limits(topic: Topic, settings: Settings, now: int) -> tuple[int, int]:
    """Return the earliest and the latest timestamp (ms) that records of the topic may have (KIP-937)."""
    before_max_ms = int(topic.config("message.timestamp.before.max.ms", settings))
    after_max_ms = int(topic.config("message.timestamp.after.max.ms", settings))
    return now - before_max_ms, now + after_max_ms


def records_fault(batch: Batch, limits: tuple[int, int] | None, *, is_compacted: bool) -> RecordsFault | None:
    """Return the error for a batch that contains invalid records; None if all records are valid.

    The offsets of compressed records must be consecutive, timestamps must be within `limits`, and records of
    compacted topics need keys.

    If some records have an invalid timestamp and others have no key, the error is INVALID_TIMESTAMP. The
    timestamp of a record without a key is not checked.

    The first record with a wrong offset ends the check. If its timestamp and key are valid, the error is
    UNKNOWN_SERVER_ERROR, as in Kafka. Otherwise, the invalid timestamps and keys determine the error.

    If the package that decompresses the records is missing, only the maximum timestamp in the batch header is
    checked. Raises RecordError for malformed records.
    """
    checks_times = limits is not None and (batch.max_timestamp > limits[1] or limits[0] > 0)
    if not (batch.codec or is_compacted or checks_times):
        return None
    # The errors of the invalid records, by the index of the record in the batch.
    key_errors: dict[int, str] = {}
    timestamp_errors: dict[int, str] = {}
    max_records = max(MAX_COMPRESSED_RECORDS, batch.size // SMALLEST_RECORD)
    has_too_many_records = batch.codec > 0 and batch.count > max_records
    header_count, max_headers = 0, MAX_HEADERS_OF_A_RECORD * max_records
    parts = record_lists(batch, _PART_RECORDS, allowance(batch.size))
    try:
        for index, record in enumerate(chain.from_iterable(parts)):
            offset_delta = record.offset - batch.base_offset if batch.codec else index
            if is_compacted and record.key is None:
                key_errors[index] = "it has no key"
            elif limits is not None and _is_out_of_range(record.timestamp, *limits):
                timestamp_errors[index] = f"the record timestamp {record.timestamp} ms is out of range"
            elif offset_delta != index:
                message = f"compressed record {index} has the offset delta {offset_delta} instead of {index}"
                return RecordsFault(ErrorCode.UNKNOWN_SERVER_ERROR, message)
            elif has_too_many_records and index:
                message = f"{batch.size} compressed bytes may have {max_records} records, not {batch.count}"
                return RecordsFault(ErrorCode.MESSAGE_TOO_LARGE, message)
            elif batch.codec and (header_count := header_count + len(record.headers)) > max_headers:
                message = f"the records of {batch.size} compressed bytes may have {max_headers} headers"
                return RecordsFault(ErrorCode.MESSAGE_TOO_LARGE, message)
            else:
                continue
            # The key or the timestamp of this record is invalid.
            if offset_delta != index or len(key_errors) + len(timestamp_errors) >= MAX_RECORD_ERRORS:
                break
    except MissingExtra:
        if limits is not None and _is_out_of_range(batch.max_timestamp, *limits):
            timestamp_errors[0] = f"the record timestamp {batch.max_timestamp} ms is out of range"
    if timestamp_errors and limits is not None:
        message = f"{next(iter(timestamp_errors.values()))}; allowed: {limits[0]} to {limits[1]} ms"
        return RecordsFault(ErrorCode.INVALID_TIMESTAMP, message, _record_errors(timestamp_errors))
    if key_errors:
        message = f"records without a key, in a compacted topic: at least {len(key_errors)}"
        return RecordsFault(ErrorCode.INVALID_RECORD, message, _record_errors(key_errors))
    return None


def _record_errors(messages: dict[int, str]) -> list[BatchIndexAndErrorMessage]:
    return [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
        for index, message in messages.items()
    ]


def _is_out_of_range(timestamp: int, earliest: int, latest: int) -> bool:
    """Return whether a timestamp is outside of the limits; False for a missing timestamp."""
    return timestamp != _NO_TIMESTAMP and not earliest <= timestamp <= latest
