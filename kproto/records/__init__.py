"""Record batches: what Produce and Fetch carry, as rows here and as columns in `kproto.records.columns`."""

from __future__ import annotations

from .batch import (
    AbortedTransactions,
    Batch,
    BatchBuilder,
    assign_offsets,
    batches,
    encode_batch,
    row_lists,
    rows,
)
from .convert import convert
from .record import Headers, Record

__all__ = [
    "AbortedTransactions",
    "Batch",
    "BatchBuilder",
    "Headers",
    "Record",
    "assign_offsets",
    "batches",
    "convert",
    "encode_batch",
    "row_lists",
    "rows",
]
