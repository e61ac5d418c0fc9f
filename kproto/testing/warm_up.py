"""Compile codecs and import modules before Hypothesis tests need them.

    from kproto.testing.warm_up import warm_up

    warm_up()          # before the first @given test; with pytest, kproto's plugin makes this call

The first decoding of a message, the first `World` and the first broker of a process compile codecs and import
modules. On a loaded machine, this may exceed Hypothesis's deadline of 200 ms for an example.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from importlib import import_module

from ..errors import KprotoError, MissingExtra
from ..wire.message import Message


def warm_up(messages: Iterable[type[Message]] = ()) -> None:
    """Compile codecs and import what a world, a broker and its clients need. Takes about 0.5 s of CPU.

    `messages` are further message classes whose codecs are compiled, for all of their versions.
    """
    with contextlib.suppress(MissingExtra):
        import_module("kproto.records.columns")  # Imports numpy and pyarrow, used to decode many records.
    for message in messages:
        for version in range(message.__versions__.min, message.__versions__.max + 1):
            for codecs in (message.__decoders__, message.__encoders__):
                _ = codecs[version]
    _use_world()
    # Ignore errors: if no broker can be started on this machine, no test can use one.
    with contextlib.suppress(KprotoError, OSError):
        _use_broker()


def _use_world() -> None:
    """Let a member of a world read a record, commit it, and close."""
    from .world import World

    world = World({"t": 1})
    consumer = world.join("warm-up", topics=["t"], group_id="g", auto_offset_reset="earliest")
    world.write("t", 0, "value")
    world.run(until=lambda: bool(consumer.records))
    consumer.close()
    world.run()


def _use_broker() -> None:
    """Write a record to an embedded broker, and read it with a consumer in a group."""
    from consumer import Consumer, Producer

    from ..broker.server import running

    with running({"t": 1}) as server:
        with Producer(server.bootstrap) as producer:
            producer.send("t", b"value").result()
        with Consumer(server.bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            consumer.poll(10)
