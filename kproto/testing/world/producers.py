"""kproto's producer as a client of a world."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from consumer.delivery import Delivery
from consumer.engine import events as ev
from consumer.engine.network.transport import Broken, Data, Opened
from consumer.engine.producer import engine
from consumer.engine.producer.batches import ProducerBatch
from consumer.options import producer_options
from consumer.records import GroupChange

from ...validation import TEXT, WHOLE_NUMBER, checked
from .clients import ClientWorld, EngineClient
from .consumers import NETWORK_EVENTS
from .journal import journaled


class Producer(EngineClient):
    """A kproto producer. It has the options of `consumer.Producer`."""

    def __init__(self, world: ClientWorld, name: str, **options: Any) -> None:
        super().__init__(world, name)
        self.options = producer_options({"client_id": name, **options})
        self.engine = engine.ProducerEngine(world.addresses, self.options, random=self.random)
        self.engine.records.owner = self
        # The deliveries of all records that the engine accepted.
        self.sent: list[Delivery] = []
        self.changes: list[GroupChange] = []

    def due(self) -> int | None:
        return self.engine.due()

    @journaled  # `tick` is journaled, because `deliver` calls it between two runs of the world.
    def tick(self) -> None:
        self.do(ev.Tick())

    def on_transport_event(self, event: Opened | Data | Broken) -> None:
        self.do(event)

    def do(self, event: Any) -> None:
        """Pass an event to the engine (the producer's state machine) and perform its actions."""
        if not self.alive:
            return
        if not isinstance(event, NETWORK_EVENTS):
            self.world.add_entry(self.name, "event", event)
        for action in engine.step(self.engine, event, self.world.now):
            if self.perform_transport_action(action):
                continue
            match action:
                case ev.Report(change=change):
                    self.changes.append(change)
                case ev.CallBack(callback=callback):
                    callback()
                case _:
                    pass
        self.plan()

    @checked(topic=TEXT, partition=WHOLE_NUMBER)
    @journaled
    def send(
        self, topic: str, value: str | bytes, key: str | bytes | None = None, partition: int | None = None
    ) -> Delivery | None:
        """Pass a record to the engine. Return its delivery, or None if the engine does not accept it.

        The result is None if the buffer is full or metadata is missing. Then let time pass and send the
        record again.
        """
        self.engine.core.now = self.world.now
        value = value.encode() if isinstance(value, str) else value
        key = key.encode() if isinstance(key, str) else key
        delivery = self.engine.append(topic, key, value, partition, self.world.now, ())
        if delivery is not None:
            self.sent.append(delivery)
        self.plan()
        return delivery

    def deliver(self, topic: str, value: str | bytes, **destination: Any) -> Delivery:
        """Send a record; let time pass until the engine accepts it.

        Raises AssertionError if the engine does not accept the record within 2 s of virtual time.
        """
        for _ in range(200):
            delivery = self.send(topic, value, **destination)
            if delivery is not None:
                return delivery
            self.tick()
            self.world.run(10)
        raise AssertionError("the engine did not accept the record within 2 s")

    def must_send(self, topic: str, value: str | bytes, **destination: Any) -> ProducerBatch:
        """Send a record as `deliver` does, but return the batch of the record."""
        return self.deliver(topic, value, **destination)._batch  # pyright: ignore[reportPrivateUsage]

    # ---- the interface that `Delivery` needs

    def wait_for_delivery(self, delivery: Delivery, timeout: float | None) -> None:
        """Raise AssertionError, because `delivery.result()` would wait in real time."""
        raise AssertionError(
            "a delivery cannot be awaited in virtual time: let the world run until delivery.done()"
        )

    def await_delivery(self, delivery: Delivery) -> Generator[Any, None, None]:
        """Raise AssertionError, because `await delivery` would wait in real time."""
        raise AssertionError(
            "a delivery cannot be awaited in virtual time: let the world run until delivery.done()"
        )

    def add_callback(self, delivery: Delivery, callback: Callable[[Delivery], object]) -> None:
        """Call `callback` when the delivery is done, or immediately if it already is."""
        batch, index = delivery._batch, delivery._index  # pyright: ignore[reportPrivateUsage]
        if not self.engine.records.add_callback(batch, index, lambda: callback(delivery)):
            callback(delivery)

    def mark_retrieved(self, delivery: Delivery) -> None:
        """Record that the application knows a delivery's result, so `take_failures` omits a failure."""
        self.engine.records.mark_failure_known(delivery._batch, delivery._index)  # pyright: ignore[reportPrivateUsage]

    @journaled
    def flush(self) -> None:
        """Send all buffered records without waiting until their batches are full."""
        self.engine.core.now = self.world.now
        self.engine.flush()
        self.tick()
