"""An asyncio consumer does not block its event loop."""

from __future__ import annotations

import asyncio

from consumer import AsyncConsumer
from kproto.records import batch

NOWHERE = "127.0.0.1:1"


def test_crc32c_is_imported_with_the_consumer_and_not_at_the_first_batch() -> None:
    """The import of crc32c looks up package metadata. If the first batch caused the import, the import would
    block the event loop for 40 ms.
    """

    async def main() -> None:
        AsyncConsumer(NOWHERE).kill()

    batch._crc32c_of_package.cache_clear()
    asyncio.run(main())
    assert batch._crc32c_of_package.cache_info().currsize == 1
