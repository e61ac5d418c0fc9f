"""What the claims share: what of a world they look at, and how they say that one doesn't hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from ...group.subscription import TopicPartition
from ..world import Consumer, Member, Observation, World

Claim = Callable[[World], None]

ENDS: Final = ("revoked", "lost", "unsubscribed", "closed", "killed")
# What ends the work on partitions, and what changes where the next record comes from.
MOVES: Final = ("assigned", "sought", *ENDS)

# How much later than its timeout something may end: a tick, and what is done at the same moment.
GRACE_MS: Final = 1_000


class Broken(AssertionError):
    """A claim that doesn't hold."""


def broken(world: World, who: str, why: str, seen: Observation | None = None) -> Broken:
    """That a claim doesn't hold: of whom, why, and when."""
    when = f"turn {seen.turn}, {seen.at} ms" if seen else f"turn {world.turns}, {world.now} ms"
    return Broken(f"{who}: {why} ({when} of World(seed={world.seed}))")


def raised(world: World) -> str:
    """What each client raised last, and how often it raised; empty where nobody did."""
    times = Counter(seen.source for seen in world.observations if seen.kind == "raised")
    last = {seen.source: seen for seen in world.observations if seen.kind == "raised"}
    return "; ".join(
        f"{who} raised {times[who]} times, the last: {seen.detail!r} ({seen.at} ms)"
        for who, seen in last.items()
    )


def consumers(world: World) -> list[Consumer]:
    """kproto's own, alive or not."""
    return [client for client in world.clients.values() if isinstance(client, Consumer)]


def stories(world: World) -> Iterator[tuple[str, list[Observation]]]:
    """Each subscribing consumer's own part of what was seen."""
    found: dict[str, list[Observation]] = {
        consumer.name: [] for consumer in consumers(world) if consumer.group is not None
    }
    for seen in world.observations:
        if seen.source in found:
            found[seen.source].append(seen)
    yield from ((name, story) for name, story in found.items() if any(s.kind == "assigned" for s in story))


def passed_over_by_others(world: World) -> set[tuple[str, TopicPartition]]:
    """Where a member of another client committed what it had not given: librdkafka commits what stands in a
    batch that it has not returned yet.
    """
    found: set[tuple[str, TopicPartition]] = set()
    if not any(isinstance(client, Member) for client in world.clients.values()):
        return found
    owners: dict[tuple[str | None, TopicPartition], object] = {}
    given: dict[tuple[str | None, TopicPartition], set[int]] = {}
    for seen in world.observations:
        client = world.clients.get(seen.source)
        if seen.kind == "stored":
            for partition, offset in seen.detail.items():
                key = (seen.source, partition)
                missing = not_given(world, partition, given.get(key, set()), offset)
                if missing is not None and isinstance(owners.get(key), Member):
                    found.add(key)
        elif client is not None and seen.kind == "assigned":
            owners.update(((client.group, partition), client) for partition in seen.partitions)
        elif client is not None and seen.kind == "delivered":
            given.setdefault((client.group, seen.partitions[0]), set()).update(seen.detail)
    return found


def readable(world: World, partition: TopicPartition, offset: int) -> int:
    """The first offset from `offset` on that holds a record."""
    while (partition, offset) in world.marker_offsets:
        offset += 1
    return offset


def not_given(world: World, partition: TopicPartition, given: set[int], end: int) -> int | None:
    """The first record below `end` that is not among those that were given; None where the topic is gone."""
    if world.partition(partition) is None:
        return None
    for offset in range(world.log(partition).start_offset, end):
        if offset not in given and (partition, offset) not in world.marker_offsets:
            return offset
    return None
