"""kproto's whole producer in a world."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from consumer.engine import events as ev
from consumer.engine import producing
from consumer.engine.network import Broken, Data, Open, Opened, Shut, Write
from consumer.options import producer_options
from consumer.records import GroupChange

from .clients import Client
from .consumers import WIRES
from .journal import kept
from .network import Wire

if TYPE_CHECKING:
    from .world import World


class Producer(Client):
    """A producer of kproto. Its options are those of `consumer.Producer`."""

    def __init__(self, world: World, name: str, **options: Any) -> None:
        super().__init__(world, name)
        self.options = producer_options({"client_id": name, **options})
        self.engine = producing.ProducerEngine(world.addresses, self.options, random=self.random)
        self.sent: list[tuple[producing.OutBatch, int]] = []
        """Where each record is that was taken: its batch, and its place in it."""
        self.changes: list[GroupChange] = []

    def due(self) -> int | None:
        return self.engine.due()

    def tick(self) -> None:
        self.do(ev.Tick())

    def opened(self, wire: Wire) -> None:
        self.do(Opened(wire.key))

    def refused(self, key: int, why: str) -> None:
        self.do(Broken(key, why))

    def received(self, wire: Wire, data: bytes) -> None:
        self.do(Data(wire.key, data))

    def broken(self, wire: Wire, why: str) -> None:
        self.do(Broken(wire.key, why))

    def do(self, event: Any) -> None:
        """Tell the engine, and do what it says."""
        if not self.alive:
            return
        if not isinstance(event, WIRES):
            self.world.note(self.name, "event", event)
        for action in producing.step(self.engine, event, self.world.now):
            match action:
                case Write(key=key, data=data):
                    self.world.write_to(self, key, data)
                case Open(key=key, host=host, port=port):
                    self.world.open(self, key, host, port)
                case Shut(key=key):
                    self.world.shut(self, key)
                case ev.Report(change=change):
                    self.changes.append(change)
                case _:
                    pass
        self.plan()

    @kept
    def send(
        self, topic: str, value: str | bytes, key: str | bytes | None = None, partition: int | None = None
    ) -> tuple[producing.OutBatch, int] | producing.Full:
        """Give a record to the engine. `Full`: there is no room or no metadata yet; let time pass, try
        again.
        """
        self.engine.core.now = self.world.now
        value = value.encode() if isinstance(value, str) else value
        key = key.encode() if isinstance(key, str) else key
        placed = self.engine.append(topic, key, value, partition, self.world.now, ())
        if not isinstance(placed, producing.Full):
            self.sent.append(placed)
        if self.world.outside:
            self.plan()
        return placed

    def must_send(self, topic: str, value: str | bytes, **where: Any) -> producing.OutBatch:
        """Send, letting time pass until there is metadata and room. Raises AssertionError after 2 s."""
        for _ in range(200):
            placed = self.send(topic, value, **where)
            if not isinstance(placed, producing.Full):
                return placed[0]
            self.tick()
            self.world.run(10)
        raise AssertionError("the record was never taken")

    @kept
    def flush(self) -> None:
        """Send now what waits for company."""
        self.engine.core.now = self.world.now
        self.engine.flush()
        self.tick()
