"""The engine of an `Admin` that runs in a simulated cluster."""

from __future__ import annotations

from random import Random
from typing import Any

from consumer.engine import events as ev
from consumer.engine.admin.engine import AdminEngine, step
from consumer.engine.admin.plan import Plan
from consumer.engine.network.transport import Broken, Data, Opened
from kproto.testing.world.clients import EngineClient
from tests.consumer.stage import World


class SimulatedAdmin(EngineClient):
    """An admin client without a runtime: `run` runs a plan in virtual time."""

    def __init__(self, world: World, name: str = "admin") -> None:
        super().__init__(world, name)
        self.engine = AdminEngine(world.addresses, Random(1), client_id=name, request_timeout_ms=5_000)
        self.view = self.engine.view
        self.ended: dict[object, ev.Done] = {}

    def due(self) -> int | None:
        return self.engine.due()

    def clock(self) -> int:
        return self.world.now

    def tick(self) -> None:
        self.do(ev.Tick())

    def on_transport_event(self, event: Opened | Data | Broken) -> None:
        self.do(event)

    def do(self, event: Any) -> None:
        for action in step(self.engine, event, self.world.now):
            if not self.perform_transport_action(action) and isinstance(action, ev.Done):
                self.ended[action.token] = action
        self.plan()

    def run(self, plan: Plan[Any], ms: int = 20_000) -> ev.Done:
        """Run a plan to its end, for at most `ms` milliseconds of virtual time."""
        token = object()
        self.do(ev.Run(token, plan, ms))
        assert self.world.run(ms, until=lambda: token in self.ended)
        return self.ended[token]
