"""Records that the application holds do not change when the receive buffers are reused.

Both runtimes, blocking and asyncio, read from a server over sockets. Responses are larger than
`ReceiveBuffer.MIN_SIZE`, and arrive in pieces of any size.
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
    """Return a record's value. In the topic "even", values have equal sizes, and so do responses."""
    text = b"%d/%d %s " % (partition, offset, topic.encode())
    return text.ljust(400) if topic == "even" else text * (1 + offset % 60)


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with running(topics=dict.fromkeys(TOPICS, PARTITIONS)) as server:
        for topic, codec in TOPICS.items():
            options: Any = {"compression_type": codec, "batch_size": 30_000, "linger_ms": 1000}
            with Producer(server.bootstrap, **options) as producer:
                for partition in range(PARTITIONS):
                    for offset in range(COUNT):
                        content = value(topic, partition, offset)
                        producer.send(topic, content, content[:9], partition, 0, headers=[("h", content[:5])])
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


class HeldRecords:
    """Polled records that the application keeps. `check` fails if a reused buffer has changed one of them."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.found: list[Any] = []

    def check(self) -> None:
        for item in self.found:
            for partition, offset, key, content, headers in fields_of(item):
                expected = value(self.topic, partition, offset)
                assert (key, content, headers) == (expected[:9], expected, (("h", expected[:5]),))


def fields_of(item: Any) -> Iterator[tuple[int, int, Any, Any, Any]]:
    if hasattr(item, "columns"):
        columns = item.columns
        contents = (
            columns.offset.tolist(),
            columns.key.to_pylist(),
            columns.value.to_pylist(),
            columns.headers,
        )
        for row in zip(*contents, strict=True):
            yield item.partition, *row
    else:
        yield item.partition, item.offset, item.key, item.value, tuple(item.headers)


async def run_steps(consumer: Any, wait: Any, plan: dict[str, Any]) -> None:
    """Run the steps of a plan with a consumer.

    `wait` returns the result of a call: it awaits an asyncio consumer's call, and returns a blocking
    consumer's result unchanged.
    """
    places = [TopicPartition(plan["topic"], index) for index in range(PARTITIONS)]
    consumer.assign(dict.fromkeys(places, 0))
    held = HeldRecords(plan["topic"])
    for number, (action, argument) in enumerate(plan["steps"]):
        if action == "rows":
            held.found += await wait(consumer.poll(0.02, argument))
        elif action == "columns":
            held.found += await wait(consumer.poll_columns(0.02))
        elif action == "seek":
            consumer.seek(places[number % PARTITIONS], argument)
        else:
            del held.found[:: argument + 1]
    held.check()


async def return_result(result: Any) -> Any:
    return result


async def await_result(result: Any) -> Any:
    return await result


@settings(max_examples=EACH)
@given(PLAY)
def test_records_of_a_blocking_consumer_never_change(broker: str, plan: dict[str, Any]) -> None:
    with Consumer(broker, max_partition_fetch_bytes=plan["size"]) as consumer:
        asyncio.run(run_steps(consumer, return_result, plan))


@settings(max_examples=EACH)
@given(PLAY)
def test_records_of_an_asyncio_consumer_never_change(broker: str, plan: dict[str, Any]) -> None:
    async def read() -> None:
        async with AsyncConsumer(broker, max_partition_fetch_bytes=plan["size"]) as consumer:
            await run_steps(consumer, await_result, plan)

    asyncio.run(read())
