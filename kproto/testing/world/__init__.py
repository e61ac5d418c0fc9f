"""A world: a cluster, its network and its clients in virtual time.

Two worlds with the same arguments and the same calls run identically.

Simulating an hour of an idle group of three consumers takes about 5 s of CPU time. With
`fetch_max_wait_ms=10_000`, and `poll_timeout_ms = 10_000` at each client, it takes 1 s
(`benchmarks/world.py`).

    from kproto.testing.world import World, tp

    world = World({"flights": 3}, seed=7)
    a = world.join("a", topics=["flights"], group_id="g", auto_offset_reset="earliest")
    b = world.join("b", topics=["flights"], group_id="g", auto_offset_reset="earliest")
    world.write("flights", 0, "UA 100", "UA 101")
    assert world.run(until=lambda: a.owned | b.owned == set(world.partitions()))
    world.grow("flights", 6)
    world.fault("stall", a, lasts=2_000)    # stop all traffic of a for 2 s of virtual time
    world.kill(b)
    world.run(600_000)                      # a finds new partitions within metadata_max_age_ms
    assert a.owned == set(world.partitions())

Clients: `join` starts kproto's consumer, or a model of another client (`kproto.models`). `producer` starts
kproto's producer.

Methods of a client are calls of its application (`subscribe`, `seek`, `commit`, `close`) or signals to its
process (`freeze`). Attributes of a client configure its application (`works_ms`, `callback_ms`, `listener`).

If an application calls its own client, set up the application with `configure`. In a replay, the application
then calls the client of the replayed world.

Cluster and network: use the methods of the world, such as `grow`, `elect`, `truncate`, `move_coordinator`,
`stop_broker` and `fault`, and the attribute `tamper`, a function that may answer requests for a broker.

Results are in `client.records`, `client.owned` and `world.observations`. `world.trace()` returns every event
and action as JSON lines.

A turn is one event of a run: one scheduled call. `world.rewind()` returns a new world in the state before the
last turn, and `world.replay(1234)` a new world in the state after turn 1234.

`world.save(path)` stores a run, and `World.load(path)` repeats it.

`kproto.testing.invariants` contains invariants, which are functions of a world:

    from kproto.testing.invariants import check, no_partition_has_two_owners

    world.watch(no_partition_has_two_owners)      # check it after each event that an application observes
    check(world)                                  # check all invariants at the end
"""

from __future__ import annotations

from ...group.subscription import TopicPartition
from .clients import Client
from .consumers import Consumer
from .members import ModelClient
from .network import Fault
from .observation import Observation
from .producers import Producer
from .state import Tamper
from .world import Invariant, Stuck, World

__all__ = [
    "Client",
    "Consumer",
    "Fault",
    "Invariant",
    "ModelClient",
    "Observation",
    "Producer",
    "Stuck",
    "Tamper",
    "World",
    "tp",
]


def tp(topic: str, partition: int) -> TopicPartition:
    """Return a `TopicPartition`: a short form for tests."""
    return TopicPartition(topic, partition)
