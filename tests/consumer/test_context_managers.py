"""The end of a `with` block closes the client.

If the block and `close` both raise an error, the block's error leaves the `with` statement.
"""

from __future__ import annotations

import asyncio

import pytest

from consumer.context_managers import AsyncBlock, Block
from kproto.errors import IllegalState


class FailingBlock(Block):
    def close(self) -> None:
        raise IllegalState("it is stuck")


class FailingAsyncBlock(AsyncBlock):
    async def close(self) -> None:
        raise IllegalState("it is stuck")


def leave_block(block: FailingBlock | FailingAsyncBlock, error: Exception | None) -> None:
    def inside() -> None:
        if error is not None:
            raise error

    async def leave(block: FailingAsyncBlock) -> None:
        async with block:
            inside()

    if isinstance(block, FailingAsyncBlock):
        asyncio.run(leave(block))
        return
    with block:
        inside()


@pytest.mark.parametrize("block", [FailingBlock, FailingAsyncBlock])
def test_an_error_of_close_is_raised(block: type[FailingBlock | FailingAsyncBlock]) -> None:
    with pytest.raises(IllegalState, match="stuck"):
        leave_block(block(), None)


@pytest.mark.parametrize("block", [FailingBlock, FailingAsyncBlock])
def test_the_error_of_the_block_is_raised_and_that_of_close_is_logged(
    block: type[FailingBlock | FailingAsyncBlock], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError, match="of the block"):
        leave_block(block(), ValueError("of the block"))
    assert "it is stuck" in caplog.text
