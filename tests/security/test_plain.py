"""The broker's half of PLAIN accepts the right password only; the client's half rejects a challenge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.security.exchange import Accepted, Rejected, SaslFailed
from kproto.security.plain import PlainClient, PlainServer

USERS = {"alice": "right"}
INVALID = "Authentication failed: Invalid username or password"


def plain(name: str, password: str) -> object:
    return PlainServer(USERS.get).evaluate_response(PlainClient(name, password).begin())


def test_plain_accepts_the_right_password() -> None:
    assert plain("alice", "right") == Accepted("alice")


def test_plain_rejects_a_wrong_password_and_an_unknown_user_with_the_same_message() -> None:
    wrong, stranger = plain("alice", "left"), plain("eve", "right")
    assert isinstance(wrong, Rejected)
    assert isinstance(stranger, Rejected)
    assert wrong.message == stranger.message == "Authentication failed: Invalid username or password"


@given(st.binary())
def test_plain_rejects_random_messages(message: bytes) -> None:
    assert isinstance(PlainServer(USERS.get).evaluate_response(message), Rejected)


@pytest.mark.parametrize(
    ("response", "message", "reason"),
    [
        (
            b"alice\0right",
            "Invalid SASL/PLAIN response: expected 3 tokens, got 2",
            "the PLAIN message does not have three parts",
        ),
        (
            b"\0alice\0right\0x\0y",
            "Invalid SASL/PLAIN response: expected 3 tokens, got 4",
            "the PLAIN message does not have three parts",
        ),
        (b"\0\0right", "Authentication failed: username not specified", "an empty username"),
        (b"\0alice\0", "Authentication failed: password not specified", "an empty password"),
        (b"\0alice\0left", INVALID, "a wrong password for 'alice'"),
        (b"bob\0alice\0left", INVALID, "a wrong password for 'alice'"),
        (b"\0eve\0right", INVALID, "user 'eve' does not exist"),
        (
            b"bob\0alice\0right",
            "Authentication failed: Client requested an authorization id that is different from username",
            "'alice' requested another authorization id",
        ),
    ],
)
def test_a_rejection_has_the_message_of_kafkas_plain_sasl_server(
    response: bytes, message: str, reason: str
) -> None:
    assert PlainServer(USERS.get).evaluate_response(response) == Rejected(message, reason)


def test_a_client_may_request_its_own_name_as_authorization_id() -> None:
    assert PlainServer(USERS.get).evaluate_response(b"alice\0alice\0right") == Accepted("alice")


def test_a_plain_client_is_done_after_an_empty_response_and_fails_on_a_challenge() -> None:
    client = PlainClient("alice", "right")
    assert client.answer(b"") is None
    with pytest.raises(SaslFailed, match="which PLAIN does not have"):
        client.answer(b"?")


def test_both_halves_name_the_mechanism() -> None:
    assert PlainClient("alice", "right").mechanism == PlainServer(USERS.get).mechanism == "PLAIN"
