"""What can be set on brokers while they run, for all of them or for one (KIP-226).

Rules:
  * Only what takes effect at once can be set; what cannot is refused, by Kafka also or by this broker alone.
  * What is set for one broker goes before what is set for all, and that before what the broker started with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from ..errors import ConfigError
from .settings import Settings, field_name, parsed

ALL: Final = ""
"""The resource name of what is set for all brokers."""

DYNAMIC: Final = (
    "log.cleaner.backoff.ms",
    "log.cleanup.policy",
    "log.message.timestamp.type",
    "log.retention.bytes",
    "log.retention.ms",
    "message.max.bytes",
    "producer.id.expiration.ms",
)
"""What takes effect at once. Kafka has more of them; of those this broker has nothing, or reads them once."""


class Dynamic:
    """What was set on the brokers of a cluster while they run."""

    def __init__(self, settings: Settings) -> None:
        """`settings` are those that they started with."""
        self.start: Final = settings
        self._given: dict[str, Mapping[str, str]] = {}

    def given(self, name: str) -> dict[str, str]:
        """What was set for a broker by its id, or for `ALL`, in the words in which it was given."""
        return dict(self._given.get(name, {}))

    def set(self, name: str, values: Mapping[str, str]) -> None:
        """Let this be all that is set for a broker, or for `ALL`; `refusal` has nothing against it."""
        self._given[name] = dict(values)

    def settings(self, node: int) -> Settings:
        """What a broker acts by."""
        given = {**self._given.get(ALL, {}), **self._given.get(str(node), {})}
        found: dict[str, Any] = {field_name(name): parsed(name, value) for name, value in given.items()}
        return replace(self.start, **found)


def refusal(values: Mapping[str, str]) -> str | None:
    """Why these can't be set while a broker runs; None when they can."""
    fixed = sorted(values.keys() - {*DYNAMIC})
    if fixed:
        # The beginning is Kafka's, for what it can't set either.
        there = ", ".join(DYNAMIC)
        return f"Cannot update these configs dynamically: {', '.join(fixed)}; this broker can: {there}"
    for name, value in values.items():
        try:
            parsed(name, value)
        except ConfigError as error:
            return f"Invalid value {value:.60} for configuration {name}: {error.allowed}"
    return None
