"""Reads the properties of a Java client.properties file that do not concern security."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from msgspec.structs import fields

from kproto.errors import ConfigError
from kproto.group.assignors import ASSIGNORS
from kproto.group.members import check_protocol

from ..consumer_options import ConsumerOptions
from ..logs import log
from ..producer_options import ProducerOptions
from .option_names import PREFIXES, mask_secret

# The options of each client, with their types. Their names have dots, as in a properties file.
_OWN: Final[Mapping[str, Mapping[str, Any]]] = {
    client: {
        field.name.replace("_", "."): field.type for field in fields(options) if field.name != "security"
    }
    for client, options in (("consumer", ConsumerOptions), ("producer", ProducerOptions))
}
_JAVA: Final = "org.apache.kafka.clients.consumer."
_CLASSES: Final = "empty: Java classes are not run"

# For each client, the unsupported Java properties that change its behaviour: property -> (check, advice). The
# check is true for a value that selects this library's behaviour. For any other value, the error contains the
# advice.
_Rule = tuple[Callable[[str], bool], str]
_CHANGES: Final[Mapping[str, Mapping[str, _Rule]]] = {
    "consumer": {
        "group.remote.assignor": (lambda value: not value, "empty: the consumer protocol is not supported"),
        "interceptor.classes": (lambda value: not value, _CLASSES),
    },
    "producer": {
        "interceptor.classes": (lambda value: not value, _CLASSES),
        "partitioner.class": (lambda value: not value, f"{_CLASSES}; use send(..., partition=...)"),
        "partitioner.ignore.keys": (
            lambda value: value.lower() == "false",
            "false; use send(..., partition=...)",
        ),
        "retries": (lambda value: value.strip() != "0", "above 0; delivery.timeout.ms limits the retries"),
    },
}
# The ignored properties: bootstrap.servers, the class names of Java's serializers, and properties that do not
# change which records Java reads or writes.
_IGNORED: Final = frozenset(
    {
        "auto.include.jmx.reporter",
        "bootstrap.servers",
        "client.dns.lookup",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "connections.max.idle.ms",
        "key.deserializer",
        "key.serializer",
        "metadata.max.idle.ms",
        "metric.reporters",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable",
        "partitioner.availability.timeout.ms",
        "receive.buffer.bytes",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
        "value.deserializer",
        "value.serializer",
    }
)


def options_of(properties: Mapping[str, str], client: str, file: str) -> dict[str, Any]:
    """Convert properties to the options of a "consumer" or "producer".

    Raise ConfigError for an unsupported property that would change the behaviour.
    """
    own, changes = _OWN[client], _CHANGES[client]
    known = {*_IGNORED, *(name for table in (_OWN, _CHANGES) for each in table.values() for name in each)}
    level = f"compression.{properties.get('compression.type')}.level"
    options: dict[str, Any] = {}
    ignored: list[str] = []
    unknown: list[str] = []
    for name, value in properties.items():
        if name.startswith(PREFIXES):
            continue
        if name in own and name not in _IGNORED and (value or own[name] in (bool, int)):
            options[name.replace(".", "_")] = _value(name, value, own[name])
        elif name == level and client == "producer":
            options["compression_level"] = _value(name, value, int)
        elif name in changes and not changes[name][0](value):
            raise ConfigError(name, mask_secret(name, value), changes[name][1])
        elif name in known:
            ignored.append(name)
        elif near := get_close_matches(name, known, n=1, cutoff=0.9):
            raise ConfigError(
                name, mask_secret(name, value), f"the property does not exist; did you mean {near[0]}?"
            )
        else:
            unknown.append(name)
    if ignored:
        names = [f"{name} (its first argument)" if name == "bootstrap.servers" else name for name in ignored]
        log.info("%s: ignored, as not an option of a %s: %s", file, client, ", ".join(names))
    if unknown:
        log.warning("%s: ignored, as unknown: %s", file, ", ".join(unknown))
    return options


def _value(name: str, text: str, kind: Any) -> Any:
    if name == "partition.assignment.strategy":
        return [_assignor(name, part.strip()) for part in text.split(",")]
    text = text.strip()
    if name == "group.protocol":
        check_protocol(name, text.lower())  # Case is ignored, as in Java.
        return text.lower()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(name, text, "true or false")
        return text.lower() == "true"
    if name != "acks" and kind in (int, int | None):
        if not re.fullmatch(r"[+-]?[0-9]+", text):
            raise ConfigError(name, text, "a whole number")
        return int(text)
    return text


def _assignor(name: str, assignor: str) -> str:
    """Return an assignor's name, given the name or the Java class."""
    for known in ASSIGNORS.values():
        if assignor == known.name or assignor.removeprefix(_JAVA) == known.java_class:
            return known.name
    names = [_JAVA + known.java_class if known.java_class else known.name for known in ASSIGNORS.values()]
    raise ConfigError(name, assignor, f"one or more of {', '.join(names)}")
