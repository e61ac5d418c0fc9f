"""Reads the properties of a Java client.properties file that do not concern security."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from msgspec.structs import fields

from kproto.errors import ConfigError
from kproto.group.assignors import ASSIGNORS
from kproto.group.members import check_protocol

from ..consumer_options import ConsumerOptions
from ..logs import log
from ..producer_options import ProducerOptions
from .option_names import PREFIXES, mask_secret

# Client -> option -> type. The options have dots in their names, as in a properties file.
_OPTION_TYPES: Final[Mapping[str, Mapping[str, Any]]] = {
    client: {
        field.name.replace("_", "."): field.type for field in fields(options) if field.name != "security"
    }
    for client, options in (("consumer", ConsumerOptions), ("producer", ProducerOptions))
}
_JAVA_PACKAGE: Final = "org.apache.kafka.clients.consumer."
_NO_CLASSES: Final = "empty: Java classes are not run"


class _Rule(NamedTuple):
    # Returns whether a value of the property selects what the client does anyway. Such a value is ignored.
    is_allowed: Callable[[str], bool]
    # The advice in the error for a value that is not allowed.
    advice: str


def _is_empty(value: str) -> bool:
    return not value


def _is_false(value: str) -> bool:
    return value.lower() == "false"


def _is_not_zero(value: str) -> bool:
    return value.strip() != "0"


# For each client, the rules of the unsupported Java properties that change its behaviour.
_UNSUPPORTED: Final[Mapping[str, Mapping[str, _Rule]]] = {
    "consumer": {
        "group.remote.assignor": _Rule(_is_empty, "empty: the consumer protocol is not supported"),
        "interceptor.classes": _Rule(_is_empty, _NO_CLASSES),
    },
    "producer": {
        "interceptor.classes": _Rule(_is_empty, _NO_CLASSES),
        "partitioner.class": _Rule(_is_empty, f"{_NO_CLASSES}; use send(..., partition=...)"),
        "partitioner.ignore.keys": _Rule(_is_false, "false; use send(..., partition=...)"),
        "retries": _Rule(_is_not_zero, "above 0; delivery.timeout.ms limits the retries"),
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

    Leaves out the security properties, and logs the ignored and the unknown ones. Raises ConfigError for an
    unsupported property that would change the behaviour, an invalid value, and a name that is similar to a
    known one.
    """
    option_types, unsupported = _OPTION_TYPES[client], _UNSUPPORTED[client]
    tables_by_client = (*_OPTION_TYPES.values(), *_UNSUPPORTED.values())
    known = _IGNORED.union(*tables_by_client)  # The consumer's and the producer's.
    level_property = f"compression.{properties.get('compression.type')}.level"
    options: dict[str, Any] = {}
    ignored: list[str] = []
    unknown: list[str] = []
    for name, value in properties.items():
        if name.startswith(PREFIXES):
            continue
        is_option = name in option_types and name not in _IGNORED
        # An empty text selects the default, but is an error for a flag or a number.
        if is_option and (value or option_types[name] in (bool, int)):
            options[name.replace(".", "_")] = _parse_value(name, value, option_types[name])
        elif name == level_property and client == "producer":
            options["compression_level"] = _parse_value(name, value, int)
        elif name in unsupported and not unsupported[name].is_allowed(value):
            raise ConfigError(name, mask_secret(name, value), unsupported[name].advice)
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


def _parse_value(name: str, text: str, kind: Any) -> Any:
    """Return the value of a property of the type `kind`. Raises ConfigError for an invalid value."""
    if name == "partition.assignment.strategy":
        return [_assignor_name(name, part.strip()) for part in text.split(",")]
    text = text.strip()
    if name == "group.protocol":
        check_protocol(name, text.lower())  # The case of the letters is ignored, as in Java.
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


def _assignor_name(name: str, assignor: str) -> str:
    """Return an assignor's name, given the name or the Java class."""
    for known in ASSIGNORS.values():
        if assignor == known.name or assignor.removeprefix(_JAVA_PACKAGE) == known.java_class:
            return known.name
    names = [
        _JAVA_PACKAGE + known.java_class if known.java_class else known.name for known in ASSIGNORS.values()
    ]
    raise ConfigError(name, assignor, f"one or more of {', '.join(names)}")
