"""Who finds none of the brokers that it knew begins again at the bootstrap addresses (KIP-899, KIP-1102)."""

from __future__ import annotations

from typing import Any

import pytest

from consumer.engine.admin import read_metadata
from consumer.engine.admin.plan import Ask, Rest
from consumer.engine.events import Tick
from consumer.engine.metadata.cluster import BrokerAddress, ClusterView
from consumer.engine.network.call import Call
from consumer.engine.network.transport import Broken, Shut
from consumer.engine.producer.engine import step
from consumer.engine.timing import FIRST_RESPONSE_TIMEOUT_MS
from kproto.errors import ConnectionFailed
from kproto.messages.metadata import MetadataRequest, MetadataResponse
from tests.consumer.engine.metadata.stage import metadata_response
from tests.consumer.engine.network.stage import Stage, question
from tests.consumer.stage import World, tp

REQUIRED = 129


def required(brokers: int = 0) -> MetadataResponse:
    """No metadata: begin again."""
    told = metadata_response()
    return MetadataResponse(brokers=told.brokers[:brokers], topics=[], error_code=REQUIRED)


def one_home(brokers: int = 2) -> World:
    """Clients begin at broker 1, and know no other address before they are told."""
    world = World({"t": 1}, brokers=brokers)
    del world.addresses[1:]
    return world


def reads(world: World, client: Any, *values: str) -> None:
    world.write("t", 0, values[-1])
    assert world.run(60_000, until=lambda: client.values() == list(values))


@pytest.mark.parametrize("brokers", [0, 2])
def test_a_cluster_that_asks_for_it_is_looked_for_at_the_bootstrap_addresses(brokers: int) -> None:
    world = one_home()
    world.elect("t", 0, 2)
    a = world.consumer(auto_offset_reset="earliest", metadata_max_age_ms=1_000)
    a.assign({tp("t", 0): None})
    reads(world, a, "x")
    asked: list[Any] = []

    def tamper(client: Any, request: Any, version: int) -> Any:
        if not isinstance(request, MetadataRequest):
            return None
        asked.append(sorted(wire.node for wire in a.wires.values()))
        return required(brokers) if len(asked) <= 3 else None

    world.tamper = tamper
    assert world.run(20_000, until=lambda: len(asked) >= 2)
    assert 2 not in asked[1]  # the connections to all others were given up
    assert world.run(20_000, until=lambda: len(asked) >= 4)
    assert [change.reason for change in a.changes if change.kind == "unreachable"] == [
        "broker:9092: REBOOTSTRAP_REQUIRED (129)"
    ]
    reads(world, a, "x", "y")
    assert len(a.changes_of("reachable")) == 1


def test_without_recovery_such_an_answer_is_taken_as_any_other() -> None:
    world = one_home()
    a = world.consumer(
        auto_offset_reset="earliest", metadata_max_age_ms=1_000, metadata_recovery_strategy="none"
    )
    a.assign({tp("t", 0): None})
    reads(world, a, "x")
    world.tamper = lambda client, request, version: (
        required(2) if isinstance(request, MetadataRequest) else None
    )
    assert world.run(20_000, until=lambda: set(a.engine.core.view.brokers) == {1, 2})
    assert a.changes_of("unreachable") == []


def test_who_has_no_metadata_for_long_forgets_the_brokers_that_it_knew() -> None:
    """They are many, and silent: one question after the other would take minutes to come to the last."""
    assert 20_000 <= found_again_after(20_000) < 40_000
    assert found_again_after(300_000) >= 300_000


def found_again_after(trigger_ms: int) -> int:
    world = one_home(brokers=30)
    a = world.consumer(
        auto_offset_reset="earliest",
        metadata_max_age_ms=1_000,
        metadata_recovery_rebootstrap_trigger_ms=trigger_ms,
    )
    a.assign({tp("t", 0): None})
    reads(world, a, "x")
    view = a.engine.core.view
    del view.brokers[1]  # it moved; what stands at its address is found by the address only
    for node in range(2, 31):
        world.fault("drop", node=node, ms=10_000_000)
    world.cut(a)
    began = world.now
    assert world.run(900_000, until=lambda: 1 in view.brokers)
    return world.now - began


def test_a_broker_that_knows_of_no_broker_yet_tells_nothing() -> None:
    """It is starting: what is known stays."""
    world = one_home()
    a = world.consumer(auto_offset_reset="earliest", metadata_max_age_ms=1_000)
    a.assign({tp("t", 0): None})
    reads(world, a, "x")
    empty = metadata_response()
    empty.brokers, empty.topics = [], []
    world.tamper = lambda client, request, version: empty if isinstance(request, MetadataRequest) else None
    world.run(3_000)
    assert set(a.engine.core.view.brokers) == {1, 2}
    reads(world, a, "x", "y")
    world.tamper = None
    assert world.run(20_000, until=lambda: bool(a.changes_of("reachable")))


def test_a_producer_begins_again_too() -> None:
    world = one_home()
    producer = world.producer(metadata_max_age_ms=1_000)
    producer.deliver("t", "x", partition=0)
    told: list[int] = []

    def tamper(client: Any, request: Any, version: int) -> Any:
        if isinstance(request, MetadataRequest) and client is producer and len(told) < 2:
            told.append(version)
            return required()
        return None

    assert world.run(5_000, until=lambda: world.log(tp("t", 0)).end_offset == 1)
    world.tamper = tamper
    assert world.run(10_000, until=lambda: len(told) == 2)
    producer.deliver("t", "y", partition=0)
    assert world.run(10_000, until=lambda: world.log(tp("t", 0)).end_offset == 2)


def test_who_stood_still_looks_at_its_sockets_before_it_forgets_whom_it_knew() -> None:
    """It was asking for metadata, and the answer may be there."""
    world = one_home()
    producer = world.producer()
    producer.deliver("t", "x", partition=0)
    assert world.run(5_000, until=lambda: world.log(tp("t", 0)).end_offset == 1)
    engine, later = producer.engine, world.now + 600_000
    engine.metadata.need()
    step(engine, None, world.now)
    assert not [action for action in step(engine, None, later) if isinstance(action, Shut)]
    assert engine.core.view.brokers
    assert [action for action in step(engine, Tick(), later) if isinstance(action, Shut)]
    assert not engine.core.view.brokers


def test_without_recovery_nobody_asks_at_a_bootstrap_address_once_brokers_are_known() -> None:
    stage = Stage(("home", 1), recovers=False).knows(BrokerAddress(1, "old", 9), BrokerAddress(2, "old", 8))
    call = stage.ask()
    for _ in range(2):
        stage.happened(Broken(stage.opened[-1].key, "connection refused"))
    assert {(opened.host, opened.port) for opened in stage.opened} == {("old", 9), ("old", 8)}
    assert isinstance(call.error, ConnectionFailed)


def test_without_recovery_a_broker_that_is_silent_at_the_start_is_asked_again() -> None:
    """No other address is known, and no broker yet."""
    stage = Stage(("home", 1), recovers=False)
    call = question(stage)
    stage.connect(1)
    stage.tick(FIRST_RESPONSE_TIMEOUT_MS)
    assert stage.shut == [1]
    assert not call.done
    stage.tick(stage.network.next_deadline() or 0)
    assert [(opened.host, opened.port) for opened in stage.opened] == [("home", 1), ("home", 1)]
    stage.connect(2)
    assert [key for key, *_ in stage.requests] == [1, 2]


def test_a_plan_asks_at_the_bootstrap_addresses_next() -> None:
    view = ClusterView()
    view.update(metadata_response(), 0, version=13, everything=False)
    plan = read_metadata(view, ["t"], lambda: 0)
    empty = metadata_response()
    empty.brokers, empty.topics = [], []
    for told, why in ((empty, "lists no brokers yet"), (required(2), "REBOOTSTRAP_REQUIRED (129)")):
        [ask] = _asked(plan)
        call = Call(ask.request, node=None, lane=0, deadline=0, timeout_ms=0)
        call.response, call.version = told, 13
        rest = plan.send([call])
        assert isinstance(rest, Rest)
        assert why in rest.why
    assert view.brokers == {}


def _asked(plan: Any) -> list[Ask]:
    step = next(plan)
    assert isinstance(step, list)
    return step
