"""Fixtures that start a new embedded broker for every test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kproto.broker.server import running
from tests.consumer.spark.stage import Filled


@pytest.fixture
def filled() -> Iterator[Filled]:
    """A new broker, without topics."""
    with running(topics={}) as server:
        filled = Filled(server.bootstrap)
        with filled.cluster:
            yield filled
