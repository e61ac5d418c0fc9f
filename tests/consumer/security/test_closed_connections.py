"""If a listener closes the connection without an error response, the client's error says why.

Each client fails with the message that `docs/how-to/secured.md` lists.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consumer import Admin, Consumer, Producer
from kproto.broker.server import Server, running
from kproto.errors import ConnectionFailed, RequestTimedOut
from kproto.testing.certificates import certificates

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "secured.md"
WANTS_SASL = "does this listener want SASL (security_protocol)?"
NO_TLS = "does this port speak TLS?"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    files = certificates(tmp_path_factory.mktemp("certificates"))
    listen = ["SASL_PLAINTEXT://127.0.0.1:0", "SASL_SSL://127.0.0.1:0", "PLAINTEXT://127.0.0.1:0"]
    with running({"t": 1}, listen=listen, users={"a": "b"}, tls=files.context()) as server:
        yield server, files.ca


def options(protocol: str, ca: str) -> dict[str, Any]:
    return {"security_protocol": protocol, **({"ssl_cafile": ca} if protocol == "SSL" else {})}


@pytest.mark.parametrize(
    ("listener", "protocol", "asks"),
    [
        ("SASL_PLAINTEXT", "PLAINTEXT", WANTS_SASL),
        ("SASL_SSL", "SSL", WANTS_SASL),
        ("PLAINTEXT", "SSL", NO_TLS),
    ],
)
def test_a_cluster_raises_at_once(
    server: tuple[Server, str], listener: str, protocol: str, asks: str
) -> None:
    broker, ca = server
    with (
        Admin(broker.places[listener], **options(protocol, ca)) as cluster,
        pytest.raises(ConnectionFailed) as caught,
    ):
        cluster.topics()
    assert asks in str(caught.value)


def test_a_consumer_raises_in_poll(server: tuple[Server, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("consumer.engine.metadata.updater.BOOTSTRAP_REPORT_DELAY_MS", 500)
    broker, ca = server
    with Consumer(broker.places["SASL_SSL"], group_id="g", **options("SSL", ca)) as consumer:
        consumer.subscribe("t")
        with pytest.raises(ConnectionFailed) as caught:
            consumer.poll(60)
    assert WANTS_SASL in str(caught.value)


def test_a_producer_raises_after_max_block_ms(server: tuple[Server, str]) -> None:
    broker, ca = server
    with (
        Producer(broker.places["SASL_SSL"], max_block_ms=4_000, **options("SSL", ca)) as producer,
        pytest.raises(RequestTimedOut) as caught,
    ):
        producer.send("t", b"x")
    assert WANTS_SASL in str(caught.value)


def test_the_page_contains_the_hints_of_the_errors() -> None:
    page = PAGE.read_text()
    assert WANTS_SASL in page
    assert NO_TLS in page
