"""What the blocking and the asyncio consumer have in common: everything that doesn't wait."""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from kproto.errors import ConfigError, IllegalState
from kproto.group.subscription import TopicPartition

from .addresses import addresses
from .cluster import Offset, triples
from .engine import events as ev
from .engine.consumer import Engine, step
from .listener import RebalanceListener
from .options import ConsumerConfig, consumer_options
from .records import ConsumerRecord, EventCallback, GroupChange
from .sockets import Sockets

log = logging.getLogger("kproto.consumer")


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """Who this consumer is in its group."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None


class Shell:
    """An engine, its event callbacks, and the records that an iteration has not come to yet."""

    def __init__(self, bootstrap_servers: str | Iterable[str], config: ConsumerConfig) -> None:
        self.options = consumer_options(config)
        where = addresses(bootstrap_servers)
        wall_offset = time.time_ns() // 1_000_000 - Sockets.now()
        self._engine = Engine(where, self.options, wall_offset_ms=wall_offset)
        self._listener: RebalanceListener | None = None
        self._callbacks: list[EventCallback] = []
        self._reports: deque[GroupChange] = deque()
        self._rows: list[ConsumerRecord] = []
        self._row = 0
        self._finished = False

    # ---- what is known without asking

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer has now."""
        return set(self._engine.partitions)

    def subscription(self) -> set[str]:
        """The topics that are subscribed; with a pattern those that match now."""
        return set(self._engine.topics)

    def paused(self) -> set[TopicPartition]:
        return {partition for partition, state in list(self._engine.partitions.items()) if state.paused}

    def lag(self, partition: TopicPartition) -> int | None:
        """Records between the position and the end, as the last fetch told it; None before the first."""
        state = self._engine.partitions.get(partition)
        return None if state is None else state.lag

    def group_metadata(self) -> GroupMetadata:
        """Generation -1 and an empty member id while the consumer is in no generation."""
        if self.options.group_id is None:
            raise IllegalState("this consumer has no group_id")
        member_id, generation = self._engine.core.identity()
        return GroupMetadata(self.options.group_id, generation, member_id, self.options.group_instance_id)

    def events(self, callback: EventCallback) -> None:
        """Calls back with a `GroupChange` for everything that happens to this consumer's group membership.

        The callback runs on the caller's thread, inside the next poll, commit, unsubscribe or close;
        `GroupChange.at` says when it happened.
        """
        self._callbacks.append(callback)

    # ---- inside

    def _step(self, event: ev.Event) -> list[ev.Action]:
        return step(self._engine, event, Sockets.now())

    def _note(self, change: GroupChange) -> None:
        log.log(
            logging.WARNING if change.kind in ("lost", "missing", "unreachable") else logging.INFO,
            "%s %s generation=%d %s %s",
            self.options.client_id,
            change.kind,
            change.generation,
            " ".join(map(str, change.partitions)),
            change.reason,
        )
        if self._callbacks:
            self._reports.append(change)

    def _tell(self) -> None:
        while self._reports:
            change = self._reports.popleft()
            for callback in self._callbacks:
                callback(change)

    def _unread(self, *, also_last: bool = False) -> ev.GiveBack | None:
        """What an iteration was given and didn't come to; with the record it failed at, if asked."""
        first = max(0, self._row - 1) if also_last else self._row
        rest, self._rows, self._row = self._rows[first:], [], 0
        offsets: dict[TopicPartition, int] = {}
        for record in rest:
            offsets.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return ev.GiveBack(offsets) if offsets else None

    def _subscription(self, topics: Iterable[str] | str, pattern: str | None) -> ev.Subscribe:
        names = [topics] if isinstance(topics, str) else list(topics)
        if pattern is not None:
            if names:
                raise ConfigError("pattern", pattern, "either topics or a pattern, not both")
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigError("pattern", pattern, f"a regular expression ({error})") from None
            return ev.Subscribe(frozenset(), pattern)
        bad = [name for name in names if not name.strip()]
        if bad or not names:
            raise ConfigError("topics", topics, "names of topics that are not empty; unsubscribe() to stop")
        return ev.Subscribe(frozenset(names))

    def _offsets(
        self, offsets: Mapping[TopicPartition, Offset] | None
    ) -> dict[TopicPartition, tuple[int, int | None, str]] | None:
        if offsets is None:
            return None
        found = triples(offsets)
        for partition, (offset, _, _) in found.items():
            if offset < 0:
                raise ConfigError("offset", offset, f"not negative ({partition})")
        return found

    def _milliseconds(self, timeout: float | None) -> int:
        return self.options.default_api_timeout_ms if timeout is None else max(0, int(timeout * 1000))


def assignment_event(partitions: Iterable[TopicPartition] | Mapping[TopicPartition, int | None]) -> ev.Assign:
    """The partitions with their start offsets; None starts where the group or the reset policy says."""
    wanted: dict[TopicPartition, int | None] = {}
    if isinstance(partitions, Mapping):
        wanted.update(cast("Mapping[TopicPartition, int | None]", partitions))
    else:
        wanted.update(dict.fromkeys(partitions))
    for partition, offset in wanted.items():
        if offset is not None and offset < 0:
            raise ConfigError("offset", offset, f"not negative ({partition})")
    return ev.Assign(wanted)


def many(partitions: TopicPartition | Iterable[TopicPartition]) -> frozenset[TopicPartition]:
    """One partition or several, as a set."""
    return frozenset([partitions] if isinstance(partitions, TopicPartition) else partitions)
