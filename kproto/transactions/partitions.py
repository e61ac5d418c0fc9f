"""What takes part in a transaction: partitions that are written to, and the offsets of groups.

Rules that hold here:

* Only the producer that has the id, in its newest epoch, adds anything; the first partition begins the
  transaction and its time.
* Older clients ask before they write. Newer ones only write (KIP-890), and the brokers ask here: either to
  add, or whether an older client did.
* Partitions are added all or none: one that there is not, and the others are not attempted.
* While a transaction is being ended nothing is added to the next one.

Follows TransactionCoordinator.handleAddPartitionsToTransaction, handleVerifyPartitionsInTransaction, and
KafkaApis.handleAddPartitionsToTxnRequest of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..error_codes import ErrorCode
from .state import OFFSETS_TOPIC, Partition, S, Topics, Transaction, Turn, move


@dataclass(slots=True)
class Adding:
    """A wish to add partitions, or the question whether they are in; `codes` is the answer."""

    producer_id: int
    epoch: int
    partitions: list[Partition]
    codes: dict[Partition, ErrorCode] = field(default_factory=dict[Partition, ErrorCode])

    def say(self, code: ErrorCode) -> None:
        """The same for every partition."""
        self.codes = dict.fromkeys(self.partitions, code)

    @property
    def code(self) -> ErrorCode:
        """The answer where there is one for all."""
        return next(iter(self.codes.values()), ErrorCode.NONE)


def missing(topics: Topics | None, partitions: Iterable[Partition]) -> set[Partition]:
    """Those that there are not."""
    if topics is None:
        return set()
    found: set[Partition] = set()
    for name, index in partitions:
        count = topics.partitions(name)
        if name != OFFSETS_TOPIC and not 0 <= index < (count or 0):
            found.add((name, index))
    return found


def owner_error(txn: Transaction, producer_id: int, epoch: int) -> ErrorCode:
    """Why this is not the producer that has the id now, or NONE."""
    if producer_id != txn.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if epoch == txn.epoch else ErrorCode.PRODUCER_FENCED


def unknown(turn: Turn, txn: Transaction, ask: Adding) -> None:
    """Refuse: nobody has this transactional id."""
    ask.say(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def add(turn: Turn, txn: Transaction, ask: Adding) -> None:
    """Begin a transaction, or let the open one have more partitions."""
    error = owner_error(txn, ask.producer_id, ask.epoch)
    ask.say(error)
    if error is ErrorCode.NONE:
        txn.partitions.update(dict.fromkeys(ask.partitions))
        move(turn, txn, S.ONGOING)


def verify(turn: Turn, txn: Transaction, ask: Adding) -> None:
    """Say of each partition whether it is in the open transaction."""
    ask.say(owner_error(txn, ask.producer_id, ask.epoch))
    if ask.code is ErrorCode.NONE:
        for partition in ask.partitions:
            if partition not in txn.partitions:
                ask.codes[partition] = ErrorCode.TRANSACTION_ABORTABLE


def wait_for_the_end(turn: Turn, txn: Transaction, ask: Adding) -> None:
    """Let the producer ask again: the transaction before is being ended."""
    ask.say(owner_error(txn, ask.producer_id, ask.epoch) or ErrorCode.CONCURRENT_TRANSACTIONS)
