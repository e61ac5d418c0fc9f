"""Read, process and write exactly once, as with aiokafka's transactional producer."""

from __future__ import annotations

import asyncio

from embedded import broker

from kproto import AsyncConsumer, AsyncProducer, TopicPartition

RECORDS = 10


async def process(bootstrap: str) -> None:
    """Copy the records, converted to upper case. Offsets and output are committed together or not at all."""
    async with (
        AsyncProducer(bootstrap, transactional_id="capitals-1") as producer,
        AsyncConsumer(
            bootstrap,
            group_id="capitals",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
    ):
        consumer.subscribe(["words"])
        count = 0
        while count < RECORDS:
            records = await consumer.poll(1.0)
            if not records:
                continue
            async with producer.transaction():  # an exception aborts it
                ends: dict[TopicPartition, int] = {}
                for record in records:
                    await producer.send("capital-words", (record.value or b"").upper(), key=record.key)
                    ends[record.topic_partition] = record.offset + 1
                producer.send_offsets(consumer.group_metadata(), ends)
            count += len(records)


async def main(bootstrap: str) -> None:
    async with AsyncProducer(bootstrap) as producer:
        for number in range(RECORDS):
            await producer.send("words", b"word %d" % number)
    await process(bootstrap)

    async with AsyncConsumer(
        bootstrap, group_id="shouts", auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.subscribe(["capital-words"])
        words: list[bytes] = []
        while len(words) < RECORDS:
            words += [record.value or b"" for record in await consumer.poll(1.0)]
        await consumer.commit()
    assert sorted(words) == [b"WORD %d" % number for number in range(RECORDS)]
    print(f"{len(words)} words in capitals, each exactly once")


if __name__ == "__main__":
    with broker(__doc__ or "", {"words": 2, "capital-words": 1}) as address:
        asyncio.run(main(address))
