"""librdkafka's configuration: its property names and aliases, and what their values may be (rdkafka_conf.c).

    conf = read({"metadata.broker.list": "localhost:9092", "group.id": "g", "enable.auto.commit": False})
    librdkafka.start(conf.config)

A property that the machine listens to is put where it looks for it; one that is about what the machine does
not do (the connection's security, logs) is checked and kept in `properties`. Names that are not in the table
are refused, as librdkafka refuses those that it doesn't have: it has about 150, and these are the consumer's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

from ...errors import ConfigError
from ..contract import ModelConfig

# The contexts of "debug"; telemetry came with 2.5.
DEBUG: Final = (
    "generic",
    "broker",
    "topic",
    "metadata",
    "feature",
    "queue",
    "msg",
    "protocol",
    "cgrp",
    "security",
    "fetch",
    "interceptor",
    "plugin",
    "consumer",
    "admin",
    "eos",
    "mock",
    "assignor",
    "conf",
    "telemetry",
    "all",
)

ALIASES: Final[Mapping[str, str]] = {
    "metadata.broker.list": "bootstrap.servers",
    "sasl.mechanism": "sasl.mechanisms",
}

# Where 0 or -1 switches an interval off.
NEVER_MS: Final = 2**31 - 1

Validator = Callable[[str, object], object]


class Property(NamedTuple):
    """What a property may be, and where the machine finds it: a field of `Config`, "extra", or nowhere."""

    rule: Validator
    goes_to: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conf:
    """What was configured. `properties` has every property by its first name, with its value."""

    bootstrap: tuple[tuple[str, int], ...]
    config: ModelConfig
    properties: Mapping[str, object]


def _boolean(name: str, value: object) -> bool:
    text = str(value).lower()
    if text not in ("true", "t", "1", "false", "f", "0"):
        raise ConfigError(name, value, "true or false")
    return text in ("true", "t", "1")


def _string(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(name, value, "a string")
    return value


def _integer(least: int, most: int) -> Validator:
    def check(name: str, value: object) -> int:
        try:
            found = int(value) if isinstance(value, int | str) and not isinstance(value, bool) else None
        except ValueError:
            found = None
        if found is None or not least <= found <= most:
            raise ConfigError(name, value, f"a whole number from {least} to {most}")
        return found

    return check


def _refresh_interval(name: str, value: object) -> int:
    found = _integer(-1, 3_600_000)(name, value)
    assert isinstance(found, int)
    return found if found > 0 else NEVER_MS


def _one_of(*allowed: str) -> Validator:
    def check(name: str, value: object) -> str:
        found = str(value).lower()
        if found not in allowed:
            raise ConfigError(name, value, ", ".join(allowed))
        return found

    return check


def _list_of(*allowed: str) -> Validator:
    def check(name: str, value: object) -> tuple[str, ...]:
        found = tuple(one.strip() for one in str(value).split(",") if one.strip())
        for one in found:
            if one not in allowed:
                raise ConfigError(name, one, ", ".join(allowed))
        return found

    return check


def _brokers(name: str, value: object) -> tuple[tuple[str, int], ...]:
    found: list[tuple[str, int]] = []
    for one in _string(name, value).split(","):
        address = one.strip().rpartition("://")[2]
        host, colon, port = address.rpartition(":")
        if not address or (colon and not port.isdigit()):
            raise ConfigError(name, value, "host or host:port, separated by commas")
        found.append((host, int(port)) if colon else (address, 9092))
    return tuple(found)


PROPERTIES: Final[Mapping[str, Property]] = {
    "bootstrap.servers": Property(_brokers),
    "client.id": Property(_string, "client_id"),
    "client.rack": Property(_string, "rack"),
    "group.id": Property(_string, "group_id"),
    "group.instance.id": Property(_string, "instance"),
    "partition.assignment.strategy": Property(
        _list_of("range", "roundrobin", "cooperative-sticky"), "assignors"
    ),
    "session.timeout.ms": Property(_integer(1, 3_600_000), "session_ms"),
    "heartbeat.interval.ms": Property(_integer(1, 3_600_000), "heartbeat_ms"),
    "max.poll.interval.ms": Property(_integer(1, 86_400_000), "max_poll_ms"),
    "enable.auto.commit": Property(_boolean, "auto_commit"),
    "auto.commit.interval.ms": Property(_integer(0, 86_400_000), "auto_commit_ms"),
    "enable.auto.offset.store": Property(_boolean, "extra"),
    "enable.partition.eof": Property(_boolean, "extra"),
    "queued.min.messages": Property(_integer(1, 10_000_000), "extra"),
    "auto.offset.reset": Property(
        _one_of("smallest", "earliest", "beginning", "largest", "latest", "end", "error"), "reset"
    ),
    "isolation.level": Property(_one_of("read_uncommitted", "read_committed"), "isolation"),
    "fetch.wait.max.ms": Property(_integer(0, 300_000), "fetch_wait_ms"),
    "topic.metadata.refresh.interval.ms": Property(_refresh_interval, "metadata_ms"),
    "debug": Property(_list_of(*DEBUG)),
    "security.protocol": Property(_one_of("plaintext", "ssl", "sasl_plaintext", "sasl_ssl")),
    "sasl.mechanisms": Property(_string),
    "sasl.username": Property(_string),
    "sasl.password": Property(_string),
}


def read(conf: Mapping[str, object]) -> Conf:
    """Check `conf`. Raises ConfigError for a name that there isn't, and for a value that is not allowed."""
    properties: dict[str, object] = {}
    given: dict[str, Any] = {"client_id": "rdkafka", "group_id": ""}
    extra: dict[str, object] = {}
    for name, value in conf.items():
        first = ALIASES.get(name, name)
        if first not in PROPERTIES:
            raise ConfigError(name, value, f"there is no such property; there are {', '.join(PROPERTIES)}")
        rule, goes_to = PROPERTIES[first]
        properties[first] = found = rule(name, value)
        if goes_to == "extra":
            extra[first] = found
        elif goes_to:
            given[goes_to] = found
    bootstrap: Any = properties.get("bootstrap.servers", ())
    return Conf(bootstrap=bootstrap, config=ModelConfig(**given, extra=extra), properties=properties)


def as_options(conf: Conf) -> dict[str, Any]:
    """What differs from `Config`'s defaults, as `World.join` takes it."""
    plain = ModelConfig(client_id="", group_id="")
    found = {one.name: getattr(conf.config, one.name) for one in fields(ModelConfig) if one.name != "random"}
    return {name: value for name, value in found.items() if value != getattr(plain, name)}
