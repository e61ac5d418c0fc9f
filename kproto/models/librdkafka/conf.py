"""librdkafka's configuration: its property names, aliases and allowed values.

Follows rdkafka_conf.c.

    conf = read({"metadata.broker.list": "localhost:9092", "group.id": "g", "enable.auto.commit": False})
    librdkafka.start(conf.config)

A property that the model uses becomes a field of `ModelConfig` or an entry of its `extra`. Properties of
features that the model lacks, such as security, are only checked and kept in `properties`. Unknown names are
rejected.

`PROPERTIES` lists the properties of consumers, without those that only producers use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

from ...errors import ConfigError
from ..contract import ModelConfig

# The allowed contexts of the property "debug". librdkafka 2.5 added the context "telemetry".
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

# The interval (ms, about 25 days) that stands for a disabled timer, which is configured as 0 or -1.
NEVER_MS: Final = 2**31 - 1

Validator = Callable[[str, object], object]


class Property(NamedTuple):
    """The check of a property, and the field of `ModelConfig` that holds its value.

    `goes_to` is the name of this field, or "extra" for an entry of `ModelConfig.extra`. An empty `goes_to`
    means that the model does not use the property.
    """

    rule: Validator
    goes_to: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conf:
    """A checked configuration. `properties` maps each property to its value, with aliases replaced by real
    names.
    """

    bootstrap: tuple[tuple[str, int], ...]
    config: ModelConfig
    properties: Mapping[str, object]


class PropertyRejected(ConfigError):
    """A property or value that librdkafka rejects. `errstr` is librdkafka's message (rd_kafka_conf_set)."""

    def __init__(self, name: str, value: object, allowed: str, errstr: str) -> None:
        super().__init__(name, value, allowed)
        self.args = (*self.args, errstr)  # Pickle passes `args` to `__init__`.
        self.errstr = errstr


def _boolean(name: str, value: object) -> bool:
    text = str(value).lower()
    if text not in ("true", "t", "1", "false", "f", "0"):
        errstr = f'Expected bool value for "{name}": true or false'
        raise PropertyRejected(name, value, "true or false", errstr)
    return text in ("true", "t", "1")


def _invalid(name: str, value: object) -> str:
    return f'Invalid value "{value}" for configuration property "{name}"'


def _string(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConfigError(name, value, "a string")
    return value


def _integer(least: int, most: int) -> Validator:
    def check(name: str, value: object) -> int:
        try:
            number = int(value) if isinstance(value, int | str) and not isinstance(value, bool) else None
        except ValueError:
            number = None
        if number is None or not least <= number <= most:
            errstr = f'Invalid value for configuration property "{name}"'
            if number is not None:
                limits = f"{least}..{most}"
                errstr = f'Configuration property "{name}" value {number} is outside allowed range {limits}'
            raise PropertyRejected(name, value, f"an integer from {least} to {most}", errstr)
        return number

    return check


def _refresh_interval(name: str, value: object) -> int:
    interval_ms = _integer(-1, 3_600_000)(name, value)
    assert isinstance(interval_ms, int)
    return interval_ms if interval_ms > 0 else NEVER_MS


def _one_of(*allowed: str) -> Validator:
    def check(name: str, value: object) -> str:
        choice = str(value).lower()
        if choice not in allowed:
            raise PropertyRejected(name, value, ", ".join(allowed), _invalid(name, value))
        return choice

    return check


def _list_of(*allowed: str) -> Validator:
    def check(name: str, value: object) -> tuple[str, ...]:
        choices = tuple(choice.strip() for choice in str(value).split(",") if choice.strip())
        for choice in choices:
            if choice not in allowed:
                raise PropertyRejected(name, choice, ", ".join(allowed), _invalid(name, choice))
        return choices

    return check


def _brokers(name: str, value: object) -> tuple[tuple[str, int], ...]:
    addresses: list[tuple[str, int]] = []
    for text in _string(name, value).split(","):
        address = text.strip().rpartition("://")[2]
        host, colon, port = address.rpartition(":")
        if not address or (colon and not port.isdigit()):
            raise ConfigError(name, value, "one or more addresses (host or host:port), separated by commas")
        addresses.append((host, int(port)) if colon else (address, 9092))
    return tuple(addresses)


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
    """Check `conf`. Raises ConfigError for an unknown property or a value that is not allowed."""
    properties: dict[str, object] = {}
    options: dict[str, Any] = {"client_id": "rdkafka", "group_id": ""}
    extra: dict[str, object] = {}
    for name, value in conf.items():
        first = ALIASES.get(name, name)
        if first not in PROPERTIES:
            allowed = f"unknown property; allowed: {', '.join(PROPERTIES)}"
            raise PropertyRejected(name, value, allowed, f'No such configuration property: "{name}"')
        rule, goes_to = PROPERTIES[first]
        properties[first] = checked = rule(name, value)
        if goes_to == "extra":
            extra[first] = checked
        elif goes_to:
            options[goes_to] = checked
    bootstrap: Any = properties.get("bootstrap.servers", ())
    return Conf(bootstrap=bootstrap, config=ModelConfig(**options, extra=extra), properties=properties)


def as_options(conf: Conf) -> dict[str, Any]:
    """Return the options that differ from `ModelConfig`'s defaults, as arguments of `World.join`."""
    plain = ModelConfig(client_id="", group_id="")
    options = {
        option.name: getattr(conf.config, option.name)
        for option in fields(ModelConfig)
        if option.name != "random"
    }
    return {name: value for name, value in options.items() if value != getattr(plain, name)}
