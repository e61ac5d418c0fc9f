"""What the application keeps stays as it was, while the memory that answers are received into is used again.

Against a server and sockets, over both shells: answers are larger than `ReceiveBuffer.MIN_SIZE`, and arrive
in pieces of any size.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from consumer import AsyncConsumer, Consumer, Producer, TopicPartition
from kproto.broker.server import running

PARTITIONS, COUNT = 3, 1500
EACH = settings().max_examples // 2


TOPICS = {"mixed": "none", "even": "none", "squeezed": "lz4"}


def value(topic: str, partition: int, offset: int) -> bytes:
    """Those of "even" have one size, and so have the answers that bring them."""
    made = b"%d/%d %s " % (partition, offset, topic.encode())
    return made.ljust(400) if topic == "even" else made * (1 + offset % 60)


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with running(topics=dict.fromkeys(TOPICS, PARTITIONS)) as server:
        for topic, codec in TOPICS.items():
            options: Any = {"compression_type": codec, "batch_size": 30_000, "linger_ms": 1000}
            with Producer(server.bootstrap, **options) as producer:
                for partition in range(PARTITIONS):
                    for offset in range(COUNT):
                        made = value(topic, partition, offset)
                        producer.send(topic, made, made[:9], partition, 0, headers=[("h", made[:5])])
        yield server.bootstrap


STEP = st.one_of(
    st.tuples(st.just("rows"), st.integers(1, 900)),
    st.tuples(st.just("columns"), st.just(0)),
    st.tuples(st.just("seek"), st.integers(0, COUNT - 1)),
    st.tuples(st.just("forget"), st.integers(0, 3)),
)
PLAY = st.fixed_dictionaries(
    {
        "topic": st.sampled_from([*TOPICS]),
        "size": st.sampled_from([70_000, 150_000, 1 << 20]),
        "steps": st.lists(STEP, min_size=4, max_size=25),
    }
)


class Kept:
    """All that a play was given and did not forget."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.found: list[Any] = []

    def check(self) -> None:
        for one in self.found:
            for partition, offset, key, content, headers in seen(one):
                made = value(self.topic, partition, offset)
                assert (key, content, headers) == (made[:9], made, (("h", made[:5]),))


def seen(one: Any) -> Iterator[tuple[int, int, Any, Any, Any]]:
    if hasattr(one, "columns"):
        some = one.columns
        contents = some.offset.tolist(), some.key.to_pylist(), some.value.to_pylist(), some.headers
        for row in zip(*contents, strict=True):
            yield one.partition, *row
    else:
        yield one.partition, one.offset, one.key, one.value, tuple(one.headers)


async def play(consumer: Any, wait: Any, told: dict[str, Any]) -> None:
    """`wait` awaits what an asyncio consumer's methods return."""
    places = [TopicPartition(told["topic"], index) for index in range(PARTITIONS)]
    consumer.assign(dict.fromkeys(places, 0))
    kept = Kept(told["topic"])
    for number, (what, much) in enumerate(told["steps"]):
        if what == "rows":
            kept.found += await wait(consumer.poll(0.02, much))
        elif what == "columns":
            kept.found += await wait(consumer.poll_columns(0.02))
        elif what == "seek":
            consumer.seek(places[number % PARTITIONS], much)
        else:
            del kept.found[:: much + 1]
    kept.check()


async def given_already(result: Any) -> Any:
    return result


async def awaited(result: Any) -> Any:
    return await result


@settings(max_examples=EACH)
@given(PLAY)
def test_what_a_blocking_consumer_gave_never_changes(broker: str, told: dict[str, Any]) -> None:
    with Consumer(broker, max_partition_fetch_bytes=told["size"]) as consumer:
        asyncio.run(play(consumer, given_already, told))


@settings(max_examples=EACH)
@given(PLAY)
def test_what_an_asyncio_consumer_gave_never_changes(broker: str, told: dict[str, Any]) -> None:
    async def read() -> None:
        async with AsyncConsumer(broker, max_partition_fetch_bytes=told["size"]) as consumer:
            await play(consumer, awaited, told)

    asyncio.run(read())
