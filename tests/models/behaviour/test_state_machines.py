"""The states of the models: each enum has one table of transitions, and only `move` assigns a state."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kproto import models
from kproto.cli.machines import MACHINES
from kproto.machine import Edges
from kproto.models import java, kafka_go, librdkafka, sarama, sarama_cluster
from kproto.models.index import model_names
from kproto.models.java import state as java_state
from kproto.models.kafka_go import state as kafka_go_state
from kproto.models.librdkafka import state as librdkafka_state
from kproto.models.sarama.routines import Routine
from tests.models.stage import Stage

TABLES: dict[str, Edges[Any]] = {
    "java": java_state.EDGES,
    "java: thread": java_state.BLOCKED_EDGES,
    "java: position": java_state.FETCH_EDGES,
    "librdkafka": librdkafka_state.EDGES,
    "librdkafka: coordinator": librdkafka_state.COORD_EDGES,
    "librdkafka: partition": librdkafka_state.TOPPAR_EDGES,
    "kafka-go": kafka_go_state.EDGES,
    "kafka-go: partition": kafka_go_state.READER_EDGES,
}


def routines(base: type[Routine] = Routine) -> Iterator[type[Routine]]:
    """Yield the classes of sarama's and sarama-cluster's goroutines that define their own states."""
    for routine in base.__subclasses__():
        if "EDGES" in vars(routine) and routine.__module__.startswith("kproto."):
            yield routine
        yield from routines(routine)


assert sarama
assert sarama_cluster  # Importing the modules defines the classes of their goroutines.
TABLES |= {f"{routine.__module__}.{routine.__name__}": routine.EDGES for routine in routines()}


@pytest.mark.parametrize("edges", TABLES.values(), ids=TABLES)
def test_every_state_has_edges_and_is_reached(edges: Edges[Any]) -> None:
    states = list(type(next(iter(edges))))
    assert set(edges) == set(states)
    reached, waiting = {states[0]}, [states[0]]
    while waiting:
        following = set(edges[waiting.pop()]) - reached
        reached |= following
        waiting += following
    assert set(states) - reached == set()


def test_only_the_shared_move_assigns_a_state() -> None:
    """Only `move` may assign `state`, except for the initial state in a class body or in `__init__`."""
    functions: list[str] = []
    for path in sorted(Path(models.__file__).parent.rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef) and function.name != "__init__":
                for node in ast.walk(function):
                    targets = node.targets if isinstance(node, ast.Assign) else []
                    parts = [part for target in targets for part in getattr(target, "elts", [target])]
                    if any(isinstance(part, ast.Attribute) and part.attr == "state" for part in parts):
                        functions.append(f"{path.name}: {function.name}")
    assert functions == []


@pytest.mark.parametrize(
    ("model", "module", "table", "before", "after"),
    [
        (java, java_state, "EDGES", java_state.M.COMPLETING_REBALANCE, java_state.M.STABLE),
        (java, java_state, "BLOCKED_EDGES", java_state.B.POLL, java_state.B.CALLBACK),
        (java, java_state, "FETCH_EDGES", java_state.F.AWAIT_RESET, java_state.F.FETCHING),
        (librdkafka, librdkafka_state, "EDGES", librdkafka_state.J.INIT, librdkafka_state.J.WAIT_METADATA),
        (kafka_go, kafka_go_state, "EDGES", kafka_go_state.P.SYNCING, kafka_go_state.P.FETCHING_OFFSETS),
        (kafka_go, kafka_go_state, "READER_EDGES", kafka_go_state.W.SEEK_LAST, kafka_go_state.W.READING),
    ],
)
def test_a_step_that_leaves_its_edges_fails(
    model: Any, module: ModuleType, table: str, before: Any, after: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    edges: Edges[Any] = vars(module)[table]
    fewer = {state: following for state, following in dict(edges[before]).items() if state is not after}
    monkeypatch.setattr(module, table, {**edges, before: fewer})
    stage = Stage({"t": 1})
    stage.produce("t", [0], 1)
    member = stage.add_member("A", model, reset="earliest", assignors=["range"])
    member.run_command("subscribe t")
    with pytest.raises(AssertionError, match=f"cannot move from .* to {after.value}|to {after.name}"):
        stage.run(10_000)


def test_every_model_is_drawn() -> None:
    assert {name.removesuffix("-2.6") for name in model_names()} <= set(MACHINES)
