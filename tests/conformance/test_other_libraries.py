"""Options and methods of other libraries exist in kproto, or kproto's error names what to use instead."""

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
import confluent_kafka.admin
import kafka
from aiokafka.admin import AIOKafkaAdminClient

from consumer import Admin, Consumer, Producer
from consumer.other_clients import unknown_method
from kproto.errors import ConfigError

from . import judges

pytestmark = pytest.mark.clients

CLIENTS: dict[str, Any] = {"consumer": Consumer, "producer": Producer, "admin": Admin}
# No client accepts this value, so each option raises ConfigError.
INVALID = object()
# Discards librdkafka's warning about a client without bootstrap servers.
SILENT = logging.Logger("silent", logging.CRITICAL)


def unanswered(kind: str, options: Collection[str]) -> dict[str, str]:
    """Return the error for each option that kproto recognizes neither as its own nor as another library's."""
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
    """Return librdkafka's options: the words in its shared library that it accepts as option names."""
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
    except (TypeError, ValueError):  # The option exists, but "x" is not a function.
        pass
    return True


@pytest.mark.parametrize("kind", CLIENTS)
def test_options_of_librdkafka(kind: str, librdkafka_options: list[str]) -> None:
    assert len(librdkafka_options) > 150
    assert unanswered(kind, set(librdkafka_options) - {"bootstrap.servers"}) == {}


@pytest.fixture(scope="module")
def librdkafka_options() -> list[str]:
    return options_of_librdkafka()


@pytest.fixture(scope="module")
def names_of_java(kafka_jars: str, tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """Return the options and methods of Java's clients, each as a list.

    Each list is ["option" or "method", kind of client, name].
    """
    source = Path(__file__).parent / "java" / "ClientNames.java"
    run = [judges.java(), "-cp", kafka_jars, str(source)]
    folder = tmp_path_factory.mktemp("names")
    printed = subprocess.run(run, capture_output=True, text=True, cwd=folder, check=True).stdout
    return [line.split() for line in printed.splitlines()]


@pytest.mark.java
@pytest.mark.parametrize("kind", CLIENTS)
def test_options_of_java(kind: str, names_of_java: list[list[str]]) -> None:
    options = {name for what, of, name in names_of_java if (what, of) == ("option", kind)}
    assert len(options) > 50
    assert unanswered(kind, options - {"bootstrap.servers"}) == {}


def unanswered_methods(kind: str, methods: Collection[str]) -> set[str]:
    """Return the methods that kproto lacks, and whose AttributeError does not say what to use instead."""
    client = CLIENTS[kind]
    name_of_kind = "admin client" if kind == "admin" else kind
    return {
        method
        for method in methods
        if not hasattr(client, re.sub("([A-Z])", lambda match: f"_{match[1].lower()}", method))
        and ";" not in str(unknown_method(client.__new__(client), name_of_kind, method))
    }


def public_methods(client: type) -> set[str]:
    return {name for name in dir(client) if name[0] != "_" and callable(getattr(client, name, None))}


def test_a_method_that_no_library_has_is_not_answered() -> None:
    assert unanswered_methods("consumer", ["paint", "poll"]) == {"paint"}


@pytest.mark.parametrize(
    ("kind", "client"),
    [
        ("consumer", kafka.KafkaConsumer),
        ("producer", kafka.KafkaProducer),
        ("admin", kafka.KafkaAdminClient),
        ("consumer", aiokafka.AIOKafkaConsumer),
        ("producer", aiokafka.AIOKafkaProducer),
        ("admin", AIOKafkaAdminClient),
        ("consumer", confluent_kafka.Consumer),
        ("producer", confluent_kafka.Producer),
        ("admin", confluent_kafka.admin.AdminClient),
    ],
)
def test_methods_of_other_libraries_in_python(kind: str, client: type) -> None:
    methods = public_methods(client)
    assert len(methods) > 10
    assert unanswered_methods(kind, methods) == set()


@pytest.mark.java
@pytest.mark.parametrize("kind", CLIENTS)
def test_methods_of_java(kind: str, names_of_java: list[list[str]]) -> None:
    methods = {name for what, of, name in names_of_java if (what, of) == ("method", kind)}
    assert len(methods) > 10
    assert unanswered_methods(kind, methods) == set()
