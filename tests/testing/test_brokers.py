"""Real brokers: a killed run leaves none behind, and unusable brokers are reported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from kproto.broker.server import running
from kproto.errors import ConfigError
from kproto.testing import brokers
from kproto.testing.brokers import BrokerMissing, docker, jars, kafka_jars, named, why_silent
from kproto.testing.certificates import certificates

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import subprocess, sys, time
from kproto.testing.brokers import killed_with_this_process

broker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with killed_with_this_process(broker, sys.argv[1]):
    print("begun", flush=True)
    {then}
broker.kill()
"""


def start_program(folder: Path, then: str) -> subprocess.Popen[str]:
    folder.mkdir()
    (folder / "log").write_text("x")
    command = [sys.executable, "-c", PROGRAM.format(then=then), str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert run.stdout is not None
    assert run.stdout.readline() == "begun\n"
    return run


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("number", ["SIGTERM", "SIGKILL"])
def test_a_killed_run_leaves_no_broker_and_no_folder(number: str, tmp_path: Path) -> None:
    folder = tmp_path / "broker"
    run = start_program(folder, "time.sleep(600)")
    run.send_signal(getattr(signal, number))
    # `communicate` returns only when the broker, which inherits stdout, has also ended.
    run.communicate(timeout=60)
    until = time.monotonic() + 60
    while folder.exists():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_run_that_ends_normally_keeps_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "broker"
    with start_program(folder, "pass") as run:
        run.communicate(timeout=60)
    assert run.returncode == 0
    assert folder.exists()


@pytest.mark.parametrize(
    ("protocol", "words"),
    [("SSL", "this port speaks TLS"), ("SASL_SSL", "this port speaks TLS")],
)
def test_a_broker_that_requires_tls_is_reported_at_once(
    protocol: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("trustme")
    listen, tls = [f"{protocol}://127.0.0.1:0"], certificates(tmp_path).context()
    monkeypatch.setattr(time, "sleep", None)  # A retry would fail the test, because it would call `sleep`.
    with running(listen=listen, users={"a": "b"}, tls=tls) as server, pytest.raises(BrokerMissing) as caught:
        named(server.bootstrap).__enter__()
    assert words in str(caught.value)
    assert "without TLS and SASL, unless --kafka-command-config" in str(caught.value)


def test_a_broker_that_requires_sasl_is_reported() -> None:
    with running(listen=["SASL_PLAINTEXT://127.0.0.1:0"], users={"a": "b"}) as server:
        assert "does this listener want SASL" in why_silent(server.bootstrap, None, 0.5)


@pytest.mark.parametrize("version", ["", "4", "../4.3.1", "4.3.1 "])
def test_an_invalid_version_is_rejected(version: str) -> None:
    with pytest.raises(ConfigError, match="a version of Kafka, such as 4"):
        kafka_jars(version)


@pytest.mark.parametrize(
    ("version", "artifacts"),
    [
        ("2.1.1", ["kafka_2.12", "zookeeper"]),
        ("2.8.2", ["kafka_2.13"]),
        ("3.5.2", ["kafka_2.13", "kafka-tools"]),
        ("4.4.0", ["kafka_2.13", "kafka-tools", "log4j-slf4j-impl"]),
    ],
)
def test_each_release_has_its_own_artifacts(
    version: str, artifacts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The artifacts depend on the release. Some releases have no build for Scala 2.13, no kafka-tools, or no
    ZooKeeper that runs on Java 17.
    """
    monkeypatch.setattr(brokers, "maven_jars", lambda name, wanted, folder: f"{name} {' '.join(wanted)}")
    folder, *wanted = kafka_jars(version).split()
    assert folder == f"kafka-{version}"
    assert [artifact.split(":")[1] for artifact in wanted] == artifacts


def test_a_broker_with_zookeeper_rejects_format_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brokers, "kafka_jars", lambda version: "jars/*")
    monkeypatch.setattr(brokers, "java", lambda: "java")
    with pytest.raises(ConfigError, match=r"leave it empty for Kafka 2\.8\.2, which uses ZooKeeper"):
        jars(version="2.8.2", format_options=["--add-scram", "x"]).__enter__()


@pytest.mark.parametrize(
    ("error", "error_type"),
    [(TimeoutError("no ports"), BrokerMissing), (KeyboardInterrupt(), KeyboardInterrupt)],
)
def test_a_container_whose_start_fails_is_stopped(
    error: BaseException, error_type: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The container is stopped if `start` raises, because the container may already run."""
    calls: list[str] = []

    class DockerContainer:
        def __init__(self, image: str) -> None:
            calls.append(image)

        def with_bind_ports(self, *_: object) -> DockerContainer:
            return self

        def with_env(self, *_: object) -> None:
            pass

        def start(self) -> None:
            calls.append("start")
            raise error

        def stop(self) -> None:
            calls.append("stop")

    for name in ("testcontainers", "testcontainers.core", "testcontainers.core.container"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setattr(sys.modules[name], "DockerContainer", DockerContainer, raising=False)
    with pytest.raises(error_type):
        docker(version="4.3.1").__enter__()
    assert calls == ["apache/kafka:4.3.1", "start", "stop"]
