"""Invalid options are rejected when the client is created; the error lists the allowed values."""

from __future__ import annotations

import asyncio
import pickle
import sys
from typing import Any

import pytest

from consumer import Admin, AsyncProducer, Consumer, Producer, TopicPartition
from consumer import validation as check
from consumer.addresses import addresses
from consumer.consumer_options import ConsumerConfig, ConsumerOptions
from consumer.option_checks import duration_ms
from consumer.options import consumer_options, producer_options
from consumer.producer_options import ProducerConfig, ProducerOptions
from consumer.security import Security
from consumer.security.option_names import NAMES
from kproto.broker.server import running
from kproto.errors import ConfigError, KprotoError, MissingExtra
from kproto.group.assignors import Assignor
from kproto.records import codecs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group_idd": "g"}, "did you mean group_id"),
        ({"group.id": "g"}, "no such option; use group_id$"),
        # client_id is an option of both consumers and producers.
        ({"client.id": "me"}, "no such option; use client_id$"),
        ({"compression_type": "gzip"}, "it is an option of a producer"),
        ({"group_name": "g"}, "known are "),
        ({"group_id": ""}, "not empty"),
        ({"group_id": "g", "heartbeat_interval_ms": 45_000}, r"below session_timeout_ms \(45000\)"),
        ({"group_id": "g", "session_timeout_ms": 45}, r"milliseconds, above heartbeat_interval_ms \(3000\)"),
        ({"enable_auto_commit": True}, "needs a group_id"),
        ({"group_instance_id": "x"}, "needs a group_id"),
        ({"group_id": "g", "group_instance_id": "a b"}, "a-z A-Z 0-9"),
        ({"group_id": "g", "group_instance_id": ".."}, "neither"),
        ({"group_id": "g", "group_instance_id": "x" * 250}, "1 to 249"),
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
        ({"value_deserializer": "json"}, r"a function with the parameters \(topic, data, headers\)"),
        ({"value_deserializer": str}, "a function with the parameters"),
        ({"key_deserializer": lambda data: data}, r"headers\).* this function has \(data\)"),
        ({"fetch_min_bytes": 1.5}, "a whole number"),
        ({"check_crcs": 1}, "True or False"),
        ({"retry_backoff_ms": 5000}, "at most retry_backoff_max_ms"),
        ({"request_timeout_ms": 500}, "fetch_max_wait_ms"),
    ],
)
def test_an_invalid_consumer_option_is_named_with_the_allowed_values(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        consumer_options(options)
    assert caught.value.option in options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"linger": 1}, "did you mean linger_ms"),
        ({"key_serializer": 7}, r"a function with the parameters \(topic, value, headers\)"),
        ({"value_serializer": len}, "this function has"),
        ({"partitioner": "murmur2"}, r"\(topic, key, value, partitions, available\)"),
        ({"fetch_min_bytes": 1}, "it is an option of a consumer"),
        ({"partitioner_rack_aware": True}, "set client_rack to the rack of this client"),
        ({"partitioner_rack_aware": True, "client_rack": " "}, "set client_rack"),
        ({"compression_type": "gzip", "compression_level": 10}, "gzip has -1 to 9"),
        ({"acks": 2}, "allowed"),
        ({"acks": 1, "enable_idempotence": True}, 'acks="all"'),
        ({"max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"compression_type": "brotli"}, "zstd"),
        ({"delivery_timeout_ms": 1000}, "at least linger_ms"),
        ({"batch_size": 2**26}, "at most buffer_memory"),
    ],
)
def test_an_invalid_producer_option_is_named_with_the_allowed_values(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        producer_options(options)
    assert caught.value.option in options


def test_defaults_are_adapted_to_related_options() -> None:
    """The defaults of some options depend on other options.

    A small buffer_memory reduces the default batch_size, and a long request_timeout_ms raises the default
    delivery_timeout_ms.
    """
    assert producer_options({"buffer_memory": 16384}).batch_size == 16384
    assert producer_options({"buffer_memory": 2**26}).batch_size == 2**19
    assert producer_options({"request_timeout_ms": 300_000, "linger_ms": 7}).delivery_timeout_ms == 300_007
    assert producer_options({"request_timeout_ms": 1_000}).delivery_timeout_ms == 120_000


def test_a_consumer_without_a_group_does_not_commit() -> None:
    assert not consumer_options({}).enable_auto_commit
    assert consumer_options({"group_id": "g"}).enable_auto_commit


def test_acks_below_all_disable_idempotence() -> None:
    assert producer_options({}).enable_idempotence
    assert producer_options({"acks": "all"}).enable_idempotence
    assert not producer_options({"acks": "1"}).enable_idempotence
    assert producer_options({"acks": 0}).acks == 0


def test_assignors_may_be_one_name_or_a_comma_separated_list() -> None:
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
def test_typed_configs_have_the_same_options(options: Any, config: Any) -> None:
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
def test_addresses_are_parsed(text: Any, expected: list[tuple[str, int]]) -> None:
    assert addresses(text) == expected


@pytest.mark.parametrize("text", ["9" * 400, "9" * 5000])
@pytest.mark.parametrize("name", ["auto_offset_reset", "on_new_partition", "on_out_of_range"])
def test_a_duration_that_is_too_large_is_rejected(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name}='by_duration:PT9+\.\.\."):
        consumer_options({name: f"by_duration:PT{text}S"})


UNENCODABLE = [
    ("a\ud800", "a text that can be encoded as UTF-8"),
    ("é" * 20_000, "at most 32767 bytes; this one has 40000"),
]


@pytest.mark.parametrize(("text", "why"), UNENCODABLE, ids=["no UTF-8", "long"])
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
def test_a_text_that_no_request_can_carry_is_rejected(make: Any, name: str, text: str, why: str) -> None:
    """A string that cannot be encoded in a request is rejected when the client is created.

    If such a string were accepted, each request that contains it would fail to encode.
    """
    with pytest.raises(ConfigError, match=f"{name}=.*{why}"):
        make({name: text})


@pytest.mark.parametrize(("text", "why"), UNENCODABLE, ids=["no UTF-8", "long"])
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
def test_a_text_that_no_request_can_carry_is_rejected_by_calls_as_well(
    function: Any, value: Any, text: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        function("argument", value(text))


@pytest.mark.parametrize(("text", "why"), UNENCODABLE, ids=["no UTF-8", "long"])
def test_a_record_for_an_invalid_topic_affects_no_other(text: str, why: str) -> None:
    """A record for an invalid topic fails without affecting other topics.

    A producer's Metadata request names all of its topics. One name that cannot be encoded would prevent the
    request, and so block all topics.
    """
    with running(topics={"t": 1}) as server, Producer(server.bootstrap) as producer:
        with pytest.raises(ConfigError, match=f"topic=.*{why}"):
            producer.send(text, b"x")
        assert producer.send("t", b"x").result(10).offset == 0


@pytest.mark.parametrize(("text", "why"), UNENCODABLE, ids=["no UTF-8", "long"])
def test_a_record_for_an_invalid_topic_affects_no_other_in_asyncio(text: str, why: str) -> None:
    async def main(bootstrap: str) -> None:
        async with AsyncProducer(bootstrap) as producer:
            with pytest.raises(ConfigError, match=f"topic=.*{why}"):
                await asyncio.wait_for(producer.send(text, b"x"), 10)
            assert (await (await producer.send("t", b"x"))).offset == 0

    with running(topics={"t": 1}) as server:
        asyncio.run(main(server.bootstrap))


@pytest.mark.parametrize("make", [consumer_options, producer_options])
@pytest.mark.parametrize(
    "value",
    [10**400, -(10**5000), [10**5000], "9" * 5000, "a " * 5000, {"a" * 999: 1}, [0] * 9999, ...],
    ids=range(8),
)
def test_no_error_repeats_a_long_value(make: Any, value: object) -> None:
    options = ConsumerOptions if make is consumer_options else ProducerOptions
    for name in [*options.__struct_fields__, *NAMES, "n" * 5000]:
        if name == "security":
            continue
        message = ""
        try:
            make({name: value})
        except KprotoError as error:
            message = str(error)
        assert len(message) < 2000, name


@pytest.mark.parametrize("make", [Consumer, Producer, Admin])
@pytest.mark.parametrize(
    "servers",
    [
        "alice:hunter2@host:9092",
        ["a:1", "PLAINTEXT://alice:hunter2@host:9092"],
        {"bootstrap.servers": "a:1", "sasl_oauth_token_provider": "hunter2"},
        "SASL_SSL://alice:hunter2@host:9092",
        "kafka://alice:hunter2@host:9092",
        "alice:hunter2,3@host:9092",
        "host:9092?sasl.password=hunter2",
        ["a:x", "alice:hunter2@host:9092"],
        [1, "alice:hunter2@host:9092"],
        [("alice:hunter2@host", 9092)],
        [{"sasl.password": "hunter2"}],
        b"alice:hunter2@host:9092",
        {"bootstrap.servers": "alice:hunter2@host:9092"},
        {"kafka": {"sasl.password": "hunter2"}},
    ],
)
def test_no_error_shows_a_password_in_an_address_or_a_token_as_provider(make: Any, servers: Any) -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers") as caught:
        make(servers)
    frames_of_the_client = [entry.locals for entry in caught.traceback[1:]]
    assert frames_of_the_client
    assert (
        "hunter2" not in f"{caught.value}{caught.value!r}{pickle.dumps(caught.value)!r}{frames_of_the_client}"
    )


def test_addresses_that_contain_themselves_are_rejected() -> None:
    servers: list[Any] = ["a:1"]
    servers.append(servers)
    with pytest.raises(ConfigError, match=r"bootstrap_servers=\['a:1', \['a:1', "):
        Admin(servers)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " , ",
        [],
        "a:x",
        "a:0",
        "a:70000",
        "a:" + "9" * 5000,
        ":1",
        "::1",
        "[::1:9092",
        "[::1]9",
        "[::g]:9",
        "[host]:9",
        "local host:1",
        "host;9092",
        "a:1;b:1",
        "host/topic",
        "host?x=1:9092",
        "$HOST:9092",
        "{host}:9092",
        "'host':9092",
    ],
)
def test_invalid_addresses_are_rejected(text: Any) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        addresses(text)


def test_an_address_may_repeat_the_security_protocol() -> None:
    assert addresses("sasl_ssl://a:1", Security(protocol="SASL_SSL")) == [("a", 1)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("SASL_SSL://127.0.0.1:1", "with security_protocol='SASL_SSL', which is 'PLAINTEXT' here"),
        ("127.0.0.1:1,ssl://127.0.0.1:2", "with security_protocol='SSL'"),
        ("kafka://127.0.0.1:1", "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
    ],
)
def test_an_address_with_another_security_protocol_is_rejected(text: str, words: str) -> None:
    for client in (Admin, Consumer, Producer):
        with pytest.raises(ConfigError, match=words):
            client(text)


def test_a_codec_that_is_not_installed_is_reported_when_the_producer_is_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)
    codecs.cramjam.cache_clear()
    with pytest.raises(MissingExtra, match=r"kproto\[compression\]"):
        producer_options({"compression_type": "lz4"})
    assert producer_options({"compression_type": "gzip"}).compression_type == "gzip"


def test_an_own_assignor_may_be_combined_with_kafkas() -> None:
    assignor = Assignor("mine", lambda partitions, members, racks: {})
    options = consumer_options({"group_id": "g", "partition_assignment_strategy": [assignor, "range"]})
    assert options.partition_assignment_strategy == (assignor, "range")


def test_an_own_assignor_with_the_name_of_another_is_rejected() -> None:
    assignor = Assignor("range", lambda partitions, members, racks: {})
    with pytest.raises(ConfigError, match="each once"):
        consumer_options({"group_id": "g", "partition_assignment_strategy": [assignor, "range"]})


def test_the_error_for_an_unknown_option_of_an_admin_client_names_its_own_options() -> None:
    with pytest.raises(ConfigError, match=r"did you mean request_timeout_ms\?"):
        Admin("localhost:1", request_timeout=5)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="known are client_id, dialer, enable_metrics_push"):
        Admin("localhost:1", colour="red")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"no such option; use client_id$"):
        Admin("localhost:1", **{"client.id": "me"})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="it is an option of a producer"):
        Admin("localhost:1", acks="all")  # type: ignore[arg-type]
