"""What stands in a Java client.properties beside security: for whom it is, and what becomes of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final

from msgspec.structs import fields

from kproto.errors import ConfigError

from ..logs import log
from ..options import ConsumerOptions, ProducerOptions
from .option_names import shown
from .properties import PREFIXES

# Option, as in a file -> its type.
_OWN: Final[Mapping[str, Mapping[str, Any]]] = {
    client: {one.name.replace("_", "."): one.type for one in fields(options) if one.name != "security"}
    for client, options in (("consumer", ConsumerOptions), ("producer", ProducerOptions))
}
_ASSIGNORS: Final[Mapping[str, str]] = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
_JAVA: Final = "org.apache.kafka.clients.consumer."
_CLASSES: Final = "nothing here: classes of Java are not run"

# What changes what happens: whether a value is what happens anyway, and what to do with others.
_Rule = tuple[Callable[[str], bool], str]
_CHANGES: Final[Mapping[str, Mapping[str, _Rule]]] = {
    "consumer": {
        "group.protocol": (lambda value: value.lower() == "classic", "classic; the other one is not served"),
        "group.remote.assignor": (lambda value: not value, "nothing: that protocol is not served"),
        "interceptor.classes": (lambda value: not value, _CLASSES),
    },
    "producer": {
        "interceptor.classes": (lambda value: not value, _CLASSES),
        "partitioner.class": (lambda value: not value, f"{_CLASSES}; use send(..., partition=...)"),
        "partitioner.ignore.keys": (
            lambda value: value.lower() == "false",
            "false; use send(..., partition=...)",
        ),
        "retries": (lambda value: value.strip() != "0", "above 0; delivery.timeout.ms says for how long"),
    },
}
# Addresses, and what only Java has and changes no record.
_LEFT_OUT: Final = frozenset(
    {
        "auto.include.jmx.reporter",
        "bootstrap.servers",
        "client.dns.lookup",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "connections.max.idle.ms",
        "enable.metrics.push",
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
    """The options of a "consumer" or "producer"; raises ConfigError for what can't be honoured."""
    own, changes = _OWN[client], _CHANGES[client]
    known = {*_LEFT_OUT, *(name for table in (_OWN, _CHANGES) for each in table.values() for name in each)}
    level = f"compression.{properties.get('compression.type')}.level"
    found: dict[str, Any] = {}
    left: list[str] = []
    unknown: list[str] = []
    for name, value in properties.items():
        if name.startswith(PREFIXES):
            continue
        if name in own and (value or own[name] in (bool, int)):
            found[name.replace(".", "_")] = _value(name, value, own[name])
        elif name == level and client == "producer":
            found["compression_level"] = _value(name, value, int)
        elif name in changes and not changes[name][0](value):
            raise ConfigError(name, shown(name, value), changes[name][1])
        elif name in known:
            left.append(name)
        elif near := get_close_matches(name, known, n=1, cutoff=0.9):
            raise ConfigError(name, shown(name, value), f"there is no such property; did you mean {near[0]}?")
        else:
            unknown.append(name)
    if left:
        told = [f"{one} (its first argument)" if one == "bootstrap.servers" else one for one in left]
        log.info("%s: left out, as no option of a %s: %s", file, client, ", ".join(told))
    if unknown:
        log.warning("%s: left out, as nobody here knows it: %s", file, ", ".join(unknown))
    return found


def _value(name: str, text: str, kind: Any) -> Any:
    if name == "partition.assignment.strategy":
        return [_assignor(name, one.strip()) for one in text.split(",")]
    text = text.strip()
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ConfigError(name, text, "true or false")
        return text.lower() == "true"
    if name != "acks" and kind in (int, int | None):
        if not re.fullmatch(r"[+-]?[0-9]+", text):
            raise ConfigError(name, text, "a whole number")
        return int(text)
    return text


def _assignor(name: str, one: str) -> str:
    plain = _ASSIGNORS.get(one.removeprefix(_JAVA), one)
    if plain not in _ASSIGNORS.values():
        raise ConfigError(name, one, f"one or several of {', '.join(_JAVA + each for each in _ASSIGNORS)}")
    return plain
