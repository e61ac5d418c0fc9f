"""The invariants of transactions hold for random producers, both correct and faulty ones.

Hypothesis draws the steps of three producers. They fence each other, write, commit offsets, end transactions,
retry, and let time pass. The expected state is computed from the responses alone.

Each mutant at the end of this module is a broker with one wrong behaviour. At least one invariant must fail
for each mutant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from kproto.broker import topics
from kproto.broker.apis import produce, txn_offset_commit
from kproto.broker.broker import Broker
from kproto.broker.producer_state import PartitionProducers
from kproto.broker.transaction_index import PartitionTransactions
from kproto.error_codes import ErrorCode as E
from kproto.group.classic import coordinator
from kproto.transactions import (
    TABLE,
    TransactionEventKind,
    WriteMarkers,
    completion,
    partitions,
    producer_ids,
)
from kproto.transactions.state import S, TransactionContext
from tests.broker.behaviour.stage import (
    TransactionalProducer,
    committed_offset,
    read_committed,
    read_partition,
)
from tests.broker.stage import Stage, batch_of
from tests.machines import Key, check_cells
from tests.transactions.cells import codes_of

TIMEOUT = 5_000
PARTITIONS = (0, 1)
WHO = st.integers(0, 2)


@dataclass
class Fate:
    """A transaction, as its producer knows it."""

    began: int
    # The offset that the transaction commits for the group.
    offset: int = -1
    # Whether the transaction was committed, or None while it is ongoing.
    committed: bool | None = None


@dataclass
class Written:
    """A record in a log, and its transaction. A non-transactional record has none."""

    value: bytes
    fate: Fate | None


@dataclass
class Process:
    """A producer. `open` is its ongoing transaction. It is None between transactions and after fencing."""

    name: str
    producer: Any = None
    open: Fate | None = None
    last_batch: Any = None


class Transacting(RuleBasedStateMachine):
    """Run three producer processes, two of which share a transactional id, on one topic and one group."""

    def __init__(self) -> None:
        super().__init__()
        self.stage = Stage({"t": len(PARTITIONS)})
        self.client = self.stage.client()
        self.processes = [Process("x"), Process("x"), Process("y")]
        self.owners: dict[str, Process] = {}
        self.log: dict[int, dict[int, Written]] = {index: {} for index in PARTITIONS}
        self.stable = dict.fromkeys(PARTITIONS, 0)
        self.start = dict.fromkeys(PARTITIONS, 0)
        self.offset = -1
        self.count = 0

    def value(self) -> bytes:
        self.count += 1
        return b"%d" % self.count

    def end_of(self, partition: int) -> int:
        return self.stage.log("t", partition).end_offset

    def settle(self, process: Process, *, committed: bool) -> None:
        # Forget the last batch, which belongs to an older epoch or an ended transaction and must not be sent
        # again.
        process.last_batch = None
        if process.open is not None:
            process.open.committed = committed
            if committed and process.open.offset >= 0:
                # Offsets grow with each commit, and the later of two commits wins. The group's offset is
                # therefore the largest committed one.
                self.offset = max(self.offset, process.open.offset)
            process.open = None

    def started(self, who: int) -> Process:
        if self.processes[who].producer is None:
            self.init(who)
        return self.processes[who]

    def owns(self, process: Process) -> bool:
        return self.owners.get(process.name) is process

    # Steps of the producers.

    @rule(who=WHO)
    def init(self, who: int) -> None:
        process = self.processes[who]
        before = self.owners.get(process.name)
        if process.producer is None:
            process.producer = TransactionalProducer(self.stage, process.name, timeout=TIMEOUT)
        else:
            assert process.producer.init() == E.NONE
        for owner in (before, process):
            if owner is not None:
                self.settle(owner, committed=False)
        self.owners[process.name] = process

    @rule(who=WHO, partition=st.sampled_from(PARTITIONS), version=st.sampled_from([9, 11, 12, 13]))
    def write(self, who: int, partition: int, version: int) -> None:
        process = self.started(who)
        if version < 12:
            process.producer.add(partition)
        at, value = self.end_of(partition), self.value()
        answer = process.producer.write(value, partition=partition, version=version)
        if answer.error_code:
            assert self.end_of(partition) == at, "a refused batch is in the log"
            assert not self.owns(process), (
                f"the owner of the transactional id is refused: {E(answer.error_code).name}"
            )
            return
        assert self.owns(process), "a fenced producer writes"
        if process.open is None:
            process.open = Fate(self.stage.now)
        assert answer.base_offset == at
        self.log[partition][at] = Written(value, process.open)
        process.last_batch = (partition, value, version, at)

    @rule(who=WHO)
    def write_again(self, who: int) -> None:
        """Send the last batch again, as a producer does after a lost response."""
        process = self.started(who)
        if process.last_batch is None or process.open is None:
            return
        partition, value, version, at = process.last_batch
        sequence = process.producer.sequences["t", partition] - 1
        answer = process.producer.write(
            value, partition=partition, version=version, base_sequence=sequence, keeps=True
        )
        assert (answer.error_code, answer.base_offset) == (E.NONE, at), (
            "a repeated batch is not recognized as a duplicate"
        )

    @rule(who=WHO)
    def write_to_a_missing_partition(self, who: int) -> None:
        """Produce without AddPartitionsToTxn. Produce v9 does not add partitions implicitly."""
        process = self.started(who)
        if process.open is not None:
            return
        at = self.end_of(0)
        assert process.producer.write(b"alone", version=9).error_code != E.NONE, (
            "a record without a transaction"
        )
        assert self.end_of(0) == at

    @rule(who=WHO, version=st.sampled_from([3, 5]))
    def commit_offsets(self, who: int, version: int) -> None:
        process = self.started(who)
        if version < 5:
            process.producer.add_offsets()
        self.count += 1
        (code,) = process.producer.commit(self.count, version=version)
        assert (code == E.NONE) == self.owns(process), "a fenced producer commits offsets"
        if code == E.NONE:
            if process.open is None:
                process.open = Fate(self.stage.now)
            process.open.offset = self.count

    @rule(who=WHO, commits=st.booleans(), version=st.sampled_from([4, 5]))
    def end(self, who: int, commits: bool, version: int) -> None:
        process = self.started(who)
        was = process.producer.id, process.producer.epoch
        code = process.producer.end(committed=commits, version=version)
        if process.open is not None:
            assert code == E.NONE, f"an open transaction is not ended: {E(code).name}"
            self.settle(process, committed=commits)
            if version == 5:
                now, process.producer.id, process.producer.epoch = (
                    (process.producer.id, process.producer.epoch),
                    *was,
                )
                retried = process.producer.end(committed=commits)
                assert retried == E.NONE, "a repeated request is answered differently"
                assert (process.producer.id, process.producer.epoch) == now
        elif code == E.NONE and version == 5 and not commits:
            # The process now has the newest epoch, even if it was fenced before.
            self.owners[process.name] = process

    @rule(partition=st.sampled_from(PARTITIONS))
    def write_outside_transactions(self, partition: int) -> None:
        value = self.value()
        response = self.client.produce(batch_of(value), partition=partition)
        self.log[partition][response.base_offset] = Written(value, None)

    @rule(ms=st.sampled_from([1, TIMEOUT // 2, TIMEOUT, TIMEOUT + 1]))
    def wait(self, ms: int) -> None:
        self.stage.wait(ms)
        for process in self.processes:
            if process.open is not None and self.stage.now > process.open.began + TIMEOUT:
                self.settle(process, committed=False)
                self.owners.pop(process.name)

    @rule(partition=st.sampled_from(PARTITIONS), part=st.floats(0, 1))
    def delete(self, partition: int, part: float) -> None:
        partition_state = self.stage.topic("t").partitions[partition]
        offset = partition_state.log.start_offset + int(
            part * (partition_state.log.end_offset - partition_state.log.start_offset)
        )
        partition_state.delete_before(offset)
        self.start[partition] = offset

    # Invariants.

    @invariant()
    def exactly_the_committed_records_are_read_in_order(self) -> None:
        for partition in PARTITIONS:
            end = read_partition(self.client, self.start[partition], partition=partition).last_stable_offset
            ends = sorted(
                {self.start[partition], *(o for o in self.log[partition] if o >= self.start[partition])}
            )
            for offset in ends[-6:]:
                wanted = [
                    entry.value
                    for at, entry in sorted(self.log[partition].items())
                    if offset <= at < end and (entry.fate is None or entry.fate.committed)
                ]
                assert read_committed(self.client, offset=offset, partition=partition) == wanted

    @invariant()
    def the_last_stable_offset_ends_before_open_transactions_and_never_decreases(self) -> None:
        for partition in PARTITIONS:
            data = read_partition(self.client, self.start[partition], partition=partition)
            undecided = [
                at
                for at, entry in self.log[partition].items()
                if entry.fate is not None and entry.fate.committed is None
            ]
            first = min(undecided, default=data.high_watermark)
            assert data.last_stable_offset == max(first, self.start[partition])
            assert data.last_stable_offset >= self.stable[partition]
            self.stable[partition] = data.last_stable_offset

    @invariant()
    def offsets_are_committed_iff_their_transaction_is(self) -> None:
        assert committed_offset(self.client)[1] == self.offset

    def teardown(self) -> None:
        """Check that every transaction ends no later than its timeout."""
        self.wait(TIMEOUT + 1)
        for partition in PARTITIONS:
            data = read_partition(self.client, self.start[partition], partition=partition)
            assert data.last_stable_offset == data.high_watermark, "a transaction never ends"
        self.exactly_the_committed_records_are_read_in_order()
        self.offsets_are_committed_iff_their_transaction_is()


def explore(examples: int, *, mutant: bool = False) -> None:
    """Run the state machine. With `mutant`, any failure is enough, so none is shrunk."""
    phases = [Phase.explicit, Phase.generate, *([] if mutant else [Phase.shrink])]
    run_state_machine_as_test(
        Transacting,
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            phases=phases,
            database=None,
            derandomize=mutant or settings().derandomize,
        ),
    )


@contextmanager
def checked_cells() -> Iterator[set[Key]]:
    """Check each step of the transaction coordinator against TABLE (`check_cells`).

    Yield the set of TABLE's cells that have been entered so far, each as its event kind and state.
    """
    with pytest.MonkeyPatch.context() as patch:
        yield check_cells(patch, TABLE, codes_of)


def test_transaction_invariants_hold_for_random_producers() -> None:
    wanted = {
        (kind, S.ONGOING)
        for kind in (
            TransactionEventKind.INIT,
            TransactionEventKind.END,
            TransactionEventKind.END_V4,
            TransactionEventKind.DEADLINE,
        )
    }
    examples = min(60, 4 * settings().max_examples)
    with checked_cells() as entered:
        explore(examples)
        for _ in range(5):  # Draw more examples until every cell in `wanted` has been entered.
            if not wanted <= entered:
                explore(60)
    assert wanted <= entered


# Mutants: brokers with one broken rule, which an invariant must detect.

Change = Callable[[pytest.MonkeyPatch], None]


def _set(target: Any, name: str, value: Any) -> Change:
    return lambda patch: patch.setattr(target, name, value)


def _cell(
    kind: TransactionEventKind, state: S, act: Callable[[TransactionContext, Any, Any], None]
) -> Change:
    def change(patch: pytest.MonkeyPatch) -> None:
        patch.setitem(TABLE, (kind, state), TABLE[kind, state]._replace(act=act))

    return change


def _init_without_aborting(context: TransactionContext, txn: Any, call: Any) -> None:
    txn.epoch += 1
    txn.partitions.clear()
    txn.state = S.EMPTY
    producer_ids._take_id(context, txn, call)


def _time_out_in_the_same_epoch(context: TransactionContext, txn: Any, event: None) -> None:
    completion.prepare_end(context, txn, committed=False, bumps_epoch=False, reason="")


def _mark_one_partition_only(self: Broker, wanted: WriteMarkers, now: int) -> None:
    _MARK(self, msgspec.structs.replace(wanted, partitions=wanted.partitions[:1]), now)


def _mark_no_offsets(self: Broker, wanted: WriteMarkers, now: int) -> None:
    remaining = tuple(partition for partition in wanted.partitions if partition[0] == "t")
    _MARK(self, msgspec.structs.replace(wanted, partitions=remaining), now)


def _commit_all_offsets(self: Broker, event: Any, now: int) -> None:
    if isinstance(event, coordinator.TransactionEnded):
        event = coordinator.TransactionEnded(event.producer_id, True)
    _COORDINATE(self, event, now)


def _accept_every_partition(
    broker: Any, call: Any, name: str, producer: Any, partitions: Any, **_: Any
) -> Any:
    return dict.fromkeys(partitions, E.NONE)


def _accept_any_epoch(txn: Any, producer_id: int, epoch: int) -> E:
    return E.NONE if producer_id == txn.producer_id else E.INVALID_PRODUCER_ID_MAPPING


def _forget_older(self: PartitionTransactions, start: int, end: int) -> Any:
    return [entry for entry in _ABORTED(self, start, end) if entry.first_offset >= start]


def _never_a_duplicate(self: PartitionProducers, *args: Any, **kwargs: Any) -> Any:
    verdict = _CHECK(self, *args, **kwargs)
    return verdict if isinstance(verdict, E) else E.NONE


def _last_unstable_offset(self: PartitionTransactions) -> int | None:
    return max(self._ongoing.values(), default=None)


def _ignore_deadline(context: TransactionContext, txn: Any, event: None) -> None:
    txn.deadline = 1 << 62


def _restart_at_each_batch(self: PartitionTransactions, producer_id: int, offset: int) -> None:
    self._ongoing[producer_id] = offset


_MARK, _COORDINATE, _CHECK, _ABORTED = (
    Broker._write_markers,
    Broker.step_group_coordinator,
    PartitionProducers.check,
    PartitionTransactions.aborted,
)

MUTANTS: dict[str, Change] = {
    "records of open transactions are visible": _set(
        topics.Partition, "stable_offset", property(lambda self: self.log.end_offset)
    ),
    "the last open transaction determines the last stable offset": _set(
        PartitionTransactions, "first_unstable_offset", _last_unstable_offset
    ),
    "a transaction begins with its last record": _set(
        PartitionTransactions, "on_batch_appended", _restart_at_each_batch
    ),
    "aborted records are visible": _set(PartitionTransactions, "aborted", lambda self, start, end: []),
    "aborted records are visible to a reader that starts late": _set(
        PartitionTransactions, "aborted", _forget_older
    ),
    "one partition is marked": _set(Broker, "_write_markers", _mark_one_partition_only),
    "offsets are never marked": _set(Broker, "_write_markers", _mark_no_offsets),
    "offsets of aborted transactions are committed": _set(
        Broker, "step_group_coordinator", _commit_all_offsets
    ),
    "every epoch is the newest": _set(partitions, "owner_error", _accept_any_epoch),
    "InitProducerId does not abort an open transaction": _cell(
        TransactionEventKind.INIT, S.ONGOING, _init_without_aborting
    ),
    "a transaction never times out": _cell(TransactionEventKind.DEADLINE, S.ONGOING, _ignore_deadline),
    "a timeout does not bump the epoch": _cell(
        TransactionEventKind.DEADLINE, S.ONGOING, _time_out_in_the_same_epoch
    ),
    "records are accepted outside a transaction": _set(produce, "verify_partitions", _accept_every_partition),
    "offsets are accepted outside a transaction": _set(
        txn_offset_commit, "verify_partitions", _accept_every_partition
    ),
    "a repeated batch is stored again": _set(PartitionProducers, "check", _never_a_duplicate),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_killed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[name](monkeypatch)
    with pytest.raises((AssertionError, ExceptionGroup)) as raised:
        # In each example, Hypothesis may disable some `rule` methods. Many examples are needed until one of
        # them runs the method that reveals the mutant.
        explore(1500, mutant=True)
    several = raised.value.exceptions if isinstance(raised.value, ExceptionGroup) else (raised.value,)
    # An error other than AssertionError means that the mutant itself is broken.
    assert all(isinstance(error, AssertionError) for error in several), several
