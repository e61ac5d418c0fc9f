"""A cluster, its network and its clients in virtual time: an hour of a group in less than a second, and
every run repeats bit for bit.

    from kproto.testing.world import World, tp

    world = World({"flights": 3}, seed=7)
    a = world.join("a", topics=["flights"], group_id="g", auto_offset_reset="earliest")
    b = world.join("b", topics=["flights"], group_id="g", auto_offset_reset="earliest")
    world.write("flights", 0, "UA 100", "UA 101")
    assert world.run(until=lambda: a.owned | b.owned == set(world.partitions()))
    world.grow("flights", 6)
    world.fault("stall", a, lasts=2_000)          # nothing of a's moves for two virtual seconds
    world.kill(b)
    world.run(600_000)                            # of new partitions a hears within metadata_max_age_ms
    assert a.owned == set(world.partitions())

What takes part: `join` starts kproto's whole consumer, or the machine of another client
(`kproto.models`), `producer` kproto's producer. What they do is called on them (`subscribe`, `seek`,
`commit`, `close`, `freeze`), and how their application behaves is set on them (`works_ms`, `callback_ms`,
`listener`); one that calls its client is given by `behaves`, so that a world that is played again makes its
own. What befalls the cluster and the network is called on the world: `grow`, `elect`, `truncate`,
`move_coordinator`, `stop_broker`, `fault`, `tamper`.

What comes out: `client.records`, `client.owned`, `world.seen`, and the trace of every event and action
(`world.trace()`, JSON lines). `world.back()` is the world one turn ago, `world.again(1234)` at turn 1234,
`world.save(path)` and `World.load(path)` keep a run. Invariants by name are in `kproto.testing.invariants`:

    from kproto.testing.invariants import check, no_partition_has_two_owners

    world.watch(no_partition_has_two_owners)      # after whatever an application sees
    check(world)                                  # all of them, at the end
"""

from __future__ import annotations

from ...group.subscription import TopicPartition
from .clients import Client
from .consumers import Consumer
from .members import Member
from .network import Fault
from .observation import Seen
from .producers import Producer
from .world import Invariant, Stuck, Tamper, World

__all__ = [
    "Client",
    "Consumer",
    "Fault",
    "Invariant",
    "Member",
    "Producer",
    "Seen",
    "Stuck",
    "Tamper",
    "World",
    "tp",
]


def tp(topic: str, partition: int) -> TopicPartition:
    """A partition, shortly."""
    return TopicPartition(topic, partition)
