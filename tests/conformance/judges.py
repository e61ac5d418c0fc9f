"""How the outside judges are had: Kafka's jars, a real broker, Java. Used by the fixtures beside it.

A judge that can't be had is a skip with its reason, or a failure when KPROTO_JUDGES=required.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

KAFKA = "4.3.1"
OLD_KAFKA = "3.9.1"
"""The last line of Kafka that converts records between magics."""
_LOG4J = "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3"
_JARS = {
    KAFKA: (f"org.apache.kafka:kafka_2.13:{KAFKA}", f"org.apache.kafka:kafka-tools:{KAFKA}", _LOG4J),
    OLD_KAFKA: (f"org.apache.kafka:kafka-storage:{OLD_KAFKA}",),
}
"""What Maven fetches for each Kafka, as group:artifact:version; what these need comes with them."""
_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={logs}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=300
auto.create.topics.enable=false
"""


def missing(judge: str) -> NoReturn:
    """Skip the test because `judge` is not there; fail it where judges are required."""
    if os.environ.get("KPROTO_JUDGES") == "required":
        pytest.fail(f"the judge is required and missing: {judge}", pytrace=False)
    pytest.skip(f"judge missing: {judge}")


def java() -> str:
    """The `java` command."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")
    return found or missing("java (a JDK, 17 or newer)")


def kafka_jars(version: str = KAFKA) -> str:
    """A class path with Kafka's broker, clients and tools; fetched by Maven once per machine.

    With `OLD_KAFKA` it is what converts records. KPROTO_KAFKA_JARS names a folder that has those of `KAFKA`.
    """
    given = os.environ.get("KPROTO_KAFKA_JARS") if version == KAFKA else None
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "kproto", f"kafka-{version}")
    folder = Path(given) if given else cache
    if not list(folder.glob("kafka-clients-*.jar")):
        maven = shutil.which("mvn")
        if given or maven is None:
            missing(f"Kafka's jars in {folder} (or Maven, to fetch them)")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            Path(scratch, "pom.xml").write_text(_pom(_JARS[version]))
            order = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={scratch}/jars"]
            done = subprocess.run(order, cwd=scratch, capture_output=True, text=True)
            if done.returncode:
                missing(f"Kafka's jars: Maven failed: {(done.stdout + done.stderr).strip()[-300:]}")
            with contextlib.suppress(OSError):  # another test run was quicker
                Path(scratch, "jars").rename(folder)
    return f"{folder}/*"


def _pom(wanted: tuple[str, ...]) -> str:
    listed = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, name, version in (one.split(":") for one in wanted)
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>kproto</groupId><artifactId>judges</artifactId>"
        f"<version>1</version><dependencies>{listed}</dependencies></project>"
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@dataclass(frozen=True)
class RealKafka:
    """A real broker: `bootstrap` is its HOST:PORT."""

    bootstrap: str


@contextlib.contextmanager
def real_kafka(properties: dict[str, str] | None = None) -> Iterator[RealKafka]:
    """A real Kafka: the one KPROTO_KAFKA names, else one from the jars, else one in Docker.

    `properties` are broker settings on top of the usual ones; with them KPROTO_KAFKA is not used.
    """
    named = os.environ.get("KPROTO_KAFKA")
    if named and not properties:
        yield RealKafka(named)
    elif shutil.which("java") and (shutil.which("mvn") or os.environ.get("KPROTO_KAFKA_JARS")):
        with _from_jars(properties or {}) as broker:
            yield broker
    elif shutil.which("docker"):
        with _from_docker(properties or {}) as broker:
            yield broker
    else:
        missing("a real Kafka (KPROTO_KAFKA=host:port, or Java and Maven, or Docker)")


@contextlib.contextmanager
def _from_jars(properties: dict[str, str]) -> Iterator[RealKafka]:
    classpath, command = kafka_jars(), java()
    with tempfile.TemporaryDirectory(prefix="kproto-kafka-") as scratch:
        port, controller = free_port(), free_port()
        config = Path(scratch, "server.properties")
        text = _PROPERTIES.format(port=port, controller=controller, logs=f"{scratch}/logs")
        config.write_text(text + "".join(f"{name}={value}\n" for name, value in properties.items()))
        run = [command, "-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classpath]
        cluster = ["-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(config)]
        made = subprocess.run(
            [*run, "kafka.tools.StorageTool", "format", "--standalone", *cluster],
            capture_output=True,
            text=True,
        )
        if made.returncode:
            missing(f"a real Kafka: {made.stdout[-300:]}{made.stderr[-300:]}")
        with open(Path(scratch, "broker.log"), "w+") as log:
            broker = subprocess.Popen([*run, "kafka.Kafka", str(config)], stdout=log, stderr=log)
            try:
                if not _answers(port, broker):
                    log.seek(0)
                    missing(f"a real Kafka: it did not start: {log.read()[-500:]}")
                yield RealKafka(f"127.0.0.1:{port}")
            finally:
                broker.terminate()
                try:
                    broker.wait(10)
                except subprocess.TimeoutExpired:
                    broker.kill()
                    broker.wait()


def _answers(port: int, broker: subprocess.Popen[bytes] | None, seconds: float = 60) -> bool:
    """Wait until the broker answers Metadata with itself in it."""
    from consumer.cluster import Cluster
    from kproto.errors import KprotoError
    from kproto.messages.metadata import MetadataRequest

    end = time.monotonic() + seconds
    while time.monotonic() < end and (broker is None or broker.poll() is None):
        with (
            contextlib.suppress(KprotoError, OSError),
            Cluster(f"127.0.0.1:{port}", request_timeout_ms=2000) as cluster,
        ):
            if cluster.request(MetadataRequest(topics=[])).brokers:
                return True
        time.sleep(0.1)
    return False


@contextlib.contextmanager
def _from_docker(properties: dict[str, str]) -> Iterator[RealKafka]:
    """The image apache/kafka; testcontainers' own KafkaContainer only knows Confluent's."""
    from testcontainers.core.container import DockerContainer

    port = free_port()
    settings = {
        "node.id": "1",
        "process.roles": "broker,controller",
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "300",
        "auto.create.topics.enable": "false",
        **properties,
    }
    container = DockerContainer(f"apache/kafka:{KAFKA}").with_bind_ports(9092, port)
    for name, value in settings.items():
        container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
    try:
        container.start()
    except Exception as error:  # docker's client raises whatever its daemon answers
        missing(f"a real Kafka in Docker: {error}")
    try:
        if not _answers(port, None):
            missing("a real Kafka in Docker: it did not start")
        yield RealKafka(f"127.0.0.1:{port}")
    finally:
        container.stop()
