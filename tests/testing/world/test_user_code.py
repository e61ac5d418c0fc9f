"""A world (a simulated cluster) rejects coroutine functions as callbacks, and continues after a callback
has raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import kproto.models
from kproto.errors import ConfigError
from kproto.models.index import Model
from kproto.testing.groups import Group
from kproto.testing.invariants import check
from kproto.testing.schedules import QUICK
from kproto.testing.world import Consumer, ModelClient, World


async def waits(*_: Any) -> Any:
    raise KeyError("this never runs")


def set_attribute(name: str) -> Callable[[World, Any], object]:
    def run(world: World, member: Any) -> object:
        setattr(member, name, waits)
        return world.run(2_000)

    return run


def watch_with(invariant: Any) -> Callable[[World, Any], object]:
    def run(world: World, _: Any) -> object:
        world.watch(invariant)
        return world.run(2_000)

    return run


def tamper_with_coroutine(world: World, _: Any) -> None:
    world.tamper = waits  # type: ignore[assignment]
    world.run(2_000)


def call_later_with_coroutine(world: World, _: Any) -> None:
    world.call_later(5, waits)
    world.run(2_000)


def is_false(_: World) -> object:
    return False


CALLS: dict[str, tuple[Callable[[World, Any], object], str]] = {
    "until": (lambda world, _: world.run(2_000, until=waits), "until"),  # type: ignore[arg-type,return-value]
    "call_later": (call_later_with_coroutine, "function"),
    "listener": (set_attribute("listener"), "listener"),
    "worker": (set_attribute("worker"), "worker"),
    "configure": (lambda _, member: member.configure(waits), "how"),
    "tamper": (tamper_with_coroutine, "tamper"),
    "watch": (watch_with(waits), "invariant"),
    "check": (lambda world, _: check(world, waits), "invariant"),  # type: ignore[arg-type]
}


def world_of(model: Model | None) -> tuple[World, Consumer | ModelClient]:
    world = World({"t": 1})
    options: dict[str, Any] = {"group_id": "g", "reset": "earliest"} if model else QUICK
    member = world.join("a", model, topics=["t"], **options)
    world.write("t", 0, "x")
    return world, member


@pytest.mark.parametrize("name", CALLS)
def test_a_coroutine_function_is_rejected(name: str) -> None:
    """A coroutine function is rejected, because it would never run.

    A call of a coroutine function returns a coroutine, which is truthy. If such functions were accepted, an
    invariant would always hold, and `until` would end a run immediately.
    """
    act, option = CALLS[name]
    with pytest.raises(ConfigError, match=rf"^{option}=.*nothing awaits its result"):
        act(*world_of(None))


def test_a_coroutine_function_is_rejected_as_the_listener_of_a_model() -> None:
    with pytest.raises(ConfigError, match=r"^listener=.*nothing awaits its result"):
        set_attribute("listener")(*world_of(kproto.models.sarama))


def test_an_invariant_that_returns_false_is_rejected() -> None:
    world, _ = world_of(None)
    with pytest.raises(ConfigError, match="this one returned False"):
        check(world, is_false)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="this one returned False"):
        watch_with(is_false)(world, None)


@pytest.mark.parametrize("method", ["assigned", "records"])
def test_a_coroutine_method_of_an_application_is_rejected(method: str) -> None:
    class Waiting(Group):
        def application(self, consumer: Consumer) -> object:
            return type("Application", (), {method: waits})()

    state = Waiting()
    state.begin(seed=0)
    with pytest.raises(ConfigError, match="nothing awaits its result"):
        state.wait(3_000)


@pytest.mark.parametrize("kind", ["assigned", "revoked"])
def test_a_consumer_continues_after_its_listener_raised(kind: str) -> None:
    """As in `consumer.Consumer`, the failed callback counts as ended, and polling continues."""
    failures: list[str] = []

    def listener(callback: str, partitions: Any) -> None:
        if callback == kind and not failures:
            failures.append(callback)
            raise LookupError(f"{kind} fails")

    def rebalance() -> None:
        world.run(20_000)
        world.join("b", topics=["t"], **QUICK)
        world.run(20_000)

    world = World({"t": 2})
    first = world.join("a", topics=["t"], **QUICK)
    first.listener = listener
    with pytest.raises(LookupError, match=f"{kind} fails"):
        rebalance()
    world.run(20_000)
    world.write("t", 0, "x", "y")
    world.write("t", 1, "z")
    world.run(20_000)
    assert failures == [kind]
    members = list(world.alive_clients(Consumer))
    assert first.records
    assert sum(len(member.records) for member in members) == 3
    assert sum(len(member.owned) for member in members) == 2
