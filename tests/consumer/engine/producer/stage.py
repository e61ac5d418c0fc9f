"""Helpers of the tests of the producer engine."""

from __future__ import annotations

from kproto.records import rows
from tests.consumer.stage import World


def log_of(world: World, topic: str, partition: int) -> list[str]:
    found = world.broker.topics.named(topic)
    assert found is not None
    log = found.partitions[partition].log
    data = b"".join(log.read(0, 2**30, at_least_one=True))
    return [(record.value or b"").decode() for record in rows(data)]


def numbers(*ends: int) -> list[str]:
    return [str(number) for number in range(*ends)]
