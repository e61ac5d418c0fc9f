"""The broker's server on real sockets. Tests of its state machine (test_machine.py) need no sockets."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import struct
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kproto import transactions
from kproto.broker.machine import next_deadline
from kproto.broker.server import Server, running
from kproto.broker.socket_connection import MAX_BACKLOG
from kproto.error_codes import ErrorCode
from kproto.errors import ConfigError, IllegalState
from kproto.group.classic import coordinator
from kproto.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kproto.messages.api_versions import ApiVersionsRequest
from kproto.messages.end_txn import EndTxnRequest
from kproto.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from kproto.messages.headers import decode_response, encode_request
from kproto.messages.index import response_class
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.metadata import MetadataRequest
from kproto.messages.push_telemetry import PushTelemetryRequest
from kproto.otlp import MetricPoint, encode
from kproto.testing.certificates import certificates
from kproto.wire.frame import frame
from tests.broker.stage import PATIENCE, Socket, batch_of, connected, fetch_request, fetch_topic, join_request


def is_answering(bootstrap: str) -> bool:
    with connected(bootstrap) as client:
        return bool(client.ask(MetadataRequest(topics=[]), 13).brokers)


def test_a_running_server_responds_at_its_bootstrap_address() -> None:
    with running(topics={"t": 3}) as server, connected(server.bootstrap) as client:
        response = client.ask(MetadataRequest(topics=None), 13)
        assert [f"{node.host}:{node.port}" for node in response.brokers] == [server.bootstrap]
        assert [(topic.name, len(topic.partitions)) for topic in response.topics] == [("t", 3)]


def test_metadata_has_the_rack_of_the_settings() -> None:
    with running(settings={"broker.rack": "a"}) as server, connected(server.bootstrap) as client:
        assert [node.rack for node in client.ask(MetadataRequest(topics=[]), 13).brokers] == ["a"]


def test_a_request_that_arrives_byte_by_byte_is_answered() -> None:
    with running() as server, connected(server.bootstrap) as client:
        for byte in frame(encode_request(ApiVersionsRequest(), 0, 1, "me")):
            client.socket.sendall(bytes([byte]))
        assert client.answer(response_class(18), 0).error_code == 0


def test_requests_that_arrive_together_are_answered_in_order() -> None:
    with running() as server, connected(server.bootstrap) as client:
        frames = [encode_request(ApiVersionsRequest(), 0, number, "me") for number in range(500)]
        client.socket.sendall(b"".join(map(frame, frames)))
        got = []
        for _ in frames:
            (size,) = struct.unpack(">i", client.receive(4))
            got.append(decode_response(client.receive(size), response_class(18), 0)[0])
        assert got == list(range(500))


def test_a_deadline_fires_without_traffic() -> None:
    with running(topics={"t": 1}) as server, connected(server.bootstrap) as client:
        began = time.monotonic()
        assert client.ask(fetch_request(fetch_topic(), wait=200), 12).error_code == 0
        assert time.monotonic() - began >= 0.2


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n", "a size of"),
        (b"\xff\xff\xff\xff", "a size of -1"),
        (struct.pack(">i", 10) + b"\x00" * 10, "ProduceRequest"),
        (struct.pack(">i", 0), "RequestHeader"),
    ],
)
def test_invalid_bytes_close_their_connection_only_and_are_logged(
    caplog: pytest.LogCaptureFixture, garbage: bytes, reason: str
) -> None:
    with (
        caplog.at_level(logging.WARNING, "kproto.broker"),
        running() as server,
        connected(server.bootstrap) as good,
        connected(server.bootstrap) as bad,
    ):
        bad.socket.sendall(garbage)
        assert bad.closed_by_broker()
        assert good.ask(MetadataRequest(topics=[]), 13).brokers
    assert reason in caplog.text


def test_a_failed_step_closes_only_the_connection_that_caused_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        running() as server,
        connected(server.bootstrap) as good,
        connected(server.bootstrap) as bad,
    ):
        # A response shows that the broker has accepted the connection.
        for client in (good, bad):
            assert client.ask(ApiVersionsRequest(), 0).error_code == 0
        monkeypatch.delattr(server.broker, "cluster_id")
        bad.send(MetadataRequest(topics=[]), 13)
        assert bad.closed_by_broker()
        assert good.ask(ApiVersionsRequest(), 0).error_code == 0
    assert "the broker failed" in caplog.text


def test_a_client_that_never_reads_does_not_exhaust_the_memory() -> None:
    """The broker stops reading from a connection with too many queued requests."""
    with running(topics={"t": 1}) as server, connected(server.bootstrap) as reader:
        big = batch_of(b"x" * 900_000)
        from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

        part = [PartitionProduceData(index=0, records=big)]
        data = [TopicProduceData(name="t", partition_data=part)]
        reader.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), 9)
        with connected(server.bootstrap) as lazy:
            lazy.socket.setblocking(False)
            frames = frame(encode_request(fetch_request(fetch_topic(), wait=0), 12, 1, "me")) * 1000
            sent, idle = 0, time.monotonic() + 1
            while time.monotonic() < idle and sent < 64 << 20:
                try:
                    sent += lazy.socket.send(frames)
                    idle = time.monotonic() + 0.5
                except BlockingIOError:
                    time.sleep(0.01)
            assert sent < 64 << 20
            assert server._shell is not None
            backlogs = [client.backlog for client in server._shell._connections.values()]
            assert MAX_BACKLOG < max(backlogs) < MAX_BACKLOG + (1 << 20)
            assert is_answering(server.bootstrap)


def test_an_oversized_frame_is_refused_before_it_is_read() -> None:
    with (
        running(settings={"socket.request.max.bytes": "1000"}) as server,
        connected(server.bootstrap) as client,
    ):
        client.socket.sendall(struct.pack(">i", 1001))
        assert client.closed_by_broker()


def test_topics_are_created_and_grown_from_another_thread() -> None:
    with running() as server, connected(server.bootstrap) as client:
        server.create_topic("t", 2, {"retention.ms": "7"})
        server.grow_topic("t", 5)
        [topic] = client.ask(MetadataRequest(topics=None), 13).topics
        assert (topic.name, len(topic.partitions)) == ("t", 5)


def test_topics_are_created_within_the_event_loop() -> None:
    async def run() -> list[str]:
        async with Server() as server:
            server.create_topic("t")
            return [topic.name for topic in server.broker.topics]

    assert asyncio.run(run()) == ["t"]


def test_invalid_operator_calls_raise_without_side_effects() -> None:
    with running(topics={"t": 2}) as server:
        with pytest.raises(ConfigError):
            server.create_topic("t")
        with pytest.raises(ConfigError):
            server.grow_topic("t", 1)
        with pytest.raises(ConfigError):
            server.create_topic("u", 1, {"no.such": "1"})
        assert is_answering(server.bootstrap)


def test_an_invalid_setting_is_refused_before_the_start() -> None:
    with pytest.raises(ConfigError):
        Server(settings={"no.such.setting": "1"})


def test_an_invalid_topic_prevents_the_start() -> None:
    with pytest.raises(ConfigError), running(topics={"t": 0}):
        pass


def test_a_port_in_use_is_reported_as_a_config_error() -> None:
    with running() as server:
        port = int(server.bootstrap.rsplit(":", 1)[1])
        with pytest.raises(ConfigError, match="the address is in use"), running(port=port):
            pass


def test_metadata_has_the_advertised_address() -> None:
    with running(settings={"advertised.listeners": "PLAINTEXT://kafka:9092"}) as server:
        assert server.bootstrap.startswith("127.0.0.1:")
        with connected(server.bootstrap) as client:
            [node] = client.ask(MetadataRequest(topics=[]), 12).brokers
    assert (node.host, node.port) == ("kafka", 9092)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SSL://kafka:9092", "one address for each of PLAINTEXT"),
        ("kafka:1,kafka:2", "one address for each of PLAINTEXT"),
        ("kafka", "PROTOCOL://HOST:PORT"),
        ("kafka:0", "a host and a port that clients can connect to"),
        ("0.0.0.0:9092", "a host and a port that clients can connect to"),
    ],
)
def test_an_invalid_advertised_address_is_refused(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"advertised.listeners=.*{why}"):
        Server(settings={"advertised.listeners": text})


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_listener_on_all_ipv6_addresses_accepts_ipv4() -> None:
    """A listener on all IPv6 addresses also accepts IPv4.

    If the listener rejected IPv4, clients could not connect to the bootstrap address. The bootstrap address
    contains the computer's host name, which often resolves to an IPv4 address only.
    """
    with running(host="::") as server:
        port = int(server.bootstrap.rsplit(":", 1)[1])
        assert is_answering(server.bootstrap)
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port), timeout=PATIENCE).close()


def test_calls_of_a_stopped_server_raise_illegal_state() -> None:
    server = Server()
    with pytest.raises(IllegalState):
        _ = server.bootstrap
    with pytest.raises(IllegalState):
        server.create_topic("t")


def test_dropped_connections_close_and_new_ones_work() -> None:
    with running() as server, connected(server.bootstrap) as client:
        client.ask(ApiVersionsRequest(), 0)
        server.drop_connections()
        assert client.closed_by_broker()
        assert is_answering(server.bootstrap)


def test_five_hundred_clients_can_connect_at_once() -> None:
    async def run() -> None:
        async with Server() as server:
            host, port = server.bootstrap.rsplit(":", 1)
            with contextlib.ExitStack() as stack:
                for _ in range(500):  # This loop keeps the broker's event loop busy.
                    stack.enter_context(socket.create_connection((host, int(port)), timeout=0.5))
                while len(server.broker.connections) < 500:
                    await asyncio.sleep(0.001)

    asyncio.run(run())


def test_observers_receive_the_steps_of_the_group_coordinator() -> None:
    steps: list[tuple[coordinator.CoordinatorEvent, tuple[coordinator.CoordinatorAction, ...], int]] = []
    with (
        running(settings={"group.initial.rebalance.delay.ms": 0}) as server,
        connected(server.bootstrap) as client,
    ):
        server.observe(lambda *step: steps.append(step))
        member = client.ask(join_request(), 9).member_id
        client.ask(join_request(member), 9)
    requests = [
        type(event.request).__name__
        for event, _, _ in steps
        if isinstance(event, coordinator.RequestReceived)
    ]
    assert requests == ["JoinGroupRequest", "JoinGroupRequest"]
    assert any(isinstance(action, coordinator.SendResponse) for _, actions, _ in steps for action in actions)


def test_observers_receive_the_steps_of_the_transaction_coordinator() -> None:
    steps: list[tuple[Any, tuple[Any, ...]]] = []
    with running({"t": 1}) as server, connected(server.bootstrap) as client:
        server.observe(lambda event, actions, _: steps.append((event, actions)))
        named = client.ask(InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000), 4)
        added = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=named.producer_id,
            v3_and_below_producer_epoch=named.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )
        client.ask(added, 3)
        end = EndTxnRequest(
            transactional_id="x",
            producer_id=named.producer_id,
            producer_epoch=named.producer_epoch,
            committed=True,
        )
        client.ask(end, 4)
    requests = [
        type(event.request).__name__ for event, _ in steps if isinstance(event, transactions.RequestReceived)
    ]
    assert requests == ["InitProducerIdRequest", "AddPartitionsToTxnRequest", "EndTxnRequest"]
    marked = [
        action for _, actions in steps for action in actions if isinstance(action, transactions.WriteMarkers)
    ]
    assert [(marker.transactional_id, marker.committed, marker.partitions) for marker in marked] == [
        ("x", True, (("t", 0),))
    ]


def test_a_failing_observer_does_not_affect_the_broker(caplog: pytest.LogCaptureFixture) -> None:
    with running() as server, connected(server.bootstrap) as client:
        server.observe(lambda *_: 1 / 0)
        assert client.ask(join_request(), 9).member_id
    assert "an observer of the broker failed" in caplog.text


def test_a_stopped_server_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with running() as server:
        bootstrap = server.bootstrap
    assert set(threading.enumerate()) == before
    with pytest.raises(OSError, match="refused"):
        Socket(bootstrap)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_during_the_start_stops_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, main, listen = set(threading.enumerate()), threading.get_ident(), socket.create_server

    def is_waiting() -> bool:
        called = traceback.extract_stack(sys._current_frames()[main])
        return [frame.name for frame in called[-2:]] == ["result", "wait"]

    def interrupt(*args: Any, **options: Any) -> socket.socket:
        while not is_waiting():
            time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGINT)
        return listen(*args, **options)

    monkeypatch.setattr(socket, "create_server", interrupt)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # Background jobs ignore SIGINT.
    try:
        with pytest.raises(KeyboardInterrupt), running():
            pass
    finally:
        signal.signal(signal.SIGINT, handler)
    assert set(threading.enumerate()) == before


def test_stop_closes_delayed_requests_and_leaves_no_task(recwarn: pytest.WarningsRecorder) -> None:
    async def run() -> set[asyncio.Task[Any]]:
        async with Server(topics={"t": 1}) as server:
            host, port = server.bootstrap.rsplit(":", 1)
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(frame(encode_request(fetch_request(fetch_topic(), wait=60_000), 12, 1, "me")))
            while not next_deadline(server.broker):
                await asyncio.sleep(0.001)
            await server.stop()
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await reader.readexactly(4)
            writer.close()
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(run(), debug=True) == set()
    assert not recwarn.list


@pytest.mark.parametrize("turns", range(6))
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_stop_closes_connections_that_were_just_accepted(
    loop: str, protocol: str, turns: int, tmp_path: Path
) -> None:
    """`stop` closes connections that were just accepted.

    asyncio accepts a connection some iterations of the event loop before it calls `connection_made`.
    """
    if protocol == "SSL":
        pytest.importorskip("trustme")
    tls = certificates(tmp_path).context() if protocol == "SSL" else None

    async def run() -> bool:
        server = Server(listen=[f"{protocol}://127.0.0.1:0"], tls=tls)
        await server.start()
        with connected(server.bootstrap) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            await asyncio.wait_for(server.stop(), PATIENCE)
            return await asyncio.to_thread(client.closed_by_broker)

    with asyncio.Runner(loop_factory=pytest.importorskip(loop).new_event_loop) as runner:
        assert runner.run(run())


def test_a_restarted_server_keeps_its_records() -> None:
    async def run() -> tuple[str, str, int]:
        server = Server(topics={"t": 1})
        await server.start()
        first = server.bootstrap
        server.create_topic("u")
        await server.stop()
        await server.start()
        second = server.bootstrap
        await server.stop()
        return first, second, len(server.broker.topics)

    first, second, topics = asyncio.run(run())
    assert (first, topics) == (second, 2)


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("more", [[], ["SASL_PLAINTEXT://127.0.0.1:0"]])
def test_a_cancelled_start_leaves_no_listener(more: list[str], turns: int) -> None:
    """After a cancelled start the server can be started again."""

    async def run() -> tuple[bool, bool]:
        server = Server(listen=["PLAINTEXT://127.0.0.1:0", *more], users={"alice": "secret"})
        starting = asyncio.ensure_future(server.start())
        await asyncio.sleep(0)
        with connected(server.bootstrap) as early:
            for _ in range(turns):
                await asyncio.sleep(0)
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await starting
            await server.stop()
            closed = await asyncio.to_thread(early.closed_by_broker)
        async with server:
            return closed, await asyncio.to_thread(is_answering, server.bootstrap)

    assert asyncio.run(run()) == (True, True)


def test_a_log_is_truncated_from_another_thread() -> None:
    with running(topics={"t": 1}) as server:
        server.truncate("t", 0, 0)
        topic = server.broker.topics.named("t")
        assert topic is not None
        assert topic.partitions[0].log.leader_epoch == 1


def test_a_restarted_broker_has_no_fetch_sessions() -> None:
    """A restarted broker has no fetch sessions, because they are kept in memory only, as in Kafka."""
    with running(topics={"t": 1}) as server:
        with connected(server.bootstrap) as client:
            session = client.ask(fetch_request(fetch_topic(), session=(0, 0), wait=0), 12).session_id
            assert client.ask(fetch_request(session=(session, 1), wait=0), 12).error_code == 0
        server.down()
        server.up()
        with connected(server.bootstrap) as client:
            response = client.ask(fetch_request(session=(session, 2), wait=0), 12)
            assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("topics", ["a"]),
        ("topics", {"a": "3"}),
        ("topics", "a"),
        ("settings", [1]),
        ("settings", {"num.partitions": None}),
        ("host", 5),
        ("port", -1),
        ("port", 65536),
        ("port", "9092"),
        ("listen", "PLAINTEXT://127.0.0.1:0"),
        ("listen", ["FOO://127.0.0.1:0"]),
        ("users", {"ann": 5}),
        ("users", "ann"),
        ("tls", "server.pem"),
        ("highest", {"Fetch": "11"}),
    ],
)
def test_invalid_arguments_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError) as refused:
        Server(**{name: value})
    assert refused.value.option == name
    with pytest.raises(ConfigError), running(**{name: value}):
        pass


def test_no_error_contains_a_password() -> None:
    with pytest.raises(ConfigError) as refused:
        Server(users={"ann": "swordfish", "bob": 5})  # type: ignore[dict-item]
    assert "swordfish" not in str(refused.value)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("create_topic", ("u", "3")),
        ("create_topic", ("u", True)),
        ("create_topic", ("u", 1, {"retention.ms": 5})),
        ("create_topic", ("u", 1, "x")),
        ("create_topic", (None,)),
        ("grow_topic", ("t", "9")),
        ("elect_leader", ("t", "0")),
        ("truncate", ("t", 0, "0")),
        ("observe", (5,)),
    ],
)
def test_invalid_arguments_of_operator_calls_are_refused(call: str, arguments: tuple[Any, ...]) -> None:
    with running(topics={"t": 3}) as server, pytest.raises(ConfigError, match=r"is not allowed; .{5}"):
        getattr(server, call)(*arguments)


def test_pushed_metrics_are_available_to_a_test() -> None:
    with running(telemetry=True) as server, connected(server.bootstrap) as client:
        server.broker.cluster.client_metrics.set("one", {"metrics": "*", "match": "client_source_port=.+"})
        answer = client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=UUID(int=0)), 0)
        assert answer.requested_metrics == ["*"]
        request = PushTelemetryRequest(
            client_instance_id=answer.client_instance_id,
            subscription_id=answer.subscription_id,
            terminating=False,
            compression_type=0,
            metrics=encode([MetricPoint("m", 1)], {}),
        )
        assert client.ask(request, 0).error_code == 0
        assert [pushed.metrics for pushed in server.telemetry] == [[MetricPoint("m", 1)]]
