"""State of the transaction coordinator: transactional ids, their transactions, and deadlines.

* Only `move` assigns the state of a transaction, along EDGES.

* Dead is the state of a transactional id that does not exist. `TransactionCoordinator.find` returns a Dead
  transaction for an unknown id.

* A move from Dead to Empty creates the transactional id, and a move to Dead deletes it.

* PrepareCommit and PrepareAbort last from the decision until the logs of all partitions of the transaction
  contain the markers. `WriteMarkers` requests the markers, and `MarkersWritten` reports that they
  have been written.

* `move` sets the deadline of a transaction, which follows from its state. It is `NEVER` in states without a
  deadline. The coordinator keeps all deadlines in order.

The module follows TransactionMetadata and TransactionState of Kafka 4.3. It does not need Kafka's state
PrepareEpochFence, which lasts only while Kafka writes to its log.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol, TypeAlias

import msgspec

from .. import machine
from ..deadlines import Deadlines
from ..machine import NEVER, RequestReceived, SendResponse, Tick
from ..wire.message import Message
from .settings import TransactionSettings

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
# The highest epoch that a producer receives. The coordinator uses the next epoch, 32767, only to fence the
# producer with this one (Kafka's TransactionMetadata.isEpochExhausted).
LAST_EPOCH: Final = 2**15 - 2

OFFSETS_TOPIC: Final = "__consumer_offsets"

# A topic name and a partition index.
TransactionPartition: TypeAlias = tuple[str, int]


class TransactionState(Enum):
    """The states of a transactional id. The values are Kafka's names in DescribeTransactions."""

    DEAD = "Dead"
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"

    __hash__ = object.__hash__  # Enum's own `__hash__` is slow, because it is Python code.


S = TransactionState

# The state names that a filter of ListTransactions may contain.
STATE_NAMES: Final = frozenset({*(state.value for state in S), "PrepareEpochFence"})

_AFTER_COMPLETION = frozenset({S.EMPTY, S.ONGOING, S.PREPARE_ABORT, S.DEAD})

EDGES: dict[TransactionState, frozenset[TransactionState]] = {
    S.DEAD: frozenset({S.EMPTY}),
    S.EMPTY: _AFTER_COMPLETION,
    S.ONGOING: frozenset({S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT}),
    S.PREPARE_COMMIT: frozenset({S.COMPLETE_COMMIT}),
    S.PREPARE_ABORT: frozenset({S.COMPLETE_ABORT}),
    S.COMPLETE_COMMIT: _AFTER_COMPLETION,
    S.COMPLETE_ABORT: _AFTER_COMPLETION,
}


# Events and actions. Every `RequestReceived` is answered within the same step.


class MarkersWritten(msgspec.Struct, frozen=True):
    """Event: the markers that a `WriteMarkers` action requested have been written to the logs."""

    transactional_id: str


TransactionEvent: TypeAlias = "RequestReceived[Message] | MarkersWritten | Tick"


class WriteMarkers(msgspec.Struct, frozen=True):
    """Write a commit or abort marker to each partition's log, then call `step` with `MarkersWritten`.

    A marker in a partition of `__consumer_offsets` completes or drops the offset commits of the transaction.
    Partitions that have been deleted are skipped. `reason` is a phrase for logs.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: tuple[TransactionPartition, ...]
    reason: str


TransactionAction: TypeAlias = SendResponse | WriteMarkers


# State.


class PartitionCounts(Protocol):
    """The broker's topics. `partitions` returns a topic's partition count; None for an unknown topic."""

    def partitions(self, name: str, /) -> int | None: ...


@dataclass(slots=True)
class TransactionMetadata:
    """A transactional id and its current transaction (Kafka's TransactionMetadata)."""

    transactional_id: str
    state: TransactionState = S.DEAD
    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH
    # The previous epoch and producer id. A producer retries with them if it did not receive the current ones
    # (KIP-360, KIP-890).
    last_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    # The producer id that replaces the current one after the markers have been written, if the current one
    # has no epoch left.
    next_producer_id: int = NO_PRODUCER_ID
    timeout_ms: int = 0
    # The partitions of the transaction, in the order in which they were added.
    partitions: dict[TransactionPartition, None] = field(default_factory=dict[TransactionPartition, None])
    started_at: int = -1
    changed_at: int = -1
    deadline: int = NEVER

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the epochs of the producer id are exhausted."""
        return self.epoch >= LAST_EPOCH


@dataclass(slots=True)
class TransactionCoordinator:
    """The state of a transaction coordinator, with its transactional ids. Pass it to `step`.

    Without `topics` the coordinator accepts every partition.
    """

    settings: TransactionSettings = field(default_factory=TransactionSettings)
    topics: PartitionCounts | None = None
    transactions: dict[str, TransactionMetadata] = field(default_factory=dict[str, TransactionMetadata])
    next_producer_id: int = 0
    # Transactional id -> the time (ms) at which its open transaction times out.
    deadlines: Deadlines[str] = field(default_factory=Deadlines[str])

    def find(self, transactional_id: str) -> TransactionMetadata:
        """Return the transaction of a transactional id, or a new Dead one if the id does not exist."""
        return self.transactions.get(transactional_id) or TransactionMetadata(transactional_id)


@dataclass(slots=True)
class TransactionContext:
    """The context of one call of `step`: the coordinator, the time, and the actions to return."""

    coordinator: TransactionCoordinator
    now: int
    actions: list[TransactionAction] = field(default_factory=list[TransactionAction])

    def reply(self, call: RequestReceived[Message], response: Message) -> None:
        """Send the response to a request; each request gets exactly one response."""
        self.actions.append(SendResponse(call.token, response))

    def new_producer_id(self) -> int:
        """Return a producer id that has never been used."""
        self.coordinator.next_producer_id += 1
        return self.coordinator.next_producer_id - 1


def move(context: TransactionContext, txn: TransactionMetadata, state: TransactionState) -> None:
    """Move a transaction along one of EDGES.

    A move out of Dead creates the transactional id, and a move to Dead deletes it.
    """
    coordinator = context.coordinator
    before = txn.state
    machine.move(txn, state, EDGES)
    txn.changed_at = context.now
    if before is S.DEAD:
        coordinator.transactions[txn.transactional_id] = txn
    elif state is S.DEAD:
        del coordinator.transactions[txn.transactional_id]
    if state is S.ONGOING and before is not S.ONGOING:
        txn.started_at = context.now
    txn.deadline = NEVER if state is S.DEAD else _deadline(txn, coordinator.settings)
    if txn.deadline == NEVER:
        coordinator.deadlines.drop(txn.transactional_id)
    else:
        coordinator.deadlines.set(txn.transactional_id, txn.deadline)


def _deadline(txn: TransactionMetadata, settings: TransactionSettings) -> int:
    """Return the time at which an open transaction times out or an unused id expires, else NEVER."""
    if txn.state is S.ONGOING:
        # As in Kafka, a transaction is not aborted at its timeout, but 1 ms later.
        return txn.started_at + txn.timeout_ms + 1
    if txn.state in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT):
        return txn.changed_at + settings.transactional_id_expiration_ms
    return NEVER


def offsets_partition(group_id: str, settings: TransactionSettings) -> TransactionPartition:
    """Return the partition that stores a group's offsets (R169, GroupCoordinatorService.partitionFor).

    A transaction that commits offsets of the group writes them into this partition of `__consumer_offsets`.
    """
    return OFFSETS_TOPIC, _java_hash(group_id) % settings.offsets_topic_num_partitions


def state_partition(transactional_id: str, settings: TransactionSettings) -> int:
    """Return the partition of `__transaction_state` whose leader coordinates the transactional id.

    Kafka: TransactionStateManager.partitionFor.
    """
    return _java_hash(transactional_id) % settings.transaction_state_log_num_partitions


def _java_hash(name: str) -> int:
    """Return `Utils.abs(name.hashCode())` of Java."""
    number = 0
    units = name.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        unit = int.from_bytes(units[position : position + 2], "big")
        number = (31 * number + unit) & 0xFFFFFFFF
    if number >= 1 << 31:
        number = (1 << 32) - number
    return 0 if number == 1 << 31 else number
