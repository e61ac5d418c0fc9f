"""Fixtures for the command-line tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kproto.broker.server import Server, running
from tests.cli.stage import Shell


@pytest.fixture(scope="module")
def broker() -> Iterator[Server]:
    """A broker for all tests of a module. Each test uses topics and groups of its own."""
    with running() as server:
        yield server


@pytest.fixture
def shell(broker: Server, capsys: pytest.CaptureFixture[str]) -> Shell:
    """Return a function that runs a command against the broker, and returns the printed lines."""
    return Shell(broker.bootstrap, capsys)
