"""Who renews a session that ends (KIP-368), and who is cut: each client on a real Kafka and on our broker.

Said by a proxy between them, which counts the handshakes of each connection. So it goes without TLS.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from consumer import Cluster
from kproto.broker.server import running
from kproto.show.exchanges import Exchange
from kproto.testing.proxy import Proxy
from tests.conformance.secured_members import ALL, one_of_each

secured = pytest.importorskip("tests.conformance.secured")
pytestmark = [pytest.mark.clients, pytest.mark.java, pytest.mark.originals]
NEVER = {"aiokafka"}
"""Knows nothing of KIP-368: the broker cuts its connections, and it comes back on others."""


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.kafka)])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "real":
        with secured.real_kafka(tmp_path_factory.mktemp("secured")) as kafka:
            with Cluster(kafka.places["PLAINTEXT"], timeout=60) as cluster:
                cluster.create_topics({"flights": 10})
            yield kafka.places["SASL_PLAINTEXT"].replace("localhost", "127.0.0.1")
        return
    settings = {
        "connections.max.reauth.ms": str(secured.SESSION_MS),
        "group.initial.rebalance.delay.ms": "0",
    }
    listen = ["SASL_PLAINTEXT://127.0.0.1:0"]
    with running({"flights": 10}, settings, listen=listen, users=secured.USERS) as server:
        yield server.bootstrap


@contextmanager
def overheard(place: str, told: list[Exchange]) -> Generator[str]:
    """The HOST:PORT of a proxy in a thread of its own."""
    loop, began = asyncio.new_event_loop(), threading.Event()
    ended, bootstrap = asyncio.Event(), ""

    async def serve() -> None:
        nonlocal bootstrap
        async with Proxy(place, tell=told.append) as proxy:
            bootstrap = proxy.bootstrap
            began.set()
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert began.wait(60)
    try:
        yield bootstrap
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join(60)
        loop.close()


def renewed(told: list[Exchange]) -> set[str]:
    """Clients that shook hands again on a connection that had a session, and were let in again."""
    let_in: Counter[tuple[int, str]] = Counter()
    for one in list(told):
        answer: Any = one.response
        if one.api == "SaslAuthenticate" and answer is not None and answer.session_lifetime_ms > 0:
            let_in[one.connection, one.client] += 1
    return {client for (_, client), times in let_in.items() if times > 1}


def cut(told: list[Exchange]) -> set[str]:
    """Clients that asked something on a connection and got no answer."""
    return {one.client for one in list(told) if one.request is not None and one.response is None}


def test_who_renews_its_session_on_one_broker_does_so_on_the_other(
    place: str, tmp_path: Path, kafka_jars: str
) -> None:
    for client in ("confluent_kafka", "kafka", "aiokafka"):
        pytest.importorskip(client)
    told: list[Exchange] = []
    with (
        overheard(place, told) as proxied,
        one_of_each(proxied, "", "alice", secured.USERS["alice"], tmp_path, kafka_jars) as members,
    ):
        members["kproto"].until(lambda: renewed(told) >= ALL - NEVER and cut(told) >= NEVER)
        assert renewed(told) & ALL == ALL - NEVER
