"""The broker serves kproto's clients on each listener, and rejects invalid settings and logins."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from consumer import Admin, Consumer, Producer
from kproto.broker.security.listeners import Listener
from kproto.broker.security.principal import principal
from kproto.broker.server import Server, running
from kproto.errors import AuthenticationFailed, ConfigError, KprotoError
from kproto.security.oauthbearer import unsecured, unsecured_token
from kproto.testing.certificates import Certificates, certificates
from kproto.testing.issuer import Issuer
from tests.broker.security.stage import PASSWORD


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("SASL_SSL://a", "PROTOCOL://HOST:PORT"),
        ("a", "allowed: HOST:PORT, or PROTOCOL://HOST:PORT with one of PLAINTEXT, SSL"),
        ("TLS://a:1", "PROTOCOL://HOST:PORT"),
        ("SSL://:x", "PROTOCOL://HOST:PORT"),
        ("a:1,b:2", "PROTOCOL://HOST:PORT"),
        ("::1:9092", "PROTOCOL://HOST:PORT"),
        ("a:70000", "a port up to 65535"),
    ],
)
def test_an_invalid_listener_is_refused(text: str, allowed: str) -> None:
    with pytest.raises(ConfigError, match=allowed):
        Listener.parse(text)


def test_the_principal_of_a_certificate_is_written_as_in_kafka() -> None:
    subject = ((("organizationName", "a, b"),), (("commonName", "client"),))
    assert principal({"subject": subject}) == "User:CN=client,O=a\\, b"
    assert principal(None) == principal({}) == "User:ANONYMOUS"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    pytest.importorskip("trustme")
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(files: Certificates) -> Iterator[Any]:
    with running(
        {"flights": 1},
        {"connections.max.reauth.ms": "20000", "connection.failed.authentication.delay.ms": "0"},
        listen=[f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")],
        users={"alice": PASSWORD},
        tokens=unsecured(lambda: int(time.time() * 1000)),
        tls=files.context("requested"),
    ) as server:
        yield server


def options(protocol: str, mechanism: str, files: Certificates) -> dict[str, Any]:
    given_options: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        given_options["ssl_cafile"] = files.ca
    if mechanism == "OAUTHBEARER":
        given_options["sasl_oauth_token_provider"] = lambda: unsecured_token(
            "alice", int(time.time() * 1000), 60_000
        )
    elif mechanism:
        given_options |= {"sasl_username": "alice", "sasl_password": PASSWORD}
    return given_options | ({"sasl_mechanism": mechanism} if mechanism else {})


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SSL", ""), ("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512"), ("SASL_SSL", "OAUTHBEARER")],
)
def test_a_client_writes_and_reads_through_every_listener(
    server: Any, files: Certificates, protocol: str, mechanism: str
) -> None:
    place, how = server.places[protocol], options(protocol, mechanism, files)
    with Producer(place, **how) as producer:
        offset = producer.send("flights", b"x" * 100_000).result(60).offset
    with Consumer(place, group_id=f"{protocol}{mechanism}", auto_offset_reset="earliest", **how) as consumer:
        consumer.subscribe(["flights"])
        assert next(record.value for record in consumer if record.offset == offset) == b"x" * 100_000


def test_the_principal_is_that_of_the_client_certificate(server: Any, files: Certificates) -> None:
    how = options("SSL", "", files)
    with Admin(server.places["SSL"], ssl_certfile=files.client, **how) as cluster:
        cluster.topics()
        names = {connection.principal for connection in server.broker.connections.values()}
    assert any(name.startswith("User:CN=client,") for name in names)


def test_an_expired_certificate_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("trustme")
    expired = certificates(tmp_path, expired=True)
    with running(listen=["SSL://127.0.0.1:0"], tls=expired.context()) as server:
        how = options("SSL", "", expired)
        with (
            Admin(server.bootstrap, **how) as cluster,
            pytest.raises(AuthenticationFailed, match="has expired"),
        ):
            cluster.topics(timeout=60)


def test_a_wrong_password_raises_immediately_and_leaves_no_connection(
    server: Any, files: Certificates
) -> None:
    how = options("SASL_SSL", "SCRAM-SHA-256", files) | {"sasl_password": "wrong"}
    with Admin(server.places["SASL_SSL"], **how) as cluster, pytest.raises(AuthenticationFailed) as caught:
        cluster.topics(timeout=60)
    assert "are sasl_username and sasl_password right?" in str(caught.value)
    assert not server.broker.pending_closes


@pytest.mark.thorough  # tests/testing/behaviour/test_secrets.py covers more
def test_no_log_or_error_contains_a_secret(
    server: Any, files: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """Logins with a wrong password, port or mechanism leave no secret in a log or an error."""
    caplog.set_level(0)
    secret = "not-to-be-told-42"
    texts: list[str] = []
    for protocol, mechanism in (
        ("SASL_SSL", "PLAIN"),
        ("SASL_SSL", "SCRAM-SHA-256"),
        ("SASL_PLAINTEXT", "PLAIN"),
    ):
        for place in ("SASL_SSL", "SASL_PLAINTEXT", "PLAINTEXT"):
            how = options(protocol, mechanism, files) | {"sasl_password": secret}
            with Consumer(server.places[place], group_id="g", client_id=place, **how) as consumer:
                consumer.subscribe(["flights"])
                with pytest.raises(KprotoError) as caught:
                    consumer.poll(60)
                texts += [str(caught.value), repr(caught.value), repr(consumer.options), repr(vars(consumer))]
    assert secret not in "\n".join([*texts, caplog.text])


def test_large_requests_are_read_only_after_the_login() -> None:
    listen = ["SASL_PLAINTEXT://127.0.0.1:0"]
    with running({"t": 1}, listen=listen, users={"alice": PASSWORD}) as server:
        host, _, port = server.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as line:
            line.sendall(struct.pack(">i", 524_289))
            assert line.recv(1) == b""
        login: dict[str, Any] = {
            "sasl_mechanism": "PLAIN",
            "sasl_username": "alice",
            "sasl_password": PASSWORD,
        }
        with Producer(server.bootstrap, security_protocol="SASL_PLAINTEXT", **login) as producer:
            assert producer.send("t", bytes(600_000)).result(30).offset == 0


def test_a_setting_names_the_keys_of_the_token_issuer(tmp_path: Path) -> None:
    pytest.importorskip("jwt")
    issuer = Issuer(algorithm="ES256")
    (tmp_path / "jwks.json").write_text(json.dumps(issuer.jwks))
    settings = {
        "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "jwks.json").as_uri(),
        "sasl.oauthbearer.expected.audience": f"others, {issuer.audience}",
        "sasl.oauthbearer.expected.issuer": issuer.name,
    }
    how = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    with running(settings=settings, listen=["SASL_PLAINTEXT://127.0.0.1:0"]) as server:
        provider = partial(issuer.token, "alice")
        with Admin(server.bootstrap, sasl_oauth_token_provider=provider, **how) as cluster:
            assert cluster.topics() == {}
        provider = partial(unsecured_token, "alice", int(time.time() * 1000), 60_000)
        with (
            pytest.raises(AuthenticationFailed, match="the broker rejects the token"),
            Admin(server.bootstrap, sasl_oauth_token_provider=provider, **how) as cluster,
        ):
            cluster.topics()


@pytest.mark.parametrize(
    ("name", "words"), [("none.json", "No such file"), ("list.json", r'a JSON object such as \{"keys"')]
)
def test_missing_keys_are_reported_immediately(tmp_path: Path, name: str, words: str) -> None:
    pytest.importorskip("jwt")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ConfigError, match=words):
        Server(settings={"sasl.oauthbearer.jwks.endpoint.url": (tmp_path / name).as_uri()})
