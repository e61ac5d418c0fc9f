"""Queries of a world that several invariants use, and the error that invariants raise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from ...group.subscription import TopicPartition
from ..world import Consumer, ModelClient, Observation, World

Invariant = Callable[[World], None]

# The kinds of observations that end a consumer's ownership of partitions.
END_KINDS: Final = ("revoked", "lost", "unsubscribed", "closed", "killed")
# The kinds of observations that change or remove the position in a partition.
POSITION_CHANGES: Final = ("assigned", "sought", *END_KINDS)

# The time in ms by which an operation may exceed its deadline, because the world may first process a tick and
# other events.
GRACE_MS: Final = 1_000


class InvariantBroken(AssertionError):
    """The error for an invariant that does not hold."""


def violation(
    world: World, name: str, reason: str, observation: Observation | None = None
) -> InvariantBroken:
    """Return an InvariantBroken that names the client or group, the reason and the time."""
    time = (
        f"turn {observation.turn}, {observation.at} ms"
        if observation
        else f"turn {world.turns}, {world.now} ms"
    )
    return InvariantBroken(f"{name}: {reason} ({time} of World(seed={world.seed}))")


def last_errors_of(world: World) -> str:
    """Return, for each client, its last error and how many errors it raised.

    The result is empty if no client raised an error.
    """
    counts = Counter(observation.source for observation in world.observations if observation.kind == "raised")
    last_errors = {
        observation.source: observation for observation in world.observations if observation.kind == "raised"
    }
    return "; ".join(
        f"{source} raised {counts[source]} times, the last: {observation.detail!r} ({observation.at} ms)"
        for source, observation in last_errors.items()
    )


def consumers(world: World) -> list[Consumer]:
    """Return kproto's own consumers, alive or not."""
    return [client for client in world.clients.values() if isinstance(client, Consumer)]


def histories(world: World) -> Iterator[tuple[str, list[Observation]]]:
    """Yield the name and the observations of each consumer that was ever assigned partitions."""
    by_name: dict[str, list[Observation]] = {
        consumer.name: [] for consumer in consumers(world) if consumer.group is not None
    }
    for observation in world.observations:
        if observation.source in by_name:
            by_name[observation.source].append(observation)
    yield from (
        (name, history) for name, history in by_name.items() if any(s.kind == "assigned" for s in history)
    )


def skipped_by_models(world: World) -> set[tuple[str, TopicPartition]]:
    """Return each (group, partition) for which a model committed offsets of undelivered records.

    librdkafka can commit the offsets of a batch's records before it returns the records.
    """
    skipped: set[tuple[str, TopicPartition]] = set()
    if not any(isinstance(client, ModelClient) for client in world.clients.values()):
        return skipped
    owners: dict[tuple[str | None, TopicPartition], object] = {}
    delivered: dict[tuple[str | None, TopicPartition], set[int]] = {}
    for observation in world.observations:
        client = world.clients.get(observation.source)
        if observation.kind == "stored":
            for partition, offset in observation.detail.items():
                key = (observation.source, partition)
                undelivered = first_undelivered(world, partition, delivered.get(key, set()), offset)
                if undelivered is not None and isinstance(owners.get(key), ModelClient):
                    skipped.add(key)
        elif client is not None and observation.kind == "assigned":
            owners.update(((client.group, partition), client) for partition in observation.partitions)
        elif client is not None and observation.kind == "delivered":
            delivered.setdefault((client.group, observation.partitions[0]), set()).update(observation.detail)
    return skipped


def readable(world: World, partition: TopicPartition, offset: int) -> int:
    """Return the first offset at or after `offset` that is not the offset of a transaction marker."""
    while (partition, offset) in world.marker_offsets:
        offset += 1
    return offset


def first_undelivered(world: World, partition: TopicPartition, delivered: set[int], end: int) -> int | None:
    """Return the offset of the first record before `end` that is not in `delivered`.

    The result is None if all records were delivered, or if the partition does not exist.
    """
    if world.partition(partition) is None:
        return None
    for offset in range(world.log(partition).start_offset, end):
        if offset not in delivered and (partition, offset) not in world.marker_offsets:
            return offset
    return None
