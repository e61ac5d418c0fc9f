"""The config of sarama's model has sarama's names and defaults, and rejects what sarama does not support."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from kproto.errors import ConfigError
from kproto.models.contract import ModelConfig

# `sarama.start` is a function of the package, so the module is imported by its path.
config = import_module("kproto.models.sarama.config")


def settings(**options: Any) -> Any:
    return config.settings(ModelConfig(client_id="a", group_id="g", **options))


def test_an_option_that_is_not_set_has_saramas_default() -> None:
    defaults = settings()
    assert (defaults.strategies, defaults.offsets_initial) == (("range",), config.NEWEST)
    assert (defaults.group_session_timeout, defaults.group_heartbeat_interval) == (10_000, 3_000)
    assert (defaults.offsets_auto_commit, defaults.offsets_auto_commit_interval) == (True, 1_000)
    assert (defaults.group_rebalance_retry_max, defaults.channel_buffer_size) == (4, 256)


def test_extra_sets_options_by_saramas_own_names() -> None:
    chosen = settings(reset="earliest", extra={"Offsets.Retry.Max": 7, "ChannelBufferSize": 3})
    assert (chosen.offsets_retry_max, chosen.channel_buffer_size) == (7, 3)
    assert chosen.offsets_initial == config.OLDEST


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"assignors": ("cooperative",)}, "assignors"),
        ({"reset": "none"}, "reset"),
        ({"extra": {"Fetch.Max": "1 MiB"}}, "Fetch.Max"),
    ],
)
def test_a_value_that_sarama_does_not_have_raises_config_error(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        settings(**options)


@pytest.mark.parametrize(
    ("strategies", "cooperative"),
    [(("cooperative-sticky",), True), (("cooperative-sticky", "range"), False)],
)
def test_a_group_is_cooperative_if_all_strategies_are(strategies: tuple[str, ...], cooperative: bool) -> None:
    assert settings(assignors=strategies).cooperative is cooperative


def test_only_modelled_releases_are_allowed() -> None:
    assert settings(extra={"Release": "1.38.1"}).release == "1.38.1"
    with pytest.raises(ConfigError, match=r"Release='1.2.3' is not allowed; allowed: 1.38.1, 1.61.1"):
        settings(extra={"Release": "1.2.3"})


def test_each_default_is_that_of_newconfig() -> None:
    """The expected values come from NewConfig in config.go of sarama 1.61.1."""
    defaults = settings()
    assert (defaults.group_rebalance_timeout, defaults.group_rebalance_retry_backoff) == (60_000, 2_000)
    assert (defaults.group_reset_invalid_offsets, defaults.offsets_retry_max) == (True, 3)
    assert (defaults.offsets_retention, defaults.metadata_refresh_frequency) == (0, 600_000)
    assert (defaults.metadata_retry_max, defaults.metadata_retry_backoff) == (3, 250)
    assert (defaults.metadata_full, defaults.consumer_return_errors) == (True, True)
    assert (defaults.consumer_retry_backoff, defaults.consumer_retry_max) == (2_000, 0)
    assert (defaults.consumer_max_wait_time, defaults.consumer_max_processing_time) == (500, 100)
    assert (defaults.consumer_isolation, defaults.fetch_min) == (0, 1)
    assert (defaults.fetch_default, defaults.fetch_max) == (1_048_576, 0)
    assert defaults.fetch_max_bytes == 52_428_800
    assert settings(extra={"Release": "1.38.1"}).fetch_max_bytes == 104_857_600
    assert (defaults.once, defaults.instance_id, defaults.rack_id) == (False, None, "")


def test_options_of_the_contract_replace_the_defaults() -> None:
    chosen = settings(
        session_ms=1,
        heartbeat_ms=2,
        max_poll_ms=3,
        auto_commit_ms=4,
        metadata_ms=0,
        fetch_wait_ms=5,
        auto_commit=False,
        isolation="read_committed",
        instance="i",
        rack="r",
    )
    assert (chosen.group_session_timeout, chosen.group_heartbeat_interval) == (1, 2)
    assert (chosen.group_rebalance_timeout, chosen.offsets_auto_commit_interval) == (3, 4)
    assert (chosen.metadata_refresh_frequency, chosen.consumer_max_wait_time) == (0, 5)
    assert (chosen.offsets_auto_commit, chosen.consumer_isolation) == (False, 1)
    assert (chosen.instance_id, chosen.rack_id) == ("i", "r")
    assert settings(instance="i", extra={"Version": "2.2.0"}).instance_id is None
