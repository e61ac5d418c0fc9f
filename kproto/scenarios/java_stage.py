"""Helpers for lesson 002. Members model kafka-clients 2.6.2, unless a scenario sets another version."""

from __future__ import annotations

from typing import Any

from ..group.subscription import TopicPartition
from ..messages.join_group import JoinGroupRequest
from ..testing.world import World
from .scenario import join

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OLD, NOW = "java-2.6", "java"
COOPERATIVE = ("cooperative-sticky",)
USUAL: dict[str, Any] = {
    "reset": "earliest",
    "session_ms": 10_000,
    "heartbeat_ms": 500,
    "max_poll_ms": 60_000,
    "auto_commit": True,
    "auto_commit_ms": 5_000,
    "metadata_ms": 5_000,
}


class RuntimeException(Exception):
    """The exception that the application raises in a callback."""


def member_of(world: World, name: str = "a", kind: str = OLD, **config: Any) -> Any:
    """Start a member in group g that reads topic t, with short timeouts."""
    return join(world, name, kind, **{**USUAL, **config})


def stored(world: World) -> list[dict[TopicPartition, int]]:
    """Return the offsets of each commit that the coordinator accepted."""
    return [observation.detail for observation in world.observations if observation.kind == "stored"]


def joins_of(world: World, member: Any) -> int:
    """Return the number of JoinGroups that a member has sent."""
    return len(world.requests_of(member, JoinGroupRequest))


def called(member: Any) -> list[str]:
    """Return the calls of the member's listener, each with the number of its partitions."""
    return [f"{kind} {len(partitions)}" for kind, partitions in member.calls]


def poll_for(world: World, member: Any, timeout_ms: int, *, limit: int = 1_000, patient: bool = False) -> int:
    """Call poll once for a member that does not poll automatically; return the duration in ms."""
    started_at = world.now
    member.poll_once(timeout_ms, limit, patient=patient)
    world.run(60_000, until=lambda: not member.polling)
    return world.now - started_at
