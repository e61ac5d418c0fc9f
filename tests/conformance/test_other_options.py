"""Each option of the installed libraries is an option of kproto, or its error says what to use instead."""

from __future__ import annotations

import inspect
import logging
import re
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kafka")
pytest.importorskip("aiokafka")
pytest.importorskip("confluent_kafka")

import aiokafka
import confluent_kafka
import kafka
from aiokafka.admin import AIOKafkaAdminClient

from consumer import Admin, Consumer, Producer
from kproto.errors import ConfigError

from . import judges

pytestmark = pytest.mark.clients

CLIENTS: dict[str, Any] = {"consumer": Consumer, "producer": Producer, "admin": Admin}
# No client accepts this value, so each option raises ConfigError.
INVALID = object()
# librdkafka warns about a client without addresses.
SILENT = logging.Logger("silent", logging.CRITICAL)


def unanswered(kind: str, options: Collection[str]) -> dict[str, str]:
    """Return the options whose error neither names allowed values nor says what to use instead."""
    errors: dict[str, str] = {}
    for option in options:
        with pytest.raises(ConfigError) as caught:
            CLIENTS[kind]("localhost:1", **{option.replace(".", "_"): INVALID})
        if re.search(r"has no such option; (known are|did you mean)", str(caught.value)):
            errors[option] = str(caught.value)
    return errors


def test_an_option_that_no_library_has_is_not_answered() -> None:
    assert set(unanswered("consumer", ["colour", "group_id"])) == {"colour"}


@pytest.mark.parametrize(
    ("kind", "client"),
    [("consumer", "KafkaConsumer"), ("producer", "KafkaProducer"), ("admin", "KafkaAdminClient")],
)
def test_options_of_kafka_python(kind: str, client: str) -> None:
    options = getattr(kafka, client).DEFAULT_CONFIG.keys() - {"bootstrap_servers"}
    assert len(options) > 30
    assert unanswered(kind, options) == {}


@pytest.mark.parametrize(
    ("kind", "client"),
    [
        ("consumer", aiokafka.AIOKafkaConsumer),
        ("producer", aiokafka.AIOKafkaProducer),
        ("admin", AIOKafkaAdminClient),
    ],
)
def test_options_of_aiokafka(kind: str, client: Any) -> None:
    options = inspect.signature(client.__init__).parameters.keys() - {"self", "topics", "bootstrap_servers"}
    assert len(options) > 10
    assert unanswered(kind, options) == {}


def options_of_librdkafka() -> list[str]:
    """Return the options that librdkafka knows, among the words in its shared library."""
    folder = Path(confluent_kafka.__file__).parent
    libraries = [*folder.parent.glob("confluent_kafka.libs/*rdkafka*"), *folder.glob("*rdkafka*")]
    words = {
        word.decode()
        for library in libraries
        for word in re.findall(rb"(?<![\w.])[a-z][a-z_]*(?:[._][a-z0-9_]+)*(?=\0)", library.read_bytes())
    }
    return [word for word in sorted(words) if len(word) < 60 and is_known_to_librdkafka(word)]


def is_known_to_librdkafka(option: str) -> bool:
    try:
        confluent_kafka.Producer({option: "x"}, logger=SILENT)
    except confluent_kafka.KafkaException as error:
        return "No such configuration property" not in str(error)
    except (TypeError, ValueError):  # The option is a function.
        pass
    return True


@pytest.mark.parametrize("kind", CLIENTS)
def test_options_of_librdkafka(kind: str, librdkafka_options: list[str]) -> None:
    assert len(librdkafka_options) > 150
    assert unanswered(kind, set(librdkafka_options) - {"bootstrap.servers"}) == {}


@pytest.fixture(scope="module")
def librdkafka_options() -> list[str]:
    return options_of_librdkafka()


@pytest.mark.java
def test_options_of_java(kafka_jars: str, tmp_path: Path) -> None:
    source = Path(__file__).parent / "java" / "OptionNames.java"
    run = [judges.java(), "-cp", kafka_jars, str(source)]
    printed = subprocess.run(run, capture_output=True, text=True, cwd=tmp_path, check=True).stdout
    pairs = [line.split() for line in printed.splitlines()]
    for kind in CLIENTS:
        options = {option for of, option in pairs if of == kind} - {"bootstrap.servers"}
        assert len(options) > 50
        assert unanswered(kind, options) == {}
