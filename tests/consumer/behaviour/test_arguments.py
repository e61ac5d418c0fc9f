"""Invalid arguments of every public method are rejected immediately, and the error says what is allowed."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from consumer import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    CommittedOffset,
    Consumer,
    Producer,
    RebalanceListener,
    TopicPartition,
)
from kproto.broker.server import Server, running
from kproto.errors import ConfigError, KprotoError, UnsupportedVersion
from kproto.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kproto.messages.list_groups import ListGroupsRequest
from tests.bundles import check_each
from tests.consumer.behaviour.valid_arguments import BATCH, P0, valid_argument


class KafkaPythonListener(RebalanceListener):
    """A rebalance listener with the method names of kafka-python."""

    def on_partitions_assigned(self, assigned: Any) -> None: ...


class CoroutineListener(RebalanceListener):
    async def assigned(self, partitions: Any) -> None: ...


def start_broker() -> AbstractContextManager[Server]:
    return running(topics={"t": 2}, settings={"group.initial.rebalance.delay.ms": "0"})


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with start_broker() as server:
        yield server.bootstrap


@pytest.fixture
def own_broker() -> Iterator[str]:
    """Run a separate broker for a single test, because this test also calls `delete_topics`."""
    with start_broker() as server:
        yield server.bootstrap


WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("assign", ([("t", 0)],), {}),
    ("assign", (P0,), {}),
    ("committed", (P0,), {}),
    ("assign", ({P0: -1},), {}),
    ("assign", ({P0: "earliest"},), {}),
    ("assign", ("t",), {}),
    ("subscribe", ([1],), {}),
    ("subscribe", ([],), {}),
    ("subscribe", ([" "],), {}),
    ("subscribe", ({"t": 1},), {}),
    ("subscribe", (["t"], print), {}),
    ("subscribe", (["t"], KafkaPythonListener()), {}),
    ("subscribe", (["t"], RebalanceListener), {}),
    ("subscribe", (), {"pattern": "("}),
    ("subscribe", (), {"pattern": 1}),
    ("subscribe", (), {"pattern": b"t.*"}),
    ("subscribe", (["t"],), {"pattern": "t"}),
    ("poll", ("1",), {}),
    ("poll", (-1,), {}),
    ("poll", (math.nan,), {}),
    ("poll", (None,), {}),
    ("poll", (1,), {"max_records": 0}),
    ("poll", (1,), {"max_records": 1.5}),
    ("poll_columns", ([],), {}),
    ("pause", ("flights",), {}),
    ("pause", (["flights"],), {}),
    ("resume", (("t", 0),), {}),
    ("seek", (P0, -2), {}),
    ("seek", (P0, "earliest"), {}),
    ("seek", (P0, True), {}),
    ("seek", (P0, 2**63), {}),
    ("seek", (P0, CommittedOffset(-1, "", None)), {}),
    ("seek", (P0, CommittedOffset(5, "", -1)), {}),
    ("seek", (P0, (5, "metadata")), {}),
    ("seek", (("t", 0), 5), {}),
    ("seek", (TopicPartition("t", "0"), 5), {}),  # type: ignore[arg-type]
    ("seek_to", ("begin",), {}),
    ("seek_to", (-2,), {}),
    ("seek_to", (2**63,), {}),
    ("seek_to", (None,), {}),
    ("seek_to", ("earliest", ["t"]), {}),
    ("commit", ({P0: -1},), {}),
    ("commit", ({P0: "5"},), {}),
    ("commit", ({"t": 5},), {}),
    ("commit", ([P0],), {}),
    ("commit", ({P0: (5, 1)},), {}),
    ("commit", ({P0: (5, "m" * 2**15)},), {}),
    ("commit", ({P0: (5, "\ud800")},), {}),
    ("commit", ({P0: CommittedOffset(5, None, None)},), {}),  # type: ignore[arg-type]
    ("commit_async", (5,), {}),
    ("committed", ("t",), {}),
    ("position", ("t",), {}),
    ("position", (P0, "soon"), {}),
    ("lag", (0,), {}),
    ("list_offsets", ([P0],), {}),
    ("list_offsets", ({P0: "first"},), {}),
    ("list_offsets", ({P0: 1.5},), {}),
    ("list_offsets", ({P0: 2**63},), {}),
    ("partitions_for", (["t"],), {}),
    ("run", (print,), {}),
    ("rejoin", (1,), {}),
    ("events", (None,), {}),
    ("close", ("now",), {}),
    ("close", (True, -1), {}),
]
WRONG_FOR_CLUSTERS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("request", ("x",), {}),
    ("request", (None,), {}),
    ("request_versioned", (print,), {}),
    ("metadata", ("t",), {}),
    ("topics", ("soon",), {}),
    ("partitions", (1,), {}),
    ("leader", ("t",), {}),
    ("coordinator", (None,), {}),
    ("create_topics", (["t"],), {}),
    ("create_topics", ({"t": 0},), {}),
    ("create_topics", ({"t": "3"},), {}),
    ("create_topics", ({"t": 1},), {"replication_factor": 0}),
    ("create_topics", ({"t": 1},), {"configs": {"retention.ms": 5}}),
    ("create_topics", ({"t": 1},), {"exist_ok": 1}),
    ("create_partitions", ({"": 4},), {}),
    ("delete_topics", ("t",), {}),
    ("list_offsets", ({P0: "latest"},), {"isolation": "serializable"}),
    ("fetch", ({P0: "earliest"},), {}),
    ("fetch", ({P0: 0},), {"max_wait_ms": -1}),
    ("produce", (P0, "text"), {}),
    ("produce", (P0, b""), {}),
    ("produce", (P0, BATCH[:-1]), {}),
    ("produce", (P0, BATCH + BATCH), {}),
    ("produce", (P0, BATCH), {"acks": "all"}),
    ("produce", (P0, BATCH), {"acks": 0}),
    ("commit_offsets", ("g", {P0: None}), {}),
    ("commit_offsets", ("g", {P0: (1, "m" * 2**15)}), {}),
    ("committed_offsets", ("g", [0]), {}),
    ("group", ("",), {}),
    ("delete_groups", ("g",), {}),
    ("delete_groups", ([""],), {}),
    ("run", ([],), {}),
]


WRONG_FOR_PRODUCERS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("send_columns", (5, {"value": [b"x"]}), {}),
    ("send_columns", ("t", [b"x"]), {}),
    ("flush", ("soon",), {}),
    ("begin", (-1,), {}),
    ("commit", (math.nan,), {}),
    ("abort", (True,), {}),
    ("events", (None,), {}),
    ("send_offsets", (5, {P0: 1}), {}),
    ("send_offsets", ("", {P0: 1}), {}),
    ("send_offsets", ("g", {P0: -1}), {}),
    ("send_offsets", ("g", {P0: (1, "m" * 2**15)}), {}),
    ("send_offsets", ("g", {"t": 1}), {}),
    ("send_offsets", ("g", [P0]), {}),
    ("close", ("now",), {}),
]


def test_a_consumer_rejects_wrong_arguments(broker: str) -> None:
    consumer = Consumer(broker, group_id="g")

    def check(call: tuple[str, tuple[Any, ...], dict[str, Any]]) -> None:
        method, args, kwargs = call
        with pytest.raises(ConfigError, match=r"is not allowed; .{5}"):
            getattr(consumer, method)(*args, **kwargs)
        assert consumer.subscription() == set()
        assert consumer.assignment() == set()

    try:
        check_each(WRONG, check)
        consumer.subscribe(["t"])  # subscribe() succeeds only if the rejected calls have changed nothing.
    finally:
        consumer.kill()


def test_an_asyncio_consumer_rejects_wrong_arguments(broker: str) -> None:
    async def story() -> None:
        consumer = AsyncConsumer(broker, group_id="g")
        for method, args, kwargs in WRONG:
            with pytest.raises(ConfigError, match=r"is not allowed; .{5}"):
                await _await_if_needed(getattr(consumer, method)(*args, **kwargs))
        consumer.subscribe(["t"])
        consumer.kill()

    asyncio.run(story())


async def _await_if_needed(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


def test_clusters_reject_wrong_arguments(broker: str) -> None:
    with Admin(broker) as cluster:
        for method, args, kwargs in WRONG_FOR_CLUSTERS:
            with pytest.raises(ConfigError, match="is not allowed"):
                getattr(cluster, method)(*args, **kwargs)

    async def story() -> None:
        async with AsyncAdmin(broker) as cluster:
            for method, args, kwargs in WRONG_FOR_CLUSTERS:
                with pytest.raises(ConfigError, match="is not allowed"):
                    await getattr(cluster, method)(*args, **kwargs)

    asyncio.run(story())


def test_producers_reject_wrong_arguments(broker: str) -> None:
    with Producer(broker, transactional_id="x") as producer:
        for method, args, kwargs in WRONG_FOR_PRODUCERS:
            with pytest.raises(ConfigError, match="is not allowed"):
                getattr(producer, method)(*args, **kwargs)

    async def story() -> None:
        async with AsyncProducer(broker, transactional_id="x") as producer:
            for method, args, kwargs in WRONG_FOR_PRODUCERS:
                with pytest.raises(ConfigError, match="is not allowed"):
                    await _await_if_needed(getattr(producer, method)(*args, **kwargs))

    asyncio.run(story())


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer, Admin, AsyncAdmin])
def test_addresses_of_a_wrong_type_are_rejected(kind: Any) -> None:
    wrong: tuple[Any, ...] = (None, 9092, [9092], [None], b"x:1", "", ":1")
    for bootstrap in wrong:
        with pytest.raises(ConfigError, match="bootstrap_servers"):
            kind(bootstrap)


def test_a_blocking_consumer_rejects_a_coroutine_listener(broker: str) -> None:
    consumer = Consumer(broker, group_id="g")
    with pytest.raises(ConfigError, match=r"assigned\(\) is a coroutine"):
        consumer.subscribe(["t"], CoroutineListener())
    consumer.kill()


def test_produce_rejects_two_batches_at_once(broker: str) -> None:
    with (
        Admin(broker) as cluster,
        pytest.raises(ConfigError, match="more than one batch: one encoded record"),
    ):
        cluster.produce(P0, BATCH + BATCH)


def test_a_mapping_counts_as_a_list_of_its_partitions(broker: str) -> None:
    with Admin(broker) as cluster, Consumer(broker, group_id="keys") as consumer:
        assert cluster.committed_offsets("keys", {P0: 1}) == {P0: None}
        consumer.assign([P0])
        consumer.pause({P0: 5})
        assert consumer.paused() == {P0}
        assert consumer.committed({P0: 1}) == {P0: None}


def test_a_long_wrong_value_is_shortened_in_the_error() -> None:
    message = str(ConfigError("partitions", ["x" * 10_000] * 10, "a list of partitions"))
    assert "... (100040 characters) is not allowed; a list of partitions" in message
    assert len(message) < 300


def test_a_request_that_the_broker_does_not_know_raises_unsupported_version(broker: str) -> None:
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)
    with Admin(broker) as cluster, pytest.raises(UnsupportedVersion) as caught:
        cluster.request(request)
    assert str(caught.value) == f"AllocateProducerIds: the broker at {broker} does not support this request"


def test_the_repr_of_cluster_metadata_summarizes_it(broker: str) -> None:
    with Admin(broker) as cluster:
        assert "brokers 1; controller 1; topics t (2)>" in repr(cluster.metadata())


def test_a_response_has_the_fields_of_its_message(broker: str) -> None:
    with Admin(broker) as cluster:
        groups: list[Any] = cluster.request(ListGroupsRequest()).groups
    assert isinstance(groups, list)


ODD: list[Any] = [
    None, True, 0, -1, 2**70, 1.5, math.nan, math.inf, "", "x", "é" * 300, b"x", [], [1], ["x"], [None], [[]],
    (), ("t", 0), {}, {"x": 1}, {1: 2}, {P0: 1}, {P0: None}, {P0: "latest"}, {P0: -1}, {None: None}, set(),
    object(), print, type, Exception("x"), P0, [P0], TopicPartition("", 0), TopicPartition("t", -1),
    TopicPartition("t", 99), TopicPartition(None, None), iter([P0]), (n for n in ["x"]), range(3),
    KafkaPythonListener(),
]  # fmt: skip
EMPTY = inspect.Parameter.empty


@pytest.mark.parametrize("kind", [Consumer, Admin])
def test_no_odd_argument_raises_an_error_of_python(own_broker: str, kind: Any) -> None:
    """Each unusual value for each parameter of each method is accepted, or raises a kproto error."""
    methods = {
        name: method
        for name, method in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_") and name not in ("close", "kill", "unsubscribe")
    }
    assert len(methods) > 15
    tried = 0
    for name, method in methods.items():
        parameters = [
            p for p in inspect.signature(method).parameters.values() if p.name not in ("self", "unknown")
        ]
        client: Any = kind(own_broker, group_id="g") if kind is Consumer else kind(own_broker)
        if kind is Consumer and name not in ("assign", "subscribe"):
            client.assign([P0])
        for wrong, value in itertools.product(parameters, ODD):
            arguments = {
                p.name: valid_argument(name, p.name)
                for p in parameters
                if p.default is EMPTY and p is not wrong
            }
            if any(p.name == "timeout" for p in parameters):
                arguments["timeout"] = 0.002
            if wrong.name == "timeout" and (value is True or value in (math.inf, 2**70, 1.5)):
                # Calls with these timeouts are left out: they are valid, and would block for a long time.
                continue
            tried += 1
            with contextlib.suppress(KprotoError):
                getattr(client, name)(**arguments | {wrong.name: value})
        client.kill()
    assert tried > 700
