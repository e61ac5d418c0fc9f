"""How the outside judges are had: Kafka's jars, a real broker, Java. Used by the fixtures beside it.

A judge that can't be had is a skip with its reason, or a failure when KPROTO_JUDGES=required.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import pytest

from kproto.testing import brokers
from kproto.testing.brokers import KAFKA as KAFKA
from kproto.testing.brokers import free_port as free_port

OLD_KAFKA = "3.9.1"  # The last line of Kafka that converts records between magics.


def missing(judge: str) -> NoReturn:
    """Skip the test because `judge` is not there; fail it where judges are required."""
    if os.environ.get("KPROTO_JUDGES") == "required":
        pytest.fail(f"the judge is required and missing: {judge}", pytrace=False)
    pytest.skip(f"judge missing: {judge}")


def java() -> str:
    """The `java` command."""
    with _required():
        return brokers.java()


def kafka_jars(version: str = KAFKA) -> str:
    """A class path with Kafka's broker, clients and tools; fetched by Maven once per machine.

    With `OLD_KAFKA` it is what converts records. KPROTO_KAFKA_JARS names a folder that has those of `KAFKA`.
    """
    with _required():
        if version == KAFKA:
            return brokers.kafka_jars()
        return brokers.maven_jars(f"kafka-{version}", (f"org.apache.kafka:kafka-storage:{version}",))


def jars(name: str, *wanted: str) -> str:
    """A class path with these artifacts (group:artifact:version) and what they need."""
    with _required():
        return brokers.maven_jars(name, wanted)


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
    properties: dict[str, str] | None = None, java_options: Sequence[str] = ()
) -> Iterator[RealKafka]:
    """A real Kafka: the one KPROTO_KAFKA names, else one from the jars, else one in Docker.

    `properties` are broker settings on top of the usual ones; with them KPROTO_KAFKA is not used.
    `java_options` are for one from the jars.
    """
    named = os.environ.get("KPROTO_KAFKA")
    with _required(), contextlib.ExitStack() as stack:
        if named and not properties:
            yield RealKafka(named)
        elif shutil.which("java") and (shutil.which("mvn") or os.environ.get("KPROTO_KAFKA_JARS")):
            yield RealKafka(stack.enter_context(brokers.jars(properties, java_options=java_options)))
        elif shutil.which("docker"):
            yield RealKafka(stack.enter_context(brokers.docker(properties)))
        else:
            missing("a real Kafka (KPROTO_KAFKA=host:port, or Java and Maven, or Docker)")
