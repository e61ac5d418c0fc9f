"""Fixtures for the broker tests. A module that needs topics other than t defines its own `stage`."""

from __future__ import annotations

import pytest

from tests.broker.stage import Client, Stage, TwoBrokers


@pytest.fixture
def stage() -> Stage:
    """Return a broker with the topic t, which has one partition."""
    return Stage({"t": 1})


@pytest.fixture
def client(stage: Stage) -> Client:
    """Return a client that is connected to the broker."""
    return stage.client()


@pytest.fixture
def two_brokers() -> TwoBrokers:
    """Return two brokers of one cluster."""
    return TwoBrokers()
