"""Who reads and writes while an operator works on a fleet: readers by blocking, by asyncio and by sarama's
handlers; producers by both, idempotent and transactional; and those who move on, exactly once, what is
committed.

    with traffic(fleet) as seen:
        ...                                     # the operator's work
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final

from tests.conformance.cluster_readers import Asker, Ledger, Readers
from tests.conformance.cluster_workers import CLOSE_S, at_hand
from tests.conformance.cluster_writers import Mover, Writer
from tests.conformance.kafka_cluster import Fleet, until

PARTITIONS = 6
# A broker may take half a minute to start on a machine that does other work, too; 45 s is the default.
SESSION: Final[dict[str, Any]] = {"session_timeout_ms": 45_000, "heartbeat_interval_ms": 1_000}
LOOPS = ("blocking", "asyncio")
GROUPS: Final[dict[str, dict[str, Any]]] = {
    "cooperative": {"partition_assignment_strategy": "cooperative-sticky"},
    "range": {"partition_assignment_strategy": "range"},
    "committed": {"isolation_level": "read_committed"},
    "moved": {"isolation_level": "read_committed"},
}
READERS: Final = {
    "cooperative": (*LOOPS, "handler"),
    "range": (*LOOPS, "async handler"),
    "committed": LOOPS,
    "moved": ("handler",),
}
# Nobody who has a broker left is silent for longer, on a machine that does other work, too.
LONGEST_SILENCE = 45.0
_names = count(1)


def topic(fleet: Fleet, partitions: int = PARTITIONS, replication_factor: int = 3, **configs: str) -> str:
    name = f"t{next(_names)}"
    fleet.cluster.create_topics({name: partitions}, replication_factor=replication_factor, configs=configs)
    until(lambda: fleet.whole(name), "the new topic is whole")
    return name


@dataclass
class Seen:
    """One group of readers, what they read, and who wrote it."""

    topic: str
    group: str
    book: Ledger
    writers: list[Writer]
    # How long there was no broker at all, in seconds.
    away: float = 0.0

    @property
    def sent(self) -> list[int]:
        return [number for writer in self.writers for number in writer.sent]


@contextmanager
def traffic(fleet: Fleet, bootstrap: str = "", **options: Any) -> Generator[dict[str, Seen]]:
    """Two groups read what is written, a third what is committed, and a fourth what was moved on in
    transactions, until all is read; then all is judged. Two ask the cluster about it.

    They know one broker only when they begin, or what `bootstrap` says; then all may be away for a while.
    `options` are those of the members beside SESSION.
    """
    session = {**SESSION, **options}
    plain, committed, moved = topic(fleet), topic(fleet), topic(fleet)
    first = bootstrap or f"127.0.0.1:{fleet.ports[min(fleet.nodes)]}"
    plain_writers = [
        Writer(first, plain, PARTITIONS, kind=kind, numbers=count(at, 2), rate=200)
        for at, kind in enumerate(LOOPS)
    ]
    careful_writers = [
        Writer(
            first,
            committed,
            PARTITIONS,
            kind=kind,
            numbers=count(at, 2),
            rate=50,
            batch=25,
            transactional_id=f"{committed}-{kind}",
        )
        for at, kind in enumerate(LOOPS)
    ]
    movers = [
        Mover(
            first,
            committed,
            moved,
            kind=kind,
            name=f"{moved}-{kind}",
            group_id=f"{committed}-movers",
            **session,
        )
        for kind in LOOPS
    ]
    seen = {
        "cooperative": Seen(plain, f"{plain}-cooperative", Ledger(), plain_writers),
        "range": Seen(plain, f"{plain}-range", Ledger(), plain_writers),
        "committed": Seen(committed, f"{committed}-committed", Ledger(), careful_writers),
        "moved": Seen(moved, f"{moved}-moved", Ledger(), careful_writers),
    }
    askers = [Asker(first, plain, seen["range"].group, kind) for kind in LOOPS]
    before = ours(fleet)
    with ExitStack() as stack:
        readers = [
            stack.enter_context(
                Readers(
                    first, one.topic, one.book, READERS[name], group_id=one.group, **session, **GROUPS[name]
                )
            )
            for name, one in seen.items()
        ]
        with ExitStack() as moving:
            with ExitStack() as writing:
                for one in (*movers, *plain_writers, *careful_writers):
                    (moving if one in movers else writing).enter_context(one)
                for one in seen.values():
                    until(partial(_has, one.book, 50), "everybody reads")
                for asker in askers:
                    writing.enter_context(asker)
                until(lambda: all(asker.answered for asker in askers), "both were answered")
                yield seen
            for one in seen.values():
                with suppress(AssertionError):  # `wrong` says more
                    until(partial(_has, one.book, len(one.sent)), "all is read", 60)
    for name, one in seen.items():
        print(f"{name}: {one.book.count} read, {one.book.doubled} twice, {one.book.silence:.1f} s of silence")
    for mover in movers:
        print(f"moved: {mover.moved}, {len(mover.aborted)} aborted, {mover.longest:.1f} s at most")
    for asker in askers:
        print(f"asked: {asker.answered} times, {asker.longest:.1f} s at most")
    closed = [reader.closes for reader in (*readers, *movers, *plain_writers, *careful_writers)]
    print(f"closed: {max(one.longest for one in closed):.1f} s at most")
    for one in (*movers, *plain_writers, *careful_writers, *askers):
        assert not one.errors, (type(one).__name__, one.errors)
    for asker in askers:
        assert bootstrap or not asker.refused, asker.refused
    for name, one in seen.items():
        assert not one.book.errors, (name, one.book.errors)
        assert not (wrong := one.book.wrong(one.sent)), (name, wrong)
        assert one.book.silence < LONGEST_SILENCE + one.away, (name, one.book.silence, one.away)
    assert max(one.longest for one in closed) < CLOSE_S + 1
    assert not (new := left(fleet, before)), new


def ours(fleet: Fleet) -> set[str]:
    """The threads and sockets of this process's clients, but for the fleet's own, which comes and goes."""
    with fleet.unasked():
        return at_hand()


def left(fleet: Fleet, before: set[str]) -> set[str]:
    """What is new, two seconds later at the latest: a Proxy closes its ends a moment after its client. (What
    others had left behind may go meanwhile.)"""
    with fleet.unasked():
        end = time.monotonic() + 2
        while (new := at_hand() - before) and time.monotonic() < end:
            time.sleep(0.05)
        return new


def _has(book: Ledger, count: int) -> bool:
    return book.count >= count


def whole(fleet: Fleet) -> None:
    until(lambda: fleet.up() == set(fleet.nodes), "all brokers are there")
    until(lambda: fleet.whole(*fleet.cluster.metadata().topics), "all replicas are in sync")
