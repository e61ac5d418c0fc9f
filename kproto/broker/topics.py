"""The topics of the broker: their ids, configs and partitions.

Rules:

* A topic that is re-created under its old name has a new id. Requests with the old id are answered with
  UNKNOWN_TOPIC_ID.

* Partitions can be added to a topic, but not removed.

* The caller chooses the ids of new topics, because this module uses no random source.
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
from .producer_state import PartitionProducers
from .retention import delete_old_segments
from .segments import UNLIMITED, Limits
from .settings import SETTINGS, Settings
from .topic_configs import TOPIC_CONFIGS
from .transaction_index import COORDINATOR_EPOCH, PartitionTransactions, marker

NO_ID: Final = UUID(int=0)
# Kafka's Topic.LEGAL_CHARS and MAX_NAME_LENGTH.
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
# The name of the controllers' metadata log. Kafka does not allow a topic with this name.
CLUSTER_METADATA: Final = "__cluster_metadata"
# The maximum number of partitions of a topic. Kafka has no such limit. In this broker, each partition
# occupies memory, and Metadata responses list all partitions.
MAX_PARTITIONS: Final = 100_000


class Partition:
    """One partition: its log, its idempotent producers and its transactions."""

    __slots__ = ("compacted_to", "log", "producers", "replicas", "transactions")

    def __init__(self) -> None:
        # The ids of the brokers on which the partition was created; if empty, the leader is the only replica.
        self.replicas: tuple[int, ...] = ()
        self.log = Log()
        # The offset up to which the log was compacted.
        self.compacted_to = 0
        self.producers = PartitionProducers()
        self.transactions = PartitionTransactions()

    @property
    def stable_offset(self) -> int:
        """The last stable offset, at which readers with `read_committed` stop (X5)."""
        first_unstable = self.transactions.first_unstable_offset()
        return self.log.end_offset if first_unstable is None else max(first_unstable, self.log.start_offset)

    def is_writing(self, producer_id: int, epoch: int) -> bool:
        """Return whether the producer has an ongoing transaction of this epoch in this partition."""
        ongoing = self.transactions.start_of(producer_id) is not None
        return ongoing and self.producers.epoch(producer_id) == epoch

    def write_marker(
        self,
        producer_id: int,
        epoch: int,
        now: int,
        *,
        committed: bool,
        coordinator_epoch: int = COORDINATOR_EPOCH,
        limits: Limits = UNLIMITED,
    ) -> None:
        """Append the marker that ends the producer's transaction, and update producers and transactions."""
        offset = self.log.end_offset
        leader_epoch = self.log.leader_epoch
        batch = marker(offset, leader_epoch, producer_id, epoch, now, coordinator_epoch, committed=committed)
        self.log.append(batch, 1, now, limits)
        self.producers.on_marker_appended(producer_id, epoch, coordinator_epoch, now)
        self.transactions.on_marker_appended(producer_id, offset, committed=committed)

    def delete_before(self, offset: int) -> None:
        """Move the log start offset forward to `offset`, as DeleteRecords does."""
        self.log.delete_before(offset)
        self.transactions.delete_before(self.log.start_offset)

    def apply_retention(self, config: Callable[[str], str], now: int) -> bool:
        """Apply retention to the log; return whether the log start offset moved."""
        start = self.log.start_offset
        delete_old_segments(self.log, config, now)
        self.transactions.delete_before(self.log.start_offset)
        return self.log.start_offset > start

    def truncate(self, offset: int) -> None:
        """Remove the batches from `offset` on, as an unclean election does (see `Log.truncate`)."""
        self.log.truncate(offset)
        self.compacted_to = min(self.compacted_to, self.log.segments[-1].base_offset)
        batches = self.log.all_batches()
        self.producers.rebuild(batches, self.log.end_offset, COORDINATOR_EPOCH)
        self.transactions.rebuild(batches)


class Topic:
    """One topic. `configs` has only the configs set on the topic; `config` adds the defaults."""

    __slots__ = ("configs", "id", "name", "partitions")

    def __init__(self, name: str, topic_id: UUID, count: int, configs: Mapping[str, str]) -> None:
        self.name = name
        self.id = topic_id
        self.partitions = [Partition() for _ in range(count)]
        self.configs = dict(configs)

    def partition(self, index: int) -> Partition | None:
        """Return a partition, or None if it does not exist."""
        return self.partitions[index] if 0 <= index < len(self.partitions) else None

    def config(self, name: str, settings: Settings) -> str:
        """Return the value of a topic config, with the broker's `settings` as defaults."""
        value = self.configs.get(name)
        return broker_default(name, settings) if value is None else trimmed(value)

    def limits(self, settings: Settings) -> Limits:
        """Return the size and time limits for segments of this topic."""
        segment_ms = int(self.config("segment.ms", settings))
        if "compact" in self.config("cleanup.policy", settings):
            segment_ms = min(segment_ms, int(self.config("max.compaction.lag.ms", settings)))
        return Limits(int(self.config("segment.bytes", settings)), segment_ms)


# Topic config -> the broker configs that provide its default, in the order of precedence.
INHERITED: Final[Mapping[str, tuple[str, ...]]] = {
    config: tuple(name for name, setting in SETTINGS.items() if setting.topic_config == config)
    for config in TOPIC_CONFIGS
}

# Topic config -> a function that reads its default from `Settings`. Contains only the topic configs whose
# default is provided by exactly one broker config.
_DEFAULT_READERS: Final = {
    config: attrgetter(SETTINGS[names[0]].field) for config, names in INHERITED.items() if len(names) == 1
}


def broker_default(name: str, settings: Settings) -> str:
    """Return a topic config's default: the broker config's value if one exists, else Kafka's default."""
    read_default = _DEFAULT_READERS.get(name)
    if read_default is not None:
        return str(read_default(settings))
    if name == "retention.ms" and settings.retention_ms is not None:
        return str(settings.retention_ms)
    return TOPIC_CONFIGS[name].default


class Topics:
    """All topics, by name and by id. The coordinators use this class as their `TopicCatalog`."""

    __slots__ = ("_by_id", "_by_metric_name", "_by_name")

    def __init__(self) -> None:
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._by_metric_name: dict[str, list[str]] = {}

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def named(self, name: str) -> Topic | None:
        """Return the topic with this name, or None if it does not exist."""
        return self._by_name.get(name)

    def with_id(self, topic_id: UUID) -> Topic | None:
        """Return the topic with this id, or None if it does not exist."""
        return self._by_id.get(topic_id)

    # The methods of the protocol `TopicCatalog`, which the coordinators call:

    def name(self, topic_id: UUID) -> str | None:
        """Return the name of the topic with this id, or None if the topic does not exist."""
        topic = self._by_id.get(topic_id)
        return topic.name if topic else None

    def id(self, name: str) -> UUID | None:
        """Return the id of the topic with this name, or None if the topic does not exist."""
        topic = self._by_name.get(name)
        return topic.id if topic else None

    def partitions(self, name: str) -> int | None:
        """Return the partition count of the topic with this name, or None if the topic does not exist."""
        topic = self._by_name.get(name)
        return len(topic.partitions) if topic else None

    def create(
        self, name: str, topic_id: UUID, count: int, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """Add a topic. The caller must have checked its name and partition count with `refusal`."""
        topic = Topic(name, topic_id, count, configs or {})
        self._by_name[name] = topic
        self._by_id[topic_id] = topic
        self._by_metric_name.setdefault(_metric_name(name), []).append(name)
        return topic

    def delete(self, topic: Topic) -> None:
        """Remove a topic."""
        del self._by_name[topic.name]
        del self._by_id[topic.id]
        names = self._by_metric_name[_metric_name(topic.name)]
        names.remove(topic.name)
        if not names:
            del self._by_metric_name[_metric_name(topic.name)]

    def refusal(self, name: str, count: int) -> tuple[ErrorCode, str] | None:
        """Return why a topic of this name and partition count cannot be created, or None if it can."""
        return self.name_refusal(name) or count_refusal(count)

    def name_refusal(self, name: str) -> tuple[ErrorCode, str] | None:
        """Return why a topic of this name cannot be created, or None if it can."""
        if (invalid := bad_name(name)) is not None:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, invalid
        if name in self._by_name:
            return ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists."
        if colliding := self._by_metric_name.get(_metric_name(name)):
            return (
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {colliding[0]}",
            )
        if name == CLUSTER_METADATA:
            return ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited."
        return None


def count_refusal(count: int) -> tuple[ErrorCode, str] | None:
    """Return why a topic cannot have this partition count, or None if it can."""
    if not 0 < count <= MAX_PARTITIONS:
        return ErrorCode.INVALID_PARTITIONS, f"The number of partitions must be from 1 to {MAX_PARTITIONS}."
    return None


def _metric_name(name: str) -> str:
    """Return a topic name as Kafka's metrics show it; no two topics may have the same metric name."""
    return name.replace(".", "_")


def bad_name(name: str) -> str | None:
    """Return why `name` cannot be the name of a topic, or None if it can (Kafka's Topic.validate)."""
    if name in ("", ".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if _LEGAL_NAME.fullmatch(name) is None:
        return f"Topic name is invalid: '{name[:300]}' is too long, or not only of [a-zA-Z0-9._-]"
    return None


def grow(topic: Topic, count: int) -> None:
    """Add partitions to `topic` until it has `count` partitions. A smaller `count` has no effect."""
    topic.partitions.extend(Partition() for _ in range(count - len(topic.partitions)))
