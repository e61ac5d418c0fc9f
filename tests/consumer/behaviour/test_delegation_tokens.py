"""Clients can log in with a delegation token that another client has created (KIP-48)."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator

import pytest

from consumer import Admin, Consumer, Producer, TopicPartition
from consumer.security import SecurityConfig
from kproto import running
from kproto.broker.server import Server
from kproto.errors import AuthenticationFailed, BrokerError, ConfigError

LISTEN = ("PLAINTEXT://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    settings = {"delegation.token.secret.key": "secret"}
    with running({"t": 1}, settings, listen=LISTEN, users={"alice": "pw"}) as server:
        yield server


def by_password() -> SecurityConfig:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "sasl_password": "pw",
    }


def by_token(server: Server, mechanism: str = "SCRAM-SHA-512") -> SecurityConfig:
    """Create a token for alice, and return the options for a login with it."""
    with Admin(server.places["SASL_PLAINTEXT"], **by_password()) as admin:
        token = admin.create_delegation_token()
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_username": token.token_id,
        "sasl_password": b64encode(token.hmac).decode(),
        "sasl_token_auth": True,
    }


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_clients_log_in_with_a_token(server: Server, mechanism: str) -> None:
    options, bootstrap = by_token(server, mechanism), server.places["SASL_PLAINTEXT"]
    with Producer(bootstrap, **options) as producer:
        written = producer.send("t", b"x").result(20)
    with Consumer(bootstrap, **options) as consumer:
        consumer.assign({TopicPartition("t", 0): written.offset})
        assert [record.value for record in consumer.poll(20)] == [b"x"]
    with Admin(bootstrap, **options) as admin, pytest.raises(BrokerError, match="REQUEST_NOT_ALLOWED"):
        admin.create_delegation_token()


def test_a_wrong_token_is_an_error_that_says_what_to_check(server: Server) -> None:
    options = by_token(server)
    options["sasl_username"] = "unknown"
    with (
        Admin(server.places["SASL_PLAINTEXT"], **options) as admin,
        pytest.raises(AuthenticationFailed, match="a delegation token that has not expired") as raised,
    ):
        admin.topics()
    assert str(options.get("sasl_password")) not in str(raised.value)


def test_a_token_needs_scram() -> None:
    with pytest.raises(ConfigError, match="only with SCRAM; sasl_mechanism is PLAIN"):
        Admin("localhost:1", **{**by_password(), "sasl_token_auth": True})
