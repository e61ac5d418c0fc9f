"""kproto's clients log in to a real Kafka with Kerberos; the KDC is MIT Kerberos."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from consumer import Admin, AsyncProducer, Consumer, Producer
from kproto.errors import AuthenticationFailed, ConnectionFailed
from kproto.testing import brokers
from tests.conformance import judges
from tests.consumer.security.kerberos_realm import MISSING, REALM, running_kdc

pytestmark = pytest.mark.kafka
SECONDS = 60.0
# connections.max.reauth.ms of the broker. It is short, so that clients re-authenticate on their connections.
SESSION_MS = 1_500


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if MISSING or find_spec("gssapi") is None:
        judges.missing(MISSING or "the package gssapi, which needs the headers of Kerberos")
    folder = tmp_path_factory.mktemp("krb5")
    with running_kdc(folder):
        yield folder


@pytest.fixture(scope="module")
def bootstrap(folder: Path) -> Iterator[str]:
    module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
    principal = f'keyTab="{folder}/kafka" principal="kafka/localhost@{REALM}"'
    port = judges.free_port()
    properties = {
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,KERBEROS:SASL_PLAINTEXT",
        "listener.name.kerberos.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.kerberos.gssapi.sasl.jaas.config": f"{module} {principal};",
        "sasl.kerberos.service.name": "kafka",
        "connections.max.reauth.ms": str(SESSION_MS),
    }
    java_options = [f"-Djava.security.krb5.conf={folder}/krb5.conf"]
    try:
        with brokers.jars(properties, listeners={"KERBEROS": port}, java_options=java_options) as plain:
            with Admin(plain) as admin:
                admin.create_topics({"t": 1})
            yield f"127.0.0.1:{port}"
    except brokers.BrokerMissing as error:
        judges.missing(str(error))


@pytest.fixture
def options(folder: Path) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_keytab": folder / "alice",
        "sasl_kerberos_principal": "alice",
        # The listener advertises 127.0.0.1, but the broker's principal is kafka/localhost, so the client must
        # use the host name localhost.
        "sasl_kerberos_domain_name": "localhost",
    }


def test_all_clients_log_in_and_renew_their_sessions(bootstrap: str, options: dict[str, Any]) -> None:
    with Producer(bootstrap, **options) as producer:
        ends_at = time.monotonic() + 2 * SESSION_MS / 1000
        count = 0
        while time.monotonic() < ends_at:
            assert producer.send("t", b"x").result(SECONDS).offset == count
            count += 1
            time.sleep(0.05)
    with Consumer(bootstrap, group_id="g", auto_offset_reset="earliest", **options) as consumer:
        consumer.subscribe(["t"])
        received = 0
        while received < count:
            received += len(consumer.poll(SECONDS))

    async def main() -> int:
        async with AsyncProducer(bootstrap, **options) as producer:
            return (await (await producer.send("t", b"y"))).offset

    assert asyncio.run(asyncio.wait_for(main(), SECONDS)) == count


def test_a_wrong_service_and_a_wrong_mechanism_are_named(bootstrap: str, options: dict[str, Any]) -> None:
    wrong = {**options, "sasl_kerberos_domain_name": "127.0.0.1"}
    with (
        Admin(bootstrap, **wrong) as admin,
        pytest.raises(ConnectionFailed, match=r"no Kerberos ticket for kafka@127\.0\.0\.1"),
    ):
        admin.topics()
    plain = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    with (
        Admin(bootstrap, **plain, sasl_username="alice", sasl_password="x") as admin,  # type: ignore[arg-type]
        pytest.raises(AuthenticationFailed, match="PLAIN is not enabled on this listener; enabled: GSSAPI"),
    ):
        admin.topics()
