"""A real Kafka that lets in only whom it knows: TLS, SASL, ACLs, and certificates made for a test."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kproto.broker.server import running
from kproto.security.oauthbearer import unsecured
from kproto.testing import brokers
from kproto.testing.certificates import Certificates, certificates
from tests.conformance import judges

pytest.importorskip("trustme")

USERS = {"alice": "alice-secret", "bob": "bob-secret"}
_SECURITY = "org.apache.kafka.common.security."
SESSION_MS = 2_000
LISTENERS = {
    "SSL": "SSL",
    "MTLS": "SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "PLAIN_ONLY": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
}
"""All but PLAINTEXT, with their protocols; MTLS wants a client's certificate, EXPIRED and ELSEWHERE show a
wrong one, PLAIN_ONLY has one mechanism."""


@dataclass(frozen=True)
class Secured:
    """A broker: listener -> HOST:PORT, by PLAINTEXT and those of `LISTENERS`."""

    places: dict[str, str]
    certificates: Certificates


@contextlib.contextmanager
def real_kafka(
    folder: Path, session_ms: int = SESSION_MS, java_options: Sequence[str] = ()
) -> Iterator[Secured]:
    """alice may do everything, and so may who comes without a name; bob is somebody, and may do nothing."""
    files = certificates(folder)
    ports = {name: judges.free_port() for name in LISTENERS}
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    unsecured = 'unsecuredLoginStringClaim_sub="broker"'
    properties = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
        + ",".join(f"{name}:{protocol}" for name, protocol in LISTENERS.items()),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": files.server,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": files.ca,
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.expired.ssl.keystore.location": files.expired,
        "listener.name.elsewhere.ssl.keystore.location": files.elsewhere,
        "listener.name.plain_only.sasl.enabled.mechanisms": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "connections.max.reauth.ms": str(session_ms),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
    }
    for listener in ("sasl_plaintext", "sasl_ssl", "plain_only"):
        for mechanism, module in (
            ("plain", f"plain.PlainLoginModule required {users}"),
            ("scram-sha-256", "scram.ScramLoginModule required"),
            ("scram-sha-512", "scram.ScramLoginModule required"),
            ("oauthbearer", f"oauthbearer.OAuthBearerLoginModule required {unsecured}"),
        ):
            name = f"listener.name.{listener}.{mechanism}.sasl.jaas.config"
            properties[name] = f"{_SECURITY}{module};"
    scram = [
        word
        for user, password in USERS.items()
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for word in ("--add-scram", f"{mechanism}=[name={user},password={password}]")
    ]
    try:
        with brokers.jars(
            properties, listeners=ports, format_options=scram, java_options=java_options
        ) as bootstrap:
            places = {"PLAINTEXT": bootstrap, **{name: f"localhost:{port}" for name, port in ports.items()}}
            yield Secured(places, files)
    except brokers.BrokerMissing as error:
        judges.missing(str(error))


@contextlib.contextmanager
def embedded_kafka(folder: Path) -> Iterator[Secured]:
    """The same of ours, without sessions that end: brokers of their own for what differs."""
    files = certificates(folder)
    settings = {
        "authorizer.class.name": "StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
    }
    given: dict[str, Any] = {"users": USERS, "tokens": unsecured(lambda: time.time_ns() // 1_000_000)}
    with contextlib.ExitStack() as stack:

        def place(protocol: str, tls: Any = None, **more: str) -> str:
            listen = [f"{protocol}://127.0.0.1:0"]
            server = running({"flights": 1}, {**settings, **more}, listen=listen, tls=tls, **given)
            return stack.enter_context(server).bootstrap.replace("127.0.0.1", "localhost")

        yield Secured(
            {
                "PLAINTEXT": place("PLAINTEXT"),
                "SSL": place("SSL", files.context()),
                "MTLS": place("SSL", files.context("required")),
                "EXPIRED": place("SSL", files.context(server=files.expired)),
                "ELSEWHERE": place("SSL", files.context(server=files.elsewhere)),
                "SASL_PLAINTEXT": place("SASL_PLAINTEXT"),
                "PLAIN_ONLY": place("SASL_PLAINTEXT", **{"sasl.enabled.mechanisms": "PLAIN"}),
                "SASL_SSL": place("SASL_SSL", files.context()),
            },
            files,
        )
