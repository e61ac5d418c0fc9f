"""Where each client's machine is: found by the name that people say, and imported on first use.

client("sarama").start(config)
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Protocol, cast

from ..errors import ConfigError
from .contract import Action, Config, Event

CLIENTS: Final[Mapping[str, str]] = {
    "java": "java",
    "java-2.6": "java.java_2_6",
    "sarama": "sarama",
    "sarama-cluster": "sarama_cluster",
    "kafka-go": "kafka_go",
    "librdkafka": "librdkafka",
}
"""Name -> module in this room. kproto's own consumer is no machine of this room: it is `consumer`."""


class Client(Protocol):
    """What every module of this room has; `contract` says what it means."""

    VERSIONS: Mapping[int, int]

    def start(self, config: Config) -> Any: ...
    def step(self, state: Any, event: Event, now: int) -> list[Action]: ...
    def next_deadline(self, state: Any) -> int | None: ...


def available() -> tuple[str, ...]:
    """The names of the clients whose machine is in this release."""
    return tuple(name for name, module in CLIENTS.items() if find_spec(f"{__package__}.{module}"))


def client(name: str) -> Client:
    """The module of a client. Raises ConfigError for a name that this release doesn't have."""
    if name not in available():
        raise ConfigError("client", name, f"allowed: {', '.join(available())}")
    return cast("Client", import_module(f"{__package__}.{CLIENTS[name]}"))
