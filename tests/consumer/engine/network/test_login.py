"""A connection authenticates with SASL before its first request, and again before its session expires."""

from __future__ import annotations

import base64
import time
from random import Random
from typing import Any

import pytest

from consumer.engine.metadata.cluster import BrokerAddress
from consumer.engine.network.call import Outcome
from consumer.engine.network.client import NetworkClient
from consumer.engine.network.transport import (
    Broken,
    GetToken,
    GotToken,
    Open,
    Reached,
    Shut,
    Write,
)
from consumer.security import Token, security_options
from kproto.errors import AuthenticationFailed, ConnectionFailed
from kproto.security.oauthbearer import unsecured_token
from kproto.security.plain import PlainServer
from kproto.wire.frame import Frames
from tests.consumer.engine.network.login_stage import HEARTBEAT, SERVERS, LoginStage


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("raw", [False, True])
def test_the_first_request_is_sent_after_the_login(mechanism: str, raw: bool) -> None:
    stage = LoginStage(sasl_mechanism=mechanism, raw=raw)
    assert stage.ask().response is not None
    step, steps = "frame" if raw else "SaslAuthenticate", 1 if mechanism == "PLAIN" else 2
    assert stage.seen == ["ApiVersions", "SaslHandshake", *[step] * steps, "Heartbeat"]


def test_one_response_without_sasl_handshake_does_not_fail_the_login() -> None:
    stage = LoginStage(sasl_mechanism="PLAIN")
    stage.versions_without_sasl = 1
    assert stage.ask().response is not None
    assert stage.seen[:3] == ["ApiVersions", "ApiVersions", "SaslHandshake"]


def test_a_token_is_requested_when_it_is_needed() -> None:
    stage = LoginStage(sasl_mechanism="OAUTHBEARER")
    call = stage.ask()
    [get_token] = [action for action in stage.actions if isinstance(action, GetToken)]
    assert stage.seen == ["ApiVersions"]
    token = Token(unsecured_token("alice", int(time.time() * 1000), 60_000))
    stage.happened(GotToken(get_token.key, token))
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
        ({"sasl_mechanism": "PLAIN", "sasl": False}, "does not use SASL; check"),
        ({"sasl_mechanism": "PLAIN", "raw": True, "sasl_password": "wrong"}, None),
    ],
)
def test_a_rejected_login_says_why(options: Any, words: str | None) -> None:
    stage = LoginStage(**options)
    call = stage.ask()
    # A broker that does not support SaslAuthenticate closes the connection without an error message.
    if words is None:
        assert isinstance(call.error, ConnectionFailed)
        assert "wrong password?" in str(call.error)
    else:
        with pytest.raises(AuthenticationFailed, match=words):
            raise call.error or AssertionError
        assert call.outcome is Outcome.UNAUTHENTICATED


def test_after_a_rejected_login_the_next_address_is_not_tried() -> None:
    stage = LoginStage(sasl_mechanism="PLAIN", sasl_password="wrong")
    call = stage.network.send(HEARTBEAT, 0)
    stage.run()
    assert "rejects user" in stage.denied(call)
    assert [action.host for action in stage.actions if isinstance(action, Open)] == ["a"]


def test_a_failed_token_request_closes_the_connection() -> None:
    stage = LoginStage(sasl_mechanism="OAUTHBEARER")
    call = stage.ask()
    key = next(action.key for action in stage.actions if isinstance(action, GetToken))
    stage.happened(Broken(key, "the provider is down"))
    assert isinstance(call.error, ConnectionFailed)
    assert Shut(key) in stage.actions


def test_a_session_is_renewed_on_the_same_connection_before_it_expires() -> None:
    stage = LoginStage(sasl_mechanism="SCRAM-SHA-256", session_ms=10_000)
    stage.ask()
    due = stage.network.next_deadline()
    assert due is not None
    assert 8_500 <= due <= 9_500
    stage.seen.clear()
    stage.tick(due)
    assert stage.seen == ["SaslHandshake", "SaslAuthenticate", "SaslAuthenticate"]
    assert stage.ask().response is not None
    assert sum(isinstance(action, Open) for action in stage.actions) == 1
    next_due = stage.network.next_deadline()
    assert next_due is not None
    assert next_due >= due + 8_500


def test_requests_in_flight_are_answered_before_a_renewal_and_new_ones_after_it() -> None:
    stage = LoginStage(sasl_mechanism="PLAIN", session_ms=4_000)
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
    for body in bodies:  # The broker reads both requests only after the client has written them.
        stage.serve(1, body)
        stage.run()
    assert before.response is not None
    assert after.response is not None
    assert stage.seen[-4:] == ["Heartbeat", "SaslHandshake", "SaslAuthenticate", "Heartbeat"]


def test_a_rejected_renewal_fails_the_calls() -> None:
    stage = LoginStage(sasl_mechanism="PLAIN", session_ms=10_000)
    stage.ask()
    SERVERS["PLAIN"], server = lambda: PlainServer({}.get), SERVERS["PLAIN"]
    try:
        stage.tick(9_500)
        call = stage.ask()
        stage.tick(10_000)
    finally:
        SERVERS["PLAIN"] = server
    assert call.done
    assert "rejects user" in stage.denied(call)


def test_a_renewal_that_is_too_early_opens_another_connection() -> None:
    """A session is renewed at most once a second.

    Java's KafkaChannel begins at most one reauthentication per second. KafkaApis answers further handshakes
    with ILLEGAL_SASL_STATE.
    """
    stage = LoginStage(sasl_mechanism="PLAIN", session_ms=500)
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
def test_short_or_impossible_session_lifetimes_do_not_cause_constant_logins(
    session_ms: int, logins: int
) -> None:
    """Short and negative session lifetimes do not cause endless logins.

    Regression: a session whose end was in the past was renewed again after each response, without a delay.
    """
    stage = LoginStage(sasl_mechanism="PLAIN", session_ms=session_ms)
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
def test_a_connection_closed_after_a_successful_login_says_so(
    mechanism: str, session_ms: int, words: str
) -> None:
    stage = LoginStage(sasl_mechanism=mechanism, session_ms=session_ms)
    call = stage.network.send(HEARTBEAT, 0, node=1)
    stage.cut = True
    stage.run()
    if mechanism == "OAUTHBEARER":
        [get_token] = [action for action in stage.actions if isinstance(action, GetToken)]
        token = Token(unsecured_token("alice", int(time.time() * 1000), 60_000))
        stage.happened(GotToken(get_token.key, token))
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
def test_a_connection_closed_during_the_login_says_where(answered: int, words: str) -> None:
    stage = LoginStage(sasl_mechanism="SCRAM-SHA-256")
    stage.answers = answered
    call = stage.ask()
    assert isinstance(call.error, ConnectionFailed)
    with pytest.raises(ConnectionFailed, match=words):
        raise call.error


def test_a_broker_that_is_silent_during_a_login_is_disconnected() -> None:
    stage = LoginStage(sasl_mechanism="PLAIN")
    stage.silent = True
    call = stage.ask()
    stage.tick(3_000)
    assert Shut(1) in stage.actions
    assert isinstance(call.error, ConnectionFailed)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_secret_in_the_brokers_message_is_hidden(mechanism: str) -> None:
    secret = "hunter2-hunter2"
    stage = LoginStage(sasl_mechanism=mechanism, sasl_password=secret)
    stage.repeats = f"'alice' may not come in by {secret}"
    assert "'alice' may not come in by [hidden]" in stage.denied(stage.ask())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_no_action_and_no_event_shows_a_secret(mechanism: str) -> None:
    secret = "hunter2-hunter2"
    token = Token(secret)
    stage = LoginStage(sasl_mechanism=mechanism, sasl_password=secret)
    call = stage.ask()
    shown = f"{stage.actions!r} {call!r} {call.error} {GotToken(1, token)!r} {stage.network._security!r}"
    assert secret not in shown
    assert base64.b64encode(secret.encode()).decode() not in shown


def test_a_login_timeout_names_the_login() -> None:
    stage = LoginStage(sasl_mechanism="PLAIN")
    stage.answers_no = ("SaslHandshake",)
    call = stage.ask()
    stage.tick(3_000)
    assert "the broker did not answer the login of user 'alice' within 3000 ms" in str(call.error)


def test_a_slow_token_provider_is_not_reported_as_a_silent_broker() -> None:
    stage = LoginStage(sasl_mechanism="OAUTHBEARER")
    call = stage.ask()
    stage.tick(3_000)
    assert not call.done  # The timeout is 10 s for a token provider, which may be slow, and 3 s for a broker.
    stage.tick(10_000)
    assert "the token provider has returned nothing within 10000 ms" in str(call.error)


def test_a_stalled_tls_handshake_is_not_reported_as_a_failed_connection() -> None:
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
def test_a_brokers_message_is_shown_in_one_short_line(words: str) -> None:
    stage = LoginStage(sasl_mechanism="PLAIN", sasl_password="wrong")
    stage.repeats = words
    detail = stage.denied(stage.ask())
    assert detail.isprintable()
    assert len(detail) < 500
    assert detail.endswith("are sasl_username and sasl_password right?")


def test_a_megabyte_of_scram_data_is_shortened() -> None:
    stage = LoginStage(sasl_mechanism="SCRAM-SHA-256")
    for garbage in (b"e=" + b"x" * 1_000_000, b"r=" + b"x" * 1_000_000, b"\xff" * 1_000_000):
        stage.says = garbage
        assert len(stage.denied(stage.ask())) < 500
        stage = LoginStage(sasl_mechanism="SCRAM-SHA-256")


def test_a_long_list_of_mechanisms_is_shortened() -> None:
    stage = LoginStage(sasl_mechanism="SCRAM-SHA-512")
    stage.offers = [f"M{number}" for number in range(100_000)]
    assert len(stage.denied(stage.ask())) < 500


def test_a_login_rejected_by_one_broker_names_it_and_does_not_affect_the_other() -> None:
    stage = LoginStage(sasl_mechanism="PLAIN")
    stage.network.view.brokers[2] = BrokerAddress(2, "b", 1)
    stage.refusing = {"b"}
    assert stage.ask().response is not None
    for _ in range(3):
        call = stage.network.send(HEARTBEAT, stage.now, node=2)
        stage.run()
        stage.tick(stage.now + 2_000)
        assert "rejects user 'alice'" in stage.denied(call)
        assert isinstance(call.error, AuthenticationFailed)
        assert call.error.address == "b:1"
        assert stage.ask().response is not None
    assert sum(isinstance(action, Open) and action.host == "a" for action in stage.actions) == 1


def test_a_login_rejected_by_one_bootstrap_address_is_tried_at_the_other_next_time() -> None:
    """After one bootstrap address has rejected a login, the client next logs in at the other address.

    A changed password may reach the brokers at different times, so the other broker may accept the login.
    """
    stage = LoginStage(sasl_mechanism="PLAIN")
    stage.network.view.brokers.clear()
    stage.refusing = {"a"}
    first = stage.network.send(HEARTBEAT, 0)
    stage.run()
    assert "rejects user 'alice'" in stage.denied(first)
    second = stage.network.send(HEARTBEAT, 0)
    stage.run()
    assert second.response is not None
    assert [action.host for action in stage.actions if isinstance(action, Open)] == ["a", "b"]
