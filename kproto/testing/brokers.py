"""Real Kafka brokers for tests: in Docker, from Maven's jars, or already running.

    with docker() as bootstrap: ...       # the image apache/kafka, by testcontainers
    with jars() as bootstrap: ...         # Java and Maven; the jars are fetched once per machine
    with jars(version="2.8.2") as bootstrap: ...        # any release from 2.1 on, with ZooKeeper before 3.9
    with named("localhost:9092") as bootstrap: ...      # a running broker, with TLS and SASL if needed

Each context manager of this module yields HOST:PORT as soon as the broker responds. If the broker cannot be
started or reached, it raises `BrokerMissing` with the reason.

In Docker this module runs Apache's image. The KafkaContainer of testcontainers supports only Confluent's.
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
from ..validation import NAMES_TO_NUMBERS, NAMES_TO_TEXTS, TEXT, TEXTS, Rule, checked, names_to

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from consumer.security import SecurityConfig

KAFKA: Final = "4.3.1"  # The Kafka version that is started by default.

_LOG4J = "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3"

# The code of a process that watches the test process. If its stdin ends without data, the test process was
# killed. The watcher then stops the broker and deletes the broker's folder.
_WATCHER_CODE: Final = """
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

# The ports from which `free_port` chooses. They lie below the ephemeral ranges of Linux, macOS and Windows.
_PORT_RANGE: Final = range(10_240, 32_768)
_given_ports: set[int] = set()  # The ports that `free_port` has returned.

# The first release whose storage tool has the option --standalone. Earlier releases start with ZooKeeper.
_FIRST_WITHOUT_ZOOKEEPER: Final = (3, 9)

# The JVM options that the releases with ZooKeeper need on Java 17.
_ZOOKEEPER_JVM_OPTIONS: Final = (
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in ("java.lang", "java.nio", "java.util", "sun.nio.ch", "jdk.internal.ref")
    ),
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "-Dzookeeper.jmx.log4j.disable=true",
)

# The properties of one node. Short group delays make tests fast.
_BROKER_PROPERTIES: Final = {
    "inter.broker.listener.name": "PLAINTEXT",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "300",
    "auto.create.topics.enable": "false",
}

# The properties of a node that is both broker and controller, without ZooKeeper.
_KRAFT_PROPERTIES: Final = {
    **_BROKER_PROPERTIES,
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


# Rules of arguments.
_SECURITY_OPTIONS: Final = Rule(names_to(lambda _: True), "options of TLS and SASL by their names")


class BrokerMissing(KprotoError):
    """The error for a broker that cannot be started or reached. The message gives the reason."""


def java() -> str:
    """Return the path of the `java` command, in JAVA_HOME or else on PATH.

    Raises BrokerMissing if the command does not exist.
    """
    home = os.environ.get("JAVA_HOME")
    command = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")
    if command is None:
        raise BrokerMissing("there is no java command in JAVA_HOME or on PATH: install a JDK, 17 or newer")
    return command


def maven_jars(name: str, artifacts: tuple[str, ...], folder: Path | None = None) -> str:
    """Return a class path with these artifacts (group:artifact:version) and their dependencies.

    Maven downloads the artifacts into the folder `name` of the user's cache, unless the folder already
    contains them. Raises BrokerMissing if Maven fails.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "kproto", name)
    jar_folder = folder or cache
    if not list(jar_folder.glob("*.jar")):
        maven = shutil.which("mvn")
        if folder is not None or maven is None:
            raise BrokerMissing(
                f"no jars are in {jar_folder}; copy them there, or let Maven fetch {', '.join(artifacts)}"
            )
        with one_at_a_time(jar_folder.parent), tempfile.TemporaryDirectory(dir=jar_folder.parent) as scratch:
            # While this process waited for the lock, another process may have filled the folder.
            if list(jar_folder.glob("*.jar")):
                return f"{jar_folder}/*"
            Path(scratch, "pom.xml").write_text(_pom_text(artifacts))
            command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={scratch}/jars"]
            result = subprocess.run(command, cwd=scratch, capture_output=True, text=True)
            if result.returncode:
                raise BrokerMissing(f"Maven failed: {(result.stdout + result.stderr).strip()[-300:]}")
            Path(scratch, "jars").rename(jar_folder)
    return f"{jar_folder}/*"


@contextlib.contextmanager
def one_at_a_time(folder: Path) -> Generator[None]:
    """Lock a folder during the block, so that only one process at a time writes to it.

    The folder is created if it does not exist.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock_file:
        if sys.platform != "win32":
            # The lock is held until the file is closed or the process dies.
            fcntl.flock(lock_file, fcntl.LOCK_EX)
        yield


@checked(version=TEXT)
def kafka_jars(version: str = KAFKA) -> str:
    """Return a class path with Kafka's broker, clients and tools.

    For the default version, the environment variable KPROTO_KAFKA_JARS may name a folder that contains the
    jars.

    Raises ConfigError if `version` is not a version of Kafka, and BrokerMissing if the jars cannot be
    fetched.
    """
    if not re.fullmatch(r"\d+(\.\d+){2}[\w.-]*", version):
        raise ConfigError("version", version, f"a version of Kafka, such as {KAFKA}")
    folder_name = os.environ.get("KPROTO_KAFKA_JARS") if version == KAFKA else None
    release = _release(version)
    scala = "2.12" if release < (2, 4) else "2.13"
    artifacts = [f"org.apache.kafka:kafka_{scala}:{version}"]
    if release < (2, 4):
        # The ZooKeeper that Kafka before 2.4 depends on runs only on an older Java, so use a newer ZooKeeper.
        artifacts.append("org.apache.zookeeper:zookeeper:3.5.9")
    if release >= (3, 5):
        artifacts.append(f"org.apache.kafka:kafka-tools:{version}")
    if release >= _FIRST_WITHOUT_ZOOKEEPER:
        artifacts.append(_LOG4J)
    return maven_jars(f"kafka-{version}", tuple(artifacts), Path(folder_name) if folder_name else None)


def _release(version: str) -> tuple[int, int]:
    """Return the release of a version: (2, 8) for "2.8.2"."""
    major, minor, *_ = version.split(".")
    return int(major), int(minor)


@contextlib.contextmanager
@checked(bootstrap=TEXT, security=_SECURITY_OPTIONS)
def named(bootstrap: str, security: SecurityConfig | None = None) -> Generator[str]:
    """Yield the address of a running broker. `security` contains the client options for TLS and SASL.

    Raises BrokerMissing immediately if the broker rejects the client, and after ten seconds if nothing
    responds.
    """
    if why := why_silent(bootstrap, None, 10, security):
        requirement = (
            "that accepts the credentials of --kafka-command-config"
            if security
            else "without TLS and SASL, unless --kafka-command-config describes them"
        )
        raise BrokerMissing(f"the tests need a Kafka at {bootstrap} {requirement}: {why}")
    yield bootstrap


@contextlib.contextmanager
@checked(
    properties=NAMES_TO_TEXTS,
    version=TEXT,
    listeners=NAMES_TO_NUMBERS,
    format_options=TEXTS,
    java_options=TEXTS,
)
def jars(
    properties: Mapping[str, str] | None = None,
    *,
    version: str = KAFKA,
    listeners: Mapping[str, int] | None = None,
    format_options: Sequence[str] = (),
    java_options: Sequence[str] = (),
    plugins: Sequence[Path] = (),
) -> Generator[str]:
    """Start a broker in a separate JVM, with `properties` added to the default ones.

    The broker starts within about 3 s, and with ZooKeeper within 5 s.

    `listeners` maps the names of additional listeners to their ports.

    `format_options` are arguments of kafka-storage's format, such as ("--add-scram",
    "SCRAM-SHA-512=[name=alice,password=...]"). `java_options` are arguments of the JVM, such as
    ("-Dname=value",).

    `plugins` are folders with the compiled classes that `properties` refer to.

    Before Kafka 3.9 the broker gets a ZooKeeper of its own, and `format_options` must be empty.
    """
    classpath, java_command = os.pathsep.join([kafka_jars(version), *map(str, plugins)]), java()
    needs_zookeeper = _release(version) < _FIRST_WITHOUT_ZOOKEEPER
    if needs_zookeeper and format_options:
        raise ConfigError(
            "format_options", format_options, f"leave it empty for Kafka {version}, which uses ZooKeeper"
        )
    run = [java_command, "-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    run += [*(_ZOOKEEPER_JVM_OPTIONS if needs_zookeeper else ()), *java_options, "-cp", classpath]
    with tempfile.TemporaryDirectory(prefix="kproto-kafka-") as scratch, contextlib.ExitStack() as stack:
        port, controller_port = free_port(), free_port()  # Before Kafka 3.9, ZooKeeper gets the second port.
        extra_listeners = "".join(
            f",{name}://127.0.0.1:{number}" for name, number in (listeners or {}).items()
        )
        main_listener = f"PLAINTEXT://127.0.0.1:{port}"
        settings = {"advertised.listeners": main_listener + extra_listeners, "log.dirs": f"{scratch}/logs"}
        if needs_zookeeper:
            zookeeper_properties = {
                "dataDir": f"{scratch}/zookeeper",
                "clientPort": f"{controller_port}",
                "clientPortAddress": "127.0.0.1",
                "admin.enableServer": "false",
            }
            config = _write_properties(Path(scratch, "zookeeper.properties"), zookeeper_properties)
            main_class = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
            stack.enter_context(_running_process([*run, main_class, config], scratch))
            settings |= _BROKER_PROPERTIES | {
                "broker.id": "1",
                "listeners": main_listener + extra_listeners,
                "zookeeper.connect": f"127.0.0.1:{controller_port}",
                "zookeeper.connection.timeout.ms": "60000",
            }
        else:
            settings |= _KRAFT_PROPERTIES | {
                "listeners": f"{main_listener},CONTROLLER://127.0.0.1:{controller_port}{extra_listeners}",
                "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            }
        config = _write_properties(Path(scratch, "server.properties"), settings | dict(properties or {}))
        if not needs_zookeeper:
            cluster_options = ["-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", config]
            format_command = [*run, "kafka.tools.StorageTool", "format", "--standalone"]
            format_command += [*cluster_options, *format_options]
            formatted = subprocess.run(format_command, capture_output=True, text=True)
            if formatted.returncode:
                raise BrokerMissing(
                    f"kafka-storage failed: {formatted.stdout[-300:]}{formatted.stderr[-300:]}"
                )
        broker, log = stack.enter_context(_running_process([*run, "kafka.Kafka", config], scratch))
        if why_silent(f"127.0.0.1:{port}", broker):
            raise BrokerMissing(f"the Kafka broker did not start: {log.read_text()[-500:]}")
        yield f"127.0.0.1:{port}"


def _write_properties(path: Path, properties: Mapping[str, str]) -> str:
    """Write a file of Java properties, and return its path."""
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return str(path)


@contextlib.contextmanager
def _running_process(command: Sequence[str], folder: str) -> Generator[tuple[subprocess.Popen[Any], Path]]:
    """Run a process until the end of the block. Yield the process and the file with its output.

    The file is in `folder`, and is named after Java's main class: the second-to-last element of `command`.
    """
    path = Path(folder, f"{command[-2]}.log")
    with open(path, "w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            with killed_with_this_process(process, folder):
                yield process, path
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def killed_with_this_process(process: subprocess.Popen[Any], folder: str) -> Generator[None]:
    """Kill `process` and delete `folder` if the current process is killed within the block.

    A separate watcher process does both, because a killed process cannot clean up.
    """
    command = [sys.executable, "-I", "-S", "-c", _WATCHER_CODE, str(process.pid), folder]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True
    ) as watcher:
        try:
            yield
        finally:
            # Any input makes the watcher end without killing `process`.
            watcher.communicate(b"over")


@contextlib.contextmanager
@checked(properties=NAMES_TO_TEXTS, version=TEXT)
def docker(properties: Mapping[str, str] | None = None, *, version: str = KAFKA) -> Generator[str]:
    """Start the image apache/kafka in a container, with Testcontainers. `properties` has the same meaning as
    in `jars`.
    """
    try:
        module: Any = import_module("testcontainers.core.container")
    except ImportError:
        raise BrokerMissing("a Kafka in Docker needs testcontainers: pip install testcontainers") from None
    port = free_port()
    settings = {
        **_KRAFT_PROPERTIES,
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
            stack.callback(container.stop)  # Stop the container, even after a failed start or Ctrl-C.
            container.start()
        # All exceptions are caught, because the Docker client raises exceptions of many classes.
        except Exception as error:
            raise BrokerMissing(f"a Kafka in Docker cannot be started: {error}") from error
        if why := why_silent(f"127.0.0.1:{port}", None):
            raise BrokerMissing(f"the Kafka in Docker did not start ({why})")
        yield f"127.0.0.1:{port}"


def free_port() -> int:
    """Return a free port on 127.0.0.1 that no earlier call has returned.

    The port is below the ephemeral range. Otherwise an outgoing connection could take the port before the
    broker listens on it.
    """
    for port in SystemRandom().sample(_PORT_RANGE, 1000):
        if port not in _given_ports:
            with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
                _given_ports.add(port)
                return port
    raise BrokerMissing(f"no port is free from {_PORT_RANGE[0]} to {_PORT_RANGE[-1]}")


def why_silent(
    bootstrap: str,
    broker: subprocess.Popen[Any] | None,
    seconds: float = 240,
    security: SecurityConfig | None = None,
) -> str:
    """Wait until a response to Metadata lists at least one broker.

    Return "" if this response arrives within `seconds` seconds, and otherwise the reason why it did not. The
    wait ends early if the process `broker` has ended, or if the broker rejects the client's credentials.

    Raises ConfigError for invalid options in `security`.
    """
    from consumer import Admin

    from ..messages.metadata import MetadataRequest, MetadataResponse

    end, why = time.monotonic() + seconds, "no broker responds"
    while time.monotonic() < end and (broker is None or broker.poll() is None):
        try:
            with Admin(bootstrap, request_timeout_ms=2000, **(security or {})) as admin:
                response = admin.request(MetadataRequest(topics=[]))
                if isinstance(response, MetadataResponse) and response.brokers:
                    return ""
        except ConfigError:
            raise
        except AuthenticationFailed as error:
            return str(error)
        except (KprotoError, OSError) as error:
            why = str(error)
        time.sleep(0.1)
    return why


def _pom_text(artifacts: tuple[str, ...]) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, name, version in (artifact.split(":") for artifact in artifacts)
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>kproto</groupId><artifactId>jars</artifactId>"
        f"<version>1</version><dependencies>{dependencies}</dependencies></project>"
    )
