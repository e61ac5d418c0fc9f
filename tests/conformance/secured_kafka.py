"""A real Kafka with TLS, SASL and ACLs, and certificates made for a test."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kproto.broker.server import running
from kproto.security.oauthbearer import Check, unsecured, unsecured_token
from kproto.testing import brokers
from kproto.testing.certificates import Certificates, certificates
from kproto.testing.issuer import Issuer
from tests.conformance import judges

pytest.importorskip("trustme")

USERS = {"alice": "alice-secret", "bob": "bob-secret"}
_SECURITY = "org.apache.kafka.common.security."
SESSION_MS = 2_000
# The listeners except PLAINTEXT, with their protocols. MTLS requires a client certificate. EXPIRED presents
# an expired certificate, and ELSEWHERE one for another host. PLAIN_ONLY supports one mechanism. SKEWED
# accepts tokens that expired less than `SKEW_MS` ago. `SIGNED` adds listeners for a broker with an issuer.
LISTENERS = {
    "SSL": "SSL",
    "MTLS": "SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "PLAIN_ONLY": "SASL_PLAINTEXT",
    "SKEWED": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
}
SIGNED = {"SIGNED": "SASL_SSL", "SIGNED_PLAINTEXT": "SASL_PLAINTEXT"}
SKEW_MS = 60_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def token() -> str:
    """Return an unsigned token for the user alice."""
    return unsecured_token("alice", now_ms(), 60_000)


@dataclass(frozen=True)
class Secured:
    """A broker's addresses: listener -> HOST:PORT, for PLAINTEXT and the listeners in `LISTENERS`."""

    places: dict[str, str]
    certificates: Certificates


@contextlib.contextmanager
def real_kafka(
    folder: Path,
    session_ms: int = SESSION_MS,
    java_options: Sequence[str] = (),
    issuer: Issuer | None = None,
) -> Iterator[Secured]:
    """Run a real Kafka. alice and anonymous clients are superusers. bob has no permissions."""
    files = certificates(folder)
    listeners = LISTENERS if issuer is None else {**LISTENERS, **SIGNED}
    ports = {name: judges.free_port() for name in listeners}
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    named = 'unsecuredLoginStringClaim_sub="broker"'
    properties = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
        + ",".join(f"{name}:{protocol}" for name, protocol in listeners.items()),
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
    for listener in ("sasl_plaintext", "sasl_ssl", "plain_only", "skewed"):
        for mechanism, module in (
            ("plain", f"plain.PlainLoginModule required {users}"),
            ("scram-sha-256", "scram.ScramLoginModule required"),
            ("scram-sha-512", "scram.ScramLoginModule required"),
            ("oauthbearer", f"oauthbearer.OAuthBearerLoginModule required {named}"),
        ):
            name = f"listener.name.{listener}.{mechanism}.sasl.jaas.config"
            properties[name] = f"{_SECURITY}{module};"
    skew = f'unsecuredValidatorAllowableClockSkewMs="{SKEW_MS}"'
    properties["listener.name.skewed.oauthbearer.sasl.jaas.config"] = (
        f"{_SECURITY}oauthbearer.OAuthBearerLoginModule required {named} {skew};"
    )
    if issuer is not None:
        for listener in SIGNED:
            name, package = f"listener.name.{listener.lower()}", f"{_SECURITY}oauthbearer"
            prefix = f"{name}.oauthbearer.sasl"
            properties |= {
                f"{name}.sasl.enabled.mechanisms": "OAUTHBEARER",
                f"{prefix}.jaas.config": f"{package}.OAuthBearerLoginModule required;",
                f"{prefix}.server.callback.handler.class": f"{package}.OAuthBearerValidatorCallbackHandler",
                f"{prefix}.oauthbearer.jwks.endpoint.url": issuer.jwks_url,
                f"{prefix}.oauthbearer.expected.audience": issuer.audience or "",
            }
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.jwks_url}"
        java_options = (*java_options, allowed)
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
    """Run embedded brokers with the listeners of `real_kafka`. Authenticated connections do not expire."""
    files = certificates(folder)
    settings = {
        "authorizer.class.name": "StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
    }
    plain, skewed = unsecured(now_ms), unsecured(now_ms, allowed_skew_ms=SKEW_MS)
    with contextlib.ExitStack() as stack:

        def place(protocol: str, tls: Any = None, tokens: Check = plain, **more: str) -> str:
            listen = [f"{protocol}://127.0.0.1:0"]
            options: Any = {"listen": listen, "tls": tls, "users": USERS, "tokens": tokens}
            server = running({"flights": 1}, {**settings, **more}, **options)
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
                "SKEWED": place("SASL_PLAINTEXT", tokens=skewed),
                "SASL_SSL": place("SASL_SSL", files.context()),
            },
            files,
        )
