"""Timestamps in seconds instead of milliseconds are accepted, with a warning.

The warning names the line of the application that passed the timestamp. Each line causes one warning only.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from consumer import Admin, AsyncProducer, Consumer, Producer, TopicPartition
from kproto.broker.server import running

P0 = TopicPartition("t", 0)
SECONDS = 1_700_000_000
WARNING = r"is in milliseconds since 1970, and this looks like seconds.*int\(time\.time\(\) \* 1000\)"


@pytest.fixture(scope="module")
def server_address() -> Iterator[str]:
    with running({"t": 1}) as server:
        yield server.bootstrap


def produce(server_address: str, *times: int) -> None:
    with Producer(server_address) as producer:
        for number in times:
            producer.send("t", b"x", timestamp=number).result(60)


def produce_async(server_address: str, *times: int) -> None:
    async def send() -> None:
        async with AsyncProducer(server_address) as producer:
            for number in times:
                await (await producer.send("t", b"x", timestamp=number))

    asyncio.run(send())


def seek(server_address: str, *times: int) -> None:
    with Consumer(server_address) as consumer:
        consumer.assign([P0])
        for number in times:
            consumer.seek_to(number)


def listed(server_address: str, *times: int) -> None:
    with Admin(server_address) as cluster:
        for number in times:
            cluster.list_offsets({P0: number})


CALLS: list[Any] = [produce, produce_async, seek, listed]


@pytest.mark.parametrize("call", CALLS)
def test_a_timestamp_in_seconds_warns_once_per_line(server_address: str, call: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        call(server_address, SECONDS, SECONDS + 1, SECONDS + 2)
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(UserWarning, match=WARNING):
        call(server_address, SECONDS)


@pytest.mark.parametrize("call", CALLS)
def test_small_timestamps_and_current_ones_do_not_warn(server_address: str, call: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(server_address, 0, 1, 1_000, 999_999_999, 4_000_000_000, SECONDS * 1_000)
