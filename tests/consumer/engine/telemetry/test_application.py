"""A metric's name is checked when the metric is created, and each value when it is set."""

from __future__ import annotations

from typing import Any

import pytest

from consumer import ApplicationMetric
from kproto.errors import ConfigError


def test_a_metric_has_the_value_that_was_set_last() -> None:
    metric = ApplicationMetric("orders-total", "shop-metrics", {"region": "eu"})
    assert metric.value is None
    metric.value = 2
    metric.value += 0.5
    snapshot = metric.snapshot()
    assert (snapshot.name, snapshot.group, snapshot.tags, snapshot.value) == (
        "orders-total",
        "shop-metrics",
        {"region": "eu"},
        2.5,
    )
    assert repr(metric) == "ApplicationMetric('orders-total', 'shop-metrics', {'region': 'eu'}, value=2.5)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("", "shop"), "name='' is not allowed; a string that is not empty"),
        (("a", 1), "group=1 is not allowed; a string that is not empty"),
        (("a", "shop", ["x"]), r"tags=\['x'\] is not allowed; a dict of strings"),
        (("a", "shop", {"x": 1}), "tags=1 is not allowed; a string that is not empty"),
        (("a", "shop", {}, True), "value=True is not allowed; a finite number, or None"),
        (("a", "shop", {}, float("nan")), "value=nan is not allowed"),
        (("a", "shop", {}, "1"), "value='1' is not allowed"),
        (("a", "shop", {}, 10**400), "a finite number, or None"),
        (("a\ud800", "shop"), "name=.* a text that can be encoded as UTF-8"),
        (("a", "shop\ud800"), "group=.* a text that can be encoded as UTF-8"),
        (("a", "shop", {"x": "\ud800"}), "tags=.* a text that can be encoded as UTF-8"),
        (("a", "consumer-metrics"), 'a group of the application, such as "shop-metrics"'),
        (("a", "Producer.topic"), "consumer, producer, admin-client are clients"),
        (("a", "admin-client-metrics"), "group='admin-client-metrics' is not allowed"),
    ],
)
def test_invalid_metrics_are_rejected(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ApplicationMetric(*arguments)


def test_a_group_may_begin_like_that_of_a_client() -> None:
    assert ApplicationMetric("a", "administration").group == "administration"
    assert ApplicationMetric("a", "consumers").group == "consumers"
