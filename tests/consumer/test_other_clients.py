"""Using an option or method name of another client library raises an error with kproto's name for it."""

from __future__ import annotations

import asyncio
import copy
import inspect
import re
import sys
from typing import Any

import pytest

import consumer
import kproto
from consumer import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncConsumerGroup,
    AsyncProducer,
    ClusterDescription,
    Consumer,
    ConsumerGroup,
    Delivery,
    Group,
    GroupMetadata,
    Producer,
    TopicPartition,
)
from consumer.consumer_options import ConsumerConfig
from consumer.engine.metadata.cluster import ClusterView
from consumer.engine.metrics import Metrics
from consumer.other_clients import METHODS, unknown_method
from consumer.other_options import OPTIONS
from consumer.producer_options import ProducerConfig
from consumer.security.option_names import SecurityConfig
from kproto.errors import ConfigError
from kproto.lazy_imports import OTHER_CLASSES
from kproto.messages.index import API_NAMES

NOWHERE = "127.0.0.1:1"
OURS = {*ConsumerConfig.__annotations__, *ProducerConfig.__annotations__}


LIBRDKAFKAS = {"bootstrap.servers": NOWHERE, "sasl.username": "alice", "sasl.password": "hunter2-hunter2"}


@pytest.mark.parametrize("client", [Consumer, Producer, Admin, ConsumerGroup])
def test_a_dict_of_options_is_rejected_without_showing_a_password(client: Any) -> None:
    """A dict of options, as confluent-kafka takes it, is rejected. The error must not show the values."""
    message = 'options are given each by its name, with "_" for ".", as client_id="me"'
    for make in (lambda: client(LIBRDKAFKAS), lambda: client(bootstrap_servers=LIBRDKAFKAS)):
        with pytest.raises(ConfigError, match=re.escape(message)) as raised:
            make()
        assert "hunter2" not in repr(raised.value)
    with pytest.raises(ConfigError, match="no such option") as caught:
        client(NOWHERE, **({"group_id": "g"} if client is ConsumerGroup else {}), conf=LIBRDKAFKAS)
    assert "alice" in str(caught.value)
    assert "hunter2" not in f"{caught.value!r} {caught.value}"


@pytest.mark.parametrize(
    ("client", "option", "words"),
    [
        (Consumer, "consumer_timeout_ms", "poll(seconds) returns an empty list"),
        (Consumer, "rebalance_timeout_ms", "use max_poll_interval_ms"),
        (Consumer, "socket.timeout.ms", "use request_timeout_ms"),
        (Producer, "connections_max_idle_ms", "the client reopens them"),
        (Consumer, "enable.partition.eof", "use enable_partition_eof"),
        (Producer, "max_batch_size", "use batch_size"),
        (Consumer, "auto.commit.enable", "use enable_auto_commit"),
        (Producer, "metadata.broker.list", "the addresses of brokers are the first argument"),
        (Consumer, "bootstrap_server", "the addresses of brokers are the first argument"),
        (Admin, "ssl.providers", "use ssl_context, your own"),
        (Producer, "queue.buffering.max.ms", "use linger_ms"),
    ],
)
def test_an_option_of_another_client_names_the_counterpart(client: type, option: str, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        client(NOWHERE, **{option: 1})


@pytest.mark.parametrize(
    ("client", "method", "words"),
    [
        (Consumer, "seek_to_beginning", 'seek_to("earliest")'),
        (Consumer, "seekToBeginning", 'seek_to("earliest")'),
        (AsyncConsumer, "getmany", "poll(seconds)"),
        (Consumer, "consumer_group_metadata", "use group_metadata()"),
        (Consumer, "unassign", "use unsubscribe()"),
        (AsyncProducer, "send_batch", "use send_columns(topic, table)"),
        (Admin, "reset_group_offsets", "use commit_offsets(group, offsets)"),
        (Producer, "produce", "send(topic, value, key)"),
        (Producer, "poll", "callbacks are called by themselves"),
        (Producer, "partitions_for", "Admin(bootstrap).partitions(topic)"),
        (AsyncProducer, "send_and_wait", "await (await send(topic, value))"),
        (Admin, "listConsumerGroups", "use list_groups()"),
        (Admin, "lag", "use group(name).lag"),
        (Admin, "brokers", "use describe_cluster().nodes"),
        (Admin, "produce_async", "has no attribute 'produce_async'"),
        (Admin, "seek_to_beginning", 'of a consumer: use seek_to("earliest")'),
    ],
)
def test_a_method_of_another_client_names_the_counterpart(client: type, method: str, words: str) -> None:
    kind = next(kind for kind, clients in KINDS.items() if client in clients)
    assert words in str(unknown_method(client.__new__(client), kind, method))
    if kind == "producer" and sys.version_info < (3, 12):
        pytest.skip("before Python 3.12 a __getattr__ would slow `send`")
    with pytest.raises(AttributeError, match=re.escape(words)):
        getattr(client.__new__(client), method)


def test_a_producer_names_counterparts_only_where_this_does_not_slow_its_sends() -> None:
    """The hints need `__getattr__`, which before Python 3.12 slows down each access to an attribute."""
    for producer in (Producer, AsyncProducer):
        assert hasattr(producer, "__getattr__") == (sys.version_info >= (3, 12))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("get", "use result(seconds)"),
        ("add_callback", "use add_done_callback(function)"),
        ("add_errback", "which has exception()"),
        ("remove_done_callback", "asyncio.ensure_future makes one"),
    ],
)
def test_an_attribute_of_another_clients_future_names_the_counterpart(name: str, words: str) -> None:
    batch: Any = None
    delivery = Delivery(batch, 0)
    with pytest.raises(AttributeError, match=re.escape(words)):
        getattr(delivery, name)
    assert not hasattr(delivery, name)


async def _count_with_asyncio_wait(bootstrap: str) -> int:
    async with AsyncProducer(bootstrap) as producer:
        tasks = {asyncio.ensure_future(await producer.send("t", b"x")) for _ in range(3)}
        done, _ = await asyncio.wait(tasks, timeout=20)
        return len(done)


def test_deliveries_can_be_awaited_as_the_error_says() -> None:
    with kproto.running({"t": 1}) as server:
        assert asyncio.run(_count_with_asyncio_wait(server.bootstrap)) == 3


def test_a_missing_argument_is_named() -> None:
    with Consumer(NOWHERE) as client:
        missing_names: Any = client
        with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'offset'"):
            missing_names.seek(TopicPartition("t", 0))
        with pytest.raises(TypeError, match=r"missing 1 required positional argument: 'partition'"):
            missing_names.seek(offset=1)


def test_a_regular_expression_among_topics_names_the_argument_for_it() -> None:
    with Consumer(NOWHERE, group_id="g") as client, pytest.raises(ConfigError, match=r"is pattern='ord\.\*'"):
        client.subscribe(["^ord.*"])


@pytest.mark.parametrize("module", [kproto, consumer])
def test_a_class_of_another_client_names_the_counterpart(module: Any) -> None:
    with pytest.raises(AttributeError, match="it is called Producer here"):
        _ = module.KafkaProducer
    with pytest.raises(ImportError, match=f"from {module.__name__} import Consumer"):
        exec(f"from {module.__name__} import KafkaConsumer")
    assert not hasattr(module, "KafkaConsumer")
    assert all(hasattr(module, name) for name in OTHER_CLASSES.values())


@pytest.mark.parametrize("module", [kproto, consumer])
def test_the_former_names_of_the_admin_clients_name_the_new_ones(module: Any) -> None:
    with pytest.raises(ImportError, match=f"it is called Admin here: from {module.__name__} import Admin"):
        exec(f"from {module.__name__} import Cluster")
    with pytest.raises(AttributeError, match="it is called AsyncAdmin here"):
        _ = module.AsyncCluster


@pytest.mark.parametrize("client", [Consumer, AsyncConsumer, Producer, AsyncProducer, Admin, AsyncAdmin])
def test_a_topic_as_the_first_argument_names_subscribe(client: Any) -> None:
    with pytest.raises(TypeError, match=r"topics are for subscribe\(\[topic, ...\]\)"):
        client("t", bootstrap_servers=NOWHERE)
    with pytest.raises(TypeError, match=rf'{client.__name__}\("host:9092", option=value'):
        client("t", NOWHERE)
    assert next(iter(inspect.signature(client).parameters)) == "bootstrap_servers"


@pytest.mark.parametrize("group", [ConsumerGroup, AsyncConsumerGroup])
def test_a_group_name_given_as_in_sarama_names_the_option(group: Any) -> None:
    with pytest.raises(TypeError, match=r'the group is group_id="name", topics are for consume\('):
        group([NOWHERE], "billing")


def test_an_unknown_name_is_an_ordinary_attribute_error() -> None:
    consumer = Consumer.__new__(Consumer)
    with pytest.raises(AttributeError, match="'Consumer' object has no attribute 'polll'") as caught:
        _ = consumer.polll  # type: ignore[attr-defined]

    # Python derives the "Did you mean" hint of the traceback from the attributes `name` and `obj`.
    assert (caught.value.name, caught.value.obj) == ("polll", consumer)
    assert not hasattr(consumer, "_started_by_nobody")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda consumer: consumer.poll(timeout_ms=100), "'timeout_ms'; use timeout, in seconds"),
        (lambda consumer: consumer.poll(1, num_messages=5), "'num_messages'; use max_records"),
        (lambda consumer: consumer.subscribe(["t"], on_assign=print), "'on_assign'; use listener, an object"),
        (lambda consumer: consumer.subscribe(["t"], topic="t"), "'topic'; it has topics, listener, pattern"),
        (
            lambda consumer: consumer.seek(partition=TopicPartition("t", 0), position=3),
            "unexpected keyword argument 'position'",
        ),
        (
            lambda consumer: consumer.pause(TopicPartition("t", 0), TopicPartition("t", 1)),
            "takes 2 positional arguments but 3 were given",
        ),
        (lambda consumer: consumer.seek("t", 0, 5), "takes 3 positional arguments but 4 were given"),
        (lambda consumer: consumer.assignment(1), "takes 1 positional argument but 2 were given"),
    ],
)
def test_an_unknown_argument_names_the_allowed_ones(call: Any, words: str) -> None:
    with Consumer(NOWHERE) as consumer, pytest.raises(TypeError, match=words):
        call(consumer)


@pytest.mark.parametrize("client", [Consumer, AsyncConsumer, Producer, AsyncProducer])
def test_an_unknown_argument_of_each_method_names_its_arguments(client: Any) -> None:
    """An unknown argument raises TypeError, whose message lists the method's arguments."""
    methods = {
        name: [known for known in inspect.signature(method).parameters if known not in ("self", "unknown")]
        for name, method in inspect.getmembers(client, inspect.isfunction)
        if not name.startswith("_") and "unknown" in inspect.signature(method).parameters
    }
    assert "close" in methods

    async def misuse(instance: Any, name: str) -> None:
        answer = getattr(instance, name)(*(("t",) if name == "send" else ()), xyzzy=1)
        if inspect.iscoroutine(answer):
            await answer

    async def call(name: str, known: list[str]) -> None:
        instance = client(NOWHERE)
        with pytest.raises(TypeError) as caught:
            await misuse(instance, name)
        instance.kill()
        expected = f"{name}() got an unexpected keyword argument 'xyzzy'; it has {', '.join(known)}"
        assert str(caught.value) == expected

    for name, known in methods.items():
        asyncio.run(call(name, known))


@pytest.mark.parametrize("method", ["flush", "close"])
def test_timeouts_of_a_producer_are_in_seconds(method: str) -> None:
    words = "'timeout_ms'; use timeout, in seconds"
    with Producer(NOWHERE) as producer, pytest.raises(TypeError, match=words):
        getattr(producer, method)(timeout_ms=100)

    async def main() -> None:
        async with AsyncProducer(NOWHERE) as producer:
            with pytest.raises(TypeError, match=words):
                await getattr(producer, method)(timeout_ms=100)

    asyncio.run(main())


KINDS: dict[str, tuple[type, ...]] = {
    "consumer": (Consumer, AsyncConsumer),
    "producer": (Producer, AsyncProducer),
    "admin client": (Admin, AsyncAdmin),
    "delivery": (Delivery,),
}
# Method -> its result type, or an example of its result. Used to check hints such as "name(...).attribute".
RETURNED: dict[str, object] = {
    "Admin": Admin,
    "send": Delivery,
    "metadata": ClusterView(),
    "metrics": Metrics(()),
    "describe_cluster": ClusterDescription(None, None, ()),
    "group": Group("g", "Empty"),
    "group_metadata": GroupMetadata("g", 1, "m", None),
}


def missing_names(hint: str, kind: type) -> list[str]:
    """Return the names in `hint` that kproto does not have.

    A name that ends in Request must be an API. In `f().name`, the name must be an attribute of the result of
    `f` (`RETURNED`). In any other call `name()`, except `Admin()`, it must be an attribute of `kind`.
    """
    absent: list[str] = []
    for before, name, called in re.findall(r"(?:\b(\w+)\([^()]*\)\.)?\b(\w+)\b(\()?", hint):
        if name.endswith("Request"):
            absent += [] if name.removesuffix("Request") in API_NAMES.values() else [name]
        elif before or (called and name != "Admin"):
            absent += [] if hasattr(RETURNED.get(before, kind), name) else [name]
    return absent


def test_the_names_in_hints_about_methods_exist() -> None:
    for kind, names in METHODS.items():
        for name in names.values():
            for client in KINDS[kind]:
                assert missing_names(name, client) == [], (client, name)


def test_the_names_in_hints_about_options_exist() -> None:
    options = {
        "a consumer": ConsumerConfig.__annotations__,
        "a producer": ProducerConfig.__annotations__,
        "an admin client": {*SecurityConfig.__annotations__, *inspect.signature(Admin).parameters},
    }
    for client_kind, names in options.items():
        for hint in OPTIONS[client_kind].values():
            for client in KINDS[client_kind.partition(" ")[2]]:
                assert missing_names(hint, client) == [], (client, hint)
            option = re.match(r"use (\w+)\b(?!\()", hint)
            assert option is None or option[1] in names, (client_kind, hint)


def test_no_hint_exists_for_a_name_of_kproto() -> None:
    assert not any(OURS & option.keys() for option in OPTIONS.values())
    for kind, names in METHODS.items():
        for client in KINDS[kind]:
            assert not [name for name in names if inspect.getattr_static(client, name, None) is not None]


def test_a_client_still_rejects_copying() -> None:
    with pytest.raises(TypeError, match="can't be copied"):
        copy.copy(Consumer.__new__(Consumer))
