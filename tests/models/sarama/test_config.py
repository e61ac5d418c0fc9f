"""sarama's Config has sarama's names and defaults, and rejects values that sarama does not have."""

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
