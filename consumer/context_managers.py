"""Context managers for all clients: the end of the `with` block closes the client."""

from __future__ import annotations

from contextlib import AsyncContextDecorator, ContextDecorator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kproto.errors import KprotoError

from .logs import log
from .runtime import run_to_end

if TYPE_CHECKING:
    from .operations.producer import ProducerOperations


def log_close_error(client: object, error: BaseException, close_error: KprotoError) -> None:
    """Log the error that closing a client raised, unless it only repeats `error`, the error of the block."""
    if not isinstance(error, KprotoError) or str(error) not in str(close_error):
        log.error("%s was closed with an error: %s", client, close_error)


class Block:
    """A base class of blocking clients: the end of the `with` block closes the client.

    If the block has raised an exception, an error that closing raises is only logged.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        client: Any = self
        try:
            client.close()
        except KprotoError as close_error:
            if error is None:
                raise
            log_close_error(self, error, close_error)


class AsyncBlock:
    """The asyncio version of `Block`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        client: Any = self
        try:
            await client.close()
        except KprotoError as close_error:
            if error is None:
                raise
            log_close_error(self, error, close_error)


class Transaction(ContextDecorator):
    """A producer's transaction: the end of the `with` block commits it, and an exception aborts it."""

    def __init__(self, operations: ProducerOperations) -> None:
        self._operations = operations

    def __enter__(self) -> None:
        run_to_end(self._operations.begin_block())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        run_to_end(self._operations.end_block(error))


class AsyncTransaction(AsyncContextDecorator):
    """The asyncio version of `Transaction`."""

    def __init__(self, operations: ProducerOperations) -> None:
        self._operations = operations

    async def __aenter__(self) -> None:
        await self._operations.begin_block()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._operations.end_block(error)
