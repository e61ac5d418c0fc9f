"""Wrong options are refused at once, by name, with what is allowed."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from consumer import AsyncProducer, Cluster, Consumer, Producer, TopicPartition
from consumer import validation as check
from consumer.addresses import addresses
from consumer.option_checks import duration_ms
from consumer.options import (
    ConsumerConfig,
    ConsumerOptions,
    ProducerConfig,
    ProducerOptions,
    consumer_options,
    producer_options,
)
from consumer.security import Security
from consumer.security.option_names import NAMES
from kproto.broker.server import running
from kproto.errors import ConfigError, KprotoError, MissingExtra
from kproto.group.assignors import Assignor
from kproto.records import codecs


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"group_idd": "g"}, "did you mean group_id"),
        ({"group.id": "g"}, "did you mean group_id"),
        ({"compression_type": "gzip"}, "known are "),
        ({"group_id": ""}, "not empty"),
        ({"group_id": "g", "heartbeat_interval_ms": 45_000}, r"below session_timeout_ms \(45000\)"),
        ({"group_id": "g", "session_timeout_ms": 45}, r"milliseconds, above heartbeat_interval_ms \(3000\)"),
        ({"enable_auto_commit": True}, "needs a group_id"),
        ({"group_instance_id": "x"}, "needs a group_id"),
        ({"group_id": "g", "group_instance_id": "a b"}, "a-z A-Z 0-9"),
        ({"group_id": "g", "group_instance_id": ".."}, "neither"),
        ({"auto_offset_reset": "smallest"}, '"earliest", "latest", "none"'),
        ({"auto_offset_reset": "by_duration:1h"}, "ISO 8601"),
        ({"auto_offset_reset": "by_duration:P"}, "ISO 8601"),
        ({"on_new_partition": 1}, "allowed"),
        ({"partition_assignment_strategy": "rang"}, "cooperative-sticky"),
        ({"partition_assignment_strategy": []}, "one or several"),
        ({"partition_assignment_strategy": ["range", "range"]}, "each once"),
        ({"isolation_level": "committed"}, "'read_committed'"),
        ({"max_poll_records": 0}, "a whole number from 1"),
        ({"max_poll_records": True}, "a whole number"),
        ({"fetch_min_bytes": 1.5}, "a whole number"),
        ({"check_crcs": 1}, "True or False"),
        ({"retry_backoff_ms": 5000}, "at most retry_backoff_max_ms"),
        ({"request_timeout_ms": 500}, "fetch_max_wait_ms"),
    ],
)
def test_a_wrong_consumer_option_is_named_with_what_is_allowed(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        consumer_options(given)
    assert caught.value.option in given


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"linger": 1}, "did you mean linger_ms"),
        ({"compression_type": "gzip", "compression_level": 10}, "gzip has -1 to 9"),
        ({"acks": 2}, "allowed"),
        ({"acks": 1, "enable_idempotence": True}, 'acks="all"'),
        ({"max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"compression_type": "brotli"}, "zstd"),
        ({"delivery_timeout_ms": 1000}, "at least linger_ms"),
        ({"batch_size": 2**26}, "at most buffer_memory"),
    ],
)
def test_a_wrong_producer_option_is_named_with_what_is_allowed(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        producer_options(given)
    assert caught.value.option in given


def test_what_is_not_given_gives_way_to_what_is() -> None:
    """Who asks for a small buffer, or for slow requests, did not say that a batch is larger, or less time."""
    assert producer_options({"buffer_memory": 16384}).batch_size == 16384
    assert producer_options({"buffer_memory": 2**26}).batch_size == 2**19
    assert producer_options({"request_timeout_ms": 300_000, "linger_ms": 7}).delivery_timeout_ms == 300_007
    assert producer_options({"request_timeout_ms": 1_000}).delivery_timeout_ms == 120_000


def test_a_consumer_without_a_group_commits_nothing() -> None:
    assert not consumer_options({}).enable_auto_commit
    assert consumer_options({"group_id": "g"}).enable_auto_commit


def test_acks_below_all_turn_idempotence_off() -> None:
    assert producer_options({}).enable_idempotence
    assert producer_options({"acks": "all"}).enable_idempotence
    assert not producer_options({"acks": "1"}).enable_idempotence
    assert producer_options({"acks": 0}).acks == 0


def test_one_assignor_may_be_a_text_and_several_a_list_in_one() -> None:
    assert consumer_options({"partition_assignment_strategy": "range"}).partition_assignment_strategy == (
        "range",
    )
    several = consumer_options({"partition_assignment_strategy": "range, sticky"})
    assert several.partition_assignment_strategy == ("range", "sticky")


@pytest.mark.parametrize(
    ("text", "ms"), [("PT1H", 3_600_000), ("P1DT1S", 86_401_000), ("PT0.5S", 500), ("PT1M", 60_000)]
)
def test_durations_are_iso_8601(text: str, ms: int) -> None:
    assert duration_ms(f"by_duration:{text}") == ms


@pytest.mark.parametrize(
    ("options", "config"), [(ConsumerOptions, ConsumerConfig), (ProducerOptions, ProducerConfig)]
)
def test_type_checkers_and_we_know_the_same_options(options: Any, config: Any) -> None:
    assert set(options.__struct_fields__) - {"security"} | NAMES == set(config.__annotations__)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", [("a", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        (["a:1", "b"], [("a", 1), ("b", 9092)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
        ("[::1]:7", [("::1", 7)]),
    ],
)
def test_addresses(text: Any, expected: list[tuple[str, int]]) -> None:
    assert addresses(text) == expected


@pytest.mark.parametrize("text", ["9" * 400, "9" * 5000])
@pytest.mark.parametrize("name", ["auto_offset_reset", "on_new_partition", "on_out_of_range"])
def test_a_duration_that_no_number_holds_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name}='by_duration:PT9+\.\.\."):
        consumer_options({name: f"by_duration:PT{text}S"})


UNSAYABLE = [
    ("a\ud800", "a text that has a UTF-8 form"),
    ("é" * 20_000, "at most 32767 bytes; this one has 40000"),
]


@pytest.mark.parametrize(("text", "why"), UNSAYABLE, ids=["no UTF-8", "long"])
@pytest.mark.parametrize(
    ("make", "name"),
    [
        (consumer_options, "client_id"),
        (consumer_options, "group_id"),
        (consumer_options, "client_rack"),
        (producer_options, "client_id"),
        (producer_options, "transactional_id"),
    ],
)
def test_what_no_request_can_carry_is_refused_at_once(make: Any, name: str, text: str, why: str) -> None:
    """Each was a client that failed for good when it wrote its first request."""
    with pytest.raises(ConfigError, match=f"{name}=.*{why}"):
        make({name: text})


@pytest.mark.parametrize(("text", "why"), UNSAYABLE, ids=["no UTF-8", "long"])
@pytest.mark.parametrize(
    ("function", "value"),
    [
        (check.topic, lambda text: text),
        (check.topics, lambda text: ["t", text]),
        (check.subscribed_topics, lambda text: text),
        (check.partition_counts, lambda text: {text: 1}),
        (check.group, lambda text: text),
        (check.groups, lambda text: [text]),
        (check.any_text, lambda text: text),
        (check.partition, lambda text: TopicPartition(text, 0)),
        (check.one_or_more_partitions, lambda text: [TopicPartition(text, 0)]),
        (check.topic_configs, lambda text: {"a": text}),
    ],
)
def test_nor_is_it_taken_by_a_call(function: Any, value: Any, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        function("argument", value(text))


@pytest.mark.parametrize(("text", "why"), UNSAYABLE, ids=["no UTF-8", "long"])
def test_a_record_for_a_topic_that_no_request_can_name_harms_no_other(text: str, why: str) -> None:
    """A request for metadata names all topics, so that each of them waited for this one."""
    with running(topics={"t": 1}) as server, Producer(server.bootstrap) as producer:
        with pytest.raises(ConfigError, match=f"topic=.*{why}"):
            producer.send(text, b"x")
        assert producer.send("t", b"x").result(10).offset == 0


@pytest.mark.parametrize(("text", "why"), UNSAYABLE, ids=["no UTF-8", "long"])
def test_nor_in_a_loop(text: str, why: str) -> None:
    async def play(bootstrap: str) -> None:
        async with AsyncProducer(bootstrap) as producer:
            with pytest.raises(ConfigError, match=f"topic=.*{why}"):
                await asyncio.wait_for(producer.send(text, b"x"), 10)
            assert (await (await producer.send("t", b"x"))).offset == 0

    with running(topics={"t": 1}) as server:
        asyncio.run(play(server.bootstrap))


@pytest.mark.parametrize("make", [consumer_options, producer_options])
@pytest.mark.parametrize(
    "value",
    [10**400, -(10**5000), [10**5000], "9" * 5000, "a " * 5000, {"a" * 999: 1}, [0] * 9999, ...],
    ids=range(8),
)
def test_no_error_repeats_what_is_long(make: Any, value: object) -> None:
    options = ConsumerOptions if make is consumer_options else ProducerOptions
    for name in [*options.__struct_fields__, *NAMES, "n" * 5000]:
        if name == "security":
            continue
        told = ""
        try:
            make({name: value})
        except KprotoError as error:
            told = str(error)
        assert len(told) < 2000, name


@pytest.mark.parametrize("text", ["", " , ", [], "a:x", "a:0", "a:70000", "a:" + "9" * 5000, ":1", "::1"])
def test_wrong_addresses_are_refused(text: Any) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        addresses(text)


def test_an_address_may_say_the_protocol_that_the_options_say() -> None:
    assert addresses("sasl_ssl://a:1", Security(protocol="SASL_SSL")) == [("a", 1)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SASL_SSL://127.0.0.1:1", "with security_protocol='SASL_SSL', which is 'PLAINTEXT' here"),
        ("127.0.0.1:1,ssl://127.0.0.1:2", "with security_protocol='SSL'"),
        ("kafka://127.0.0.1:1", "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ],
)
def test_no_client_goes_on_without_the_protocol_that_an_address_asks_for(text: str, words: str) -> None:
    for client in (Cluster, Consumer, Producer):
        with pytest.raises(ConfigError, match=words):
            client(text)


def test_a_producer_says_at_once_that_a_codec_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    codecs.cramjam.cache_clear()
    with pytest.raises(MissingExtra, match=r"kproto\[compression\]"):
        producer_options({"compression_type": "lz4"})
    assert producer_options({"compression_type": "gzip"}).compression_type == "gzip"


def test_an_assignor_of_ones_own_is_taken_beside_kafkas() -> None:
    mine = Assignor("mine", lambda partitions, members, racks: {})
    options = consumer_options({"group_id": "g", "partition_assignment_strategy": [mine, "range"]})
    assert options.partition_assignment_strategy == (mine, "range")


def test_an_assignor_of_ones_own_that_takes_anothers_name_is_refused() -> None:
    mine = Assignor("range", lambda partitions, members, racks: {})
    with pytest.raises(ConfigError, match="each once"):
        consumer_options({"group_id": "g", "partition_assignment_strategy": [mine, "range"]})
