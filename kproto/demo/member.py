"""One member of the demo's group, in a process of its own so that it can be killed.

The member sends the events of the group (`GroupEvent`) and the records that it reads (`ReadBatch`) through a
pipe to its parent process. Times are in ms since 1970.

After all records have been read, the parent sends "stop".
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

from consumer import Consumer, ConsumerRecord, GroupChange, RebalanceListener, TopicPartition
from consumer.security import SecurityConfig, client_properties

from ..inspect.timeline import GroupEvent, Kind
from .flights import ORIGINS


@dataclass(slots=True)
class ReadBatch:
    """The records of one partition in one poll.

    `origins` are indexes in `flights.ORIGINS`, and delays are in minutes.
    """

    partition: int
    offsets: list[int] = field(default_factory=list[int])
    origins: list[int] = field(default_factory=list[int])
    delays: list[int | None] = field(default_factory=list["int | None"])


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """The options that all members share."""

    bootstrap: str
    topic: str
    group: str
    eager: bool
    # The time in ms that `on_partitions_revoked` takes, as in an application that flushes state.
    release_ms: int = 300
    session_timeout_ms: int = 6_000
    # The file with the security settings. The member reads it, so that the parent process passes no secret.
    command_config: Path | None = None

    @property
    def security(self) -> SecurityConfig:
        return {} if self.command_config is None else client_properties(self.command_config, "admin")


def run(pipe: Connection, name: str, options: MemberOptions) -> None:
    """Consume until the parent sends "stop"; this is the main function of a member's process."""
    # Ctrl-C sends SIGINT to the whole process group, but only the parent handles it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def send_event(change: GroupChange) -> None:
        if change.kind in ("rejoining", "assigned", "revoked", "lost"):
            kind = cast("Kind", change.kind)
            event = GroupEvent(change.at, kind, name, change.generation, change.partitions, change.reason)
            pipe.send(event)

    pipe.send(GroupEvent(_now(), "started", name, reason=f"{name} starts"))
    with Consumer(
        options.bootstrap,
        group_id=options.group,
        client_id=name,
        partition_assignment_strategy=["range"] if options.eager else ["cooperative-sticky"],
        auto_offset_reset="latest",
        session_timeout_ms=options.session_timeout_ms,
        heartbeat_interval_ms=500,
        metadata_max_age_ms=2_000,
        auto_commit_interval_ms=1_000,
        max_poll_records=5_000,
        **options.security,
    ) as consumer:
        consumer.events(send_event)
        consumer.subscribe([options.topic], _SlowReleaseListener(name, pipe, options.release_ms))
        while not pipe.poll():
            records = consumer.poll(0.2)
            if records:
                pipe.send(_read_batches(records))
    pipe.send(GroupEvent(_now(), "left", name, reason=f"{name} closes"))


class _SlowReleaseListener(RebalanceListener):
    """A rebalance listener that delays the release of revoked partitions."""

    def __init__(self, name: str, pipe: Connection, release_ms: int) -> None:
        self.name, self.pipe, self.release_ms = name, pipe, release_ms

    def revoked(self, partitions: Sequence[TopicPartition]) -> None:
        if partitions:
            self.pipe.send(GroupEvent(_now(), "releasing", self.name, partitions=tuple(partitions)))
            time.sleep(self.release_ms / 1000)

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Do not delay the release of lost partitions: another member may already own them."""


def _read_batches(records: list[ConsumerRecord]) -> list[ReadBatch]:
    batches: dict[int, ReadBatch] = {}
    for record in records:
        batch = batches.get(record.partition) or batches.setdefault(
            record.partition, ReadBatch(record.partition)
        )
        departure = json.loads(record.value or b"{}")
        batch.offsets.append(record.offset)
        batch.origins.append(ORIGINS.index(departure["origin"]))
        batch.delays.append(departure["dep_delay"])
    return list(batches.values())


def _now() -> int:
    return time.time_ns() // 1_000_000
