"""The topics of the embedded broker: ids, partition counts, configs, and each partition's log.

Rules:
  * A topic made anew under an old name is another topic: it has another id, and requests with the old id get
    UNKNOWN_TOPIC_ID.
  * Partitions are only ever added.
  * Ids come from the caller: nothing here is random.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from typing import Final
from uuid import UUID

from ..error_codes import ErrorCode
from ..java_numbers import trimmed
from .log import Log
from .producer_state import Producers
from .retention import drop_old
from .segments import UNLIMITED, Limits
from .settings import SETTINGS, Settings
from .topic_configs import TOPIC_CONFIGS
from .transaction_index import COORDINATOR_EPOCH, Transactions, marker

NO_ID: Final = UUID(int=0)
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")  # Kafka's Topic.LEGAL_CHARS and MAX_NAME_LENGTH
# Kafka's controllers keep their own log under this name: it is no topic.
CLUSTER_METADATA: Final = "__cluster_metadata"
# A bound of ours: each partition costs memory, and Metadata answers with all of them.
MAX_PARTITIONS: Final = 100_000
_OF_SEGMENTS: Final = {"segment.bytes", "segment.ms", "max.compaction.lag.ms"}
_DEFAULT_LIMITS: Final = Limits(
    int(TOPIC_CONFIGS["segment.bytes"].default), int(TOPIC_CONFIGS["segment.ms"].default)
)


class Partition:
    """One partition: its log, and what it remembers of producers and their transactions."""

    __slots__ = ("compacted_to", "log", "producers", "replicas", "transactions")

    def __init__(self) -> None:
        self.replicas: tuple[int, ...] = ()
        """The nodes that it was created on; none: the one that leads it, alone."""
        self.log = Log()
        self.compacted_to = 0
        """Where compaction left off: what is before was gone over."""
        self.producers = Producers()
        self.transactions = Transactions()

    @property
    def stable_offset(self) -> int:
        """The last stable offset: where those stop who read only what is committed (X5)."""
        first = self.transactions.first_open()
        return self.log.end_offset if first is None else max(first, self.log.start_offset)

    def is_writing(self, producer_id: int, epoch: int) -> bool:
        """Has the producer a transaction open here, in this epoch?"""
        there = self.transactions.start_of(producer_id) is not None
        return there and self.producers.epoch(producer_id) == epoch

    def mark(
        self, producer_id: int, epoch: int, now: int, *, committed: bool, limits: Limits = UNLIMITED
    ) -> None:
        """End the producer's transaction here."""
        offset = self.log.end_offset
        made = marker(offset, self.log.leader_epoch, producer_id, epoch, now, committed=committed)
        self.log.append(made, 1, now, limits)
        self.producers.marked(producer_id, epoch, COORDINATOR_EPOCH, now)
        self.transactions.ended(producer_id, offset, committed=committed)

    def delete_before(self, offset: int) -> None:
        """Let the log start at `offset`."""
        self.log.delete_before(offset)
        self.transactions.forget_before(self.log.start_offset)

    def delete_old(self, config: Callable[[str], str], now: int) -> bool:
        """Let go of what its topic's configs no longer keep; did the log's start move?"""
        before = self.log.start_offset
        drop_old(self.log, config, now)
        self.transactions.forget_before(self.log.start_offset)
        return self.log.start_offset > before

    def truncate(self, offset: int) -> None:
        """Lose everything from `offset` on, as after an unclean election: see `Log.truncate`."""
        self.log.truncate(offset)
        self.compacted_to = min(self.compacted_to, self.log.segments[-1].base_offset)
        left = self.log.all_batches()
        self.producers.read_again(left, self.log.end_offset, COORDINATOR_EPOCH)
        self.transactions.read_again(left)


class Topic:
    """One topic. `configs` holds only what was set on it; `config` knows the defaults."""

    __slots__ = ("configs", "id", "name", "partitions")

    def __init__(self, name: str, topic_id: UUID, count: int, configs: Mapping[str, str]) -> None:
        self.name = name
        self.id = topic_id
        self.partitions = [Partition() for _ in range(count)]
        self.configs = dict(configs)

    def partition(self, index: int) -> Partition | None:
        return self.partitions[index] if 0 <= index < len(self.partitions) else None

    def config(self, name: str, settings: Settings) -> str:
        """The value that counts at a broker with these settings."""
        value = self.configs.get(name)
        return broker_default(name, settings) if value is None else trimmed(value)

    def limits(self, settings: Settings) -> Limits:
        """How large its segments get, and of how long a time their records are."""
        if not self.configs.keys() & _OF_SEGMENTS:
            return _DEFAULT_LIMITS
        ms = int(self.config("segment.ms", settings))
        if "compact" in self.config("cleanup.policy", settings):
            ms = min(ms, int(self.config("max.compaction.lag.ms", settings)))
        return Limits(int(self.config("segment.bytes", settings)), ms)


INHERITED: Final[Mapping[str, tuple[str, ...]]] = {
    config: tuple(name for name, setting in SETTINGS.items() if setting.topic_config == config)
    for config in TOPIC_CONFIGS
}
"""Topic config -> the broker configs that are its default, in the order of precedence."""

_DEFAULT_OF: Final = {
    config: attrgetter(SETTINGS[names[0]].field) for config, names in INHERITED.items() if len(names) == 1
}


def broker_default(name: str, settings: Settings) -> str:
    """Return the value of a topic config that is not set on the topic."""
    inherited = _DEFAULT_OF.get(name)
    if inherited is not None:
        return str(inherited(settings))
    if name == "retention.ms" and settings.retention_ms is not None:
        return str(settings.retention_ms)
    return TOPIC_CONFIGS[name].default


class Topics:
    """All topics, by name and by id. This is also the view of them that the group coordinator gets."""

    __slots__ = ("_alike", "_by_id", "_by_name")

    def __init__(self) -> None:
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._alike: dict[str, list[str]] = {}

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def named(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def with_id(self, topic_id: UUID) -> Topic | None:
        return self._by_id.get(topic_id)

    # The three questions of the coordinator.

    def name(self, topic_id: UUID) -> str | None:
        topic = self._by_id.get(topic_id)
        return topic.name if topic else None

    def id(self, name: str) -> UUID | None:
        topic = self._by_name.get(name)
        return topic.id if topic else None

    def partitions(self, name: str) -> int | None:
        topic = self._by_name.get(name)
        return len(topic.partitions) if topic else None

    def create(
        self, name: str, topic_id: UUID, count: int, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """Add a topic that passed `refusal`."""
        topic = Topic(name, topic_id, count, configs or {})
        self._by_name[name] = topic
        self._by_id[topic_id] = topic
        self._alike.setdefault(_seen(name), []).append(name)
        return topic

    def delete(self, topic: Topic) -> None:
        del self._by_name[topic.name]
        del self._by_id[topic.id]
        alike = self._alike[_seen(topic.name)]
        alike.remove(topic.name)
        if not alike:
            del self._alike[_seen(topic.name)]

    def refusal(self, name: str, count: int) -> tuple[ErrorCode, str] | None:
        """Why no topic of this name and size can be made; None when it can."""
        return self.name_refusal(name) or count_refusal(count)

    def name_refusal(self, name: str) -> tuple[ErrorCode, str] | None:
        """Why no topic of this name can be made; None when it can."""
        if (why := bad_name(name)) is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, why
        if name in self._by_name:
            return ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists."
        if other := self._alike.get(_seen(name)):
            return (
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other[0]}",
            )
        if name == CLUSTER_METADATA:
            return ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
        return None


def count_refusal(count: int) -> tuple[ErrorCode, str] | None:
    """Why no topic can have so many partitions; None when it can."""
    if not 0 < count <= MAX_PARTITIONS:
        return ErrorCode.INVALID_PARTITIONS, f"The number of partitions must be from 1 to {MAX_PARTITIONS}."
    return None


def _seen(name: str) -> str:
    """A name as Kafka's metrics have it: two topics may not be alike there."""
    return name.replace(".", "_")


def bad_name(name: str) -> str | None:
    """Why `name` can't be a topic's name; None when it can (Kafka's Topic.validate)."""
    if name in ("", ".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if _NAME.fullmatch(name) is None:
        return f"Topic name is invalid: '{name[:300]}' is too long, or not only of [a-zA-Z0-9._-]"
    return None


def grow(topic: Topic, count: int) -> None:
    """Let `topic` have `count` partitions, more than it has."""
    topic.partitions.extend(Partition() for _ in range(count - len(topic.partitions)))
