"""The judges, programs that check kproto: Kafka's jars, a real broker, Java.

The fixtures in conftest.py use this module. If a judge is unavailable, the test is skipped with a reason.
With `KPROTO_JUDGES=required`, the test fails.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pytest

from kproto.testing import brokers
from kproto.testing.brokers import KAFKA as KAFKA
from kproto.testing.brokers import free_port as free_port

OLD_KAFKA = "3.9.1"  # The last version of Kafka that converts records between magics (format versions).

# API -> its highest version in `KAFKA`, for the APIs of which the embedded broker serves newer versions.
HIGHEST_OF_KAFKA = {"ApiVersions": 4, "TxnOffsetCommit": 5, "DeleteGroups": 2}

# The Python module that each client needs.
MODULES = {"kafka-python": "kafka", "aiokafka": "aiokafka", "confluent": "confluent_kafka"}


def missing(judge: str) -> NoReturn:
    """Skip the test because `judge` is unavailable, or fail it if judges are required."""
    if os.environ.get("KPROTO_JUDGES") == "required":
        pytest.fail(f"the judge is required and missing: {judge}", pytrace=False)
    pytest.skip(f"judge missing: {judge}")


def java() -> str:
    """The `java` command."""
    with _required():
        return brokers.java()


def kafka_jars(version: str = KAFKA) -> str:
    """Return a class path with Kafka's broker, clients and tools, which Maven fetches once per machine.

    For `OLD_KAFKA`, Maven fetches only the jars that convert records. `KPROTO_KAFKA_JARS` names a folder with
    the jars of `KAFKA`, which replaces the download.
    """
    with _required():
        if version == OLD_KAFKA:
            return brokers.maven_jars(
                f"kafka-storage-{version}", (f"org.apache.kafka:kafka-storage:{version}",)
            )
        return brokers.kafka_jars(version)


def jars(name: str, *wanted: str) -> str:
    """Return a class path with these artifacts (group:artifact:version) and their dependencies."""
    with _required():
        return brokers.maven_jars(name, wanted)


def newest_kafka(known: str) -> str | None:
    """Return the newest Kafka version from `known` on; None if Maven finds no such version.

    Maven searches its configured repositories, and caches their lists of versions for a day.
    """
    maven = shutil.which("mvn")
    if maven is None:
        return None
    dependency = (
        "<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-clients</artifactId>"
        f"<version>[{known},)</version></dependency>"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>kproto</groupId><artifactId>newest</artifactId>"
            f"<version>1</version><dependencies>{dependency}</dependencies></project>"
        )
        order = [maven, "-q", "-B", "dependency:list", "-DexcludeTransitive", "-DoutputFile=found"]
        subprocess.run(order, cwd=folder, capture_output=True, check=False)
        found = Path(folder, "found")
        match = re.search(r"kafka-clients:jar:([^:\s]+)", found.read_text()) if found.exists() else None
    return match[1] if match else None


def is_newer(version: str, known: str) -> bool:
    """Return whether `version` is a release of Kafka newer than `known`. Release candidates do not count."""
    if not re.fullmatch(r"\d+(\.\d+)+", version):
        return False
    return [int(part) for part in version.split(".")] > [int(part) for part in known.split(".")]


@contextlib.contextmanager
def _required() -> Iterator[None]:
    try:
        yield
    except brokers.BrokerMissing as error:
        missing(str(error))


@dataclass(frozen=True)
class RealKafka:
    """A real broker: `bootstrap` is its HOST:PORT."""

    bootstrap: str


@contextlib.contextmanager
def real_kafka(
    properties: dict[str, str] | None = None, java_options: Sequence[str] = (), version: str = KAFKA
) -> Iterator[RealKafka]:
    """Yield a real Kafka: the one at `KPROTO_KAFKA`, else a new one from the jars, else one in Docker.

    `properties` are additional broker settings. `KPROTO_KAFKA` is ignored if `properties` are given, or if
    `version` is not `KAFKA`. Only a broker from the jars uses `java_options`.
    """
    named = os.environ.get("KPROTO_KAFKA")
    with _required(), contextlib.ExitStack() as stack:
        if named and not properties and version == KAFKA:
            yield RealKafka(named)
        elif shutil.which("java") and (
            shutil.which("mvn") or (os.environ.get("KPROTO_KAFKA_JARS") and version == KAFKA)
        ):
            yield RealKafka(
                stack.enter_context(brokers.jars(properties, version=version, java_options=java_options))
            )
        elif shutil.which("docker"):
            yield RealKafka(stack.enter_context(brokers.docker(properties, version=version)))
        else:
            missing("a real Kafka (KPROTO_KAFKA=host:port, or Java and Maven, or Docker)")


def need_client(client: str, *modules: str) -> None:
    """Skip or fail the test, as `missing` does, unless the client's module and `modules` are installed."""
    for module in (MODULES[client], *modules):
        if importlib.util.find_spec(module) is None:
            missing(f"{client} (module {module})")
