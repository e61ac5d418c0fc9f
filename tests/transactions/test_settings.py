"""The settings of the transaction coordinator have Kafka's names and bounds."""

from __future__ import annotations

import pytest

from kproto.errors import ConfigError
from kproto.transactions import TransactionSettings


def test_settings_have_kafkas_names_and_bounds() -> None:
    settings = TransactionSettings.from_properties({"transaction.max.timeout.ms": "5"})
    assert settings.transaction_max_timeout_ms == 5
    for properties in (
        {"transaction.max.timeout.ms": "0"},
        {"transaction.max.timeout.ms": "x"},
        {"no.such": 1},
    ):
        with pytest.raises(ConfigError):
            TransactionSettings.from_properties(properties)
