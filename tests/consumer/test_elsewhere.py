"""Who types another library's name of an option or a method reads what it is here."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from consumer import AsyncConsumer, AsyncProducer, Cluster, Consumer, Producer, TopicPartition
from consumer.elsewhere import METHODS, OPTIONS
from consumer.options import ConsumerConfig, ProducerConfig
from kproto.errors import ConfigError

NOWHERE = "127.0.0.1:1"
OURS = {*ConsumerConfig.__annotations__, *ProducerConfig.__annotations__}


@pytest.mark.parametrize(
    ("client", "option", "told"),
    [
        (Producer, "value_serializer", "encode them before send()"),
        (Consumer, "value_deserializer", "decode record.value yourself"),
        (Consumer, "consumer_timeout_ms", "poll(seconds) returns an empty list"),
        (Producer, "queue.buffering.max.ms", "use linger_ms"),
        (Producer, "transactional_id", "there are no transactions yet"),
    ],
)
def test_an_option_of_another_client_is_answered_with_what_there_is(
    client: type, option: str, told: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(told)):
        client(NOWHERE, **{option: 1})


@pytest.mark.parametrize(
    ("client", "method", "told"),
    [
        (Consumer, "seek_to_beginning", 'seek_to("earliest")'),
        (Consumer, "seekToBeginning", 'seek_to("earliest")'),
        (AsyncConsumer, "getmany", "poll(seconds)"),
        (Producer, "produce", "send(topic, value, key)"),
        (AsyncProducer, "send_and_wait", "await (await send(topic, value))"),
        (Cluster, "list_topics", "topics() of a Cluster"),
    ],
)
def test_a_method_of_another_client_is_answered_with_what_there_is(
    client: type, method: str, told: str
) -> None:
    with pytest.raises(AttributeError, match=re.escape(told)):
        getattr(client.__new__(client), method)


def test_a_name_that_nobody_has_is_an_attribute_error_as_ever() -> None:
    consumer = Consumer.__new__(Consumer)
    with pytest.raises(AttributeError, match="'Consumer' object has no attribute 'polll'") as caught:
        _ = consumer.polll  # type: ignore[attr-defined]
    assert (caught.value.name, caught.value.obj) == ("polll", consumer)  # Python says "Did you mean"
    assert not hasattr(consumer, "_started_by_nobody")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda consumer: consumer.poll(timeout_ms=100), "'timeout_ms'; use timeout, in seconds"),
        (lambda consumer: consumer.poll(1, num_messages=5), "'num_messages'; use max_records"),
        (
            lambda consumer: consumer.seek(partition=TopicPartition("t", 0), position=3),
            "'position'; it has partition, offset",
        ),
    ],
)
def test_an_argument_that_there_is_not_is_answered_with_those_that_there_are(call: Any, told: str) -> None:
    with Consumer(NOWHERE) as consumer, pytest.raises(TypeError, match=told):
        call(consumer)


def test_what_is_told_exists_here() -> None:
    known = OURS.union(*map(dir, (Consumer, Producer, Cluster)), {"add_done_callback", "result", "Cluster"})
    for told in (*OPTIONS.values(), *METHODS.values()):
        for name in re.findall(r"\b(\w+)\(|^use (\w+)", told):
            found = next(filter(None, name))
            assert found in known or found.endswith("Request"), told


def test_no_name_of_ours_is_told_to_be_another() -> None:
    assert OURS.isdisjoint(OPTIONS)
    assert not any(hasattr(client, name) for client in (Consumer, Producer) for name in METHODS)


def test_a_client_still_refuses_to_be_copied() -> None:
    with pytest.raises(TypeError, match="can't be copied"):
        copy.copy(Consumer.__new__(Consumer))
