"""Metrics that the application registers, and the client pushes with its own (KIP-1076).

Rules, as in Java's ClientTelemetryReporter:

* A registered metric is pushed if the brokers' telemetry subscription selects it. It does not appear in the
  client's `metrics()`.

* A second metric with the same name and the same attributes replaces the first one.

* A metric of the application cannot replace one of the client's own metrics. Java ignores the attempt.
  `ApplicationMetric` raises an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any, Final

from kproto.errors import ConfigError
from kproto.validation import encodable_text

from ..metrics import Metric

# A metric group whose name starts with one of these prefixes belongs to the clients' own metrics.
_CLIENT_PREFIXES: Final = ("consumer", "producer", "admin-client")


class ApplicationMetric:
    """A metric of the application, which clients push with their own metrics (KIP-1076).

        orders = ApplicationMetric("orders-total", "shop-metrics", {"region": "eu"}, value=0)
        producer.register_metric_for_subscription(orders)
        orders.value += 1

    Brokers receive this metric as `org.apache.kafka.shop.orders.total`, with the tags as attributes.

    A metric whose name ends with -total counts from the start of the application, and is pushed as a
    monotonic sum. All other metrics are gauges.

    A client reads `value` when it pushes. A metric whose `value` is None is not pushed.

    A metric may be registered with several clients. Any thread may set its value, but two threads that add to
    it need a lock. Java: KafkaMetric.
    """

    __slots__ = ("_value", "group", "name", "tags")

    def __init__(
        self, name: str, group: str, tags: Mapping[str, str] | None = None, value: float | None = None
    ) -> None:
        """Create a metric.

        Raises ConfigError if a string is empty or cannot be encoded as UTF-8, if `group` is a group of the
        clients' own metrics, or if the value is not a finite number.
        """
        self.name: Final = _checked_text("name", name)
        self.group: Final = _checked_text("group", group)
        if _is_client_group(group):
            prefixes = ", ".join(_CLIENT_PREFIXES)
            allowed = f'a group of the application, such as "shop-metrics"; {prefixes} are clients'
            raise ConfigError("group", group, allowed)
        if tags is not None and not isinstance(tags, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("tags", tags, 'a dict of strings, such as {"region": "eu"}')
        self.tags: Final[Mapping[str, str]] = {
            _checked_text("tags", tag): _checked_text("tags", text) for tag, text in (tags or {}).items()
        }
        self.value = value

    @property
    def value(self) -> float | None:
        """The number that is pushed. If it is None, the metric is not pushed."""
        return self._value

    @value.setter
    def value(self, value: float | None) -> None:
        if value is not None and not _is_finite(value):
            raise ConfigError("value", value, "a finite number, or None")
        self._value = value

    def __repr__(self) -> str:
        return f"ApplicationMetric({self.name!r}, {self.group!r}, {dict(self.tags)!r}, value={self._value!r})"

    def snapshot(self) -> Metric:
        """Return the metric with its present value."""
        return Metric(self.name, self.group, self.tags, self._value, "", "")


def _checked_text(option: str, text: Any) -> str:
    if not isinstance(text, str) or not text:
        raise ConfigError(option, text, "a string that is not empty")
    return encodable_text(option, text)


def _is_finite(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    except OverflowError:  # Values are pushed as floats, and this integer is too large for a float.
        return False


def _is_client_group(group: str) -> bool:
    words = group.lower().replace(".", "-").split("-")
    return words[0] in ("consumer", "producer") or words[:2] == ["admin", "client"]
