"""The transaction coordinator: who writes under a transactional id, and whether what was written counts.

`kproto.txn.coordinator` has `step`; what it works with is in `transaction`. It touches no log: the markers
that end a transaction are an action, and `MarkersWritten` tells it that they are there.
"""

from __future__ import annotations
