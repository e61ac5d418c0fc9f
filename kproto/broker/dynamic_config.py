"""Broker configs that can be changed while brokers run, for one broker or for all (KIP-226).

Rules:

* Only configs that take effect immediately can be changed (`Setting.dynamic`). Changes of other configs are
  rejected.

* Values take precedence in this order: the value for one broker, the value for all brokers, the value with
  which the brokers started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from .config_values import invalid_value
from .settings import SETTINGS, Settings, parse

# The resource name of all brokers.
ALL: Final = ""

# The configs that can be changed dynamically; Kafka can change more.
DYNAMIC: Final = tuple(name for name, setting in SETTINGS.items() if setting.dynamic)


class DynamicConfig:
    """The dynamic broker configs of one cluster (Kafka's DynamicBrokerConfig)."""

    def __init__(self, settings: Settings) -> None:
        """Create the dynamic configs of a cluster whose brokers started with `settings`."""
        self.start: Final = settings
        self._values: dict[str, Mapping[str, str]] = {}

    def values(self, name: str) -> dict[str, str]:
        """Return the dynamic configs of a broker id or of `ALL`, as the strings that were set."""
        return dict(self._values.get(name, {}))

    def set(self, name: str, values: Mapping[str, str]) -> None:
        """Replace the dynamic configs of a broker id or of `ALL`; `check_dynamic` must accept them."""
        self._values[name] = dict(values)

    def settings(self, node: int) -> Settings:
        """Return the current settings of a broker."""
        values = {**self._values.get(ALL, {}), **self._values.get(str(node), {})}
        changes: dict[str, Any] = {SETTINGS[name].field: parse(name, value) for name, value in values.items()}
        return replace(self.start, **changes)


def check_dynamic(values: Mapping[str, str]) -> str | None:
    """Return the reason why a running broker rejects these values, or None if it accepts them."""
    static = sorted(values.keys() - {*DYNAMIC})
    if static:
        # The error message begins with the same words as Kafka's.
        return (
            f"Cannot update these configs dynamically: {', '.join(static)}; "
            f"this broker can update: {', '.join(DYNAMIC)}"
        )
    for name, value in values.items():
        if (reason := invalid_value(name, value, SETTINGS[name].type)) is not None:
            return reason
    return None
