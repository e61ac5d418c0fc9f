"""A world rejects coroutine functions, and invariants that return False."""

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
from kproto.testing.world import Consumer, Member, World


async def waits(*_: Any) -> Any:
    raise KeyError("this never runs")


def set_on(name: str) -> Callable[[World, Any], object]:
    def put(world: World, member: Any) -> object:
        setattr(member, name, waits)
        return world.run(2_000)

    return put


def watched(claim: Any) -> Callable[[World, Any], object]:
    def watch(world: World, _: Any) -> object:
        world.watch(claim)
        return world.run(2_000)

    return watch


def tampered(world: World, _: Any) -> None:
    world.tamper = waits  # type: ignore[assignment]
    world.run(2_000)


def later(world: World, _: Any) -> None:
    world.call_later(5, waits)
    world.run(2_000)


def is_false(_: World) -> object:
    return False


GIVEN: dict[str, tuple[Callable[[World, Any], object], str]] = {
    "until": (lambda world, _: world.run(2_000, until=waits), "until"),  # type: ignore[arg-type,return-value]
    "call_later": (later, "what"),
    "listener": (set_on("listener"), "listener"),
    "worker": (set_on("worker"), "worker"),
    "configure": (lambda _, member: member.configure(waits), "how"),
    "tamper": (tampered, "tamper"),
    "watch": (watched(waits), "invariant"),
    "check": (lambda world, _: check(world, waits), "invariant"),  # type: ignore[arg-type]
}


def world_of(model: Model | None) -> tuple[World, Consumer | Member]:
    world = World({"t": 1})
    options: dict[str, Any] = {"group_id": "g", "reset": "earliest"} if model else QUICK
    member = world.join("a", model, topics=["t"], **options)
    world.write("t", 0, "x")
    return world, member


@pytest.mark.parametrize("given", GIVEN)
def test_a_coroutine_function_is_rejected(given: str) -> None:
    """None of it ran: a claim held, and `until` came true at once."""
    act, option = GIVEN[given]
    with pytest.raises(ConfigError, match=rf"^{option}=.*nothing awaits its result"):
        act(*world_of(None))


def test_a_coroutine_function_is_rejected_as_the_listener_of_a_model() -> None:
    with pytest.raises(ConfigError, match=r"^listener=.*nothing awaits its result"):
        set_on("listener")(*world_of(kproto.models.sarama))


def test_an_invariant_that_returns_false_is_rejected() -> None:
    world, _ = world_of(None)
    with pytest.raises(ConfigError, match="this one returned False"):
        check(world, is_false)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="this one returned False"):
        watched(is_false)(world, None)


@pytest.mark.parametrize("method", ["assigned", "records"])
def test_a_coroutine_method_of_an_application_is_rejected(method: str) -> None:
    class Waiting(Group):
        def application(self, consumer: Consumer) -> object:
            return type("Application", (), {method: waits})()

    state = Waiting()
    state.begin(seed=0)
    with pytest.raises(ConfigError, match="nothing awaits its result"):
        state.wait(3_000)
