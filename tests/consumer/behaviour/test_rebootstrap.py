"""Clients that reach none of their known brokers return to the bootstrap addresses (KIP-899, KIP-1102)."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from consumer.engine.admin.cluster import read_metadata
from consumer.engine.admin.plan import Ask, Rest
from consumer.engine.events import Tick
from consumer.engine.metadata.cluster import BrokerAddress, ClusterView
from consumer.engine.network.call import Call
from consumer.engine.network.transport import Broken, Shut
from consumer.engine.producer.engine import step
from consumer.engine.timeouts import FIRST_RESPONSE_TIMEOUT_MS
from kproto.errors import ConnectionFailed
from kproto.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproto.messages.metadata import MetadataRequest, MetadataResponse
from tests.consumer.engine.metadata.stage import metadata_response
from tests.consumer.engine.network.stage import Stage, question
from tests.consumer.stage import World, tp

REQUIRED = 129


def rebootstrap_required(brokers: int = 0) -> MetadataResponse:
    """Return a metadata response with the error REBOOTSTRAP_REQUIRED."""
    metadata = metadata_response()
    return MetadataResponse(brokers=metadata.brokers[:brokers], topics=[], error_code=REQUIRED)


def world_with_one_bootstrap_address(brokers: int = 2) -> World:
    """Return a simulated cluster whose clients know only the address of broker 1 at first."""
    world = World({"t": 1}, brokers=brokers)
    del world.addresses[1:]
    return world


def check_reads(world: World, client: Any, *values: str) -> None:
    world.write("t", 0, values[-1])
    assert world.run(60_000, until=lambda: client.values() == list(values))


@pytest.mark.parametrize("brokers", [0, 2])
def test_rebootstrap_required_leads_to_the_bootstrap_addresses(brokers: int) -> None:
    world = world_with_one_bootstrap_address()
    world.elect("t", 0, 2)
    a = world.consumer(auto_offset_reset="earliest", metadata_max_age_ms=1_000)
    a.assign({tp("t", 0): None})
    check_reads(world, a, "x")
    connected_nodes: list[Any] = []

    def tamper(client: Any, request: Any, version: int) -> Any:
        if not isinstance(request, MetadataRequest):
            return None
        connected_nodes.append(sorted(wire.node for wire in a.wires.values()))
        return rebootstrap_required(brokers) if len(connected_nodes) <= 3 else None

    world.tamper = tamper
    assert world.run(20_000, until=lambda: len(connected_nodes) >= 2)
    # After REBOOTSTRAP_REQUIRED the client has closed its connection to broker 2.
    assert 2 not in connected_nodes[1]
    assert world.run(20_000, until=lambda: len(connected_nodes) >= 4)
    assert [change.reason for change in a.changes if change.kind == "unreachable"] == [
        "broker:9092: REBOOTSTRAP_REQUIRED (129)"
    ]
    check_reads(world, a, "x", "y")
    assert len(a.changes_of("reachable")) == 1


def test_without_recovery_rebootstrap_required_is_an_ordinary_response() -> None:
    world = world_with_one_bootstrap_address()
    a = world.consumer(
        auto_offset_reset="earliest", metadata_max_age_ms=1_000, metadata_recovery_strategy="none"
    )
    a.assign({tp("t", 0): None})
    check_reads(world, a, "x")
    world.tamper = lambda client, request, version: (
        rebootstrap_required(2) if isinstance(request, MetadataRequest) else None
    )
    assert world.run(20_000, until=lambda: set(a.engine.core.view.brokers) == {1, 2})
    assert a.changes_of("unreachable") == []


def test_a_client_without_metadata_for_the_trigger_time_forgets_its_brokers() -> None:
    """A client that gets no metadata for `metadata.recovery.rebootstrap.trigger.ms` rebootstraps.

    The client does not try all 30 brokers before it rebootstraps. That would take minutes, because no broker
    responds.
    """
    assert 20_000 <= time_until_rebootstrap(20_000) < 40_000
    assert time_until_rebootstrap(300_000) >= 300_000


def time_until_rebootstrap(trigger_ms: int) -> int:
    world = world_with_one_bootstrap_address(brokers=30)
    a = world.consumer(
        auto_offset_reset="earliest",
        metadata_max_age_ms=1_000,
        metadata_recovery_rebootstrap_trigger_ms=trigger_ms,
    )
    a.assign({tp("t", 0): None})
    check_reads(world, a, "x")
    view = a.engine.core.view
    # The client no longer knows broker 1, and can find it only through its bootstrap address.
    del view.brokers[1]
    for node in range(2, 31):
        world.fault("drop", node=node, ms=10_000_000)
    world.cut(a)
    started_at = world.now
    assert world.run(900_000, until=lambda: 1 in view.brokers)
    return world.now - started_at


def test_an_empty_metadata_response_changes_nothing() -> None:
    """A broker that is still starting sends metadata without brokers. The client keeps its known brokers."""
    world = world_with_one_bootstrap_address()
    a = world.consumer(auto_offset_reset="earliest", metadata_max_age_ms=1_000)
    a.assign({tp("t", 0): None})
    check_reads(world, a, "x")
    empty = metadata_response()
    empty.brokers, empty.topics = [], []
    world.tamper = lambda client, request, version: empty if isinstance(request, MetadataRequest) else None
    world.run(3_000)
    assert set(a.engine.core.view.brokers) == {1, 2}
    check_reads(world, a, "x", "y")
    world.tamper = None
    assert world.run(20_000, until=lambda: bool(a.changes_of("reachable")))


def test_a_producer_rebootstraps_as_well() -> None:
    world = world_with_one_bootstrap_address()
    producer = world.producer(metadata_max_age_ms=1_000)
    producer.deliver("t", "x", partition=0)
    versions: list[int] = []

    def tamper(client: Any, request: Any, version: int) -> Any:
        if isinstance(request, MetadataRequest) and client is producer and len(versions) < 2:
            versions.append(version)
            return rebootstrap_required()
        return None

    assert world.run(5_000, until=lambda: world.log(tp("t", 0)).end_offset == 1)
    world.tamper = tamper
    assert world.run(10_000, until=lambda: len(versions) == 2)
    producer.deliver("t", "y", partition=0)
    assert world.run(10_000, until=lambda: world.log(tp("t", 0)).end_offset == 2)


def test_after_a_freeze_received_data_is_handled_before_brokers_are_forgotten() -> None:
    """When a suspended process resumes, the client handles received data before it rebootstraps.

    The received data may contain the metadata response for which the client waits.
    """
    world = world_with_one_bootstrap_address()
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


def test_without_recovery_the_bootstrap_addresses_are_not_used_once_brokers_are_known() -> None:
    stage = Stage(("home", 1), recovers=False).knows(BrokerAddress(1, "old", 9), BrokerAddress(2, "old", 8))
    call = stage.ask()
    for _ in range(2):
        stage.happened(Broken(stage.opened[-1].key, "connection refused"))
    assert {(opened.host, opened.port) for opened in stage.opened} == {("old", 9), ("old", 8)}
    assert isinstance(call.error, ConnectionFailed)


def test_without_recovery_a_silent_bootstrap_broker_is_asked_again() -> None:
    """A client reconnects to its only bootstrap address and repeats its request if no response arrives.

    The client knows no other broker.
    """
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


def test_an_admin_plan_rebootstraps() -> None:
    view = ClusterView()
    view.update(metadata_response(), 0, version=13, everything=False)
    plan = read_metadata(view, ["t"], lambda: 0)
    empty = metadata_response()
    empty.brokers, empty.topics = [], []
    for response, why in (
        (empty, "lists no brokers yet"),
        (rebootstrap_required(2), "REBOOTSTRAP_REQUIRED (129)"),
    ):
        [ask] = _requests_of(plan)
        call = Call(ask.request, node=None, lane=0, deadline=0, timeout_ms=0)
        call.response, call.version = response, 13
        pause = plan.send([call])
        assert isinstance(pause, Rest)
        assert why in pause.why
    assert view.brokers == {}


def _requests_of(plan: Any) -> list[Ask]:
    requests: list[Ask] = next(plan)
    return requests


def test_a_misrouted_connection_leads_to_the_bootstrap_addresses() -> None:
    """KIP-1242: the broker rejects a connection of a client that expects another cluster or node."""
    world = world_with_one_bootstrap_address()
    world.elect("t", 0, 2)
    expected: list[tuple[str | None, int]] = []

    def tamper(client: Any, request: Any, version: int) -> Any:
        if not isinstance(request, ApiVersionsRequest):
            return None
        expected.append((request.cluster_id, request.node_id))
        is_rejected = request.cluster_id is not None
        return ApiVersionsResponse(error_code=REQUIRED, api_keys=[]) if is_rejected else None

    world.tamper = tamper
    a = world.consumer(auto_offset_reset="earliest", metadata_max_age_ms=1_000)
    a.assign({tp("t", 0): None})
    check_reads(world, a, "x")
    cluster_id = a.engine.core.view.cluster_id
    assert cluster_id is not None
    assert set(expected) == {(None, -1), (cluster_id, 2)}
    assert expected[0] == (None, -1)
    # After the rejection, the client connects to the bootstrap address, and then to node 2. Neither
    # connection has an expected node id: a rebootstrap forgets all brokers, and the broker at node 2's
    # address has rejected this id.
    nodes = [node for node, _ in groupby(node for _, node in expected)]
    assert nodes == [-1, 2, -1]


@pytest.mark.parametrize("strategy", ["none", "rebootstrap"])
def test_only_a_client_that_rebootstraps_names_the_expected_broker(strategy: str) -> None:
    world = World({"t": 1}, brokers=2)
    a = world.consumer(auto_offset_reset="earliest", metadata_recovery_strategy=strategy)
    a.assign({tp("t", 0): None})
    check_reads(world, a, "x")
    node_ids = {request.node_id for request in world.requests_of(a, ApiVersionsRequest)}
    assert (node_ids == {-1}) == (strategy == "none")


def test_a_broker_of_another_cluster_rejects_the_client() -> None:
    """The embedded broker rejects a client that expects another cluster id, as Kafka 4.4 does (KIP-1242)."""
    world = World({"t": 1})
    a = world.consumer(auto_offset_reset="earliest")
    a.assign({tp("t", 0): None})
    check_reads(world, a, "x")
    cluster_id = a.engine.core.view.cluster_id
    a.engine.core.view.cluster_id = "another"
    world.cut(a)
    check_reads(world, a, "x", "y")
    assert a.engine.core.view.cluster_id == cluster_id
