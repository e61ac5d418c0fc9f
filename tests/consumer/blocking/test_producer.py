"""`send` of a blocking producer: the keys, values and timestamps that it stores, without a broker."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from consumer import Producer
from kproto.errors import ConfigError


@pytest.fixture
def producer() -> Iterator[Producer]:
    """A producer that knows that the topic t has one partition."""
    producer = Producer("127.0.0.1:1", linger_ms=10_000, max_block_ms=50)
    producer._runtime.records.set_route("t", 1, [0])
    yield producer
    producer.kill()


def test_a_producer_has_its_options(producer: Producer) -> None:
    assert (producer.options.linger_ms, producer.options.client_id) == (10_000, "kproto")


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_key_or_value_is_bytes_or_a_copy_of_a_buffer(producer: Producer, part: str) -> None:
    data = bytearray(b"before")
    fields: dict[str, Any] = {"value": b"v", part: data}
    delivery = producer.send("t", **fields)
    producer.send("t", **{**fields, part: memoryview(b"view")})
    data[:] = b"after!"
    delivery._batch.use_general_rows()
    column = 1 if part == "key" else 2
    assert delivery._batch.rows[column::4] == [b"before", b"view"]
    for wrong in ("text", 5, [b"x"]):
        with pytest.raises(ConfigError, match=f"{part}="):
            producer.send("t", **{**fields, part: wrong})


def test_a_record_without_a_timestamp_has_the_time_of_its_send(producer: Producer) -> None:
    sent: list[tuple[int, int]] = []
    for _ in range(3):
        before = time.time_ns() // 1_000_000
        delivery = producer.send("t", b"x")
        sent.append((before, time.time_ns() // 1_000_000))
        time.sleep(0.02)
    producer.send("t", b"x", timestamp=5)
    *times, last = delivery._batch._record_timestamps()
    assert last == 5
    assert all(before <= at <= after for at, (before, after) in zip(times, sent, strict=True))


@pytest.mark.parametrize("shift_ms", [-3_600_000, 3_600_000])
def test_a_record_without_a_timestamp_does_not_get_the_explicit_one_before_it(
    producer: Producer, shift_ms: int
) -> None:
    before = time.time_ns() // 1_000_000
    producer.send("t", b"x", timestamp=before + shift_ms)
    delivery = producer.send("t", b"x")
    explicit, current = delivery._batch._record_timestamps()
    assert explicit == before + shift_ms
    assert before <= current <= time.time_ns() // 1_000_000
