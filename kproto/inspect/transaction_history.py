"""Derive the outcomes of transactions from the exchanges of their producers.

Rules:

* A transaction begins with its first Produce, AddPartitionsToTxn, AddOffsetsToTxn or TxnOffsetCommit. It ends
  with an EndTxn whose response has no error.

* An InitProducerId aborts the open transaction of its transactional id. A producer sends InitProducerId when
  it starts, so the previous producer with this id has stopped or will be fenced.

* A transaction that the coordinator aborts after transaction.timeout.ms counts as open, until an EndTxn or
  InitProducerId of the same transactional id succeeds.

* If an EndTxn has no response, the outcome of the transaction is unknown. The transaction is counted
  as committed or aborted only if a repeated EndTxn succeeds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .exchanges import Exchange

# The requests with which a transaction begins.
_BEGINNING_APIS = {"Produce", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit"}


@dataclass(slots=True)
class _Counts:
    """Counts of the ended transactions of a transactional id, and the start of its open transaction. Times
    are in ms.
    """

    committed: int = 0
    aborted: int = 0
    longest_ms: int = 0
    began_at: int | None = None  # None if no transaction is open.
    is_end_unanswered: bool = False  # Whether an EndTxn for the open transaction got no response.


class TransactionHistory:
    """Collects exchanges, and counts the outcomes of the transactions of each transactional id."""

    def __init__(self) -> None:
        self._counts: dict[str, _Counts] = {}

    def add(self, exchange: Exchange) -> None:
        """Add an exchange. If it ends a transaction, count the transaction."""
        request: Any = exchange.request
        name = _transactional_id(request)
        if not name:
            return
        counts = self._counts.setdefault(name, _Counts())
        if exchange.api in _BEGINNING_APIS and counts.began_at is None:
            counts.began_at = exchange.asked_at
        elif exchange.api == "EndTxn" and exchange.response is None:
            counts.is_end_unanswered = True
        elif exchange.api in ("EndTxn", "InitProducerId") and _succeeded(exchange):
            _count_ended(counts, exchange)

    def lines(self) -> list[str]:
        """Format a table with a line per transactional id. Without transactions the result is empty."""
        if not self._counts:
            return []
        rows = [f"{'transactional id':<28}{'committed':>10}{'aborted':>8}{'open':>6}{'most ms':>9}"]
        for name, counts in sorted(self._counts.items()):
            open_count = int(counts.began_at is not None)
            rows.append(
                f"{name:<28}{counts.committed:>10}{counts.aborted:>8}{open_count:>6}{counts.longest_ms:>9}"
            )
        return ["", *rows]

    def facts(self) -> list[str]:
        """Format the counts of each transactional id as a sentence for a page."""
        return [
            f"Transactions of {name}: {counts.committed} committed, {counts.aborted} aborted, "
            f"{int(counts.began_at is not None)} open; the longest took {counts.longest_ms} ms"
            for name, counts in sorted(self._counts.items())
        ]


def _count_ended(counts: _Counts, exchange: Exchange) -> None:
    """Count the outcome of the transaction that a successful request ended, unless the outcome is unknown."""
    request: Any = exchange.request
    if exchange.api == "EndTxn":
        counts.committed += request.committed
        counts.aborted += not request.committed
    elif counts.began_at is not None and not counts.is_end_unanswered:
        counts.aborted += 1
    if counts.began_at is not None:
        ended_at = exchange.answered_at or exchange.asked_at
        counts.longest_ms = max(counts.longest_ms, ended_at - counts.began_at)
    counts.began_at, counts.is_end_unanswered = None, False


def aborts(exchange: Exchange) -> bool:
    """Return whether the exchange is an EndTxn that aborts the transaction."""
    request: Any = exchange.request
    return exchange.api == "EndTxn" and request is not None and not request.committed


def _succeeded(exchange: Exchange) -> bool:
    response: Any = exchange.response
    return response is not None and not response.error_code


def _transactional_id(request: Any) -> str:
    """Return the transactional id of a request, or "" if the request has none."""
    name = getattr(request, "transactional_id", None)
    return name or getattr(request, "v3_and_below_transactional_id", None) or ""
