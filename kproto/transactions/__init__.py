"""The transaction coordinator: who writes under a transactional id, and whether what was written counts.

`kproto.transactions.coordinator` has `step`; its state is in `transaction`. It writes no log: the markers
that end a transaction are an action, and the event `MarkersWritten` reports that they were written.
"""

from __future__ import annotations
