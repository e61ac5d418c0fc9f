"""Deserializers are applied to each key and value that is not null, and a failure names the record."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from consumer import ConsumerRecord, TopicPartition
from consumer.operations.deserialization import RecordDeserializer, record_deserializer
from consumer.options import consumer_options
from consumer.runtime import run_to_end
from kproto.errors import ConfigError


def record(offset: int, value: bytes | None, *, key: bytes | None = None, partition: int = 0) -> Any:
    return ConsumerRecord("t", partition, offset, 5, "CreateTime", key, value, (("h", b"x"),))


def number(topic: str, data: bytes, headers: Any) -> int:
    return int(data)


class Hex:
    def deserialize(self, topic: str, data: bytes, headers: Any) -> str:
        return f"{topic}:{data.hex()}:{headers}"


async def number_later(topic: str, data: bytes, headers: Any) -> int:
    await asyncio.sleep(0)
    return int(data)


def deserializer(*, awaits: bool = False, **options: Any) -> RecordDeserializer:
    deserializer = record_deserializer(consumer_options(options), awaits=awaits)
    assert deserializer is not None
    return deserializer


def test_without_the_options_there_is_no_deserializer() -> None:
    assert record_deserializer(consumer_options({}), awaits=False) is None
    unset = consumer_options({"key_deserializer": None, "value_deserializer": None})
    assert record_deserializer(unset, awaits=True) is None


def test_functions_and_objects_convert_keys_and_values() -> None:
    convert = deserializer(key_deserializer=Hex(), value_deserializer=number).convert
    records, errors = run_to_end(convert([record(0, b"7", key=b"\x01"), record(1, b"8")]))
    assert [(r.key, r.value) for r in records] == [("t:01:(('h', b'x'),)", 7), (None, 8)]
    assert errors == {}


def test_null_stays_null_without_a_call() -> None:
    convert = deserializer(key_deserializer=number, value_deserializer=number).convert
    records, errors = run_to_end(convert([record(0, None, key=b"1"), record(1, b"", key=None)]))
    assert [(r.key, r.value) for r in records] == [(1, None)]
    assert [error.offset for error in errors.values()] == [1], "empty bytes are not null"


def test_a_failure_ends_the_records_of_its_partition_only() -> None:
    rows = [
        record(0, b"0"),
        record(0, b"10", partition=1),
        record(1, b"x", key=b"k"),
        record(2, b"2"),
        record(1, b"y", partition=1),
        record(7, b"7", partition=2),
    ]
    records, errors = run_to_end(deserializer(value_deserializer=number).convert(rows))
    assert [(r.partition, r.offset, r.value) for r in records] == [(0, 0, 0), (1, 0, 10), (2, 7, 7)]
    assert {partition: error.offset for partition, error in errors.items()} == {
        TopicPartition("t", 0): 1,
        TopicPartition("t", 1): 1,
    }
    error = errors[TopicPartition("t", 0)]
    assert (error.topic, error.partition, error.offset, error.part) == ("t", 0, 1, "value")
    assert (error.key, error.value, error.headers, error.timestamp) == (b"k", b"x", (("h", b"x"),), 5)
    assert isinstance(error.__cause__, ValueError)
    assert str(error).startswith(
        "t-0: the value of the record at offset 1 cannot be deserialized (ValueError: "
    )
    assert str(error).endswith("seek to 2 to skip the record")


def test_a_failed_key_is_named_and_the_error_has_the_raw_bytes() -> None:
    convert = deserializer(key_deserializer=number, value_deserializer=number).convert
    _, errors = run_to_end(convert([record(0, b"7", key=b"k")]))
    (error,) = errors.values()
    assert (error.part, error.key, error.value) == ("key", b"k", b"7")


def test_coroutines_are_awaited_in_asyncio() -> None:
    convert = deserializer(awaits=True, key_deserializer=number_later, value_deserializer=number).convert
    records, errors = asyncio.run(convert([record(0, b"7", key=b"1"), record(1, b"7", key=b"x")]))
    assert [(r.key, r.value) for r in records] == [(1, 7)]
    assert [error.part for error in errors.values()] == ["key"]


@pytest.mark.parametrize("option", ["key_deserializer", "value_deserializer"])
def test_a_coroutine_function_of_a_blocking_consumer_is_rejected(option: str) -> None:
    class Later:
        async def deserialize(self, topic: str, data: bytes, headers: Any) -> int:
            return 1

    functions: list[Any] = [number_later, Later()]
    for function in functions:
        config: dict[str, Any] = {option: function}
        with pytest.raises(ConfigError, match="only an AsyncConsumer can await a coroutine") as caught:
            deserializer(**config)
        assert caught.value.option == option


@pytest.mark.filterwarnings("error:.*coroutine")
def test_a_coroutine_that_a_plain_function_returns_is_an_error_without_a_warning() -> None:
    def hidden(topic: str, data: bytes, headers: Any) -> Any:
        return number_later(topic, data, headers)

    _, errors = run_to_end(deserializer(value_deserializer=hidden).convert([record(0, b"1")]))
    (error,) = errors.values()
    assert "which only an AsyncConsumer can await" in str(error)


def test_the_interrupt_of_a_deserializer_is_not_an_error_of_the_record() -> None:
    def interrupted(topic: str, data: bytes, headers: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_to_end(deserializer(value_deserializer=interrupted).convert([record(0, b"1")]))
