"""AbortedTxn: an entry of the transaction index, the file with the aborted transactions of a log segment.

In the transaction index, an int16 with the version precedes each entry.
"""

from __future__ import annotations

from ..wire.message import Message
from ..wire.types import Int64


class AbortedTxn(Message, versions="0"):
    producer_id: Int64
    first_offset: Int64
    last_offset: Int64
    # The last stable offset after the abort. All records of transactions that end later are at or above this
    # offset.
    last_stable_offset: Int64
