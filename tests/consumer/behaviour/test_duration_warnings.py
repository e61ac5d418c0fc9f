"""Seconds where milliseconds are meant: allowed, and told once, at the line of the application's."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from consumer import AsyncProducer, Cluster, Consumer, Producer, TopicPartition
from kproto.broker.server import running

P0 = TopicPartition("t", 0)
SECONDS = 1_700_000_000
CURE = r"is in milliseconds since 1970, and this looks like seconds.*int\(time\.time\(\) \* 1000\)"


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    with running({"t": 1}) as server:
        yield server.bootstrap


def produced(place: str, *times: int) -> None:
    with Producer(place) as producer:
        for number in times:
            producer.send("t", b"x", timestamp=number).result(60)


def awaited(place: str, *times: int) -> None:
    async def send() -> None:
        async with AsyncProducer(place) as producer:
            for number in times:
                await (await producer.send("t", b"x", timestamp=number))

    asyncio.run(send())


def sought(place: str, *times: int) -> None:
    with Consumer(place) as consumer:
        consumer.assign([P0])
        for number in times:
            consumer.seek_to(number)


def listed(place: str, *times: int) -> None:
    with Cluster(place) as cluster:
        for number in times:
            cluster.list_offsets({P0: number})


WAYS: list[Any] = [produced, awaited, sought, listed]


@pytest.mark.parametrize("way", WAYS)
def test_seconds_are_told_once_at_the_line_that_gives_them(place: str, way: Any) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        way(place, SECONDS, SECONDS + 1, SECONDS + 2)
    assert [one.filename for one in told] == [__file__]
    with pytest.warns(UserWarning, match=CURE):
        way(place, SECONDS)


@pytest.mark.parametrize("way", WAYS)
def test_small_times_and_those_of_today_are_what_they_are(place: str, way: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        way(place, 0, 1, 1_000, 999_999_999, 4_000_000_000, SECONDS * 1_000)
