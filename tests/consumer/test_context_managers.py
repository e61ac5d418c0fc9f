"""Leaving a `with` block: what is closed, and whose error is seen."""

from __future__ import annotations

import asyncio

import pytest

from consumer.context_managers import AsyncBlock, Block
from kproto.errors import IllegalState


class Door(Block):
    def close(self) -> None:
        raise IllegalState("it is stuck")


class AsyncDoor(AsyncBlock):
    async def close(self) -> None:
        raise IllegalState("it is stuck")


def through(door: Door | AsyncDoor, error: Exception | None) -> None:
    def inside() -> None:
        if error is not None:
            raise error

    async def leave(door: AsyncDoor) -> None:
        async with door:
            inside()

    if isinstance(door, AsyncDoor):
        asyncio.run(leave(door))
        return
    with door:
        inside()


@pytest.mark.parametrize("door", [Door, AsyncDoor])
def test_an_error_of_closing_is_raised(door: type[Door | AsyncDoor]) -> None:
    with pytest.raises(IllegalState, match="stuck"):
        through(door(), None)


@pytest.mark.parametrize("door", [Door, AsyncDoor])
def test_the_blocks_own_error_is_raised_and_that_of_closing_is_logged(
    door: type[Door | AsyncDoor], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError, match="of the block"):
        through(door(), ValueError("of the block"))
    assert "it is stuck" in caplog.text
