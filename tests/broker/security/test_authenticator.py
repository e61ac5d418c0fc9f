"""Who gets into the embedded broker, and for how long: its machine, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.broker.machine import FrameReceived, Tick, next_deadline
from kproto.messages.api_versions import ApiVersionsRequest
from kproto.messages.sasl_authenticate import SaslAuthenticateRequest
from kproto.messages.sasl_handshake import SaslHandshakeRequest
from kproto.security.exchange import SaslClient
from kproto.security.plain import PlainClient
from kproto.security.scram import ScramClient
from kproto.wire.message import Message
from tests.broker.security.stage import PASSWORD, RANDOM, LoginStage


@pytest.mark.parametrize(
    "client", [PlainClient("alice", PASSWORD), ScramClient("SCRAM-SHA-512", "alice", PASSWORD, "n")]
)
def test_who_has_logged_in_is_served(client: SaslClient) -> None:
    stage = LoginStage()
    assert stage.log_in(client).error_code == 0
    [broker] = stage.metadata().brokers
    assert (broker.host, broker.port) == ("there", 9093)
    assert stage.broker.connections[1].principal == "User:alice"


def test_who_has_not_is_told_the_versions_and_nothing_else() -> None:
    stage = LoginStage()
    assert stage.ask(ApiVersionsRequest(), 0).error_code == 0
    assert stage.metadata() is None
    assert stage.closed == "a request before the client was authenticated (client.id 'test')"


def test_a_listener_without_sasl_says_so() -> None:
    stage = LoginStage("PLAINTEXT")
    assert stage.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 34
    assert stage.ask(SaslAuthenticateRequest(auth_bytes=b""), 2).error_code == 34
    assert stage.metadata().brokers


def test_a_mechanism_that_is_not_there_is_refused_with_those_that_are() -> None:
    stage = LoginStage(sasl_enabled_mechanisms="PLAIN,OAUTHBEARER")
    response = stage.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert (response.error_code, response.mechanisms) == (33, ["PLAIN"])
    assert stage.closed


@pytest.mark.parametrize("request_", [ApiVersionsRequest(), SaslHandshakeRequest(mechanism="PLAIN")])
def test_what_is_asked_in_the_middle_of_a_login_ends_it(request_: Message) -> None:
    stage = LoginStage(connection_failed_authentication_delay_ms="0")
    assert stage.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    assert stage.ask(request_, 0).error_code == 34
    assert stage.closed == "a request in the middle of a login"


def test_a_stranger_asks_for_the_versions_once() -> None:
    stage = LoginStage()
    odd = ApiVersionsRequest(client_software_name="!", client_software_version="1")
    assert [stage.ask(entry, 3).error_code for entry in (odd, ApiVersionsRequest())] == [42, 42]
    known = ApiVersionsRequest(client_software_name="kproto", client_software_version="1")
    assert stage.ask(known, 3).error_code == 0
    assert stage.ask(known, 3) is None
    assert stage.closed


def test_a_session_is_renewed_by_its_own_mechanism() -> None:
    stage = LoginStage(connections_max_reauth_ms="10000")
    assert not stage.alice().error_code
    assert stage.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    assert stage.ask(SaslAuthenticateRequest(auth_bytes=PlainClient("alice", PASSWORD).begin()), 2) is None
    assert (
        stage.closed
        == "re-authentication with PLAIN of a session that began with SCRAM-SHA-256 (client.id 'test')"
    )


def test_a_session_that_nothing_renews_is_closed_without_a_word() -> None:
    stage = LoginStage(connections_max_reauth_ms="10000")
    assert not stage.alice().error_code
    assert stage.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1) is None
    assert stage.closed == "a mechanism that is not enabled: 'GSSAPI'"


def test_who_is_refused_waits_for_it_and_is_closed() -> None:
    stage = LoginStage(connection_failed_authentication_delay_ms="100")
    assert stage.log_in(PlainClient("alice", "wrong")) is None
    assert next_deadline(stage.broker) == 1_100
    assert stage.metadata() is None
    stage.now = 1_100
    answer = stage.read(SaslAuthenticateRequest(auth_bytes=b""), 2, stage.step(Tick()))
    assert answer.error_code == 58
    assert stage.closed == "failed authentication: a wrong password for 'alice'"
    assert not stage.broker.connections
    assert not stage.broker.pending_closes


def test_the_messages_of_version_0_have_no_headers() -> None:
    stage = LoginStage()
    client = ScramClient("SCRAM-SHA-256", "alice", PASSWORD, "n")
    assert stage.ask(SaslHandshakeRequest(mechanism=client.mechanism), 0).error_code == 0
    [challenge] = stage.step(FrameReceived(1, client.begin(), RANDOM))
    response = client.answer(challenge)
    assert response is not None
    [last] = stage.step(FrameReceived(1, response, RANDOM))
    assert client.answer(last) is None
    assert stage.metadata().brokers


def test_a_session_ends_unless_it_is_renewed() -> None:
    stage = LoginStage(connections_max_reauth_ms="5000")
    assert stage.alice().session_lifetime_ms == 5_000
    stage.now += 4_000
    assert stage.alice().session_lifetime_ms == 5_000
    stage.now += 4_000
    assert stage.metadata().brokers
    stage.now += 1_000
    assert stage.metadata() is None
    assert (
        stage.closed == "the session of User:alice has expired without re-authentication (client.id 'test')"
    )


def test_nobody_renews_twice_within_a_second() -> None:
    stage = LoginStage(connections_max_reauth_ms="5000")
    stage.alice()
    assert stage.alice().error_code == 0  # the first renewal may come at once
    stage.now += 999
    response = stage.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    assert (response.error_code, response.mechanisms) == (34, [])
    assert stage.metadata().brokers
    stage.now += 1
    assert stage.alice().error_code == 0


def test_a_session_that_has_ended_is_closed_by_a_renewal_that_comes_too_soon() -> None:
    stage = LoginStage(connections_max_reauth_ms="500")
    stage.alice()
    stage.now += 600  # it has ended, and the first renewal may come all the same
    assert stage.alice().error_code == 0
    stage.now += 600
    assert stage.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1) is None
    assert (
        stage.closed == "the session of User:alice has expired without re-authentication (client.id 'test')"
    )


def test_a_renewal_that_is_refused_is_called_one() -> None:
    stage = LoginStage(connections_max_reauth_ms="5000", connection_failed_authentication_delay_ms="0")
    stage.alice()
    answer = stage.log_in(ScramClient("SCRAM-SHA-256", "alice", "wrong", "n"))
    assert "Authentication failed during re-authentication due to invalid credentials" in answer.error_message


def test_nobody_becomes_somebody_else_by_renewing() -> None:
    stage = LoginStage(connections_max_reauth_ms="5000", connection_failed_authentication_delay_ms="0")
    stage.alice()
    answer = stage.log_in(ScramClient("SCRAM-SHA-256", "bob", "b", "n"))
    assert answer.error_code == 58
    assert "Cannot change principals" in answer.error_message


def test_a_session_without_end_is_not_renewed() -> None:
    stage = LoginStage()
    assert stage.alice().session_lifetime_ms == 0
    assert stage.alice().error_code == 34
    assert stage.metadata().brokers


@given(
    st.lists(st.binary(max_size=60), max_size=4), st.sampled_from(["PLAIN", "SCRAM-SHA-256"]), st.booleans()
)
def test_whatever_is_said_nobody_gets_in_without_a_password(
    said: list[bytes], mechanism: str, raw: bool
) -> None:
    stage = LoginStage(connection_failed_authentication_delay_ms="0")
    stage.ask(SaslHandshakeRequest(mechanism=mechanism), 0 if raw else 1)
    for data in said:
        if raw:
            stage.step(FrameReceived(1, data, RANDOM))
        else:
            stage.ask(SaslAuthenticateRequest(auth_bytes=data), 2)
    assert stage.metadata() is None
    assert not stage.broker.connections


@given(st.binary(max_size=200))
def test_no_frame_of_a_stranger_breaks_the_broker(frame: bytes) -> None:
    stage = LoginStage()
    stage.step(FrameReceived(1, frame, RANDOM))
    assert stage.broker.connections.keys() <= {1}


def test_a_large_message_of_a_stranger_is_not_even_looked_at() -> None:
    stage = LoginStage()
    stage.step(FrameReceived(1, bytes(600_000), RANDOM))
    assert stage.closed == "600000 bytes from a client that was not authenticated"


def test_nothing_shows_a_password() -> None:
    stage = LoginStage()
    stage.alice()
    assert PASSWORD not in f"{stage.users!r} {stage.broker.connections!r}"
