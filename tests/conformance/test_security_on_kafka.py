"""kproto's clients work with a real Kafka that uses TLS, SASL and ACLs, for each protocol and mechanism."""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consumer import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from consumer.security.properties import from_java
from kproto.messages.create_acls import AclCreation, CreateAclsRequest
from kproto.messages.headers import encode_request
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kproto.messages.sasl_authenticate import SaslAuthenticateRequest
from kproto.messages.sasl_handshake import SaslHandshakeRequest
from kproto.records import Record, encode_batch
from kproto.security.plain import PlainClient
from kproto.wire.frame import frame
from tests.conformance import judges
from tests.conformance.kafka_cluster import until
from tests.testing.stage import MemberProcess

secured = pytest.importorskip("tests.conformance.secured_kafka")
pytestmark = [pytest.mark.kafka, pytest.mark.java]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with secured.real_kafka(tmp_path_factory.mktemp("secured")) as broker:
        with Admin(broker.places["PLAINTEXT"], timeout=60) as cluster:
            cluster.create_topics({"flights": 1})
        yield broker


async def async_token() -> str:
    return str(secured.token())


def options(kafka: Any, listener: str, mechanism: str = "", **more: Any) -> dict[str, Any]:
    chosen: dict[str, Any] = {"security_protocol": "SSL" if listener == "MTLS" else listener}
    if listener != "SASL_PLAINTEXT":
        chosen["ssl_cafile"] = kafka.certificates.ca
    if listener == "MTLS":
        chosen["ssl_certfile"] = kafka.certificates.client
    if mechanism == "OAUTHBEARER":
        chosen["sasl_oauth_token_provider"] = secured.token
    elif mechanism:
        chosen |= {"sasl_username": "alice", "sasl_password": secured.USERS["alice"]}
    return chosen | ({"sasl_mechanism": mechanism} if mechanism else {}) | more


WAYS = [
    ("SSL", ""),
    *(
        (listener, mechanism)
        for listener in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    ),
]


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_records_pass_through_each_listener_and_mechanism(kafka: Any, listener: str, mechanism: str) -> None:
    place, how = kafka.places[listener], options(kafka, listener, mechanism)
    value = f"{listener} {mechanism} threads".encode()
    with Producer(place, **how) as producer:
        offset = producer.send("flights", value).result(30).offset
    with Consumer(place, group_id=f"{listener}-{mechanism}", auto_offset_reset="earliest", **how) as consumer:
        consumer.subscribe(["flights"])
        assert next(record.value for record in consumer if record.offset == offset) == value


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_records_pass_through_each_listener_and_mechanism_in_asyncio(
    kafka: Any, listener: str, mechanism: str
) -> None:
    place, how = kafka.places[listener], options(kafka, listener, mechanism)
    if mechanism == "OAUTHBEARER":
        how["sasl_oauth_token_provider"] = async_token
    value = f"{listener} {mechanism} asyncio".encode()

    async def write_and_read() -> None:
        async with AsyncProducer(place, **how) as producer:
            offset = (await (await producer.send("flights", value))).offset
        async with AsyncConsumer(place, auto_offset_reset="earliest", **how) as consumer:
            consumer.assign([TopicPartition("flights", 0)])
            async for record in consumer:
                if record.offset == offset:
                    assert record.value == value
                    break

    asyncio.run(asyncio.wait_for(write_and_read(), 60))


def java_properties(kafka: Any, listener: str, mechanism: str) -> str:
    """Return the text of a client.properties for `--command-config`."""
    properties = {"security.protocol": listener}
    if listener != "SASL_PLAINTEXT":
        properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": kafka.certificates.ca}
    if mechanism:
        properties["sasl.mechanism"] = mechanism
    if mechanism == "OAUTHBEARER":
        properties["sasl.oauth.token.provider"] = "tests.conformance.secured_kafka:token"
    elif mechanism:
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        login = f'username="alice" password="{secured.USERS["alice"]}"'
        properties["sasl.jaas.config"] = f"org.apache.kafka.common.security.{module} required {login};"
    return "\n".join(f"{name}={value}" for name, value in properties.items())


@pytest.mark.parametrize(("listener", "mechanism"), WAYS)
def test_a_command_authenticates_with_its_command_config(
    kafka: Any, listener: str, mechanism: str, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(java_properties(kafka, listener, mechanism))
    value = f"{listener} {mechanism} command".encode()
    with Producer(kafka.places["PLAINTEXT"]) as producer:
        offset = producer.send("flights", value).result(30).offset
    words = ["--as", "kproto", "--command-config", str(file), kafka.places[listener], "me"]
    member = MemberProcess(*words, f"command-{listener}-{mechanism}", '{"reset": "earliest"}')
    member.send("subscribe flights")
    member.until(f"R flights:0 {offset}")
    member.send("close")
    assert member.process.wait(60) == 0


def keytool(*words: str) -> None:
    subprocess.run([shutil.which("keytool") or judges.missing("keytool"), *words], check=True, timeout=120)


@pytest.mark.parametrize("name", ["store.p12", "store.jks"])
def test_keytools_stores_authenticate(kafka: Any, name: str, tmp_path: Path) -> None:
    """A client authenticates with the stores that keytool has written.

    Since Java 9, keytool writes PKCS12 regardless of the file name, so even store.jks is PKCS12. Java's
    clients read such a file although their default store type is JKS.
    """
    form = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    x509 = pytest.importorskip("cryptography.x509")
    text = Path(kafka.certificates.client).read_bytes()
    key, chain = form.load_pem_private_key(text, None), x509.load_pem_x509_certificates(text)
    source, own, trust = tmp_path / "made.p12", tmp_path / name, tmp_path / f"trust-{name}"
    how = form.BestAvailableEncryption(b"store-secret")
    pkcs12 = pytest.importorskip("cryptography.hazmat.primitives.serialization.pkcs12")
    source.write_bytes(pkcs12.serialize_key_and_certificates(b"own", key, chain[0], chain[1:], how))
    secret = ["-srcstorepass", "store-secret", "-deststorepass", "store-secret"]
    keytool("-importkeystore", "-srckeystore", str(source), "-destkeystore", str(own), *secret)
    keytool(
        *("-importcert", "-noprompt", "-alias", "ca", "-file", kafka.certificates.ca),
        *("-keystore", str(trust), "-storepass", "store-secret"),
    )
    options = from_java(
        {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(trust),
            "ssl.truststore.password": "store-secret",
            "ssl.keystore.location": str(own),
            "ssl.keystore.password": "store-secret",
        }
    )
    with Admin(kafka.places["MTLS"], **options) as cluster:
        assert cluster.topics() == {}  # The user of the certificate is authenticated, but has no permissions.


def test_sessions_are_renewed_without_losing_a_request(kafka: Any) -> None:
    """No request is lost when clients re-authenticate.

    The broker ends each session after 2 s, and the clients keep their connections for 6 s.
    """
    place, how = kafka.places["SASL_SSL"], options(kafka, "SASL_SSL", "SCRAM-SHA-256")
    with (
        Producer(place, linger_ms=0, **how) as producer,
        Consumer(place, group_id="renewed", auto_offset_reset="latest", **how) as consumer,
    ):
        consumer.subscribe(["flights"])
        reports: list[Any] = []
        consumer.events(reports.append)
        while not consumer.assignment():
            consumer.poll(0.5)
        consumer.poll(0.5)
        networks = (producer._runtime.engine.core.network, consumer._operations.engine.core.network)
        before = [set(network._connections) for network in networks]
        sent, got, end = 0, 0, time.monotonic() + 3 * secured.SESSION_MS / 1000
        while time.monotonic() < end or got < sent:
            if time.monotonic() < end:
                producer.send("flights", b"again").result(30)
                sent += 1
            got += len(consumer.poll(0.2))
        assert [
            known & set(network._connections) for known, network in zip(before, networks, strict=True)
        ] == before
        assert not {"lost", "unreachable"} & {report.kind for report in reports}


def test_a_produce_without_acks_writes_allowed_topics_and_closes_the_connection(kafka: Any) -> None:
    """A real Kafka answers as tests/broker/apis/test_authorization.py expects of the embedded broker."""
    place = kafka.places["PLAINTEXT"]
    with Admin(place, timeout=60) as cluster:
        cluster.create_topics({"may": 1, "may-not": 1})
        allow_bob = AclCreation(
            resource_type=2,
            resource_name="may",
            principal="User:bob",
            host="*",
            operation=4,
            permission_type=3,
        )
        cluster.request(CreateAclsRequest(creations=[allow_bob]))
        # The broker responds to CreateAcls before its authorizer has read the new ACL from the metadata log.
        until(
            lambda: any(acl.resource_name == "may" for acl in cluster.describe_acls()),
            "the authorizer has the ACL",
        )
        host, _, port = kafka.places["SASL_PLAINTEXT"].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as raw:

            def ask(request: Any, version: int) -> None:
                raw.sendall(frame(encode_request(request, version, 1, "raw")))

            ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert raw.recv(1000)
            ask(SaslAuthenticateRequest(auth_bytes=PlainClient("bob", secured.USERS["bob"]).begin()), 2)
            assert raw.recv(1000)
            part = [PartitionProduceData(index=0, records=encode_batch([Record(0, 0, None, b"x")]))]
            topics = [TopicProduceData(name=name, partition_data=part) for name in ("may-not", "may")]
            ask(ProduceRequest(acks=0, timeout_ms=1_000, topic_data=topics), 9)
            assert raw.recv(1000) == b""  # The broker closes the connection without a response.
        wants = {TopicPartition(name, 0): "latest" for name in ("may", "may-not")}
        ends = cluster.list_offsets(wants)
    assert {partition.topic: end.offset for partition, end in ends.items()} == {"may": 1, "may-not": 0}
