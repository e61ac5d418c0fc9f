"""Other clients log in to the embedded broker with TLS and SASL, using each mechanism."""

from __future__ import annotations

import asyncio
import re
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kproto.broker.server import running
from kproto.security.oauthbearer import unsecured, unsecured_token
from kproto.testing.certificates import Certificates, certificates
from kproto.testing.secured import secured
from tests.cli.stage import running_broker
from tests.conformance import judges, original_clients
from tests.conformance.secured_clients import SecuredMember, java_properties, one_of_each

pytestmark = pytest.mark.clients
USER, PASSWORD = "alice", "alice-secret"
SCRAMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
MECHANISMS = ["PLAIN", *SCRAMS, "OAUTHBEARER"]


def now() -> int:
    return int(time.time() * 1000)


def token() -> str:
    return unsecured_token(USER, now(), 60_000)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    pytest.importorskip("trustme")
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def place(files: Certificates) -> Iterator[str]:
    listen = ["SASL_SSL://127.0.0.1:0"]
    settings = {"group.min.session.timeout.ms": "300"}
    users = {USER: PASSWORD}
    with running(
        {"flights": 1}, settings, listen=listen, users=users, tokens=unsecured(now), tls=files.context()
    ) as server:
        yield server.bootstrap


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_writes_and_reads(place: str, files: Certificates, mechanism: str) -> None:
    client: Any = pytest.importorskip("confluent_kafka")
    how: dict[str, Any] = {
        "bootstrap.servers": place,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": files.ca,
        "sasl.mechanisms": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        how["oauth_cb"] = lambda config: (token(), time.time() + 60, USER, {})
    else:
        how |= {"sasl.username": USER, "sasl.password": PASSWORD}
    value = f"librdkafka {mechanism}".encode()
    producer = client.Producer(how)
    producer.produce("flights", value)
    assert producer.flush(60) == 0
    group = f"librdkafka-{mechanism}"
    consumer = client.Consumer({**how, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe(["flights"])
    end = time.monotonic() + 60
    values: set[bytes] = set()
    while value not in values and time.monotonic() < end:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            values.add(message.value())
    consumer.close()
    assert value in values


def test_librdkafka_reports_a_wrong_password(place: str, files: Certificates) -> None:
    client: Any = pytest.importorskip("confluent_kafka")
    errors: list[str] = []
    producer = client.Producer(
        {
            "bootstrap.servers": place,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": files.ca,
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": "wrong",
            "error_cb": lambda error: errors.append(str(error)),
        }
    )
    end = time.monotonic() + 60
    while not errors and time.monotonic() < end:
        producer.poll(0.5)
    assert "invalid credentials" in errors[0]


def trusting(files: Certificates) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=files.ca)


def sasl_ssl(place: str, files: Certificates, mechanism: str) -> dict[str, Any]:
    """Return the options of a SASL_SSL client; kafka-python and aiokafka use the same names."""
    how: dict[str, Any] = {
        "bootstrap_servers": place,
        "security_protocol": "SASL_SSL",
        "ssl_context": trusting(files),
        "sasl_mechanism": mechanism,
    }
    if mechanism != "OAUTHBEARER":
        how |= {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
    return how


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_writes_and_reads(place: str, files: Certificates, mechanism: str) -> None:
    client: Any = pytest.importorskip("kafka")
    how = sasl_ssl(place, files, mechanism)
    if mechanism == "OAUTHBEARER":
        from kafka.net.sasl.oauth import AbstractTokenProvider

        class Provider(AbstractTokenProvider):  # type: ignore[misc]
            def token(self) -> str:
                return token()

        how["sasl_oauth_token_provider"] = Provider()
    value = f"kafka-python {mechanism}".encode()
    producer = client.KafkaProducer(**how)
    producer.send("flights", value).get(60)
    producer.close()
    consumer = client.KafkaConsumer(
        "flights", auto_offset_reset="earliest", consumer_timeout_ms=60_000, **how
    )
    assert next(message.value for message in consumer if message.value == value) == value
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_writes_and_reads(place: str, files: Certificates, mechanism: str) -> None:
    client: Any = pytest.importorskip("aiokafka")
    how = sasl_ssl(place, files, mechanism)
    if mechanism == "OAUTHBEARER":
        from aiokafka.abc import AbstractTokenProvider

        class Provider(AbstractTokenProvider):  # type: ignore[misc]
            async def token(self) -> str:
                return token()

        how["sasl_oauth_token_provider"] = Provider()
    value = f"aiokafka {mechanism}".encode()

    async def both() -> None:
        producer = client.AIOKafkaProducer(**how)
        await producer.start()
        await producer.send_and_wait("flights", value)
        await producer.stop()
        consumer = client.AIOKafkaConsumer("flights", auto_offset_reset="earliest", **how)
        await consumer.start()
        async for message in consumer:
            if message.value == value:
                break
        await consumer.stop()

    asyncio.run(asyncio.wait_for(both(), 120))


@pytest.mark.java
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java_authenticates_with_its_properties_file(
    place: str, files: Certificates, mechanism: str, tmp_path: Path, kafka_jars: str
) -> None:
    file = java_properties(tmp_path, files.ca, mechanism, USER, PASSWORD)
    call = [judges.java(), "-cp", kafka_jars, "org.apache.kafka.tools.TopicCommand", "--list"]
    call += ["--bootstrap-server", place, "--command-config", file]
    done = subprocess.run(call, capture_output=True, text=True, timeout=120)
    assert "flights" in done.stdout.splitlines(), done.stderr


def go(library: str, place: str, files: Certificates, mechanism: str, *words: str) -> list[str]:
    secret = token() if mechanism == "OAUTHBEARER" else PASSWORD
    return [original_clients.secured(), library, place, files.ca, mechanism, USER, secret, *words]


@pytest.mark.originals
@pytest.mark.parametrize("library", ["sarama", "franz"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_go_clients_write_and_read(place: str, files: Certificates, library: str, mechanism: str) -> None:
    value = f"{library} {mechanism}"
    wrote = subprocess.run(
        go(library, place, files, mechanism, "write", value), capture_output=True, text=True, timeout=120
    )
    assert wrote.returncode == 0, wrote.stderr
    member = SecuredMember(go(library, place, files, mechanism, "read", f"{library}-{mechanism}"))
    member.until(lambda: value in member.read)
    member.leave()


@pytest.mark.java
@pytest.mark.originals
def test_a_group_of_all_clients_misses_no_record_while_sessions_expire(
    files: Certificates, tmp_path: Path
) -> None:
    """Seven clients with three mechanisms form one group. Other tests cover re-authentication."""
    for client in ("confluent_kafka", "kafka", "aiokafka"):
        pytest.importorskip(client)
    session_ms = 6_000
    settings = {"connections.max.reauth.ms": str(session_ms), "group.initial.rebalance.delay.ms": "0"}
    with secured("SASL_SSL", files, users={USER: PASSWORD}, settings=settings) as kafka:
        kafka.create_topic("flights", 10)
        with one_of_each(kafka.bootstrap, files.ca, USER, PASSWORD, tmp_path) as members:
            first = next(iter(members.values()))
            owners = lambda: set(kafka.group("mixed").owners.values())  # noqa: E731
            first.until(lambda: len(owners()) == len(members) and kafka.group("mixed").state == "Stable")
            sent, end = 0, time.monotonic() + 2 * session_ms / 1000
            while time.monotonic() < end:
                for partition in range(10):
                    kafka.produce("flights", str(sent), partition=partition)
                    sent += 1
            wanted = {str(number) for number in range(sent)}
            first.until(lambda: wanted <= {value for member in members.values() for value in member.read})
            assert all(member.read for member in members.values()), {
                name: len(m.read) for name, m in members.items()
            }


def copied(lines: list[str]) -> dict[str, list[str]]:
    """Return the options that `kproto broker --tls-self-signed` prints for each client, with the password."""
    options_by_client: dict[str, list[str]] = {}
    name = ""
    for line in lines[2:]:
        name = line[:13].strip() or name
        options_by_client.setdefault(name, []).append(line[14:].replace("...", PASSWORD))
    return options_by_client


@pytest.fixture(
    scope="module",
    params=[("SASL_SSL", []), ("SSL", ["--set", "ssl.client.auth=required"])],
    ids=["sasl", "mtls"],
)
def printed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A broker's address, and the options that `kproto broker` prints for each client."""
    protocol, words = request.param
    with running_broker(
        tmp_path_factory.mktemp("made"), *words, protocol=protocol, password=PASSWORD
    ) as lines:
        place = re.search(rf"{protocol}://(\S+);", lines[0])
        assert place is not None
        yield place[1], copied(lines)


@pytest.mark.java
def test_the_printed_options_authenticate_java(printed: Any, tmp_path: Path, kafka_jars: str) -> None:
    place, options = printed
    file = tmp_path / "client.properties"
    file.write_text("\n".join(options["Java"]))
    call = [judges.java(), "-cp", kafka_jars, "org.apache.kafka.tools.TopicCommand", "--list"]
    done = subprocess.run(
        [*call, "--bootstrap-server", place, "--command-config", str(file)], capture_output=True, text=True
    )
    assert "flights" in done.stdout.splitlines(), done.stderr


def test_the_printed_options_authenticate_librdkafka(printed: Any) -> None:
    client: Any = pytest.importorskip("confluent_kafka.admin")
    place, options = printed
    how = dict(line.split("=", 1) for line in options["librdkafka"])
    assert "flights" in client.AdminClient({"bootstrap.servers": place, **how}).list_topics(timeout=60).topics


@pytest.mark.originals
def test_the_printed_options_authenticate_go_clients(printed: Any, tmp_path: Path) -> None:
    place, options = printed
    program = tmp_path / "main.go"
    [franz], [sarama] = options["franz-go"], options["sarama"]
    scram = '\n\t"github.com/twmb/franz-go/pkg/sasl/scram"' if "scram." in franz else ""
    program.write_text(f"""package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"{scram}
)

func main() {{
	{"; ".join(options["Go"])}
	client, err := {franz}
	if err == nil {{
		err = client.Ping(context.Background())
	}}
	fmt.Println("franz-go", err)
	{sarama}
	other, err := sarama.NewClient([]string{{"{place}"}}, c)
	if err == nil {{
		err = other.RefreshMetadata("flights")
		other.Close()
	}}
	fmt.Println("sarama", err)
}}
""")
    done = subprocess.run(
        [original_clients.built(program, tmp_path / "main")], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.splitlines() == ["franz-go <nil>", "sarama <nil>"], done.stderr
