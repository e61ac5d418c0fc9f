"""Helpers for the tests of the producer engine."""

from __future__ import annotations

from kproto.records import rows
from tests.consumer.stage import World


def values_of(world: World, topic: str, partition: int) -> list[str]:
    """Return the values of a partition's log."""
    topic_state = world.broker.topics.named(topic)
    assert topic_state is not None
    log = topic_state.partitions[partition].log
    data = b"".join(log.read(0, 2**30, at_least_one=True))
    return [(record.value or b"").decode() for record in rows(data)]


def numbers(*ends: int) -> list[str]:
    """Return the numbers of a range as strings, the values of test records."""
    return [str(number) for number in range(*ends)]
