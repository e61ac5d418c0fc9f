"""ProducerSnapshot: the file in which a broker saves the state of a partition's idempotent producers.

The file begins with an int16, the version. The CRC-32C covers the bytes that follow the field `crc`.
"""

from __future__ import annotations

from ..wire.message import Message, Struct
from ..wire.types import Int16, Int32, Int64, UInt32


class ProducerSnapshot(Message, versions="1"):
    crc: UInt32
    producer_entries: list[ProducerEntry]


class ProducerEntry(Struct):
    producer_id: Int64
    epoch: Int16
    # The sequence number of the producer's last record.
    last_sequence: Int32
    last_offset: Int64
    # The last offset of the last batch minus the first offset of that batch.
    offset_delta: Int32
    # The largest timestamp of the last batch.
    timestamp: Int64
    # The epoch of the coordinator that wrote the last transaction marker.
    coordinator_epoch: Int32
    # The first offset of the open transaction; -1 if there is none.
    current_txn_first_offset: Int64
