"""Every method of `Admin` works on a real Kafka, except the two in `NOT_ON_KAFKA`.

docs/java-admin.json lists the methods of Java's Admin, and the methods that the embedded broker does not
serve. On the embedded broker, the latter methods fail with UnsupportedVersion, and all others work.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from consumer import Admin
from kproto import running
from kproto.errors import KprotoError, PartialFailure, UnsupportedVersion
from kproto.messages.index import KAFKA_RELEASE
from kproto.testing import brokers
from tests.conformance import judges
from tests.conformance.admin_calls import CALLS, T0, Stage

HERE = Path(__file__).parent
RECORDED: dict[str, Any] = json.loads((HERE.parents[1] / "docs" / "java-admin.json").read_text())
# These methods fail with UnsupportedVersion. Brokers of Kafka 4.4 do not forward UnregisterController to the
# active controller. They assign a client instance id only if a metrics receiver is configured
# (test_telemetry_like_kafka.py).
NOT_ON_KAFKA = {"client_instance_id", "unregister_controller"}
_SECURITY = "org.apache.kafka.common.security"
PROPERTIES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:alice",
    "delegation.token.secret.key": "secret",
    "listener.security.protocol.map": (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
    ),
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        f'{_SECURITY}.plain.PlainLoginModule required user_alice="alice-secret";'
    ),
}


@contextmanager
def stage(bootstrap: str, user: Admin, *, is_kafka: bool = True) -> Iterator[Stage]:
    with Admin(bootstrap, timeout=20) as admin:
        admin.create_topics({"t": 2})
        admin.commit_offsets("g", {T0: 1})
        [node] = admin.describe_cluster().nodes
        yield Stage(bootstrap, admin, user, node.id, is_kafka)


def authenticated(bootstrap: str) -> Admin:
    return Admin(
        bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password="alice-secret",
    )


@pytest.fixture(scope="module")
def kafka() -> Iterator[Stage]:
    port = judges.free_port()
    try:
        with (
            brokers.jars(PROPERTIES, listeners={"SASL_PLAINTEXT": port}) as bootstrap,
            authenticated(f"localhost:{port}") as alice,
            stage(bootstrap, alice) as prepared,
        ):
            yield prepared
    except brokers.BrokerMissing as error:
        judges.missing(str(error))


@pytest.fixture(scope="module")
def embedded() -> Iterator[Stage]:
    settings = {
        "authorizer.class.name": "StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:alice",
        "group.initial.rebalance.delay.ms": "0",
        "delegation.token.secret.key": "secret",
    }
    listen = ("PLAINTEXT://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0")
    with (
        running(settings=settings, listen=listen, users={"alice": "alice-secret"}, telemetry=True) as server,
        authenticated(server.places["SASL_PLAINTEXT"]) as alice,
        stage(server.bootstrap, alice, is_kafka=False) as prepared,
    ):
        yield prepared


def unsupported(error: KprotoError) -> bool:
    """Return whether the call, or one of its items, failed because the broker does not serve the request."""
    errors = error.failed.values() if isinstance(error, PartialFailure) else [error]
    return any(isinstance(error, UnsupportedVersion) for error in errors)


@pytest.mark.java
def test_the_recorded_methods_are_those_of_javas_admin() -> None:
    assert RECORDED["kafka"] == KAFKA_RELEASE
    program = [
        judges.java(),
        "-cp",
        judges.kafka_jars(KAFKA_RELEASE),
        str(HERE / "java" / "AdminMethods.java"),
    ]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    assert sorted(set(done.stdout.split())) == sorted(RECORDED["methods"])


@pytest.mark.kafka
@pytest.mark.parametrize("method", sorted(CALLS))
def test_kafka_executes_the_call(kafka: Stage, method: str) -> None:
    if method in NOT_ON_KAFKA:
        with pytest.raises(UnsupportedVersion):
            CALLS[method](kafka)
    else:
        CALLS[method](kafka)


@pytest.mark.parametrize("method", sorted(CALLS))
def test_the_embedded_broker_executes_the_call_or_does_not_serve_it(embedded: Stage, method: str) -> None:
    if method not in RECORDED["not_embedded"]:
        CALLS[method](embedded)
        return
    with pytest.raises((UnsupportedVersion, PartialFailure)) as caught:
        CALLS[method](embedded)
    assert unsupported(caught.value)
