"""No error, repr, log or traceback shows a secret, wherever it was given, and whatever its type."""

from __future__ import annotations

import asyncio
import logging
import pickle
import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncPartitionConsumers,
    AsyncProducer,
    AsyncSyncProducer,
    Consumer,
    ConsumerGroup,
    PartitionConsumers,
    Producer,
    QueueProducer,
    SyncProducer,
)
from consumer.security.secret import is_secret, mask_login
from consumer.spark.options import parse
from kproto.errors import ConfigError

SECRET = "hunter2-hunter2"
# Names of options that hold a secret, in kproto and in other libraries, and misspelt names.
OPTIONS = (
    "sasl_password",
    "sasl.password",
    "sasl_plain_password",
    "sasl_pasword",
    "sasl_jaas_config",
    "sasl.jaas.config",
    "sasl_oauth_token_provider",
    "oauth_cb",
    "sasl_oauthbearer_client_secret",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "ssl_password",
    "ssl_keyfile",
    "ssl.key.password",
    "ssl_keystore_key",
    "basic.auth.user.info",
    "api_key",
    "aws_secret_access_key",
    "connection_string",
    "authorization",
    "auth",
)
# Invalid bootstrap addresses. `{}` stands for the secret.
ADDRESSES = (
    "alice:{}@host:9092",
    "h1:9092,alice:{}@h2:9092",
    "alice:pw,{}@h1:9092",
    "SASL_SSL://alice:{}@host:9092",
    "kafka://alice:{}@host:9092",
    "//alice:{}@host",
    "alice:{}%40host:9092",
    "alice:PW%40{}:9092",
    "alice:{}\uff20host:9092",
    "alice:{}",
    "host:9092?sasl_password={}",
    "host:9092/?password={}",
    "host:9092;password={}",
    "host:9092#{}",
    "host:9092 password={}",
    "Endpoint=sb://host/;SharedAccessKey={}",
    "password={}",
)
LOGIN = {
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "me",
    "sasl_password": SECRET,
}


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        inner.map(lambda value: [value]),
        inner.map(lambda value: (value,)),
        inner.map(lambda value: ("alice", value)),
        inner.map(lambda value: {"password": value}),
        inner.map(lambda value: {"x": value}),
    )


def in_odd_types(text: str) -> st.SearchStrategy[Any]:
    plain: st.SearchStrategy[Any] = st.sampled_from(
        [text, text.encode(), bytearray(text.encode()), f"{text}\n", text * 40]
    )
    return st.recursive(plain, containers, max_leaves=2)


def texts_of(error: BaseException) -> str:
    """Return everything that a program may print about an error, including the variables in the client's
    frames.
    """
    frames = [
        frame for frame, _ in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename != __file__
    ]
    texts = [str(error), repr(error), repr(vars(error)), *traceback.format_exception(error)]
    texts += [repr(value) for frame in frames for value in frame.f_locals.values()]
    try:
        texts.append(repr(pickle.dumps(error)))
    except (TypeError, AttributeError, pickle.PicklingError) as unpicklable:
        texts.append(str(unpicklable))
    return "\n".join(texts)


# Addresses of a schema registry. `{}` stands for the secret.
REGISTRIES = (
    "http://alice:{}@host:8081",
    "http://host:8081?password={}",
    "alice:{}@host",
    "ftp://alice:{}@host",
)
CLIENTS = (Consumer, Producer, Admin, PartitionConsumers, SyncProducer, QueueProducer)
ASYNC_CLIENTS = (AsyncConsumer, AsyncProducer, AsyncAdmin, AsyncPartitionConsumers, AsyncSyncProducer)


def shown_by(create: Any) -> str:
    try:
        client = create()
    except (ConfigError, TypeError) as error:
        return texts_of(error)
    with client:
        return f"{client} {client!r}"


@given(data=st.data())
def test_no_option_shows_a_secret(data: st.DataObject, caplog_text: list[str]) -> None:
    client = data.draw(st.sampled_from(CLIENTS))
    option = data.draw(st.sampled_from(OPTIONS))
    value = data.draw(in_odd_types(SECRET))
    options = {**data.draw(st.sampled_from([{}, LOGIN])), option: value}
    as_dict = {"bootstrap.servers": "127.0.0.1:1", **options}
    for create in (
        lambda: client("127.0.0.1:1", **options),
        lambda: client(as_dict),
        lambda: client(bootstrap_servers=as_dict),
        lambda: client("127.0.0.1:1", options),
    ):
        assert SECRET not in shown_by(create)
    assert SECRET not in "".join(caplog_text)


@given(data=st.data())
def test_no_address_shows_a_secret(data: st.DataObject, caplog_text: list[str]) -> None:
    client = data.draw(st.sampled_from(CLIENTS))
    text = data.draw(st.sampled_from(ADDRESSES)).format(SECRET)
    servers = data.draw(
        st.sampled_from(
            [text, [text], (text,), {text}, [[text]], text.encode(), {"bootstrap.servers": text}, {text: 1}]
        )
    )
    assert SECRET not in shown_by(lambda: client(servers))
    assert SECRET not in shown_by(lambda: client(**{"bootstrap.servers": text}))
    assert SECRET not in "".join(caplog_text)


@given(data=st.data())
def test_no_asyncio_client_shows_a_secret(data: st.DataObject, caplog_text: list[str]) -> None:
    client = data.draw(st.sampled_from(ASYNC_CLIENTS))
    option, value = data.draw(st.sampled_from(OPTIONS)), data.draw(in_odd_types(SECRET))
    address = data.draw(st.sampled_from(ADDRESSES)).format(SECRET)
    options = {**data.draw(st.sampled_from([{}, LOGIN])), option: value}
    as_dict = {"bootstrap.servers": "127.0.0.1:1", **options}

    async def show(create: Any) -> str:
        try:
            created = create()
        except (ConfigError, TypeError) as error:
            return texts_of(error)
        async with created:
            return f"{created} {created!r}"

    async def main() -> None:
        for create in (
            lambda: client("127.0.0.1:1", **options),
            lambda: client(as_dict),
            lambda: client("127.0.0.1:1", options),
            lambda: client(address),
            lambda: client([address]),
        ):
            assert SECRET not in await show(create)

    asyncio.run(main())
    assert SECRET not in "".join(caplog_text)


@given(data=st.data())
def test_no_consumer_group_shows_a_secret(data: st.DataObject, caplog_text: list[str]) -> None:
    option, value = data.draw(st.sampled_from(OPTIONS)), data.draw(in_odd_types(SECRET))
    address = data.draw(st.sampled_from(ADDRESSES)).format(SECRET)
    for create in (
        lambda: ConsumerGroup("127.0.0.1:1", group_id="g", **{option: value}),
        lambda: ConsumerGroup(address, group_id="g"),
    ):
        assert SECRET not in shown_by(create)
    assert SECRET not in "".join(caplog_text)


def message_of(function: Any, *arguments: Any) -> str:
    """Return the repr of the result. After an error, return its repr and traceback, as Spark shows them."""
    try:
        return repr(function(*arguments))
    except ConfigError as error:
        return "\n".join([repr(error), *traceback.format_exception(error)])


@given(data=st.data())
def test_no_option_of_spark_shows_a_secret(data: st.DataObject) -> None:
    given_options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    login = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
    option = data.draw(st.sampled_from(OPTIONS)).replace("_", data.draw(st.sampled_from("_.")))
    prefix = data.draw(st.sampled_from(["", "kafka.", "KAFKA."]))
    options = {**given_options, **data.draw(st.sampled_from([{}, login])), prefix + option: SECRET}
    assert SECRET not in message_of(parse, options)


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_address_of_spark_shows_a_secret(address: str) -> None:
    options = {"kafka.bootstrap.servers": address.format(SECRET), "subscribe": "t"}
    assert SECRET not in message_of(parse, options)


def test_the_flag_for_delegation_tokens_is_shown() -> None:
    assert "'maybe'" in message_of(lambda: Consumer("a:1", sasl_token_auth="maybe"))


@pytest.mark.parametrize("option", ["schema.registry.url", "value.schema.registry.url", "schema.registry"])
@pytest.mark.parametrize("address", REGISTRIES)
def test_no_registry_of_spark_shows_a_secret(option: str, address: str) -> None:
    options = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "value.format": "avro"}
    assert SECRET not in message_of(parse, {**options, option: address.format(SECRET)})


@pytest.fixture(scope="module")
def caplog_text() -> Any:
    """Collect the texts of all log records."""
    texts: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(record.getMessage())

    handler, root = Collector(), logging.getLogger()
    root.addHandler(handler)
    level = root.level
    root.setLevel(logging.DEBUG)
    yield texts
    root.setLevel(level)
    root.removeHandler(handler)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("a:9092,b", "a:9092,b"),
        ("[::1]:9092", "[::1]:9092"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("SASL_SSL://a:9092", "SASL_SSL://a:9092"),
        ("local host:9092", "local host:9092"),
        ("me:pw@a:9092", "[hidden]@a:9092"),
        ("me:pw%40a:9092", "[hidden]"),
        ("a:9092?x=y", "a:9092?[hidden]"),
        ("a:http", "a:[hidden]"),
    ],
)
def test_hosts_and_ports_are_shown(address: str, shown: str) -> None:
    assert mask_login(address) == shown


def test_names_of_other_options_are_no_secrets() -> None:
    assert not any(map(is_secret, ("client_id", "group_id", "bootstrap_servers", "key_serializer")))
