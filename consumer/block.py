"""What a `with` block does for everything here that has a `close`."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any, Self

from kproto.errors import KprotoError

log = logging.getLogger("kproto.consumer")


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
            log.error("%s: %s", self, also)


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
            log.error("%s: %s", self, also)
