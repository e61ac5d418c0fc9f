"""The ways in which TLS or SASL can fail, each with the sentence that reports its cause and remedy."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from consumer import Admin
from consumer.security import Token
from kproto.security.oauthbearer import unsecured_token
from tests.conformance import secured_kafka

BROKERS = ("embedded", pytest.param("real", marks=[pytest.mark.kafka, pytest.mark.java]))
# Passwords that no error message may contain.
SECRETS = ("wr0ng-secret", *secured_kafka.USERS.values())


@contextlib.contextmanager
def run_broker(kind: str, folder: Path) -> Iterator[secured_kafka.Secured]:
    """Run an "embedded" or a "real" broker with TLS, SASL, ACLs and the topic "flights"."""
    if kind == "embedded":
        with secured_kafka.embedded_kafka(folder) as broker:
            yield broker
        return
    with secured_kafka.real_kafka(folder) as broker:
        with Admin(broker.places["PLAINTEXT"], timeout=60) as cluster:
            cluster.create_topics({"flights": 1})
        yield broker


def options(kafka: Any, listener: str, mechanism: str = "", **changes: Any) -> dict[str, Any]:
    """Return the options that a client needs for this listener.

    `changes` adds or replaces options; None removes an option.
    """
    protocol = {"PLAINTEXT": "PLAINTEXT", **secured_kafka.LISTENERS}[listener]
    protocol = changes.pop("security_protocol", protocol)
    chosen: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        chosen["ssl_cafile"] = kafka.certificates.ca
    if protocol.startswith("SASL"):
        chosen["sasl_mechanism"] = mechanism or "PLAIN"
        if mechanism != "OAUTHBEARER":
            chosen |= {"sasl_username": "alice", "sasl_password": secured_kafka.USERS["alice"]}
    chosen |= {
        name: value(kafka) if callable(value) and name.startswith("ssl") else value
        for name, value in changes.items()
    }
    return {name: value for name, value in chosen.items() if value is not None}


# ---- token providers, which other processes import by name


def _token(seconds: float) -> str:
    return unsecured_token("alice", int((time.time() + seconds) * 1000), 60_000)


def not_yet_valid_token() -> str:
    return _token(3600)


def expired_token() -> str:
    return _token(-3600)


def token_within_skew() -> Token:
    """Return a token that expired 30 s ago: within `SKEW_MS`, so the listener SKEWED accepts it.

    The `Token` object, however, gives the client an expiry time in the far future.
    """
    return Token(_token(-90), 1e11)


def invalid_token() -> str:
    return "x"


def _named(function: str) -> dict[str, str]:
    return {"sasl_oauth_token_provider": f"{__name__}:{function}"}


# ---- the cases


@dataclass(frozen=True)
class Case:
    """A client's options that fail at a listener. `words` is a regular expression that the error message
    matches.

    If `final` is true, the client reports the error immediately. Otherwise it retries until its timeout.
    """

    name: str
    listener: str
    words: str
    mechanism: str = ""
    changes: dict[str, Any] = field(default_factory=dict[str, Any])
    final: bool = True

    def options(self, kafka: Any) -> dict[str, Any]:
        return options(kafka, self.listener, self.mechanism, **self.changes)

    def java(self, kafka: Any) -> dict[str, str]:
        """Return the options of the case as entries of a client.properties file."""
        chosen = self.options(kafka)
        properties = {"security.protocol": chosen["security_protocol"]}
        for ours, store in (("ssl_cafile", "truststore"), ("ssl_certfile", "keystore")):
            if ours in chosen:
                properties |= {f"ssl.{store}.type": "PEM", f"ssl.{store}.location": chosen[ours]}
        mechanism = chosen.get("sasl_mechanism")
        if mechanism is not None:
            properties["sasl.mechanism"] = mechanism
        if mechanism == "OAUTHBEARER":
            properties["sasl.oauth.token.provider"] = chosen["sasl_oauth_token_provider"]
        elif mechanism is not None:
            module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
            login = f'username="{chosen["sasl_username"]}" password="{chosen["sasl_password"]}"'
            properties["sasl.jaas.config"] = f"org.apache.kafka.common.security.{module} required {login};"
        return properties

    def file(self, kafka: Any, folder: Path) -> str:
        """Write the options to a client.properties file, and return its path."""
        path = folder / "client.properties"
        path.write_text("\n".join(f"{name}={value}" for name, value in self.java(kafka).items()))
        return str(path)


WRONG = {"sasl_password": "wr0ng-secret"}
CASES = [
    *(
        Case(
            f"a wrong password by {mechanism}",
            "SASL_SSL",
            rf"rejects user 'alice' with {mechanism}.*are sasl_username and sasl_password right",
            mechanism,
            WRONG,
        )
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    ),
    Case(
        "a stranger",
        "SASL_PLAINTEXT",
        "rejects user 'nobody'.*are sasl_username and sasl_password right",
        "SCRAM-SHA-256",
        {"sasl_username": "nobody"},
    ),
    Case(
        "a mechanism that is not offered",
        "PLAIN_ONLY",
        r"sasl_mechanism SCRAM-SHA-512 is not enabled on this listener; enabled: PLAIN\b",
        "SCRAM-SHA-512",
    ),
    Case(
        "a token of tomorrow",
        "SASL_SSL",
        r"rejects the token.*has it expired \(do the clocks agree\?\)",
        "OAUTHBEARER",
        _named("not_yet_valid_token"),
    ),
    Case(
        "a token of yesterday",
        "SASL_SSL",
        "expired .* s ago by this machine's clock",
        "OAUTHBEARER",
        _named("expired_token"),
    ),
    Case(
        "a token that is in by the skew only, and then cut",
        "SKEWED",
        "login of the token, and closed the connection on the first request: has it run out by the broker's",
        "OAUTHBEARER",
        _named("token_within_skew"),
        final=False,
    ),
    Case("no token", "SASL_SSL", "rejects the token", "OAUTHBEARER", _named("invalid_token")),
    Case(
        "no SASL where it is wanted",
        "SASL_PLAINTEXT",
        r"does this listener want SASL \(security_protocol\)",
        changes={"security_protocol": "PLAINTEXT"},
        final=False,
    ),
    Case(
        "SASL where none is wanted",
        "PLAINTEXT",
        "does not use SASL: set security_protocol to PLAINTEXT",
        changes={"security_protocol": "SASL_PLAINTEXT"},
    ),
    Case(
        "no TLS where it is spoken",
        "SSL",
        "this port speaks TLS: set security_protocol",
        changes={"security_protocol": "PLAINTEXT"},
    ),
    Case(
        "SASL without TLS where both are wanted",
        "SASL_SSL",
        "this port speaks TLS: set security_protocol",
        changes={"security_protocol": "SASL_PLAINTEXT"},
    ),
    Case(
        "TLS where none is spoken",
        "PLAINTEXT",
        "does this port speak TLS",
        changes={"security_protocol": "SSL"},
        final=False,
    ),
    Case(
        "an unknown authority",
        "SSL",
        "no trusted authority has signed the certificate of localhost.*set ssl_cafile",
        changes={"ssl_cafile": None},
    ),
    Case(
        "a certificate that has expired",
        "EXPIRED",
        "certificate of localhost or of its authority has expired: renew it",
    ),
    Case("another host's certificate", "ELSEWHERE", "certificate is not for the host name localhost"),
    Case(
        "no client certificate",
        "MTLS",
        "it may ask for a client certificate; set ssl_certfile",
    ),
    Case(
        "a stranger's client certificate",
        "MTLS",
        "rejects this client's certificate",
        changes={"ssl_certfile": lambda kafka: kafka.certificates.stranger},
    ),
]
