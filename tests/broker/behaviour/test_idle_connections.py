"""Connections without traffic are closed after connections.max.idle.ms."""

from __future__ import annotations

import time

import pytest

from kproto.broker.server import Server, running
from kproto.broker.shell import Shell
from kproto.messages.fetch import FetchResponse
from kproto.messages.metadata import MetadataRequest
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.stage import PATIENCE, batch_of, connected, fetch_request, fetch_topic

IDLE = {"connections.max.idle.ms": "150"}


def wait_for_connections(server: Server, count: int) -> None:
    """Wait until at most `count` connections are open."""
    end = time.monotonic() + PATIENCE
    while len(server.broker.connections) > count:
        assert time.monotonic() < end
        time.sleep(0.01)


def age_connections(server: Server) -> None:
    """Set the time of the last traffic of every connection to ten minutes ago."""

    def age(shell: Shell) -> None:
        for client in shell._connections.values():
            client.used_at -= 601

    server._run_in_loop(age)


def close_idle(server: Server) -> None:
    server._run_in_loop(Shell.close_idle_connections)


def test_an_idle_connection_is_closed() -> None:
    with running(settings=IDLE) as server, connected(server.bootstrap) as silent:
        assert silent.closed_by_broker()
        wait_for_connections(server, 0)


def test_an_active_connection_stays_open() -> None:
    with running() as server, connected(server.bootstrap) as client:
        age_connections(server)
        assert client.ask(MetadataRequest(topics=[]), 9).brokers
        close_idle(server)
        assert client.ask(MetadataRequest(topics=[]), 9).brokers


@pytest.mark.parametrize("slow", [False, True])
def test_a_client_that_waits_for_a_response_stays_connected(slow: bool) -> None:
    with running({"t": 1}) as server, connected(server.bootstrap) as client:
        if slow:
            server.slow(0.1)
        client.send(fetch_request(fetch_topic(), wait=0 if slow else 100), 12)
        end = time.monotonic() + PATIENCE
        while not (server._shell and server._shell._delayed_responses if slow else server.broker.purgatory):
            assert time.monotonic() < end
        age_connections(server)
        close_idle(server)
        assert client.answer(FetchResponse, 12).error_code == 0


def test_a_client_that_does_not_read_its_responses_is_closed_as_idle() -> None:
    """The broker closes the connection of a client that does not read its responses.

    If the broker kept the connection, the unsent responses would limit the fetches of other clients
    (MAX_UNSENT_BYTES).
    """
    with running({"t": 1}, {"message.max.bytes": "20000000"}) as server:
        with connected(server.bootstrap) as writer:
            part = [PartitionProduceData(index=0, records=batch_of(b"x" * 15_000_000))]
            data = [TopicProduceData(name="t", partition_data=part)]
            writer.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), 9)
        with connected(server.bootstrap) as silent_client:
            for _ in range(2):  # The second request waits in the queue. It must not keep the connection open.
                silent_client.send(fetch_request(fetch_topic(), wait=0), 12)
            end = time.monotonic() + PATIENCE
            while not server.broker.cluster.unsent:
                assert time.monotonic() < end
            # While the kernel's send buffer accepts more of the response, the connection counts as active.
            while server.broker.connections:
                assert time.monotonic() < end
                age_connections(server)
                close_idle(server)
            assert server.broker.cluster.unsent == 0


def test_a_negative_idle_time_disables_the_check() -> None:
    with running(settings={"connections.max.idle.ms": "-1"}) as server, connected(server.bootstrap) as client:
        assert client.ask(MetadataRequest(topics=[]), 9).brokers
        age_connections(server)
        close_idle(server)
        assert client.ask(MetadataRequest(topics=[]), 9).brokers
