"""A real Kafka that lets in only whom it knows: TLS, SASL, ACLs, and certificates made for a test."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kproto.testing import brokers
from kproto.testing.certificates import Certificates, certificates
from tests.conformance import judges

pytest.importorskip("trustme")

USERS = {"alice": "alice-secret", "bob": "bob-secret"}
_SECURITY = "org.apache.kafka.common.security."
SESSION_MS = 2_000


@dataclass(frozen=True)
class Secured:
    """A real Kafka: listener -> HOST:PORT, by PLAINTEXT, SSL, MTLS, SASL_PLAINTEXT and SASL_SSL."""

    places: dict[str, str]
    certificates: Certificates


@contextlib.contextmanager
def real_kafka(folder: Path) -> Iterator[Secured]:
    """alice may do everything, and so may who comes without a name; bob is somebody, and may do nothing."""
    files = certificates(folder)
    ports = {name: judges.free_port() for name in ("SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL")}
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    unsecured = 'unsecuredLoginStringClaim_sub="broker"'
    properties = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,MTLS:SSL,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": files.server,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": files.ca,
        "listener.name.mtls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "connections.max.reauth.ms": str(SESSION_MS),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
    }
    for listener in ("sasl_plaintext", "sasl_ssl"):
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
        with brokers.jars(properties, listeners=ports, format_options=scram) as bootstrap:
            places = {"PLAINTEXT": bootstrap, **{name: f"localhost:{port}" for name, port in ports.items()}}
            yield Secured(places, files)
    except brokers.BrokerMissing as error:
        judges.missing(str(error))
