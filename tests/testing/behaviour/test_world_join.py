"""A client joins a world (a simulated cluster) only with valid options and names."""

from __future__ import annotations

from typing import Any

import pytest

import kproto.models
from kproto.errors import ConfigError
from kproto.group.assignors import ASSIGNORS, Assignor
from kproto.models.index import MODELS
from kproto.testing.world import World

CUSTOM = Assignor("mine", ASSIGNORS["range"].assign)


@pytest.mark.parametrize("name", [path.rpartition(".")[2] for path in MODELS.values()])
def test_each_model_is_an_attribute_of_the_package(name: str) -> None:
    world = World({"t": 2})
    member = world.join("a", getattr(kproto.models, name), topics=["t"], group_id="g")
    assert world.run(20_000, until=lambda: len(member.owned) == 2)


def test_the_error_for_an_unknown_model_lists_the_models() -> None:
    with pytest.raises(
        AttributeError,
        match="its modules are contract, java, java_2_6, kafka_go",
    ):
        _ = kproto.models.kafka_python  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({}, "group_id=None is not allowed; every model requires a string"),
        ({"group_id": "g", "session_timeout_ms": 6_000}, "did you mean session_ms?"),
        ({"group_id": "g", "group_instance_id": "x"}, "did you mean instance?"),
        ({"group_id": "g", "sesion_ms": 6_000}, "did you mean session_ms?"),
        ({"group_id": "g", "zzz": 1}, "allowed: assignors"),
    ],
)
def test_an_option_that_a_model_does_not_have_is_named(options: dict[str, Any], hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        World({"t": 2}).join("a", kproto.models.sarama, topics=["t"], **options)
    assert hint in str(caught.value)


@pytest.mark.parametrize("strategy", [CUSTOM, [CUSTOM], (CUSTOM, "range")])
def test_a_single_assignor_needs_no_list(strategy: Any) -> None:
    world = World({"t": 2})
    member = world.join("a", topics=["t"], group_id="g", partition_assignment_strategy=strategy)
    assert world.run(20_000, until=lambda: len(member.owned) == 2)


@pytest.mark.parametrize("strategy", [CUSTOM.assign, [CUSTOM.assign], Assignor])
def test_an_assignor_function_without_a_name_is_rejected(strategy: Any) -> None:
    with pytest.raises(ConfigError, match=r"Assignor\(NAME, FUNCTION\)"):
        World({"t": 2}).join("a", topics=["t"], group_id="g", partition_assignment_strategy=strategy)


@pytest.mark.parametrize("strategy", [5, None, [5], [["range"]]])
def test_an_invalid_strategy_is_rejected(strategy: Any) -> None:
    with pytest.raises(ConfigError, match="partition_assignment_strategy"):
        World({"t": 2}).join("a", topics=["t"], group_id="g", partition_assignment_strategy=strategy)


@pytest.mark.parametrize("topics", [5, b"t", [5]])
def test_a_failed_join_leaves_its_name_free(topics: Any) -> None:
    world = World({"t": 2})
    with pytest.raises(ConfigError):
        world.join("a", topics=topics, group_id="g")
    member = world.join("a", topics=["t"], group_id="g")
    assert world.run(20_000, until=lambda: len(member.owned) == 2)
    assert world.replay().digest() == world.digest()
