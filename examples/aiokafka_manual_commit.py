"""Process and commit the records of each partition as a batch, as programs with aiokafka's getmany do."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from embedded import broker

from kproto import AsyncConsumer, AsyncProducer, TopicPartition

RECORDS = 20


async def store(partition: TopicPartition, values: list[bytes]) -> None:
    print(f"{partition}: {len(values)} records")  # for example a write to a database


async def main(bootstrap: str) -> None:
    async with AsyncProducer(bootstrap) as producer:
        for number in range(RECORDS):
            await producer.send("batches", b"%d" % number, key=b"%d" % number)

    stored: list[bytes] = []
    async with AsyncConsumer(
        bootstrap, group_id="batch-readers", auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        consumer.subscribe(["batches"])
        while len(stored) < RECORDS:
            batches: defaultdict[TopicPartition, list[bytes]] = defaultdict(list)
            ends: dict[TopicPartition, int] = {}
            for record in await consumer.poll(1.0):
                batches[record.topic_partition].append(record.value or b"")
                ends[record.topic_partition] = record.offset + 1  # the offset of the next record
            for partition, values in batches.items():
                await store(partition, values)
                await consumer.commit({partition: ends[partition]})
                stored += values
    assert sorted(map(int, stored)) == list(range(RECORDS))
    print(f"stored {len(stored)} records")


if __name__ == "__main__":
    with broker(__doc__ or "", {"batches": 3}) as address:
        asyncio.run(main(address))
