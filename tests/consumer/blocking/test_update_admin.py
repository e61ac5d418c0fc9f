"""`update_admin` generates the methods of `Admin` from `AsyncAdmin`."""

from __future__ import annotations

import ast

from tests.consumer.blocking.update_admin import ASYNC, BLOCKING, FIRST, LAST, update

ASYNCHRONOUS = f'''
from kproto.wire.message import Message
from ..engine.admin import topics as topic_plans
from ..engine.admin.topics import Topic, TopicListing
from ..engine.metrics import Metrics


class AsyncAdmin:
{FIRST}
    async def create(
        self, topic: Topic, *, timeout: float | None = None
    ) -> None:
        """Create a topic."""
        await self._send(topic_plans.create(topic), timeout)

    async def _send(self, plan: Any, timeout: float | None) -> None: ...

    @property
    def view(self) -> dict[str, int]:
        """The metadata."""
        return self._view

    def metrics(self) -> Metrics:
        """Return the metrics.

        No request is sent.
        """
        return self._metrics

    # ---- topics

    async def topics(self, pattern: str, limit: int = 3) -> list[str]:
        """List topics."""
        return []

{LAST}
    def __repr__(self) -> str: ...
'''

BEFORE = f"""
from ..engine.admin.groups import Group
from ..lifecycle import Block


class Admin:
    def __init__(self) -> None: ...

{FIRST}
    def removed(self) -> None: ...

{LAST}
    def __repr__(self) -> str: ...
"""

AFTER = f'''
from ..engine.admin.topics import Topic
from ..engine.metrics import Metrics
from ..lifecycle import Block


class Admin:
    def __init__(self) -> None: ...

{FIRST}
    def create(
        self, topic: Topic, *, timeout: float | None = None
    ) -> None:
        """Create a topic."""
        run_to_end(self._operations.create(topic, timeout=timeout))

    @property
    def view(self) -> dict[str, int]:
        """The metadata."""
        return self._operations.view

    def metrics(self) -> Metrics:
        """Return the metrics.

        No request is sent.
        """
        return self._operations.metrics()

    # ---- topics

    def topics(self, pattern: str, limit: int = 3) -> list[str]:
        """List topics."""
        return run_to_end(self._operations.topics(pattern, limit))

{LAST}
    def __repr__(self) -> str: ...
'''


def test_the_blocking_admin_is_up_to_date() -> None:
    blocking = BLOCKING.read_text()
    updated = update(ASYNC.read_text(), blocking)
    is_same = ast.dump(ast.parse(updated)) == ast.dump(ast.parse(blocking))
    assert is_same, "run python -m tests.consumer.blocking.update_admin and ruff format"
    assert _sections(updated) == _sections(blocking)


def test_methods_and_imports_are_written_from_those_of_the_asyncio_client() -> None:
    assert update(ASYNCHRONOUS, BEFORE) == AFTER
    assert update(ASYNCHRONOUS, AFTER) == AFTER


def _sections(source: str) -> list[str]:
    return [line for line in source.splitlines() if line.startswith("    # ----")]
