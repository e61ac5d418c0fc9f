"""Clients that read and write during an operator's actions on a cluster.

Consumers use the blocking API, asyncio, or handlers like sarama's. Producers are idempotent or transactional.
Movers copy committed records to another topic exactly once.

    with traffic(fleet) as seen:
        ...                                     # the operator's actions
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
from tests.conformance.cluster_workers import CLOSE_S, open_resources
from tests.conformance.cluster_writers import Mover, Writer
from tests.conformance.kafka_cluster import Fleet, until

PARTITIONS = 6
# The session timeout is Kafka's default of 45 s. A broker may take 30 s to start on a busy computer, and no
# member's session may expire in this time.
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
# The maximum time in seconds without a record while a broker is available. The value is large because the
# computer may be busy.
LONGEST_SILENCE = 45.0
_names = count(1)


def topic(fleet: Fleet, partitions: int = PARTITIONS, replication_factor: int = 3, **configs: str) -> str:
    name = f"t{next(_names)}"
    fleet.cluster.create_topics({name: partitions}, replication_factor=replication_factor, configs=configs)
    until(lambda: fleet.is_in_sync(name), "the new topic is whole")
    return name


@dataclass
class ReaderGroup:
    """One group of readers, the records that they read, and the writers of these records."""

    topic: str
    group: str
    ledger: Ledger
    writers: list[Writer]
    # How long no broker was available, in seconds.
    away: float = 0.0

    @property
    def sent(self) -> list[int]:
        return [number for writer in self.writers for number in writer.sent]


@contextmanager
def traffic(fleet: Fleet, bootstrap: str = "", **options: Any) -> Generator[dict[str, ReaderGroup]]:
    """Run readers and writers during the `with` block, wait until everything is read, and check the results.

    Two groups read the records of idempotent producers. A third group reads the records of transactional
    producers, and a fourth one reads the movers' copies of these records. Two more clients send metadata and
    group requests.

    All clients start with one address: `bootstrap`, or the first broker's address if `bootstrap` is empty.
    `options` are added to the members' SESSION options.

    The block may stop all brokers. It must start them again, and then set `away`.
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
    readers_by_name = {
        "cooperative": ReaderGroup(plain, f"{plain}-cooperative", Ledger(), plain_writers),
        "range": ReaderGroup(plain, f"{plain}-range", Ledger(), plain_writers),
        "committed": ReaderGroup(committed, f"{committed}-committed", Ledger(), careful_writers),
        "moved": ReaderGroup(moved, f"{moved}-moved", Ledger(), careful_writers),
    }
    askers = [Asker(first, plain, readers_by_name["range"].group, kind) for kind in LOOPS]
    before = client_resources(fleet)
    with ExitStack() as stack:
        readers = [
            stack.enter_context(
                Readers(
                    first,
                    group.topic,
                    group.ledger,
                    READERS[name],
                    group_id=group.group,
                    **session,
                    **GROUPS[name],
                )
            )
            for name, group in readers_by_name.items()
        ]
        with ExitStack() as moving:
            with ExitStack() as writing:
                for client in (*movers, *plain_writers, *careful_writers):
                    (moving if client in movers else writing).enter_context(client)
                for group in readers_by_name.values():
                    until(partial(_has, group.ledger, 50), "every group reads")
                for asker in askers:
                    writing.enter_context(asker)
                until(lambda: all(asker.answered for asker in askers), "both clients got responses")
                yield readers_by_name
            for group in readers_by_name.values():
                with suppress(AssertionError):  # `wrong` gives more details.
                    until(partial(_has, group.ledger, len(group.sent)), "all is read", 60)
    for name, group in readers_by_name.items():
        ledger = group.ledger
        print(f"{name}: {ledger.count} read, {ledger.doubled} twice, {ledger.silence:.1f} s of silence")
    for mover in movers:
        print(f"moved: {mover.moved}, {len(mover.aborted)} aborted, {mover.longest:.1f} s at most")
    for asker in askers:
        print(f"asked: {asker.answered} times, {asker.longest:.1f} s at most")
    closed = [reader.closes for reader in (*readers, *movers, *plain_writers, *careful_writers)]
    print(f"closed: {max(close.longest for close in closed):.1f} s at most")
    for client in (*movers, *plain_writers, *careful_writers, *askers):
        assert not client.errors, (type(client).__name__, client.errors)
    for asker in askers:
        assert bootstrap or not asker.refused, asker.refused
    for name, group in readers_by_name.items():
        assert not group.ledger.errors, (name, group.ledger.errors)
        assert not (wrong := group.ledger.wrong(group.sent)), (name, wrong)
        assert group.ledger.silence < LONGEST_SILENCE + group.away, (name, group.ledger.silence, group.away)
    assert max(close.longest for close in closed) < CLOSE_S + 1
    assert not (new := new_resources(fleet, before)), new


def client_resources(fleet: Fleet) -> set[str]:
    """Return the threads and sockets of this process's clients, except for `fleet.cluster`."""
    with fleet.without_client():
        return open_resources()


def new_resources(fleet: Fleet, before: set[str]) -> set[str]:
    """Return the threads and sockets that are not in `before`.

    The loop waits, because a Proxy may take up to 2 s to close its threads and sockets.

    Threads and sockets of earlier tests may disappear between the two measurements, so only new ones are
    reported.
    """
    with fleet.without_client():
        end = time.monotonic() + 2
        while (new := open_resources() - before) and time.monotonic() < end:
            time.sleep(0.05)
        return new


def _has(ledger: Ledger, count: int) -> bool:
    return ledger.count >= count


def wait_until_in_sync(fleet: Fleet) -> None:
    until(lambda: fleet.listed_brokers() == set(fleet.nodes), "all brokers are there")
    until(lambda: fleet.is_in_sync(*fleet.cluster.metadata().topics), "all replicas are in sync")
