"""No failure leaks a secret into a log, an error, a repr, a pickle, a trace, a capture or pytest's output.

tests/conformance/test_spark_secured.py tests for leaked secrets in Spark.
"""

from __future__ import annotations

import asyncio
import base64
import copy
import gc
import logging
import os
import pickle
import pprint
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from consumer import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncConsumerGroup,
    AsyncPartitionConsumers,
    AsyncProducer,
    AsyncQueueProducer,
    AsyncSyncProducer,
    Consumer,
    ConsumerGroup,
    PartitionConsumers,
    Producer,
    QueueProducer,
    SyncProducer,
    TopicPartition,
)
from consumer.security import Token, client_properties
from kproto.errors import AuthenticationFailed, KprotoError
from kproto.inspect.exchange_json import to_json
from kproto.inspect.exchange_lines import line
from kproto.inspect.exchanges import Conversation, Exchange
from kproto.messages import alter_configs, incremental_alter_configs
from kproto.messages.headers import encode_request
from kproto.messages.json_form import one_line
from kproto.security.oauthbearer import unsecured_token
from kproto.testing.certificates import Certificates, certificates
from kproto.testing.proxy import WatchProxy
from kproto.testing.secured import SecuredKafka, secured
from tests.bundles import check_each

pytest.importorskip("trustme")
PASSWORD = "n0t-to-be-told"
TOKEN = unsecured_token("mallory-of-the-token", 0, 1)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def kafka(files: Certificates) -> Iterator[SecuredKafka]:
    with secured("SASL_SSL", files, users={"alice": "another"}) as kafka:
        yield kafka


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def spellings(secret: str) -> list[str]:
    """Return each form in which a text may contain the secret: plain, base64, hex and escaped."""
    encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
    return [secret, encoded, secret.encode().hex(), repr(secret)[1:-1]]


def reachable_objects(root: Any, most: int = 20_000) -> Iterator[Any]:
    """Yield the objects of kproto's own classes that are reachable from `root`."""
    seen_ids, waiting = {id(root)}, [root]
    while waiting and len(seen_ids) < most:
        item = waiting.pop()
        if type(item).__module__.startswith(("kproto", "consumer")):
            yield item
        for inner in gc.get_referents(item):
            if id(inner) not in seen_ids and not isinstance(inner, type) and not callable(inner):
                seen_ids.add(id(inner))
                waiting.append(inner)


def failing_clients(kafka: SecuredKafka, options: dict[str, Any]) -> Iterator[tuple[Any, BaseException]]:
    """Yield a client of each kind, with the error of its first call."""

    def fails(client: Any, call: Callable[[Any], object]) -> tuple[Any, BaseException]:
        with pytest.raises(KprotoError) as caught:
            call(client)
        return client, caught.value

    with Admin(kafka.bootstrap, timeout=20, **options) as cluster:
        yield fails(cluster, lambda client: client.topics())
    with Consumer(kafka.bootstrap, group_id="g", **options) as consumer:
        consumer.subscribe(["t"])
        yield fails(consumer, lambda client: client.poll(20))
    # A producer without TLS retries until `max_block_ms`, which is therefore short.
    with Producer(kafka.bootstrap, max_block_ms=1_000, **options) as producer:
        yield fails(producer, lambda client: client.send("t", b"x").result(20))


CREDENTIALS: dict[str, dict[str, Any]] = {
    "PLAIN": {"sasl_username": "alice", "sasl_password": PASSWORD},
    "SCRAM-SHA-512": {"sasl_username": "alice", "sasl_password": PASSWORD},
    "OAUTHBEARER": {"sasl_oauth_token_provider": lambda: Token(TOKEN, 1e11)},
}


def renderings(client: Any, error: BaseException) -> str:
    """Return every text that a user might put into a bug report about a client and its error."""
    texts = [str(error), repr(error), *traceback.format_exception(error)]
    texts += [f"{type(item).__name__}: {item!r} {item}" for item in reachable_objects(client)]
    texts += [
        pprint.pformat(vars(item), depth=6) for item in reachable_objects(client) if hasattr(item, "__dict__")
    ]
    for rendered in (client, error):
        for form in (pickle.dumps, copy.copy, copy.deepcopy):
            try:
                texts.append(repr(form(rendered)))
            # The error of an object that cannot be pickled or copied must not show a secret, either.
            except Exception as failure:
                texts.append(str(failure))
    texts += frames(error)
    return "\n".join(texts)


def frames(error: BaseException) -> list[str]:
    """Return the local variables in kproto's traceback frames.

    The variables have the form in which `rich` and `pytest --showlocals` print them.
    """
    lines: list[str] = []
    waiting: list[traceback.TracebackException | None] = [
        traceback.TracebackException.from_exception(error, capture_locals=True)
    ]
    while waiting:
        item = waiting.pop()
        if item is not None:
            our_frames = [frame for frame in item.stack if "/tests/" not in frame.filename]
            lines += [f"{frame.name}: {frame.locals}" for frame in our_frames]
            waiting += [item.__cause__, item.__context__]
    return lines


@pytest.mark.parametrize("mechanism", CREDENTIALS)
@pytest.mark.parametrize("fault", ["refused", "expired", "elsewhere", "no TLS"])
def test_a_failure_of_a_client_shows_no_secret(
    kafka: SecuredKafka, mechanism: str, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    options: dict[str, Any] = {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": kafka.certificates.ca,
        "sasl_mechanism": mechanism,
        **CREDENTIALS[mechanism],
    }
    if fault == "no TLS":
        options["security_protocol"] = "SASL_PLAINTEXT"
        del options["ssl_cafile"]
    elif fault != "refused":
        kafka.show_certificate("expired" if fault == "expired" else "elsewhere")
    texts: list[str] = []
    for client, error in failing_clients(kafka, options):
        texts.append(renderings(client, error))
    assert len(texts) == 3
    served = [f"{type(item).__name__}: {item!r}" for item in reachable_objects(kafka.server)]
    lines = "\n".join([*texts, caplog.text, *served]).splitlines()
    for secret in (PASSWORD, TOKEN):
        assert not [text for spelling in spellings(secret) for text in lines if spelling in text]


def test_a_failure_of_an_asyncio_client_shows_no_secret(
    kafka: SecuredKafka, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    options: Any = {**kafka.options("alice", PASSWORD)}

    async def fails() -> list[str]:
        texts: list[str] = []
        async with AsyncConsumer(kafka.bootstrap, group_id="g", **options) as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(KprotoError) as caught:
                await consumer.poll(20)
            texts.append(renderings(consumer, caught.value))
        async with AsyncProducer(kafka.bootstrap, **options) as producer:
            with pytest.raises(KprotoError) as caught:
                await (await producer.send("t", b"x"))
            texts.append(renderings(producer, caught.value))
        return texts

    text = "\n".join([*asyncio.run(fails()), caplog.text])
    assert "rejects user 'alice'" in text
    assert not [spelling for spelling in spellings(PASSWORD) if spelling in text]


JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{PASSWORD}"'
CLIENTS: dict[str, Callable[..., Any]] = {
    cls.__name__: cls
    for cls in (
        *(AsyncAdmin, AsyncConsumer, AsyncConsumerGroup, AsyncPartitionConsumers, AsyncProducer),
        *(AsyncQueueProducer, AsyncSyncProducer, Admin, Consumer, ConsumerGroup, PartitionConsumers),
        *(Producer, QueueProducer, SyncProducer),
    )
}
MISTAKES: dict[str, Any] = {
    "an unknown option": {"typo": 1},
    "a missing file": {"ssl_cafile": "/no/such"},
    "an unknown mechanism": {"sasl_mechanism": "KERBEROS"},
    "a missing user name": {"sasl_username": None},
    "a token beside a password": {"sasl_oauth_token_provider": "a:b"},
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_no_frame_of_a_configuration_error_has_the_password_in_its_variables(mistake: str) -> None:
    options: Any = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        **CREDENTIALS["PLAIN"],
        **MISTAKES[mistake],
    }

    async def check(cls: Callable[..., Any]) -> None:
        group: Any = {"group_id": "g"} if "Group" in cls.__name__ else {}
        with pytest.raises(KprotoError) as caught:
            cls("a:1", **options, **group)
        assert caught.value.__traceback__ is not None
        text = "\n".join([*frames(caught.value), str(caught.value), repr(caught.value)])
        assert "init_without_secrets: " in text
        assert PASSWORD not in text

    check_each(list(CLIENTS.values()), lambda cls: asyncio.run(check(cls)))


@pytest.mark.parametrize("client", ["consumer", "producer", "admin"])
@pytest.mark.parametrize(
    "line",
    [
        f"sasl.jaas.config={JAAS}",  # The end, a semicolon, is missing.
        f"sasl.jaas.config={JAAS};\nconfig.providers=vault",
        f"sasl.jaas.config={JAAS};\nssl.truststore.type=JKS\nssl.truststore.location=/no/such",
    ],
)
def test_an_error_of_a_properties_file_shows_no_secret_of_it(
    client: Any, line: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "client.properties"
    path.write_text(f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n{line}\n")
    with pytest.raises(KprotoError) as caught:
        client_properties(path, client)
    text = "\n".join([*frames(caught.value), str(caught.value), repr(caught.value), caplog.text])
    assert "client_properties: " in text
    assert PASSWORD not in text


@pytest.mark.parametrize("client", [Consumer, Producer, Admin])
def test_a_failed_authentication_shows_no_secret_of_the_properties_file(
    kafka: SecuredKafka, client: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "client.properties"
    path.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={JAAS};\nnobody.knows=it\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={kafka.certificates.ca}\n"
    )
    calls: dict[Any, Callable[[Any], object]] = {
        Consumer: lambda client: (client.assign([TopicPartition("t", 0)]), client.poll(20)),
        Producer: lambda client: client.send("t", b"x").result(20),
        Admin: lambda client: client.topics(),
    }
    with (
        client(kafka.bootstrap, **client_properties(path, client.__name__.lower())) as instance,
        pytest.raises(AuthenticationFailed) as caught,
    ):
        calls[client](instance)
    caught.value.add_note("A note of the application.")
    text = renderings(instance, caught.value)
    assert "A note of the application." in text
    assert not [spelling for spelling in spellings(PASSWORD) if spelling in text + caplog.text]


def test_an_error_of_a_private_key_does_not_show_its_password(files: Certificates, tmp_path: Path) -> None:
    key = Path(files.client).read_text()
    for certfile in (key, str(tmp_path)):
        with pytest.raises(KprotoError) as caught:
            Admin(
                "a:1",
                security_protocol="SSL",
                ssl_cafile="/no/such",
                ssl_certfile=certfile,
                ssl_password=PASSWORD,
            )
        assert PASSWORD not in repr(caught.value)
        assert key.splitlines()[1] not in repr(caught.value)


@pytest.mark.parametrize("mechanism", CREDENTIALS)
def test_the_proxy_hides_authentication_data(files: Certificates, mechanism: str) -> None:
    exchanges: list[Exchange] = []
    frames: list[Any] = []
    with secured("SASL_PLAINTEXT", files, users={"alice": "another"}) as kafka:

        async def run() -> None:
            frames_argument = {"frames": lambda *frame: frames.append(frame)}
            async with WatchProxy(kafka.bootstrap, tell=exchanges.append, **frames_argument) as proxy:
                options = {
                    "security_protocol": "SASL_PLAINTEXT",
                    "sasl_mechanism": mechanism,
                    **CREDENTIALS[mechanism],
                }
                async with AsyncProducer(proxy.bootstrap, **options) as producer:
                    with pytest.raises(KprotoError):
                        await (await producer.send("t", b"x"))

        asyncio.run(run())
    assert "SaslAuthenticate" in [exchange.api for exchange in exchanges]
    text = "\n".join(
        [*(line(exchange) + one_line(to_json(exchange)) for exchange in exchanges), repr(exchanges)]
    )
    text += "\n".join(str(frame) for *_, frame in frames)
    assert len(frames) > 4
    assert not [
        spelling for secret in (PASSWORD, TOKEN) for spelling in spellings(secret) if spelling in text
    ]
    sasl_exchanges: list[Any] = [exchange for exchange in exchanges if exchange.api == "SaslAuthenticate"]
    assert {exchange.request.auth_bytes for exchange in sasl_exchanges} == {b"[hidden]"}
    assert {exchange.response.auth_bytes for exchange in sasl_exchanges if exchange.response} <= {
        b"",
        b"[hidden]",
    }


@pytest.mark.parametrize("name", ["ssl.key.password", "listener.name.x.sasl.jaas.config", "SSL.KEYSTORE.KEY"])
@pytest.mark.parametrize("kind", ["AlterConfigs", "IncrementalAlterConfigs"])
def test_a_password_in_a_config_is_hidden(kind: str, name: str) -> None:
    messages: Any = alter_configs if kind == "AlterConfigs" else incremental_alter_configs
    fields = {} if kind == "AlterConfigs" else {"config_operation": 0}
    configs = [
        messages.AlterableConfig(name=name, value=PASSWORD, **fields),
        messages.AlterableConfig(name="retention.ms", value="5000", **fields),
    ]
    resource = messages.AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
    request = getattr(messages, f"{kind}Request")(resources=[resource], validate_only=False)
    conversation = Conversation("1.2.3.4:5", 1)
    sent = encode_request(request, 1, 7, "me")
    exchange, _ = conversation.add_request(sent, 0)
    text = line(exchange) + one_line(to_json(exchange)) + repr(exchange)
    assert PASSWORD not in text
    assert PASSWORD.encode() not in conversation.without_credentials(sent, exchange, asking=True)
    shown: Any = exchange.request
    assert [config.value for config in shown.resources[0].configs] == ["[hidden]", "5000"]


@contextmanager
def running_command(*words: str) -> Generator[subprocess.Popen[str]]:
    """Run a command of kproto during the `with` block. The end of the block kills a running command."""
    with subprocess.Popen(
        [sys.executable, "-m", "kproto", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("words", [["watch", "--json", "--all"], ["broker", "--trace"]], ids=" ".join)
def test_watch_and_trace_hide_authentication_data(
    files: Certificates, words: list[str], tmp_path: Path
) -> None:
    """The printed lines, the page and the capture file hide the data of successful and failed logins."""
    page, frames = tmp_path / "life.html", tmp_path / "frames.pcap"
    with secured("SASL_PLAINTEXT", files, users={"alice": PASSWORD}) as kafka:
        kafka.create_topic("t", 1)
        if words[0] == "watch":
            arguments = [kafka.bootstrap, "--pcap", str(frames), "--listen", "127.0.0.1:0"]
        else:
            arguments = [
                "--user",
                f"alice:{PASSWORD}",
                "--topic",
                "t:1",
                "--listen",
                "SASL_PLAINTEXT://127.0.0.1:0",
                "--unsecured-tokens",
            ]
        with running_command(*words, *arguments, "--html", str(page)) as process:
            assert process.stdout is not None
            first = next(process.stdout)
            address = re.search(r"127\.0\.0\.1:\d+", first)
            assert address is not None, first
            for mechanism, credentials in CREDENTIALS.items():
                produce_and_fail(address[0], mechanism, credentials)
            process.send_signal(signal.SIGINT)
            output = first + process.stdout.read()
    assert output.count("SaslAuthenticate") >= 2 * len(CREDENTIALS)
    output += page.read_text() + (frames.read_bytes().decode("latin-1") if words[0] == "watch" else "")
    assert not [
        spelling for secret in (PASSWORD, TOKEN) for spelling in spellings(secret) if spelling in output
    ]


def produce_and_fail(address: str, mechanism: str, credentials: dict[str, Any]) -> None:
    options: Any = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
    right, wrong = credentials, {**credentials, "sasl_password": f"{PASSWORD}!"}
    if mechanism == "OAUTHBEARER":
        right = {"sasl_oauth_token_provider": lambda: unsecured_token("alice", now_ms(), 60_000)}
        wrong = credentials
    with Producer(address, **options, **right) as producer:
        producer.send("t", b"x").result(60)
    with Producer(address, **options, **wrong) as producer, pytest.raises(AuthenticationFailed):
        producer.send("t", b"x").result(60)


FAILS = """
import os
import pytest
from consumer import Admin, Consumer, Producer
from kproto.broker.server import running

CREDENTIALS = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "alice"}

@pytest.fixture
def options():
    return lambda: {**CREDENTIALS, "sasl_password": os.environ["PASSWORD"]}

def test_client(options):
    with Admin("127.0.0.1:1", **options()) as cluster:
        assert cluster is None
def test_unknown_option(options):
    Consumer("127.0.0.1:1", **options(), typo=1)
def test_missing_broker(options):
    with Producer("127.0.0.1:1", max_block_ms=100, **options()) as producer:
        producer.send("t", b"x").result(5)
def test_users_of_a_broker():
    with running(users={"alice": os.environ["PASSWORD"]}, listen=["SASL_PLAINTEXT://nowhere.invalid:0"]):
        pass
def test_fixture(kafka_secured):
    kafka = kafka_secured("SASL_PLAINTEXT", users={"alice": os.environ["PASSWORD"]})
    assert kafka.server.users is None
def test_unknown_user(kafka_secured):
    kafka = kafka_secured("SASL_PLAINTEXT", users={"alice": "x"})
    kafka.set_password("bob", os.environ["PASSWORD"])
"""


@pytest.mark.parametrize(
    "arguments", [["--showlocals"], pytest.param([], marks=pytest.mark.thorough)], ids=" ".join
)
def test_pytest_shows_no_password_of_a_failed_test(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "test_fails.py").write_text(FAILS)
    common = ["-q", "-p", "kproto.testing.plugin", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *common, *arguments, "-vv", str(tmp_path)],
        env={**os.environ, "PASSWORD": PASSWORD, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert "6 failed" in done.stdout, done.stdout
    assert not [spelling for spelling in spellings(PASSWORD) if spelling in done.stdout + done.stderr]
