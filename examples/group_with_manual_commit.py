"""A consumer group that commits after each message: slower, but a crash repeats at most one message."""

from __future__ import annotations

import asyncio
from typing import Any

from embedded import broker

from kproto import AsyncAdmin, AsyncConsumerGroup, AsyncProducer

MESSAGES = 6


class CommittingHandler:
    """Mark and commit each message before the next one is read."""

    def __init__(self) -> None:
        self.count = 0
        self.done = asyncio.Event()

    async def setup(self, session: Any) -> None:
        print(f"setup {session.claims}")

    async def consume_claim(self, session: Any, claim: Any) -> None:
        async for message in claim:
            print(f"{message.topic}-{message.partition} offset {message.offset}: {message.value.decode()}")
            session.mark_message(message)
            await session.commit()
            self.count += 1
            if self.count == MESSAGES:
                self.done.set()

    async def cleanup(self, session: Any) -> None:
        print("cleanup")


async def run(bootstrap: str) -> None:
    async with AsyncProducer(bootstrap) as producer:
        for number in range(MESSAGES):
            await producer.send("orders", f"order {number}".encode(), key=b"%d" % number)

    handler = CommittingHandler()
    options: Any = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with AsyncConsumerGroup(bootstrap, group_id="careful", **options) as group:
        session = asyncio.ensure_future(group.consume(["orders"], handler))
        await handler.done.wait()
    await session

    async with AsyncAdmin(bootstrap) as admin:
        committed = await admin.committed_offsets("careful")
    for partition, offset in sorted(committed.items()):
        print(f"{partition}: {'nothing' if offset is None else offset.offset} committed")


def main() -> None:
    with broker(__doc__ or "", {"orders": 2}) as bootstrap:
        asyncio.run(run(bootstrap))


if __name__ == "__main__":
    main()
