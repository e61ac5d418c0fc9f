"""Who gets into the embedded broker: its machine by hand, and our own client over sockets."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer import Cluster, Consumer, Producer
from kproto.broker.broker import Broker, Close, Reply
from kproto.broker.call import Node
from kproto.broker.handlers.index import served
from kproto.broker.machine import Connected, Received, Sent, Tick, next_deadline, step
from kproto.broker.security.listeners import Listener
from kproto.broker.security.subject import principal
from kproto.broker.security.users import Users
from kproto.broker.server import Server, running
from kproto.broker.settings import Settings
from kproto.errors import AuthenticationFailed, ConfigError, KprotoError
from kproto.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from kproto.messages.api_versions import ApiVersionsRequest
from kproto.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kproto.messages.headers import decode_response, encode_request
from kproto.messages.index import response_class
from kproto.messages.metadata import MetadataRequest
from kproto.messages.sasl_authenticate import SaslAuthenticateRequest
from kproto.messages.sasl_handshake import SaslHandshakeRequest
from kproto.security.exchange import SaslClient
from kproto.security.oauthbearer import unsecured, unsecured_token
from kproto.security.plain import PlainClient
from kproto.security.scram import ScramClient, salted
from kproto.testing.certificates import Certificates, certificates
from kproto.testing.issuer import Issuer
from kproto.wire.message import Message

PASSWORD = "alice-secret-1"
NODE = Node(1, "here", 9092, {"SASL_SSL": ("there", 9093)})
RANDOM = UUID(int=7)


class Stage:
    """A broker, and one connection to it."""

    def __init__(self, listener: str = "SASL_SSL", **settings: str) -> None:
        properties = {name.replace("_", "."): value for name, value in settings.items()}
        self.users = Users({"alice": PASSWORD, "bob": "b"}, b"secret")
        self.broker = Broker(Settings.from_properties(properties), NODE, served(), users=self.users)
        self.now = 1_000
        self.closed: str | None = None
        self.step(Connected(1, "10.0.0.7", listener))

    def step(self, event: Any) -> list[bytes]:
        answers: list[bytes] = []
        events = [event]
        while events:
            for action in step(self.broker, events.pop(0), self.now):
                if isinstance(action, Reply):
                    answers.append(action.frame)
                    events.append(Sent(1))
                elif isinstance(action, Close):
                    self.closed = action.reason
        return answers

    def ask(self, request: Message, version: int) -> Any:
        """The answer; None while there is none."""
        answers = self.step(Received(1, encode_request(request, version, 5, "test"), RANDOM))
        return self.read(request, version, answers)

    @staticmethod
    def read(request: Message, version: int, answers: list[bytes]) -> Any:
        key = request.__api_key__
        assert key is not None
        return decode_response(answers[0], response_class(key), version)[1] if answers else None

    def log_in(self, client: SaslClient) -> Any:
        """The last answer."""
        answer = self.ask(SaslHandshakeRequest(mechanism=client.mechanism), 1)
        data: bytes | None = client.begin()
        while data is not None and answer is not None and not answer.error_code:
            answer = self.ask(SaslAuthenticateRequest(auth_bytes=data), 2)
            if answer is not None and not answer.error_code:
                data = client.answer(bytes(answer.auth_bytes))
        return answer

    def alice(self, mechanism: str = "SCRAM-SHA-256") -> Any:
        return self.log_in(ScramClient(mechanism, "alice", PASSWORD, "nonce"))

    def metadata(self) -> Any:
        return self.ask(MetadataRequest(topics=[]), 1)


@pytest.mark.parametrize(
    "client", [PlainClient("alice", PASSWORD), ScramClient("SCRAM-SHA-512", "alice", PASSWORD, "n")]
)
def test_who_has_logged_in_is_served(client: SaslClient) -> None:
    stage = Stage()
    assert stage.log_in(client).error_code == 0
    [broker] = stage.metadata().brokers
    assert (broker.host, broker.port) == ("there", 9093)
    assert stage.broker.connections[1].principal == "User:alice"


def test_who_has_not_is_told_the_versions_and_nothing_else() -> None:
    stage = Stage()
    assert stage.ask(ApiVersionsRequest(), 0).error_code == 0
    assert stage.metadata() is None
    assert stage.closed == "a request before the client was authenticated (client.id 'test')"


def test_a_listener_without_sasl_says_so() -> None:
    stage = Stage("PLAINTEXT")
    assert stage.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 34
    assert stage.ask(SaslAuthenticateRequest(auth_bytes=b""), 2).error_code == 34
    assert stage.metadata().brokers


def test_a_mechanism_that_is_not_there_is_refused_with_those_that_are() -> None:
    stage = Stage(sasl_enabled_mechanisms="PLAIN,OAUTHBEARER")
    answer = stage.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert (answer.error_code, answer.mechanisms) == (33, ["PLAIN"])
    assert stage.closed


@pytest.mark.parametrize("request_", [ApiVersionsRequest(), SaslHandshakeRequest(mechanism="PLAIN")])
def test_what_is_asked_in_the_middle_of_a_login_ends_it(request_: Message) -> None:
    stage = Stage(connection_failed_authentication_delay_ms="0")
    assert stage.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    assert stage.ask(request_, 0).error_code == 34
    assert stage.closed == "a request in the middle of a login"


def test_a_stranger_asks_for_the_versions_once() -> None:
    stage = Stage()
    odd = ApiVersionsRequest(client_software_name="!", client_software_version="1")
    assert [stage.ask(one, 3).error_code for one in (odd, ApiVersionsRequest())] == [42, 42]
    known = ApiVersionsRequest(client_software_name="kproto", client_software_version="1")
    assert stage.ask(known, 3).error_code == 0
    assert stage.ask(known, 3) is None
    assert stage.closed


def test_a_session_is_renewed_by_its_own_mechanism() -> None:
    stage = Stage(connections_max_reauth_ms="10000")
    assert not stage.alice().error_code
    assert stage.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    assert stage.ask(SaslAuthenticateRequest(auth_bytes=PlainClient("alice", PASSWORD).begin()), 2) is None
    assert stage.closed == "PLAIN for a session that SCRAM-SHA-256 began (client.id 'test')"


def test_a_session_that_nothing_renews_is_closed_without_a_word() -> None:
    stage = Stage(connections_max_reauth_ms="10000")
    assert not stage.alice().error_code
    assert stage.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1) is None
    assert stage.closed == "a mechanism that is not enabled: 'GSSAPI'"


def test_who_is_refused_waits_for_it_and_is_closed() -> None:
    stage = Stage(connection_failed_authentication_delay_ms="100")
    assert stage.log_in(PlainClient("alice", "wrong")) is None
    assert next_deadline(stage.broker) == 1_100
    assert stage.metadata() is None
    stage.now = 1_100
    answer = stage.read(SaslAuthenticateRequest(auth_bytes=b""), 2, stage.step(Tick()))
    assert answer.error_code == 58
    assert stage.closed == "failed authentication: a wrong password for 'alice'"
    assert not stage.broker.connections
    assert not stage.broker.delayed


def test_the_messages_of_version_0_have_no_headers() -> None:
    stage = Stage()
    client = ScramClient("SCRAM-SHA-256", "alice", PASSWORD, "n")
    assert stage.ask(SaslHandshakeRequest(mechanism=client.mechanism), 0).error_code == 0
    [challenge] = stage.step(Received(1, client.begin(), RANDOM))
    answer = client.answer(challenge)
    assert answer is not None
    [last] = stage.step(Received(1, answer, RANDOM))
    assert client.answer(last) is None
    assert stage.metadata().brokers


def test_a_session_ends_unless_it_is_renewed() -> None:
    stage = Stage(connections_max_reauth_ms="5000")
    assert stage.alice().session_lifetime_ms == 5_000
    stage.now += 4_000
    assert stage.alice().session_lifetime_ms == 5_000
    stage.now += 4_000
    assert stage.metadata().brokers
    stage.now += 1_000
    assert stage.metadata() is None
    assert stage.closed == "the session of User:alice has ended, and was not renewed (client.id 'test')"


def test_nobody_renews_twice_within_a_second() -> None:
    stage = Stage(connections_max_reauth_ms="5000")
    stage.alice()
    assert stage.alice().error_code == 0  # the first renewal may come at once
    stage.now += 999
    answer = stage.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    assert (answer.error_code, answer.mechanisms) == (34, [])
    assert stage.metadata().brokers
    stage.now += 1
    assert stage.alice().error_code == 0


def test_a_session_that_has_ended_is_closed_by_a_renewal_that_comes_too_soon() -> None:
    stage = Stage(connections_max_reauth_ms="500")
    stage.alice()
    stage.now += 600  # it has ended, and the first renewal may come all the same
    assert stage.alice().error_code == 0
    stage.now += 600
    assert stage.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1) is None
    assert stage.closed == "the session of User:alice has ended, and was not renewed (client.id 'test')"


def test_nobody_becomes_somebody_else_by_renewing() -> None:
    stage = Stage(connections_max_reauth_ms="5000", connection_failed_authentication_delay_ms="0")
    stage.alice()
    answer = stage.log_in(ScramClient("SCRAM-SHA-256", "bob", "b", "n"))
    assert answer.error_code == 58
    assert "Cannot change principals" in answer.error_message


def test_a_session_without_end_is_not_renewed() -> None:
    stage = Stage()
    assert stage.alice().session_lifetime_ms == 0
    assert stage.alice().error_code == 34
    assert stage.metadata().brokers


def test_a_password_that_is_changed_holds_from_now_on() -> None:
    stage = Stage(connection_failed_authentication_delay_ms="0")
    stage.users.set("alice", "another")
    assert stage.alice().error_code == 58


def test_a_stranger_s_salt_is_always_the_same() -> None:
    """Else whoever asks twice knows that there is no such user."""
    for name in ("alice", "eve"):
        asked = set()
        for _ in range(2):
            stage = Stage()
            stage.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
            data = ScramClient("SCRAM-SHA-256", name, "x", "n").begin()
            asked.add(bytes(stage.ask(SaslAuthenticateRequest(auth_bytes=data), 2).auth_bytes))
        assert len(asked) == 1


def test_scram_credentials_are_changed_without_passwords() -> None:
    stage = Stage("PLAINTEXT")
    made = salted("SCRAM-SHA-256", "carol's", b"salt", 4096)
    wanted = ScramCredentialUpsertion(
        name="carol", mechanism=1, iterations=4096, salt=b"salt", salted_password=made
    )
    request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted])
    answer: AlterUserScramCredentialsResponse = stage.ask(request, 0)
    assert [result.error_code for result in answer.results] == [0]
    stage.step(Connected(1, "10.0.0.7", "SASL_SSL"))
    assert stage.log_in(ScramClient("SCRAM-SHA-256", "carol", "carol's", "n")).error_code == 0


@pytest.mark.parametrize(
    ("deletions", "upsertions", "code"),
    [
        ([("nobody", 1)], [], 91),
        ([("alice", 7)], [], 33),
        ([], [("alice", 1, 4095)], 93),
        ([], [("alice", 1, 16_385)], 93),
        ([], [("", 1, 4096)], 93),
        ([("alice", 1)], [("alice", 1, 4096)], 92),
        ([("alice", 1)], [], 0),
    ],
)
def test_changes_of_credentials_are_refused_as_in_kafka(deletions: Any, upsertions: Any, code: int) -> None:
    request = AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion(name=name, mechanism=number) for name, number in deletions],
        upsertions=[
            ScramCredentialUpsertion(name=name, mechanism=one, iterations=i, salt=b"s", salted_password=b"p")
            for name, one, i in upsertions
        ],
    )
    stage = Stage("PLAINTEXT")
    assert [result.error_code for result in stage.ask(request, 0).results] == [code]


def test_credentials_are_told_without_their_keys() -> None:
    answer: DescribeUserScramCredentialsResponse = Stage("PLAINTEXT").ask(
        DescribeUserScramCredentialsRequest(users=None), 0
    )
    assert [(result.user, len(result.credential_infos)) for result in answer.results] == [
        ("alice", 2),
        ("bob", 2),
    ]


@given(
    st.lists(st.binary(max_size=60), max_size=4), st.sampled_from(["PLAIN", "SCRAM-SHA-256"]), st.booleans()
)
def test_whatever_is_said_nobody_gets_in_without_a_password(
    said: list[bytes], mechanism: str, raw: bool
) -> None:
    stage = Stage(connection_failed_authentication_delay_ms="0")
    stage.ask(SaslHandshakeRequest(mechanism=mechanism), 0 if raw else 1)
    for data in said:
        if raw:
            stage.step(Received(1, data, RANDOM))
        else:
            stage.ask(SaslAuthenticateRequest(auth_bytes=data), 2)
    assert stage.metadata() is None
    assert not stage.broker.connections


@given(st.binary(max_size=200))
def test_no_frame_of_a_stranger_breaks_the_broker(frame: bytes) -> None:
    stage = Stage()
    stage.step(Received(1, frame, RANDOM))
    assert stage.broker.connections.keys() <= {1}


def test_a_large_message_of_a_stranger_is_not_even_looked_at() -> None:
    stage = Stage()
    stage.step(Received(1, bytes(600_000), RANDOM))
    assert stage.closed == "600000 bytes from a client that was not authenticated"


def test_nothing_long_is_collected_of_a_stranger_and_all_of_who_is_known() -> None:
    listen = ["SASL_PLAINTEXT://127.0.0.1:0"]
    with running({"t": 1}, listen=listen, users={"alice": PASSWORD}) as server:
        host, _, port = server.bootstrap.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as line:
            line.sendall(struct.pack(">i", 524_289))
            assert line.recv(1) == b""
        login: dict[str, Any] = {
            "sasl_mechanism": "PLAIN",
            "sasl_username": "alice",
            "sasl_password": PASSWORD,
        }
        with Producer(server.bootstrap, security_protocol="SASL_PLAINTEXT", **login) as producer:
            assert producer.send("t", bytes(600_000)).result(30).offset == 0


def test_nothing_shows_a_password() -> None:
    stage = Stage()
    stage.alice()
    assert PASSWORD not in f"{stage.users!r} {stage.broker.connections!r}"


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("SASL_SSL://a", "PROTOCOL://HOST:PORT"),
        ("TLS://a:1", "PROTOCOL://HOST:PORT"),
        ("SSL://:x", "PROTOCOL://HOST:PORT"),
        ("a:1,b:2", "PROTOCOL://HOST:PORT"),
        ("::1:9092", "PROTOCOL://HOST:PORT"),
        ("a:70000", "a port up to 65535"),
    ],
)
def test_wrong_listeners_are_refused(text: str, allowed: str) -> None:
    with pytest.raises(ConfigError, match=allowed):
        Listener.read(text)


def test_a_certificate_names_a_principal_as_kafka_writes_it() -> None:
    subject = ((("organizationName", "a, b"),), (("commonName", "client"),))
    assert principal({"subject": subject}) == "User:CN=client,O=a\\, b"
    assert principal(None) == principal({}) == "User:ANONYMOUS"


# ---- over sockets


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    pytest.importorskip("trustme")
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(files: Certificates) -> Iterator[Any]:
    with running(
        {"flights": 1},
        {"connections.max.reauth.ms": "20000", "connection.failed.authentication.delay.ms": "0"},
        listen=[f"{name}://127.0.0.1:0" for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")],
        users={"alice": PASSWORD},
        tokens=unsecured(lambda: int(time.time() * 1000)),
        tls=files.context("requested"),
    ) as made:
        yield made


def options(protocol: str, mechanism: str, files: Certificates) -> dict[str, Any]:
    found: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        found["ssl_cafile"] = files.ca
    if mechanism == "OAUTHBEARER":
        found["sasl_oauth_token_provider"] = lambda: unsecured_token("alice", int(time.time() * 1000), 60_000)
    elif mechanism:
        found |= {"sasl_username": "alice", "sasl_password": PASSWORD}
    return found | ({"sasl_mechanism": mechanism} if mechanism else {})


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SSL", ""), ("SASL_PLAINTEXT", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512"), ("SASL_SSL", "OAUTHBEARER")],
)
def test_what_is_written_through_a_listener_is_read_through_it(
    server: Any, files: Certificates, protocol: str, mechanism: str
) -> None:
    place, how = server.places[protocol], options(protocol, mechanism, files)
    with Producer(place, **how) as producer:
        offset = producer.send("flights", b"x" * 100_000).result(60).offset
    with Consumer(place, group_id=f"{protocol}{mechanism}", auto_offset_reset="earliest", **how) as consumer:
        consumer.subscribe(["flights"])
        assert next(record.value for record in consumer if record.offset == offset) == b"x" * 100_000


def test_a_certificate_is_who_comes(server: Any, files: Certificates) -> None:
    how = options("SSL", "", files)
    with Cluster(server.places["SSL"], ssl_certfile=files.client, **how) as cluster:
        cluster.topics()
        names = {one.principal for one in server.broker.connections.values()}
    assert any(name.startswith("User:CN=client,") for name in names)


def test_an_expired_certificate_is_called_one(tmp_path: Path) -> None:
    pytest.importorskip("trustme")
    made = certificates(tmp_path, expired=True)
    with running(listen=["SSL://127.0.0.1:0"], tls=made.context()) as server:
        how = options("SSL", "", made)
        with (
            Cluster(server.bootstrap, **how) as cluster,
            pytest.raises(AuthenticationFailed, match="has expired"),
        ):
            cluster.topics(timeout=60)


def test_a_wrong_password_is_told_at_once_and_leaves_nothing_behind(server: Any, files: Certificates) -> None:
    how = options("SASL_SSL", "SCRAM-SHA-256", files) | {"sasl_password": "wrong"}
    with Cluster(server.places["SASL_SSL"], **how) as cluster, pytest.raises(AuthenticationFailed) as caught:
        cluster.topics(timeout=60)
    assert "are sasl_username and sasl_password right?" in str(caught.value)
    assert not server.broker.delayed


@pytest.mark.thorough  # tests/testing/test_secrets.py asks more, and sooner
def test_no_log_and_no_error_tells_a_secret(
    server: Any, files: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    """After failures of each kind: wrong passwords, wrong ports, no mechanism."""
    caplog.set_level(0)
    secret = "not-to-be-told-42"
    told: list[str] = []
    for protocol, mechanism in (
        ("SASL_SSL", "PLAIN"),
        ("SASL_SSL", "SCRAM-SHA-256"),
        ("SASL_PLAINTEXT", "PLAIN"),
    ):
        for place in ("SASL_SSL", "SASL_PLAINTEXT", "PLAINTEXT"):
            how = options(protocol, mechanism, files) | {"sasl_password": secret}
            with Consumer(server.places[place], group_id="g", client_id=place, **how) as consumer:
                consumer.subscribe(["flights"])
                with pytest.raises(KprotoError) as caught:
                    consumer.poll(60)
                told += [str(caught.value), repr(caught.value), repr(consumer.options), repr(vars(consumer))]
    assert secret not in "\n".join([*told, caplog.text])


def test_a_setting_names_the_keys_of_who_signs_tokens(tmp_path: Path) -> None:
    pytest.importorskip("jwt")
    issuer = Issuer(algorithm="ES256")
    (tmp_path / "jwks.json").write_text(json.dumps(issuer.jwks))
    settings = {
        "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "jwks.json").as_uri(),
        "sasl.oauthbearer.expected.audience": f"others, {issuer.audience}",
        "sasl.oauthbearer.expected.issuer": issuer.name,
    }
    how = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}
    with running(settings=settings, listen=["SASL_PLAINTEXT://127.0.0.1:0"]) as server:
        provider = partial(issuer.token, "alice")
        with Cluster(server.bootstrap, sasl_oauth_token_provider=provider, **how) as cluster:
            assert cluster.topics() == {}
        provider = partial(unsecured_token, "alice", int(time.time() * 1000), 60_000)
        with (
            pytest.raises(AuthenticationFailed, match="the broker refuses the token"),
            Cluster(server.bootstrap, sasl_oauth_token_provider=provider, **how) as cluster,
        ):
            cluster.topics()


@pytest.mark.parametrize(
    ("name", "words"), [("none.json", "No such file"), ("list.json", r'a JSON object such as \{"keys"')]
)
def test_keys_that_are_not_there_are_told_at_once(tmp_path: Path, name: str, words: str) -> None:
    pytest.importorskip("jwt")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ConfigError, match=words):
        Server(settings={"sasl.oauthbearer.jwks.endpoint.url": (tmp_path / name).as_uri()})
