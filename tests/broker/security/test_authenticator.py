"""The broker's state machine accepts and rejects SASL logins and re-authentications as Kafka does."""

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
def test_an_authenticated_client_is_served(client: SaslClient) -> None:
    stage = LoginStage()
    assert stage.log_in(client).error_code == 0
    [broker] = stage.metadata().brokers
    assert (broker.host, broker.port) == ("there", 9093)
    assert stage.broker.connections[1].principal == "User:alice"


def test_before_the_login_only_api_versions_is_served() -> None:
    stage = LoginStage()
    assert stage.ask(ApiVersionsRequest(), 0).error_code == 0
    assert stage.metadata() is None
    assert stage.closed == "a request before the client was authenticated (client.id 'test')"


def test_a_listener_without_sasl_refuses_the_handshake() -> None:
    stage = LoginStage("PLAINTEXT")
    assert stage.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 34
    assert stage.ask(SaslAuthenticateRequest(auth_bytes=b""), 2).error_code == 34
    assert stage.metadata().brokers


def test_a_disabled_mechanism_is_refused_with_the_enabled_ones() -> None:
    stage = LoginStage(sasl_enabled_mechanisms="PLAIN,OAUTHBEARER")
    response = stage.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert (response.error_code, response.mechanisms) == (33, ["PLAIN"])
    assert stage.closed


@pytest.mark.parametrize("request_", [ApiVersionsRequest(), SaslHandshakeRequest(mechanism="PLAIN")])
def test_another_request_in_the_middle_of_a_login_ends_it(request_: Message) -> None:
    stage = LoginStage(connection_failed_authentication_delay_ms="0")
    assert stage.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    assert stage.ask(request_, 0).error_code == 34
    assert stage.closed == "a request that interrupts a login"


def test_a_second_api_versions_before_the_login_closes_the_connection() -> None:
    stage = LoginStage()
    odd = ApiVersionsRequest(client_software_name="!", client_software_version="1")
    assert [stage.ask(entry, 3).error_code for entry in (odd, ApiVersionsRequest())] == [42, 42]
    known = ApiVersionsRequest(client_software_name="kproto", client_software_version="1")
    assert stage.ask(known, 3).error_code == 0
    assert stage.ask(known, 3) is None
    assert stage.closed


def test_re_authentication_needs_the_same_mechanism() -> None:
    stage = LoginStage(connections_max_reauth_ms="10000")
    assert not stage.alice().error_code
    assert stage.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    assert stage.ask(SaslAuthenticateRequest(auth_bytes=PlainClient("alice", PASSWORD).begin()), 2) is None
    assert (
        stage.closed
        == "re-authentication with PLAIN of a session that began with SCRAM-SHA-256 (client.id 'test')"
    )


def test_re_authentication_with_a_disabled_mechanism_closes_without_a_response() -> None:
    stage = LoginStage(connections_max_reauth_ms="10000")
    assert not stage.alice().error_code
    assert stage.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1) is None
    assert stage.closed == "a mechanism that is not enabled: 'GSSAPI'"


def test_a_failed_login_is_answered_after_a_delay_and_closed() -> None:
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


def test_after_handshake_v0_messages_have_no_headers() -> None:
    stage = LoginStage()
    client = ScramClient("SCRAM-SHA-256", "alice", PASSWORD, "n")
    assert stage.ask(SaslHandshakeRequest(mechanism=client.mechanism), 0).error_code == 0
    [challenge] = stage.step(FrameReceived(1, client.begin(), RANDOM))
    response = client.answer(challenge)
    assert response is not None
    [last] = stage.step(FrameReceived(1, response, RANDOM))
    assert client.answer(last) is None
    assert stage.metadata().brokers


def test_a_session_expires_without_re_authentication() -> None:
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


def test_a_second_re_authentication_within_a_second_is_refused() -> None:
    stage = LoginStage(connections_max_reauth_ms="5000")
    stage.alice()
    # The minimum interval, one second, does not apply to the first re-authentication.
    assert stage.alice().error_code == 0
    stage.now += 999
    response = stage.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
    assert (response.error_code, response.mechanisms) == (34, [])
    assert stage.metadata().brokers
    stage.now += 1
    assert stage.alice().error_code == 0


def test_an_expired_session_is_closed_by_a_re_authentication_too_soon() -> None:
    stage = LoginStage(connections_max_reauth_ms="500")
    stage.alice()
    # The first re-authentication succeeds after the session has expired, because the minimum interval of 1 s
    # applies only between re-authentications. The second re-authentication is too soon, so the expired
    # session ends.
    stage.now += 600
    assert stage.alice().error_code == 0
    stage.now += 600
    assert stage.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1) is None
    assert (
        stage.closed == "the session of User:alice has expired without re-authentication (client.id 'test')"
    )


def test_a_failed_re_authentication_is_reported() -> None:
    stage = LoginStage(connections_max_reauth_ms="5000", connection_failed_authentication_delay_ms="0")
    stage.alice()
    answer = stage.log_in(ScramClient("SCRAM-SHA-256", "alice", "wrong", "n"))
    assert "Authentication failed during re-authentication due to invalid credentials" in answer.error_message


def test_re_authentication_cannot_change_the_principal() -> None:
    stage = LoginStage(connections_max_reauth_ms="5000", connection_failed_authentication_delay_ms="0")
    stage.alice()
    answer = stage.log_in(ScramClient("SCRAM-SHA-256", "bob", "b", "n"))
    assert answer.error_code == 58
    assert "Cannot change principals" in answer.error_message


def test_a_session_without_expiry_refuses_re_authentication() -> None:
    stage = LoginStage()
    assert stage.alice().session_lifetime_ms == 0
    assert stage.alice().error_code == 34
    assert stage.metadata().brokers


@given(
    st.lists(st.binary(max_size=60), max_size=4), st.sampled_from(["PLAIN", "SCRAM-SHA-256"]), st.booleans()
)
def test_no_messages_authenticate_without_a_password(
    messages: list[bytes], mechanism: str, raw: bool
) -> None:
    stage = LoginStage(connection_failed_authentication_delay_ms="0")
    stage.ask(SaslHandshakeRequest(mechanism=mechanism), 0 if raw else 1)
    for data in messages:
        if raw:
            stage.step(FrameReceived(1, data, RANDOM))
        else:
            stage.ask(SaslAuthenticateRequest(auth_bytes=data), 2)
    assert stage.metadata() is None
    assert not stage.broker.connections


@given(st.binary(max_size=200))
def test_no_frame_before_the_login_raises(frame: bytes) -> None:
    stage = LoginStage()
    stage.step(FrameReceived(1, frame, RANDOM))
    assert stage.broker.connections.keys() <= {1}


def test_a_large_frame_before_the_login_is_not_parsed() -> None:
    stage = LoginStage()
    stage.step(FrameReceived(1, bytes(600_000), RANDOM))
    assert stage.closed == "600000 bytes from a client that was not authenticated"


def test_no_repr_contains_a_password() -> None:
    stage = LoginStage()
    stage.alice()
    assert PASSWORD not in f"{stage.users!r} {stage.broker.connections!r}"
