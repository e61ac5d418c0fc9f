"""SASL on a connection: before the first request, and again before the session ends."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from consumer.engine.metadata.cluster import BrokerAddress
from consumer.engine.network.call import Call, Outcome
from consumer.engine.network.client import NetworkClient
from consumer.engine.network.transport import (
    Broken,
    Data,
    GetToken,
    GotToken,
    Open,
    Opened,
    Reached,
    Shut,
    Write,
)
from consumer.security import Token, security_options
from consumer.security.failures import CLOSED
from kproto.errors import AuthenticationFailed, ConnectionFailed
from kproto.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kproto.messages.headers import decode_request, encode_response
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kproto.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kproto.security.exchange import Accepted, Challenge, Rejected
from kproto.security.oauthbearer import OAuthBearerServer, unsecured, unsecured_token
from kproto.security.plain import PlainServer
from kproto.security.scram import ScramServer, credential, salted
from kproto.wire.frame import Frames, frame
from kproto.wire.message import Message

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
MADE = credential("SCRAM-SHA-256", salted("SCRAM-SHA-256", "right", b"salt", 4096), b"salt", 4096)
SERVERS: dict[str, Callable[[], Any]] = {
    "PLAIN": lambda: PlainServer({"alice": "right"}.get),
    "SCRAM-SHA-256": lambda: ScramServer("SCRAM-SHA-256", {"alice": MADE}.get, "n", lambda name: MADE),
    "OAUTHBEARER": lambda: OAuthBearerServer(unsecured(lambda: int(time.time() * 1000))),
}
NOW = {"PLAIN": (17, 0, 1), "AUTHENTICATE": (36, 0, 2)}


class Stage:
    """A network, and a broker that lets in only alice; `raw`: it is older than SaslAuthenticate."""

    def __init__(self, *, raw: bool = False, session_ms: int = 0, sasl: bool = True, **options: Any) -> None:
        given = {"security_protocol": "SASL_PLAINTEXT", "sasl_username": "alice", "sasl_password": "right"}
        if options.get("sasl_mechanism") == "OAUTHBEARER":
            given = {"security_protocol": "SASL_PLAINTEXT", "sasl_oauth_token_provider": self.no_token}
        security = security_options({**given, **options})
        self.network = NetworkClient([("a", 1), ("b", 1)], security=security, random=Random(1))
        self.network.view.brokers = {1: BrokerAddress(1, "a", 1)}
        self.raw, self.session_ms, self.sasl = raw, session_ms, sasl
        self.now = 0
        self.actions: list[Any] = []
        self.frames = Frames()
        self.server: Any = None
        self.bare = False
        self.silent = False
        self.too_soon = False  # to renew a session again
        self.answers_no: tuple[str, ...] = ()
        self.says: bytes | None = None  # instead of its half of an exchange
        self.offers = list(SERVERS)
        self.cut = False  # what comes behind a login
        self.repeats = ""  # what it says to who is refused
        self.hosts: dict[int, str] = {}  # of each connection
        self.refusing: set[str] = set()  # hosts that let nobody in
        self.host = ""
        self.answers = 1 << 30  # so many, and then it is cut
        self.seen: list[str] = []

    @staticmethod
    def no_token() -> str:
        raise AssertionError("the engine asks by an action")

    def ask(self) -> Call:
        call = self.network.send(HEARTBEAT, self.now, node=1)
        self.run()
        return call

    def happened(self, event: Any) -> None:
        self.network.handle(event, self.now)
        self.run()

    def tick(self, now: int) -> None:
        self.now = now
        self.network.tick(now)
        self.run()

    def run(self) -> None:
        while self.network.actions:
            actions, self.network.actions = self.network.actions, []
            self.actions += actions
            for action in actions:
                if isinstance(action, Open):
                    self.hosts[action.key] = action.host
                    self.network.handle(Opened(action.key), self.now)
                elif isinstance(action, Write):
                    for body in self.frames.feed(action.data):
                        name = type(decode_request(body).request).__name__ if self.answers_no else ""
                        if not self.silent and name.removesuffix("Request") not in self.answers_no:
                            self.serve(action.key, body)

    def serve(self, key: int, body: bytes) -> None:
        self.host = self.hosts[key]
        if self.bare:
            self.seen.append("frame")
            step = self.server.evaluate_response(body)
            self.bare = isinstance(step, Challenge)
            event = Broken(key, CLOSED) if isinstance(step, Rejected) else Data(key, frame(step.data))
            self.network.handle(event, self.now)
            return
        envelope = decode_request(body)
        name = type(envelope.request).__name__.removesuffix("Request")
        self.answers -= 1
        if self.answers < 0 or (self.cut and name == "Heartbeat"):
            self.network.handle(Broken(key, CLOSED), self.now)
            return
        self.seen.append(name)
        answer = self.answer(envelope.request, envelope.version)
        self.bare = self.raw and isinstance(envelope.request, SaslHandshakeRequest)
        correlation = envelope.header.correlation_id
        self.network.handle(
            Data(key, frame(encode_response(answer, envelope.version, correlation))), self.now
        )

    def answer(self, request: Message, version: int) -> Message:
        match request:
            case ApiVersionsRequest():
                known = [(12, 0, 4), *([(17, 0, 0 if self.raw else 1)] if self.sasl else [])]
                known += [] if self.raw else [(36, 0, 2)]
                keys = [
                    ApiVersion(api_key=key, min_version=low, max_version=high) for key, low, high in known
                ]
                return ApiVersionsResponse(error_code=0, api_keys=keys)
            case SaslHandshakeRequest() if self.too_soon:
                return SaslHandshakeResponse(error_code=34, mechanisms=[])
            case SaslHandshakeRequest(mechanism=mechanism):
                if mechanism not in SERVERS:
                    return SaslHandshakeResponse(error_code=33, mechanisms=self.offers)
                self.server = SERVERS[mechanism]()
                return SaslHandshakeResponse(error_code=0, mechanisms=self.offers)
            case SaslAuthenticateRequest() if self.host in self.refusing:
                return SaslAuthenticateResponse(error_code=58, error_message="no", auth_bytes=b"")
            case SaslAuthenticateRequest() if self.says is not None:
                return SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=self.says)
            case SaslAuthenticateRequest(auth_bytes=data):
                step = self.server.evaluate_response(bytes(data))
                if isinstance(step, Rejected):
                    told = self.repeats or step.message
                    return SaslAuthenticateResponse(error_code=58, error_message=told, auth_bytes=b"")
                session = self.session_ms if isinstance(step, Accepted) else 0
                return SaslAuthenticateResponse(
                    error_code=0, error_message=None, auth_bytes=step.data, session_lifetime_ms=session
                )
            case _:
                return HeartbeatResponse(throttle_time_ms=0, error_code=0)

    def denied(self, call: Call) -> str:
        assert isinstance(call.error, AuthenticationFailed)
        assert call.outcome is Outcome.UNAUTHENTICATED
        return call.error.detail


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("raw", [False, True])
def test_the_first_request_is_asked_behind_the_login(mechanism: str, raw: bool) -> None:
    stage = Stage(sasl_mechanism=mechanism, raw=raw)
    assert stage.ask().response is not None
    step, steps = "frame" if raw else "SaslAuthenticate", 1 if mechanism == "PLAIN" else 2
    assert stage.seen == ["ApiVersions", "SaslHandshake", *[step] * steps, "Heartbeat"]


def test_a_token_is_asked_for_when_it_is_needed() -> None:
    stage = Stage(sasl_mechanism="OAUTHBEARER")
    call = stage.ask()
    [wanted] = [action for action in stage.actions if isinstance(action, GetToken)]
    assert stage.seen == ["ApiVersions"]
    token = Token(unsecured_token("alice", int(time.time() * 1000), 60_000))
    stage.happened(GotToken(wanted.key, token))
    assert call.response is not None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sasl_mechanism": "PLAIN", "sasl_password": "wrong"}, "'alice' with PLAIN .*are sasl_username"),
        (
            {"sasl_mechanism": "SCRAM-SHA-256", "sasl_password": "wrong"},
            "rejects user 'alice' with SCRAM-SHA-256: are",
        ),
        (
            {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "älice"},
            "Kafka accepts only ASCII user names for SCRAM",
        ),
        (
            {"sasl_mechanism": "PLAIN", "sasl_password": "right\n"},
            "sasl_password ends with a line end; is that intended",
        ),
        ({"sasl_mechanism": "PLAIN", "sasl_username": " alice"}, "sasl_username begins with a space"),
        (
            {"sasl_mechanism": "SCRAM-SHA-512"},
            "not enabled on this listener; enabled: OAUTHBEARER, PLAIN, SCRAM-SHA-256",
        ),
        ({"sasl_mechanism": "PLAIN", "sasl": False}, "has no SASL; check"),
        ({"sasl_mechanism": "PLAIN", "raw": True, "sasl_password": "wrong"}, None),
    ],
)
def test_who_is_refused_hears_why(options: Any, words: str | None) -> None:
    stage = Stage(**options)
    call = stage.ask()
    if words is None:  # an old broker only closes
        assert isinstance(call.error, ConnectionFailed)
        assert "wrong password?" in str(call.error)
    else:
        with pytest.raises(AuthenticationFailed, match=words):
            raise call.error or AssertionError
        assert call.outcome is Outcome.UNAUTHENTICATED


def test_who_is_refused_by_one_address_is_not_tried_at_the_next() -> None:
    stage = Stage(sasl_mechanism="PLAIN", sasl_password="wrong")
    call = stage.network.send(HEARTBEAT, 0)
    stage.run()
    assert "rejects user" in stage.denied(call)
    assert [action.host for action in stage.actions if isinstance(action, Open)] == ["a"]


def test_a_token_that_can_not_be_had_closes_the_connection() -> None:
    stage = Stage(sasl_mechanism="OAUTHBEARER")
    call = stage.ask()
    key = next(action.key for action in stage.actions if isinstance(action, GetToken))
    stage.happened(Broken(key, "the provider is down"))
    assert isinstance(call.error, ConnectionFailed)
    assert Shut(key) in stage.actions


def test_a_session_is_renewed_on_the_same_connection_before_it_ends() -> None:
    stage = Stage(sasl_mechanism="SCRAM-SHA-256", session_ms=10_000)
    stage.ask()
    due = stage.network.next_deadline()
    assert due is not None
    assert 8_500 <= due <= 9_500
    stage.seen.clear()
    stage.tick(due)
    assert stage.seen == ["SaslHandshake", "SaslAuthenticate", "SaslAuthenticate"]
    assert stage.ask().response is not None
    assert sum(isinstance(action, Open) for action in stage.actions) == 1
    again = stage.network.next_deadline()
    assert again is not None
    assert again >= due + 8_500


def test_what_is_under_way_is_answered_before_a_renewal_and_what_is_new_behind_it() -> None:
    stage = Stage(sasl_mechanism="PLAIN", session_ms=4_000)
    stage.ask()
    stage.silent = True
    before = stage.ask()
    stage.tick(3_800)
    written = len([action for action in stage.actions if isinstance(action, Write)])
    after = stage.ask()
    assert len([action for action in stage.actions if isinstance(action, Write)]) == written
    stage.silent = False
    bodies = [
        body
        for action in stage.actions[-2:]
        if isinstance(action, Write)
        for body in Frames().feed(action.data)
    ]
    for body in bodies:  # what the broker finds when it wakes up
        stage.serve(1, body)
        stage.run()
    assert before.response is not None
    assert after.response is not None
    assert stage.seen[-4:] == ["Heartbeat", "SaslHandshake", "SaslAuthenticate", "Heartbeat"]


def test_a_renewal_that_is_refused_is_the_end() -> None:
    stage = Stage(sasl_mechanism="PLAIN", session_ms=10_000)
    stage.ask()
    SERVERS["PLAIN"], kept = lambda: PlainServer({}.get), SERVERS["PLAIN"]
    try:
        stage.tick(9_500)
        call = stage.ask()
        stage.tick(10_000)
    finally:
        SERVERS["PLAIN"] = kept
    assert call.done
    assert "rejects user" in stage.denied(call)


def test_a_renewal_that_comes_too_soon_begins_another_connection() -> None:
    """KafkaChannel renews once in a second, and answers a second handshake with ILLEGAL_SASL_STATE."""
    stage = Stage(sasl_mechanism="PLAIN", session_ms=500)
    stage.ask()
    stage.too_soon = True
    stage.tick(1_000)
    stage.too_soon = False
    call = stage.ask()
    stage.tick(2_000)
    assert call.response is not None
    assert sum(isinstance(action, Open) for action in stage.actions) == 2


@pytest.mark.parametrize(
    ("session_ms", "logins"), [(-(2**63), 1), (-10, 1), (-1, 1), (0, 1), (2, 6), (900, 6)]
)
def test_sessions_that_can_t_be_or_are_short_are_no_reason_to_log_in_all_the_time(
    session_ms: int, logins: int
) -> None:
    """A session in the past was renewed as fast as the broker answers."""
    stage = Stage(sasl_mechanism="PLAIN", session_ms=session_ms)
    stage.ask()
    for _ in range(10):
        due = stage.network.next_deadline()
        if due is not None and due <= 5_000:
            stage.tick(due)
    assert stage.seen.count("SaslHandshake") == logins


@pytest.mark.parametrize(
    ("mechanism", "session_ms", "words"),
    [
        ("PLAIN", 0, "accepted the login of user 'alice', and closed .*: its log says why"),
        ("PLAIN", 5, r"login of user 'alice' for 5 ms only, .*: see connections\.max\.reauth\.ms"),
        ("OAUTHBEARER", 0, "login of the token, and closed .*: has it run out by the broker's clock"),
        ("OAUTHBEARER", 5, "login of the token for 5 ms only, .*: does it run out by the broker's clock"),
    ],
)
def test_who_was_let_in_and_then_cut_hears_that(mechanism: str, session_ms: int, words: str) -> None:
    stage = Stage(sasl_mechanism=mechanism, session_ms=session_ms)
    call = stage.network.send(HEARTBEAT, 0, node=1)
    stage.cut = True
    stage.run()
    if mechanism == "OAUTHBEARER":
        [wanted] = [action for action in stage.actions if isinstance(action, GetToken)]
        token = Token(unsecured_token("alice", int(time.time() * 1000), 60_000))
        stage.happened(GotToken(wanted.key, token))
    assert isinstance(call.error, ConnectionFailed)
    with pytest.raises(ConnectionFailed, match=words):
        raise call.error


@pytest.mark.parametrize(
    ("answered", "words"),
    [
        (0, "before its first response; does this port want TLS"),
        (1, "closed the connection on the login of user 'alice': its log says why"),
        (2, "closed the connection on the login of user 'alice': its log says why"),
    ],
)
def test_a_login_that_is_cut_says_where(answered: int, words: str) -> None:
    stage = Stage(sasl_mechanism="SCRAM-SHA-256")
    stage.answers = answered
    call = stage.ask()
    assert isinstance(call.error, ConnectionFailed)
    with pytest.raises(ConnectionFailed, match=words):
        raise call.error


def test_a_broker_that_goes_silent_in_the_middle_of_a_login_is_left() -> None:
    stage = Stage(sasl_mechanism="PLAIN")
    stage.silent = True
    call = stage.ask()
    stage.tick(3_000)
    assert Shut(1) in stage.actions
    assert isinstance(call.error, ConnectionFailed)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_broker_that_repeats_what_it_was_sent_is_not_quoted(mechanism: str) -> None:
    secret = "hunter2-hunter2"
    stage = Stage(sasl_mechanism=mechanism, sasl_password=secret)
    stage.repeats = f"'alice' may not come in by {secret}"
    assert "'alice' may not come in by [hidden]" in stage.denied(stage.ask())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_no_action_and_no_event_shows_a_secret(mechanism: str) -> None:
    secret = "hunter2-hunter2"
    token = Token(secret)
    stage = Stage(sasl_mechanism=mechanism, sasl_password=secret)
    call = stage.ask()
    shown = f"{stage.actions!r} {call!r} {call.error} {GotToken(1, token)!r} {stage.network._security!r}"
    assert secret not in shown
    assert base64.b64encode(secret.encode()).decode() not in shown


def test_what_takes_too_long_is_told_by_its_name() -> None:
    stage = Stage(sasl_mechanism="PLAIN")
    stage.answers_no = ("SaslHandshake",)
    call = stage.ask()
    stage.tick(3_000)
    assert "the broker did not answer the login of user 'alice' within 3000 ms" in str(call.error)


def test_a_provider_that_returns_nothing_is_no_broker_that_is_silent() -> None:
    stage = Stage(sasl_mechanism="OAUTHBEARER")
    call = stage.ask()
    stage.tick(3_000)
    assert not call.done  # who gives tokens may be slower than a broker
    stage.tick(10_000)
    assert "the token provider has returned nothing within 10000 ms" in str(call.error)


def test_a_handshake_that_stalls_is_no_connection_that_can_not_be_made() -> None:
    network = NetworkClient(
        [("a", 1)], security=security_options({"security_protocol": "SSL"}), random=Random(1)
    )
    call = network.send(HEARTBEAT, 0)
    [opened] = [action for action in network.actions if isinstance(action, Open)]
    network.handle(Reached(opened.key), 10)
    while not call.done:
        network.tick(network.next_deadline() or 0)
        for action in network.actions:
            if isinstance(action, Open) and action.key > opened.key:
                opened = action
                network.handle(Reached(action.key), 10)
    assert "the TLS handshake did not complete within" in str(call.error)
    assert "does this port speak TLS?" in str(call.error)


@pytest.mark.parametrize("words", ["no\nway\x1b[31m in\r\n", "x" * 32_000])
def test_what_a_broker_says_is_one_line_and_no_page(words: str) -> None:
    stage = Stage(sasl_mechanism="PLAIN", sasl_password="wrong")
    stage.repeats = words
    detail = stage.denied(stage.ask())
    assert detail.isprintable()
    assert len(detail) < 500
    assert detail.endswith("are sasl_username and sasl_password right?")


def test_a_megabyte_of_scram_is_no_page_either() -> None:
    stage = Stage(sasl_mechanism="SCRAM-SHA-256")
    for garbage in (b"e=" + b"x" * 1_000_000, b"r=" + b"x" * 1_000_000, b"\xff" * 1_000_000):
        stage.says = garbage
        assert len(stage.denied(stage.ask())) < 500
        stage = Stage(sasl_mechanism="SCRAM-SHA-256")


def test_a_broker_with_a_million_mechanisms_is_none_whose_name_fills_a_page() -> None:
    stage = Stage(sasl_mechanism="SCRAM-SHA-512")
    stage.offers = [f"M{number}" for number in range(100_000)]
    assert len(stage.denied(stage.ask())) < 500


def test_where_one_of_two_brokers_refuses_it_is_named_and_the_other_is_asked_as_before() -> None:
    stage = Stage(sasl_mechanism="PLAIN")
    stage.network.view.brokers[2] = BrokerAddress(2, "b", 1)
    stage.refusing = {"b"}
    assert stage.ask().response is not None
    for _ in range(3):
        refused = stage.network.send(HEARTBEAT, stage.now, node=2)
        stage.run()
        stage.tick(stage.now + 2_000)
        assert "rejects user 'alice'" in stage.denied(refused)
        assert isinstance(refused.error, AuthenticationFailed)
        assert refused.error.address == "b:1"
        assert stage.ask().response is not None
    assert sum(isinstance(action, Open) and action.host == "a" for action in stage.actions) == 1


def test_whoever_is_refused_by_a_bootstrap_address_finds_the_other_the_next_time() -> None:
    """One broker of the cluster may have heard of a password's change later than the others."""
    stage = Stage(sasl_mechanism="PLAIN")
    stage.network.view.brokers.clear()
    stage.refusing = {"a"}
    first = stage.network.send(HEARTBEAT, 0)
    stage.run()
    assert "rejects user 'alice'" in stage.denied(first)
    second = stage.network.send(HEARTBEAT, 0)
    stage.run()
    assert second.response is not None
    assert [action.host for action in stage.actions if isinstance(action, Open)] == ["a", "b"]
