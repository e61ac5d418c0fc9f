"""Checks of the records in a produced batch: their keys and timestamps (Kafka's LogValidator).

Both checks decode the records. `records_outside` does so only if the batch header or a limit that a user has
set requires it.
"""

from __future__ import annotations

from typing import Final

from ..errors import MissingExtra
from ..messages.produce import BatchIndexAndErrorMessage
from ..records import Batch
from .settings import Settings
from .topics import Topic

# The timestamp of a record without a timestamp, which no limit applies to.
_NO_TIMESTAMP: Final = -1


def timestamp_limits(topic: Topic, settings: Settings, now: int) -> tuple[int, int]:
    """Return the earliest and the latest timestamp (ms) that records of the topic may have (KIP-937)."""
    before = int(topic.config("message.timestamp.before.max.ms", settings))
    return now - before, now + int(topic.config("message.timestamp.after.max.ms", settings))


def records_outside(batch: Batch, earliest: int, latest: int) -> list[BatchIndexAndErrorMessage]:
    """Return the records of a batch whose timestamps are outside of the limits.

    If the package for the batch's compression is missing, only the latest timestamp in the header is checked.
    """
    if batch.max_timestamp <= latest and earliest <= 0:
        return []
    try:
        timestamps = [record.timestamp for record in batch.records()]
    except MissingExtra:
        timestamps = [batch.max_timestamp]
    return [
        BatchIndexAndErrorMessage(
            batch_index=index,
            batch_index_error_message=f"the record timestamp {timestamp} ms is out of range",
        )
        for index, timestamp in enumerate(timestamps)
        if _is_outside(timestamp, earliest, latest)
    ]


def records_without_key(batch: Batch, limits: tuple[int, int] | None) -> list[BatchIndexAndErrorMessage]:
    """Return the records of a batch that have no key.

    The list is empty if the package for the batch's compression is missing. It is also empty if a record with
    a key has a timestamp outside of `limits`, which Kafka reports first.
    """
    try:
        records = batch.records()
    except MissingExtra:
        return []
    if limits is not None and any(
        record.key is not None and _is_outside(record.timestamp, *limits) for record in records
    ):
        return []
    return [
        BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message="it has no key")
        for index, record in enumerate(records)
        if record.key is None
    ]


def _is_outside(timestamp: int, earliest: int, latest: int) -> bool:
    return timestamp != _NO_TIMESTAMP and not earliest <= timestamp <= latest
