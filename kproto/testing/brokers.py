"""Real Kafka brokers for tests: in Docker, from Maven's jars, or one that runs already.

    with docker() as bootstrap: ...       # the image apache/kafka, by testcontainers
    with jars() as bootstrap: ...         # Java and Maven; the jars are fetched once per machine
    with named("localhost:9092") as bootstrap: ...      # and, where it asks for them, TLS and SASL

Each yields HOST:PORT once the broker answers, and raises `BrokerMissing` with the reason when there is none
to be had. testcontainers' own KafkaContainer knows only Confluent's image; this is for Apache's.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any, Final

from ..errors import AuthenticationFailed, ConfigError, KprotoError
from ..validation import checked

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from consumer.security import SecurityConfig

KAFKA: Final = "4.3.1"  # The Kafka that is started unless another version is named.

_LOG4J = "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3"

# Its stdin ends without a word where the process that started it was killed.
_WATCH: Final = """
import os, shutil, sys, time
if not sys.stdin.read():
    try:
        os.kill(int(sys.argv[1]), 9)
    except OSError:
        pass
    for _ in range(5):
        time.sleep(0.2)
        shutil.rmtree(sys.argv[2], ignore_errors=True)
"""

# Linux, macOS and Windows take those of outgoing connections above.
_PORTS: Final = range(10_240, 32_768)
_given: set[int] = set()

# One node that is broker and controller, with the group's waits as short as Kafka lets them be.
_COMMON: Final = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "300",
    "auto.create.topics.enable": "false",
}


class BrokerMissing(KprotoError):
    """A broker that this machine can't start, and why."""


def java() -> str:
    """The `java` command: JAVA_HOME's, else the one on the PATH. Raises BrokerMissing."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")
    if found is None:
        raise BrokerMissing("java (a JDK, 17 or newer)")
    return found


def maven_jars(name: str, artifacts: tuple[str, ...], folder: Path | None = None) -> str:
    """A class path with these artifacts (group:artifact:version) and what they need.

    Maven fetches them into the user's cache, once per machine and `name`. Raises BrokerMissing.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "kproto", name)
    place = folder or cache
    if not list(place.glob("*.jar")):
        maven = shutil.which("mvn")
        if folder is not None or maven is None:
            raise BrokerMissing(f"jars in {place} (or Maven, to fetch {', '.join(artifacts)})")
        with one_at_a_time(place.parent), tempfile.TemporaryDirectory(dir=place.parent) as scratch:
            if list(place.glob("*.jar")):  # another process was quicker
                return f"{place}/*"
            Path(scratch, "pom.xml").write_text(_pom(artifacts))
            order = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={scratch}/jars"]
            done = subprocess.run(order, cwd=scratch, capture_output=True, text=True)
            if done.returncode:
                raise BrokerMissing(f"Maven failed: {(done.stdout + done.stderr).strip()[-300:]}")
            Path(scratch, "jars").rename(place)
    return f"{place}/*"


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Generator[None]:
    """Makes other processes wait that want to fill this folder, too; it is made where there is none."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as held:
        if sys.platform != "win32":
            fcntl.flock(held, fcntl.LOCK_EX)  # until it is closed, or the process dies
        yield


@checked
def kafka_jars(version: str = KAFKA) -> str:
    """A class path with Kafka's broker, clients and tools; KPROTO_KAFKA_JARS names a folder that has them.

    Raises ConfigError for what is no version, and BrokerMissing.
    """
    if not re.fullmatch(r"\d+(\.\d+){2}[\w.-]*", version):
        raise ConfigError("version", version, f"a version of Kafka, such as {KAFKA}")
    given = os.environ.get("KPROTO_KAFKA_JARS") if version == KAFKA else None
    artifacts = (f"org.apache.kafka:kafka_2.13:{version}", f"org.apache.kafka:kafka-tools:{version}", _LOG4J)
    return maven_jars(f"kafka-{version}", artifacts, Path(given) if given else None)


@contextlib.contextmanager
@checked
def named(bootstrap: str, security: SecurityConfig | None = None) -> Generator[str]:
    """A broker that runs already, and how to get in. Raises BrokerMissing: at once for one that lets nobody
    in so, else when nobody answers there within ten seconds."""
    if why := why_silent(bootstrap, None, 10, security):
        wanted = (
            "that lets in whom --kafka-command-config describes"
            if security
            else "without TLS and SASL, as the tests speak neither without --kafka-command-config"
        )
        raise BrokerMissing(f"a Kafka at {bootstrap} {wanted}: {why}")
    yield bootstrap


@contextlib.contextmanager
@checked
def jars(
    properties: Mapping[str, str] | None = None,
    *,
    version: str = KAFKA,
    listeners: Mapping[str, int] | None = None,
    format_options: Sequence[str] = (),
    java_options: Sequence[str] = (),
) -> Generator[str]:
    """A broker in a JVM of its own, with `properties` on top of the usual ones; about three seconds.

    `listeners` are others than PLAINTEXT, by name, each with its port; `format_options` go to
    kafka-storage's format, as ("--add-scram", "SCRAM-SHA-512=[name=alice,password=...]"), `java_options` to
    the JVM, as ("-Dname=value",).
    """
    classpath, command = kafka_jars(version), java()
    with tempfile.TemporaryDirectory(prefix="kproto-kafka-") as scratch:
        port, controller = free_port(), free_port()
        others = "".join(f",{name}://127.0.0.1:{number}" for name, number in (listeners or {}).items())
        settings = {
            **_COMMON,
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}{others}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}{others}",
            "log.dirs": f"{scratch}/logs",
            **(properties or {}),
        }
        config = Path(scratch, "server.properties")
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        run = [command, "-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *java_options]
        run += ["-cp", classpath]
        cluster = ["-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(config)]
        tool = [*run, "kafka.tools.StorageTool", "format", "--standalone", *cluster, *format_options]
        made = subprocess.run(tool, capture_output=True, text=True)
        if made.returncode:
            raise BrokerMissing(f"a real Kafka: {made.stdout[-300:]}{made.stderr[-300:]}")
        with open(Path(scratch, "broker.log"), "w+") as log, contextlib.ExitStack() as stack:
            broker = subprocess.Popen([*run, "kafka.Kafka", str(config)], stdout=log, stderr=log)
            try:
                stack.enter_context(ends_with_us(broker, scratch))
                if why_silent(f"127.0.0.1:{port}", broker):
                    log.seek(0)
                    raise BrokerMissing(f"a real Kafka: it did not start: {log.read()[-500:]}")
                yield f"127.0.0.1:{port}"
            finally:
                broker.terminate()
                try:
                    broker.wait(10)
                except subprocess.TimeoutExpired:
                    broker.kill()
                    broker.wait()


@contextlib.contextmanager
def ends_with_us(process: subprocess.Popen[Any], folder: str) -> Generator[None]:
    """Ends another process and deletes its folder where this one is killed: a third one waits for that."""
    order = [sys.executable, "-I", "-S", "-c", _WATCH, str(process.pid), folder]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        order, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True
    ) as watcher:
        try:
            yield
        finally:
            watcher.communicate(b"over")


@contextlib.contextmanager
@checked
def docker(properties: Mapping[str, str] | None = None, *, version: str = KAFKA) -> Generator[str]:
    """The image apache/kafka in a container, by testcontainers; `properties` as for `jars`."""
    try:
        module: Any = import_module("testcontainers.core.container")
    except ImportError:
        raise BrokerMissing("a Kafka in Docker: pip install testcontainers") from None
    port = free_port()
    settings = {
        **_COMMON,
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        **(properties or {}),
    }
    with contextlib.ExitStack() as stack:
        try:
            container: Any = module.DockerContainer(f"apache/kafka:{version}").with_bind_ports(9092, port)
            for name, value in settings.items():
                container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
            stack.callback(container.stop)  # a start that fails, or Ctrl-C ends, leaves it there
            container.start()
        except Exception as error:  # docker's client raises whatever its daemon answers
            raise BrokerMissing(f"a Kafka in Docker: {error}") from error
        if why := why_silent(f"127.0.0.1:{port}", None):
            raise BrokerMissing(f"a Kafka in Docker: it did not start ({why})")
        yield f"127.0.0.1:{port}"


def free_port() -> int:
    """A port on 127.0.0.1 that nobody listens on at this moment, and another one each time.

    Not of those from which systems take the ports of outgoing connections: one could be taken before the
    broker listens there.
    """
    for port in SystemRandom().sample(_PORTS, 1000):
        if port not in _given:
            with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
                _given.add(port)
                return port
    raise BrokerMissing(f"a free port from {_PORTS[0]} to {_PORTS[-1]}")


def why_silent(
    bootstrap: str,
    broker: subprocess.Popen[Any] | None,
    seconds: float = 240,
    security: SecurityConfig | None = None,
) -> str:
    """Waits until the broker answers Metadata with itself in it; returns why it didn't, "" where it did."""
    from consumer import Cluster

    from ..messages.metadata import MetadataRequest, MetadataResponse

    end, why = time.monotonic() + seconds, "nobody answers there"
    while time.monotonic() < end and (broker is None or broker.poll() is None):
        try:
            with Cluster(bootstrap, request_timeout_ms=2000, **(security or {})) as cluster:
                answer = cluster.request(MetadataRequest(topics=[]))
                if isinstance(answer, MetadataResponse) and answer.brokers:
                    return ""
        except ConfigError:
            raise
        except AuthenticationFailed as error:
            return str(error)
        except (KprotoError, OSError) as error:
            why = str(error)
        time.sleep(0.1)
    return why


def _pom(artifacts: tuple[str, ...]) -> str:
    listed = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, name, version in (artifact.split(":") for artifact in artifacts)
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>kproto</groupId><artifactId>jars</artifactId>"
        f"<version>1</version><dependencies>{listed}</dependencies></project>"
    )
