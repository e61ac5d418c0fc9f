"""What a `with` block does for everything here that has a `close`."""

from __future__ import annotations

from contextlib import AsyncContextDecorator, ContextDecorator
from types import TracebackType
from typing import Any, Self

from kproto.errors import KprotoError

from .logs import log


def tell_also(client: object, error: BaseException, also: KprotoError) -> None:
    """Logs why a client could not be closed well, unless that is what its block is left by."""
    if not isinstance(error, KprotoError) or str(error) not in str(also):
        log.error("%s could not be closed well: %s", client, also)


class Block:
    """Leaving the block closes. The application sees the block's own error; that of closing is logged."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        closing: Any = self
        try:
            closing.close()
        except KprotoError as also:
            if error is None:
                raise
            tell_also(self, error, also)


class AsyncBlock:
    """The asyncio twin of `Block`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        closing: Any = self
        try:
            await closing.close()
        except KprotoError as also:
            if error is None:
                raise
            tell_also(self, error, also)


class Transaction(ContextDecorator):
    """A producer's transaction: leaving the block commits, an exception aborts and is raised on."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def __enter__(self) -> None:
        self._producer._begin_block()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._producer._end_block(error)


class AsyncTransaction(AsyncContextDecorator):
    """The asyncio twin of `Transaction`."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    async def __aenter__(self) -> None:
        await self._producer._begin_block()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._producer._end_block(error)
