"""What became of transactions, as the exchanges of their producers tell it.

Rules that hold here:

* A transaction begins with the first request that is in it: Produce, AddPartitionsToTxn, AddOffsetsToTxn or
  TxnOffsetCommit. It ends with the EndTxn that is answered without an error.
* A new InitProducerId aborts what was open: its producer came back, or another one took its place. Where an
  EndTxn has no answer nobody knows here what became of it, and it is not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .exchanges import Exchange

_IN = {"Produce", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit"}


@dataclass(slots=True)
class _Told:
    committed: int = 0
    aborted: int = 0
    longest: int = 0
    began: int | None = None
    ending: bool = False  # An EndTxn had no answer.


class Transactions:
    """Takes every exchange; has what became of the transactions of each transactional id."""

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}

    def take(self, exchange: Exchange) -> None:
        """What this exchange changed."""
        request: Any = exchange.request
        name = _transactional_id(request)
        if not name:
            return
        told = self._told.setdefault(name, _Told())
        if exchange.api in _IN and told.began is None:
            told.began = exchange.asked_at
        elif exchange.api == "EndTxn" and exchange.response is None:
            told.ending = True
        elif exchange.api in ("EndTxn", "InitProducerId") and _went_well(exchange):
            _ended(told, exchange)

    def lines(self) -> list[str]:
        """A line for each transactional id, below what they mean; none where nobody had one."""
        if not self._told:
            return []
        rows = [f"{'transactional id':<28}{'committed':>10}{'aborted':>8}{'open':>6}{'most ms':>9}"]
        for name, told in sorted(self._told.items()):
            opened = int(told.began is not None)
            rows.append(f"{name:<28}{told.committed:>10}{told.aborted:>8}{opened:>6}{told.longest:>9}")
        return ["", *rows]

    def facts(self) -> list[str]:
        """The same as sentences, for a page."""
        return [
            f"Transactions of {name}: {told.committed} committed, {told.aborted} aborted, "
            f"{int(told.began is not None)} open; the longest took {told.longest} ms"
            for name, told in sorted(self._told.items())
        ]


def _ended(told: _Told, exchange: Exchange) -> None:
    request: Any = exchange.request
    if exchange.api == "EndTxn":
        told.committed += request.committed
        told.aborted += not request.committed
    elif told.began is not None and not told.ending:
        told.aborted += 1
    if told.began is not None:
        told.longest = max(told.longest, (exchange.answered_at or exchange.asked_at) - told.began)
    told.began, told.ending = None, False


def aborts(exchange: Exchange) -> bool:
    """Whether it gives a transaction up."""
    request: Any = exchange.request
    return exchange.api == "EndTxn" and request is not None and not request.committed


def _went_well(exchange: Exchange) -> bool:
    response: Any = exchange.response
    return response is not None and not response.error_code


def _transactional_id(request: Any) -> str:
    """Whose transaction a request is of; empty for what is in none."""
    name = getattr(request, "transactional_id", None)
    return name or getattr(request, "v3_and_below_transactional_id", None) or ""
