"""No failure leaks a secret into a log, an error, a repr, a pickle, a trace, a capture or pytest's output.

For Spark see conformance/test_spark_secured."""

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from consumer import (
    AsyncCluster,
    AsyncConsumer,
    AsyncConsumerGroup,
    AsyncPartitionConsumers,
    AsyncProducer,
    AsyncQueueProducer,
    AsyncSyncProducer,
    Cluster,
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
from kproto.inspect.exchange_lines import line, to_json
from kproto.inspect.exchanges import Conversation, Exchange
from kproto.messages import alter_configs, incremental_alter_configs
from kproto.messages.headers import encode_request
from kproto.messages.json_form import one_line
from kproto.security.oauthbearer import unsecured_token
from kproto.testing.certificates import Certificates, certificates
from kproto.testing.proxy import WatchProxy
from kproto.testing.secured import SecuredKafka, secured

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
    """The secret, and how it may look when somebody took it for something else."""
    encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
    return [secret, encoded, secret.encode().hex(), repr(secret)[1:-1]]


def owned(root: Any, most: int = 20_000) -> Iterator[Any]:
    """Everything of ours that can be reached from an object."""
    seen, waiting = {id(root)}, [root]
    while waiting and len(seen) < most:
        one = waiting.pop()
        if type(one).__module__.startswith(("kproto", "consumer")):
            yield one
        for inner in gc.get_referents(one):
            if id(inner) not in seen and not isinstance(inner, type) and not callable(inner):
                seen.add(id(inner))
                waiting.append(inner)


def refused(kafka: SecuredKafka, how: dict[str, Any]) -> Iterator[tuple[Any, BaseException]]:
    """Each kind of client, and how it fails."""

    def fails(client: Any, call: Callable[[Any], object]) -> tuple[Any, BaseException]:
        with pytest.raises(KprotoError) as caught:
            call(client)
        return client, caught.value

    with Cluster(kafka.bootstrap, timeout=20, **how) as cluster:
        yield fails(cluster, lambda one: one.topics())
    with Consumer(kafka.bootstrap, group_id="g", **how) as consumer:
        consumer.subscribe(["t"])
        yield fails(consumer, lambda one: one.poll(20))
    # Who meets no TLS at all asks again until then: that isn't final.
    with Producer(kafka.bootstrap, max_block_ms=1_000, **how) as producer:
        yield fails(producer, lambda one: one.send("t", b"x").result(20))


HOW: dict[str, dict[str, Any]] = {
    "PLAIN": {"sasl_username": "alice", "sasl_password": PASSWORD},
    "SCRAM-SHA-512": {"sasl_username": "alice", "sasl_password": PASSWORD},
    "OAUTHBEARER": {"sasl_oauth_token_provider": lambda: Token(TOKEN, 1e11)},
}


def told_of(client: Any, error: BaseException) -> str:
    """What a tired person might paste into a ticket."""
    told = [str(error), repr(error), *traceback.format_exception(error)]
    told += [f"{type(one).__name__}: {one!r} {one}" for one in owned(client)]
    told += [pprint.pformat(vars(one), depth=6) for one in owned(client) if hasattr(one, "__dict__")]
    for one in (client, error):
        for form in (pickle.dumps, copy.copy, copy.deepcopy):
            try:
                told.append(repr(form(one)))
            except Exception as why:  # most can't be pickled or copied, and say so
                told.append(str(why))
    told += frames(error)
    return "\n".join(told)


def frames(error: BaseException) -> list[str]:
    """The variables of each frame of ours, as `rich` and `pytest --showlocals --full-trace` print them."""
    found: list[str] = []
    waiting: list[traceback.TracebackException | None] = [
        traceback.TracebackException.from_exception(error, capture_locals=True)
    ]
    while waiting:
        one = waiting.pop()
        if one is not None:
            ours = [frame for frame in one.stack if "/tests/" not in frame.filename]
            found += [f"{frame.name}: {frame.locals}" for frame in ours]
            waiting += [one.__cause__, one.__context__]
    return found


@pytest.mark.parametrize("mechanism", HOW)
@pytest.mark.parametrize("fault", ["refused", "expired", "elsewhere", "no TLS"])
def test_nothing_tells_a_secret(
    kafka: SecuredKafka, mechanism: str, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    how: dict[str, Any] = {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": kafka.certificates.ca,
        "sasl_mechanism": mechanism,
        **HOW[mechanism],
    }
    if fault == "no TLS":
        how["security_protocol"] = "SASL_PLAINTEXT"
        del how["ssl_cafile"]
    elif fault != "refused":
        kafka.show_certificate("expired" if fault == "expired" else "elsewhere")
    seen: list[str] = []
    for client, error in refused(kafka, how):
        seen.append(told_of(client, error))
    assert len(seen) == 3
    served = [f"{type(one).__name__}: {one!r}" for one in owned(kafka.server)]
    lines = "\n".join([*seen, caplog.text, *served]).splitlines()
    for secret in (PASSWORD, TOKEN):
        assert not [text for spelling in spellings(secret) for text in lines if spelling in text]


def test_and_nothing_of_clients_for_asyncio_does(
    kafka: SecuredKafka, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    how: Any = {**kafka.options("alice", PASSWORD)}

    async def fails() -> list[str]:
        told: list[str] = []
        async with AsyncConsumer(kafka.bootstrap, group_id="g", **how) as consumer:
            consumer.subscribe(["t"])
            with pytest.raises(KprotoError) as caught:
                await consumer.poll(20)
            told.append(told_of(consumer, caught.value))
        async with AsyncProducer(kafka.bootstrap, **how) as producer:
            with pytest.raises(KprotoError) as caught:
                await (await producer.send("t", b"x"))
            told.append(told_of(producer, caught.value))
        return told

    text = "\n".join([*asyncio.run(fails()), caplog.text])
    assert "rejects user 'alice'" in text
    assert not [spelling for spelling in spellings(PASSWORD) if spelling in text]


JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{PASSWORD}"'
OPENS: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        *(AsyncCluster, AsyncConsumer, AsyncConsumerGroup, AsyncPartitionConsumers, AsyncProducer),
        *(AsyncQueueProducer, AsyncSyncProducer, Cluster, Consumer, ConsumerGroup, PartitionConsumers),
        *(Producer, QueueProducer, SyncProducer),
    )
}
SLIPS: dict[str, Any] = {
    "an option that there is not": {"typo": 1},
    "a file that is not there": {"ssl_cafile": "/no/such"},
    "a mechanism that there is not": {"sasl_mechanism": "KERBEROS"},
    "no name": {"sasl_username": None},
    "a token beside a password": {"sasl_oauth_token_provider": "a:b"},
}


@pytest.mark.parametrize("slip", SLIPS)
@pytest.mark.parametrize("opens", OPENS)
def test_no_frame_of_a_slip_has_the_password_in_its_variables(opens: str, slip: str) -> None:
    given: Any = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", **HOW["PLAIN"], **SLIPS[slip]}
    if "Group" in opens:
        given["group_id"] = "g"

    async def open_it() -> None:
        OPENS[opens]("a:1", **given)

    with pytest.raises(KprotoError) as caught:
        asyncio.run(open_it())
    assert caught.value.__traceback__ is not None
    told = "\n".join([*frames(caught.value), str(caught.value), repr(caught.value)])
    assert "checked: " in told
    assert PASSWORD not in told


@pytest.mark.parametrize("client", ["consumer", "producer", "cluster"])
@pytest.mark.parametrize(
    "line",
    [
        f"sasl.jaas.config={JAAS}",  # its end is missing
        f"sasl.jaas.config={JAAS};\nconfig.providers=vault",
        f"sasl.jaas.config={JAAS};\nssl.truststore.type=JKS\nssl.truststore.location=/no/such",
    ],
)
def test_a_file_that_can_not_be_used_is_not_quoted_nor_its_frames(
    client: Any, line: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "client.properties"
    path.write_text(f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n{line}\n")
    with pytest.raises(KprotoError) as caught:
        client_properties(path, client)
    told = "\n".join([*frames(caught.value), str(caught.value), repr(caught.value), caplog.text])
    assert "client_properties: " in told
    assert PASSWORD not in told


@pytest.mark.parametrize("client", [Consumer, Producer, Cluster])
def test_who_is_refused_with_a_file_does_not_tell_what_is_in_it(
    kafka: SecuredKafka, client: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "client.properties"
    path.write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={JAAS};\nnobody.knows=it\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={kafka.certificates.ca}\n"
    )
    calls: dict[Any, Callable[[Any], object]] = {
        Consumer: lambda one: (one.assign([TopicPartition("t", 0)]), one.poll(20)),
        Producer: lambda one: one.send("t", b"x").result(20),
        Cluster: lambda one: one.topics(),
    }
    with (
        client(kafka.bootstrap, **client_properties(path, client.__name__.lower())) as one,
        pytest.raises(AuthenticationFailed) as caught,
    ):
        calls[client](one)
    caught.value.add_note("It was tried.")
    told = told_of(one, caught.value)
    assert "It was tried." in told
    assert not [spelling for spelling in spellings(PASSWORD) if spelling in told + caplog.text]


def test_a_key_s_password_is_not_told_either(files: Certificates, tmp_path: Path) -> None:
    key = Path(files.client).read_text()
    for certfile in (key, str(tmp_path)):
        with pytest.raises(KprotoError) as caught:
            Cluster(
                "a:1",
                security_protocol="SSL",
                ssl_cafile="/no/such",
                ssl_certfile=certfile,
                ssl_password=PASSWORD,
            )
        assert PASSWORD not in repr(caught.value)
        assert key.splitlines()[1] not in repr(caught.value)


@pytest.mark.parametrize("mechanism", HOW)
def test_what_goes_by_a_proxy_is_shown_without_proofs(files: Certificates, mechanism: str) -> None:
    told: list[Exchange] = []
    frames: list[Any] = []
    with secured("SASL_PLAINTEXT", files, users={"alice": "another"}) as kafka:

        async def watched() -> None:
            frames_too = {"frames": lambda *seen: frames.append(seen)}
            async with WatchProxy(kafka.bootstrap, tell=told.append, **frames_too) as proxy:
                how = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, **HOW[mechanism]}
                async with AsyncProducer(proxy.bootstrap, **how) as producer:
                    with pytest.raises(KprotoError):
                        await (await producer.send("t", b"x"))

        asyncio.run(watched())
    assert "SaslAuthenticate" in [one.api for one in told]
    text = "\n".join([*(line(one) + one_line(to_json(one)) for one in told), repr(told)])
    text += "\n".join(str(frame) for *_, frame in frames)
    assert len(frames) > 4
    assert not [
        spelling for secret in (PASSWORD, TOKEN) for spelling in spellings(secret) if spelling in text
    ]
    exchanges: list[Any] = [one for one in told if one.api == "SaslAuthenticate"]
    assert {exchange.request.auth_bytes for exchange in exchanges} == {b"[hidden]"}
    assert {exchange.response.auth_bytes for exchange in exchanges if exchange.response} <= {b"", b"[hidden]"}


@pytest.mark.parametrize("name", ["ssl.key.password", "listener.name.x.sasl.jaas.config", "SSL.KEYSTORE.KEY"])
@pytest.mark.parametrize("kind", ["AlterConfigs", "IncrementalAlterConfigs"])
def test_a_password_that_becomes_a_setting_is_shown_to_nobody(kind: str, name: str) -> None:
    inside: Any = alter_configs if kind == "AlterConfigs" else incremental_alter_configs
    more = {} if kind == "AlterConfigs" else {"config_operation": 0}
    configs = [
        inside.AlterableConfig(name=name, value=PASSWORD, **more),
        inside.AlterableConfig(name="retention.ms", value="5000", **more),
    ]
    resource = inside.AlterConfigsResource(resource_type=4, resource_name="1", configs=configs)
    request = getattr(inside, f"{kind}Request")(resources=[resource], validate_only=False)
    talk = Conversation("1.2.3.4:5", 1)
    sent = encode_request(request, 1, 7, "me")
    exchange, _ = talk.asked(sent, 0)
    text = line(exchange) + one_line(to_json(exchange)) + repr(exchange)
    assert PASSWORD not in text
    assert PASSWORD.encode() not in talk.shown(sent, exchange, asking=True)
    shown: Any = exchange.request
    assert [config.value for config in shown.resources[0].configs] == ["[hidden]", "5000"]


def in_a_process(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "kproto", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize("words", [["watch", "--json", "--all"], ["broker", "--trace"]], ids=" ".join)
def test_a_command_that_looks_on_shows_no_proof(
    files: Certificates, words: list[str], tmp_path: Path
) -> None:
    """Neither on its lines, nor on its page, nor in its capture; neither who is let in, nor who is not."""
    page, frames = tmp_path / "life.html", tmp_path / "frames.pcap"
    with secured("SASL_PLAINTEXT", files, users={"alice": PASSWORD}) as kafka:
        kafka.create_topic("t", 1)
        if words[0] == "watch":
            more = [kafka.bootstrap, "--pcap", str(frames), "--listen", "127.0.0.1:0"]
        else:
            more = [
                "--user",
                f"alice:{PASSWORD}",
                "--topic",
                "t:1",
                "--listen",
                "SASL_PLAINTEXT://127.0.0.1:0",
            ]
        with in_a_process(*words, *more, "--html", str(page)) as process:
            assert process.stdout is not None
            first = next(process.stdout)
            place = re.search(r"127\.0\.0\.1:\d+", first)
            assert place is not None, first
            for mechanism, known in HOW.items():
                come_and_be_refused(place[0], mechanism, known)
            process.send_signal(signal.SIGINT)
            told = first + process.stdout.read()
    assert told.count("SaslAuthenticate") >= 2 * len(HOW)
    told += page.read_text() + (frames.read_bytes().decode("latin-1") if words[0] == "watch" else "")
    assert not [
        spelling for secret in (PASSWORD, TOKEN) for spelling in spellings(secret) if spelling in told
    ]


def come_and_be_refused(place: str, mechanism: str, known: dict[str, Any]) -> None:
    how: Any = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism}
    right, wrong = known, {**known, "sasl_password": f"{PASSWORD}!"}
    if mechanism == "OAUTHBEARER":
        right = {"sasl_oauth_token_provider": lambda: unsecured_token("alice", now_ms(), 60_000)}
        wrong = known
    with Producer(place, **how, **right) as producer:
        producer.send("t", b"x").result(60)
    with Producer(place, **how, **wrong) as producer, pytest.raises(AuthenticationFailed):
        producer.send("t", b"x").result(60)


FAILS = """
import os
import pytest
from consumer import Cluster, Consumer, Producer
from kproto.broker.server import running

HOW = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "alice"}

@pytest.fixture
def how():
    return lambda: {**HOW, "sasl_password": os.environ["PASSWORD"]}

def test_of_a_client(how):
    with Cluster("127.0.0.1:1", **how()) as cluster:
        assert cluster is None
def test_of_a_slip(how):
    Consumer("127.0.0.1:1", **how(), typo=1)
def test_of_a_broker_that_is_away(how):
    with Producer("127.0.0.1:1", max_block_ms=100, **how()) as producer:
        producer.send("t", b"x").result(5)
def test_of_a_broker_s_users():
    with running(users={"alice": os.environ["PASSWORD"]}, listen=["SASL_PLAINTEXT://nowhere.invalid:0"]):
        pass
def test_of_the_fixture(kafka_secured):
    kafka = kafka_secured("SASL_PLAINTEXT", users={"alice": os.environ["PASSWORD"]})
    assert kafka.server.users is None
def test_of_a_stranger(kafka_secured):
    kafka = kafka_secured("SASL_PLAINTEXT", users={"alice": "x"})
    kafka.set_password("bob", os.environ["PASSWORD"])
"""


@pytest.mark.parametrize("more", [[], ["--showlocals"]], ids=" ".join)
def test_what_pytest_shows_of_a_failure_has_no_password(more: list[str], tmp_path: Path) -> None:
    (tmp_path / "test_fails.py").write_text(FAILS)
    words = ["-q", "-p", "kproto.testing.plugin", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, *more, "-vv", str(tmp_path)],
        env={**os.environ, "PASSWORD": PASSWORD, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
    )
    assert "6 failed" in done.stdout, done.stdout
    assert not [spelling for spelling in spellings(PASSWORD) if spelling in done.stdout + done.stderr]
