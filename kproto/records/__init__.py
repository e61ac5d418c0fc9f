"""Read and write record batches, the payload of Produce and Fetch, as `Record` objects.

`kproto.records.columns` reads record batches as columns instead. `kproto.records` does not import that
module, which needs numpy and pyarrow.
"""

from __future__ import annotations

from .batch import Batch
from .builder import BatchBuilder, assign_offsets, encode_batch, renumber
from .conversion import convert
from .reader import AbortedTransactions, BatchSpan, batches, spans
from .record import Headers, Record
from .rows import row_lists, rows

__all__ = [
    "AbortedTransactions",
    "Batch",
    "BatchBuilder",
    "BatchSpan",
    "Headers",
    "Record",
    "assign_offsets",
    "batches",
    "convert",
    "encode_batch",
    "renumber",
    "row_lists",
    "rows",
    "spans",
]
