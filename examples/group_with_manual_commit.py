"""The same group with a commit after each message: slower, and nothing is read twice after a crash."""

from __future__ import annotations

import asyncio
from typing import Any

from embedded import broker

from kproto import AsyncCluster, AsyncConsumerGroup, AsyncProducer

MESSAGES = 6


class Careful:
    """Marks a message and commits before it takes the next one."""

    def __init__(self) -> None:
        self.seen = 0
        self.done = asyncio.Event()

    async def setup(self, session: Any) -> None:
        print(f"setup {session.claims}")

    async def consume_claim(self, session: Any, claim: Any) -> None:
        async for message in claim:
            print(f"{message.topic}-{message.partition} offset {message.offset}: {message.value.decode()}")
            session.mark_message(message)
            await session.commit()
            self.seen += 1
            if self.seen == MESSAGES:
                self.done.set()

    async def cleanup(self, session: Any) -> None:
        print("cleanup")


async def run(bootstrap: str) -> None:
    async with AsyncProducer(bootstrap) as producer:
        for number in range(MESSAGES):
            await producer.send("orders", f"order {number}".encode(), key=b"%d" % number)

    careful = Careful()
    options: Any = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with AsyncConsumerGroup(bootstrap, group_id="careful", **options) as group:
        session = asyncio.ensure_future(group.consume(["orders"], careful))
        await careful.done.wait()
    await session

    async with AsyncCluster(bootstrap) as cluster:
        committed = await cluster.committed_offsets("careful")
    for place, at in sorted(committed.items()):
        print(f"{place}: {'nothing' if at is None else at.offset} committed")


def main() -> None:
    with broker(__doc__ or "", {"orders": 2}) as bootstrap:
        asyncio.run(run(bootstrap))


if __name__ == "__main__":
    main()
