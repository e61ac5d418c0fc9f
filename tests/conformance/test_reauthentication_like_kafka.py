"""Who renews a session that ends (KIP-368), and who is cut: each client on a real Kafka and on our broker.

Said by a proxy between them, which counts the handshakes of each connection. So it goes without TLS.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from consumer import Cluster
from kproto.broker.server import running
from kproto.inspect.exchanges import Exchange
from kproto.messages.metadata import MetadataRequest
from kproto.messages.sasl_authenticate import SaslAuthenticateRequest
from kproto.messages.sasl_handshake import SaslHandshakeRequest
from kproto.security.oauthbearer import OAuthBearerClient, unsecured, unsecured_token
from kproto.testing.proxy import Proxy
from tests.broker.stage import Socket, connected
from tests.conformance.secured_clients import ALL, one_of_each

secured = pytest.importorskip("tests.conformance.secured_kafka")
pytestmark = pytest.mark.java
# Knows nothing of KIP-368: the broker cuts its connections, and it comes back on others.
NEVER = {"aiokafka"}


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.kafka)])
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
    tokens = unsecured(secured.now_ms)
    with running({"flights": 10}, settings, listen=listen, users=secured.USERS, tokens=tokens) as server:
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


@pytest.mark.clients
@pytest.mark.originals
def test_who_renews_its_session_on_one_broker_does_so_on_the_other(place: str, tmp_path: Path) -> None:
    for client in ("confluent_kafka", "kafka", "aiokafka"):
        pytest.importorskip(client)
    told: list[Exchange] = []
    with (
        overheard(place, told) as proxied,
        one_of_each(proxied, "", "alice", secured.USERS["alice"], tmp_path) as members,
    ):
        members["kproto"].until(lambda: renewed(told) >= ALL - NEVER and cut(told) >= NEVER)
        assert renewed(told) & ALL == ALL - NEVER


def by_token(client: Socket, seconds: float) -> Any:
    """The last answer to a login with a token that ends then."""
    token = unsecured_token("alice", secured.now_ms(), int(seconds * 1000))
    answer = client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    if answer.error_code:
        return answer
    return client.ask(SaslAuthenticateRequest(auth_bytes=OAuthBearerClient(token).begin()), 2)


def test_a_session_is_renewed_once_in_a_second(place: str) -> None:
    soon = False
    while not soon:  # a slow machine asks later
        with connected(place) as client:
            assert by_token(client, 60).error_code == 0
            began = time.monotonic()
            assert by_token(client, 60).error_code == 0
            again = by_token(client, 60)
            soon = time.monotonic() - began < 1
            if soon:
                assert (again.error_code, again.mechanisms) == (34, [])
                assert client.ask(MetadataRequest(topics=[]), 9).brokers
                time.sleep(max(0.0, began + 1.1 - time.monotonic()))
                assert by_token(client, 60).error_code == 0


def test_a_session_that_has_ended_is_not_renewed_too_soon_but_cut(place: str) -> None:
    soon = False
    while not soon:
        with connected(place) as client:
            assert by_token(client, 60).error_code == 0
            began = time.monotonic()
            if by_token(client, 0.5).error_code:
                continue  # it ran out on its way
            time.sleep(0.6)
            client.send(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
            closed = client.closed_by_broker()
            soon = time.monotonic() - began < 1
            assert closed or not soon


def test_a_session_that_has_ended_may_be_renewed_all_the_same(place: str) -> None:
    ended = 58
    while ended:
        with connected(place) as client:
            ended = by_token(client, 0.5).error_code
            if not ended:
                time.sleep(0.6)
                assert by_token(client, 60).error_code == 0
                assert client.ask(MetadataRequest(topics=[]), 9).brokers
