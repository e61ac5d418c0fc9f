"""What the transaction coordinator works with: states, edges, events, actions and the memory of an id.

Rules that hold here:

* A transaction's state is assigned by `move` alone, along EDGES. `Dead` is the state of a transactional id
  that nobody has: looking up an unknown id gives a Dead one, and moving it to Empty founds it.
* PrepareCommit and PrepareAbort last from the decision until the markers are in all logs: `WriteMarkers` asks
  for them, `MarkersWritten` tells that they are there.
* A deadline is a plain field, `NEVER` when it is off, and follows from the state: `move` sets it, and
  the coordinator keeps all of them in order.

Follows TransactionMetadata and TransactionState of Kafka 4.3. Its PrepareEpochFence is pending only, while
the log is written: a memory has no such moment, so there is no such state here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from ..deadlines import Deadlines
from ..wire.message import Message
from .settings import Settings

NEVER: Final = 1 << 62  # later than any clock in milliseconds: a deadline that is off
NO_ID: Final = -1
NO_EPOCH: Final = -1
# The last epoch is kept free, so that whoever has the one before it can still be fenced
# (TransactionMetadata.isEpochExhausted).
LAST_EPOCH: Final = 2**15 - 2

OFFSETS_TOPIC: Final = "__consumer_offsets"

Partition: TypeAlias = tuple[str, int]


class TransactionState(Enum):
    """The states of a transactional id; the values are Kafka's words in DescribeTransactions."""

    DEAD = "Dead"
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"

    __hash__ = object.__hash__  # an Enum's own is written in Python


S = TransactionState

STATE_NAMES: Final = frozenset({*(state.value for state in S), "PrepareEpochFence"})
"""What ListTransactions may be asked for."""

_AT_REST = frozenset({S.EMPTY, S.ONGOING, S.PREPARE_ABORT, S.DEAD})

EDGES: dict[TransactionState, frozenset[TransactionState]] = {
    S.DEAD: frozenset({S.EMPTY}),
    S.EMPTY: _AT_REST,
    S.ONGOING: frozenset({S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT}),
    S.PREPARE_COMMIT: frozenset({S.COMPLETE_COMMIT}),
    S.PREPARE_ABORT: frozenset({S.COMPLETE_ABORT}),
    S.COMPLETE_COMMIT: _AT_REST,
    S.COMPLETE_ABORT: _AT_REST,
}


# Events: what happened.

R_co = TypeVar("R_co", bound=Message, covariant=True)


class Received(msgspec.Struct, Generic[R_co], frozen=True):
    """A request arrived. `token` comes back in exactly one `Reply`, within the same step."""

    token: object
    request: R_co
    version: int


class MarkersWritten(msgspec.Struct, frozen=True):
    """What a `WriteMarkers` asked for is in the logs."""

    transactional_id: str


class Tick(msgspec.Struct, frozen=True):
    """Time has passed; `next_deadline` said when to send this."""


Event: TypeAlias = "Received[Message] | MarkersWritten | Tick"


# Actions: what the shell is to do.


class Reply(msgspec.Struct, frozen=True):
    """Send this response to the request that came with `token`."""

    token: object
    response: Message


class WriteMarkers(msgspec.Struct, frozen=True):
    """End the producer's transaction in the log of each of these partitions, then step `MarkersWritten`.

    Partitions of `__consumer_offsets` stand for the offsets of groups. One that there is not any more is
    passed over. `reason` is for people.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: tuple[Partition, ...]
    reason: str


Action: TypeAlias = Reply | WriteMarkers


# State: what is remembered.


class Topics(Protocol):
    """The broker's topics as the coordinator needs to know them; None stands for an unknown topic."""

    def partitions(self, name: str, /) -> int | None: ...


@dataclass(slots=True)
class Transaction:
    """Everything about one transactional id."""

    transactional_id: str
    state: TransactionState = S.DEAD
    producer_id: int = NO_ID
    epoch: int = NO_EPOCH
    # What a producer has that did not hear of its newest epoch or id (KIP-360, KIP-890).
    last_epoch: int = NO_EPOCH
    previous_id: int = NO_ID
    # The id that takes over when the markers are written, as there are no epochs left.
    next_id: int = NO_ID
    timeout_ms: int = 0
    # A dict, because its order is certain.
    partitions: dict[Partition, None] = field(default_factory=dict[Partition, None])
    started_at: int = -1
    changed_at: int = -1
    deadline: int = NEVER

    @property
    def exhausted(self) -> bool:
        """Is there no epoch left that a producer may have?"""
        return self.epoch >= LAST_EPOCH


@dataclass(slots=True)
class Coordinator:
    """The memory of a coordinator. Give it events with `step`, and a `Tick` at `next_deadline`.

    `topics` lets unknown partitions be refused; without it every partition is taken for known.
    """

    settings: Settings = field(default_factory=Settings)
    topics: Topics | None = None
    transactions: dict[str, Transaction] = field(default_factory=dict[str, Transaction])
    next_producer_id: int = 0
    # When each of them ends its state by itself.
    deadlines: Deadlines[str] = field(default_factory=Deadlines[str])

    def find(self, transactional_id: str) -> Transaction:
        """The transaction, or a Dead one of that id if there is none."""
        return self.transactions.get(transactional_id) or Transaction(transactional_id)


@dataclass(slots=True)
class Turn:
    """One call of `step`: the clock and the actions so far."""

    coordinator: Coordinator
    now: int
    actions: list[Action] = field(default_factory=list[Action])

    def reply(self, call: Received[Message], response: Message) -> None:
        """Answer a request, once."""
        self.actions.append(Reply(call.token, response))

    def new_producer_id(self) -> int:
        """An id that no producer ever had."""
        self.coordinator.next_producer_id += 1
        return self.coordinator.next_producer_id - 1


def move(turn: Turn, txn: Transaction, state: TransactionState) -> None:
    """Take one of EDGES. Leaving Dead founds the id, entering it forgets the id."""
    if state not in EDGES[txn.state]:
        raise AssertionError(f"{txn.transactional_id!r} can't go from {txn.state.value} to {state.value}")
    coordinator = turn.coordinator
    if txn.state is S.DEAD:
        coordinator.transactions[txn.transactional_id] = txn
    elif state is S.DEAD:
        del coordinator.transactions[txn.transactional_id]
    if state is S.ONGOING and txn.state is not S.ONGOING:
        txn.started_at = turn.now
    txn.state = state
    txn.changed_at = turn.now
    txn.deadline = NEVER if state is S.DEAD else _deadline(txn, coordinator.settings)
    if txn.deadline == NEVER:
        coordinator.deadlines.drop(txn.transactional_id)
    else:
        coordinator.deadlines.set(txn.transactional_id, txn.deadline)


def _deadline(txn: Transaction, settings: Settings) -> int:
    """When the state ends by itself: an open transaction is aborted, an id that nobody uses is forgotten."""
    if txn.state is S.ONGOING:
        return txn.started_at + txn.timeout_ms + 1  # Kafka: when more than the timeout has passed
    if txn.state in (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT):
        return txn.changed_at + settings.transactional_id_expiration_ms
    return NEVER


def offsets_partition(group_id: str, settings: Settings) -> Partition:
    """Where Kafka keeps a group's offsets, and so what a transaction takes in with them
    (GroupCoordinatorService.partitionFor).
    """
    return OFFSETS_TOPIC, _hashed(group_id) % settings.offsets_topic_num_partitions


def state_partition(transactional_id: str, settings: Settings) -> int:
    """The partition of `__transaction_state` that has an id: its leader coordinates
    (TransactionStateManager.partitionFor).
    """
    return _hashed(transactional_id) % settings.transaction_state_log_num_partitions


def _hashed(name: str) -> int:
    """Utils.abs(name.hashCode())."""
    number = 0
    text = name.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(text), 2):
        number = (31 * number + int.from_bytes(text[at : at + 2], "big")) & 0xFFFFFFFF
    if number >= 1 << 31:
        number = (1 << 32) - number
    return 0 if number == 1 << 31 else number
