"""Re-authentication of expiring sessions (KIP-368): each client on a real Kafka and on the embedded broker.

A proxy counts the SASL handshakes of each connection. The listener has no TLS, because the proxy must decode
the requests.
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

from consumer import Admin
from kproto.broker.server import running
from kproto.inspect.exchanges import Exchange
from kproto.messages.metadata import MetadataRequest
from kproto.messages.sasl_authenticate import SaslAuthenticateRequest
from kproto.messages.sasl_handshake import SaslHandshakeRequest
from kproto.security.oauthbearer import OAuthBearerClient, unsecured, unsecured_token
from kproto.testing.proxy import WatchProxy
from tests.broker.stage import Socket, connected
from tests.conformance.secured_clients import ALL, one_of_each

secured = pytest.importorskip("tests.conformance.secured_kafka")
pytestmark = pytest.mark.java
# A client without KIP-368. The broker closes its connections when their sessions expire, and the client opens
# new ones.
NEVER = {"aiokafka"}


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.kafka)])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "real":
        with secured.real_kafka(tmp_path_factory.mktemp("secured")) as kafka:
            with Admin(kafka.places["PLAINTEXT"], timeout=60) as cluster:
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
def recording_proxy(place: str, exchanges: list[Exchange]) -> Generator[str]:
    """Run, in a thread, a proxy that records all requests and responses; yield its HOST:PORT."""
    loop, began = asyncio.new_event_loop(), threading.Event()
    ended, bootstrap = asyncio.Event(), ""

    async def serve() -> None:
        nonlocal bootstrap
        async with WatchProxy(place, tell=exchanges.append) as proxy:
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


def reauthenticated_clients(exchanges: list[Exchange]) -> set[str]:
    """Return the clients that re-authenticated on a connection whose sessions expire."""
    authentications: Counter[tuple[int, str]] = Counter()
    for exchange in list(exchanges):
        answer: Any = exchange.response
        if exchange.api == "SaslAuthenticate" and answer is not None and answer.session_lifetime_ms > 0:
            authentications[exchange.connection, exchange.client] += 1
    return {client for (_, client), times in authentications.items() if times > 1}


def clients_without_response(exchanges: list[Exchange]) -> set[str]:
    """Return the clients that got no response to a request."""
    return {
        exchange.client
        for exchange in list(exchanges)
        if exchange.request is not None and exchange.response is None
    }


@pytest.mark.clients
@pytest.mark.originals
def test_the_same_clients_reauthenticate_on_both_brokers(place: str, tmp_path: Path) -> None:
    for client in ("confluent_kafka", "kafka", "aiokafka"):
        pytest.importorskip(client)
    exchanges: list[Exchange] = []
    with (
        recording_proxy(place, exchanges) as proxied,
        one_of_each(proxied, "", "alice", secured.USERS["alice"], tmp_path) as members,
    ):
        members["kproto"].until(
            lambda: (
                reauthenticated_clients(exchanges) >= ALL - NEVER
                and clients_without_response(exchanges) >= NEVER
            )
        )
        assert reauthenticated_clients(exchanges) & ALL == ALL - NEVER


def by_token(client: Socket, seconds: float) -> Any:
    """Authenticate with a token that is valid for `seconds`, and return the broker's last response."""
    token = unsecured_token("alice", secured.now_ms(), int(seconds * 1000))
    answer = client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    if answer.error_code:
        return answer
    return client.ask(SaslAuthenticateRequest(auth_bytes=OAuthBearerClient(token).begin()), 2)


def test_a_session_is_reauthenticated_at_most_once_a_second(place: str) -> None:
    soon = False
    # The attempt is repeated until all requests are sent within a second, because a computer may be slow.
    while not soon:
        with connected(place) as client:
            assert by_token(client, 60).error_code == 0
            began = time.monotonic()
            assert by_token(client, 60).error_code == 0
            third = by_token(client, 60)
            soon = time.monotonic() - began < 1
            if soon:
                assert (third.error_code, third.mechanisms) == (34, [])
                assert client.ask(MetadataRequest(topics=[]), 9).brokers
                time.sleep(max(0.0, began + 1.1 - time.monotonic()))
                assert by_token(client, 60).error_code == 0


def test_an_expired_session_is_closed_if_it_reauthenticates_too_soon(place: str) -> None:
    soon = False
    while not soon:
        with connected(place) as client:
            assert by_token(client, 60).error_code == 0
            began = time.monotonic()
            if by_token(client, 0.5).error_code:
                continue  # The token expired before the broker received it.
            time.sleep(0.6)
            client.send(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
            closed = client.closed_by_broker()
            soon = time.monotonic() - began < 1
            assert closed or not soon


def test_an_expired_session_may_be_reauthenticated(place: str) -> None:
    ended = 58
    while ended:
        with connected(place) as client:
            ended = by_token(client, 0.5).error_code
            if not ended:
                time.sleep(0.6)
                assert by_token(client, 60).error_code == 0
                assert client.ask(MetadataRequest(topics=[]), 9).brokers
