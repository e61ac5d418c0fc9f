"""PLAIN: the client's and the broker's half of the exchange."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.security.exchange import Accepted, Rejected, SaslFailed
from kproto.security.plain import PlainClient, PlainServer

USERS = {"alice": "right"}


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


def test_plain_rejects_another_authorization_id() -> None:
    assert isinstance(PlainServer(USERS.get).evaluate_response(b"bob\0alice\0right"), Rejected)


def test_a_plain_client_fails_on_a_challenge() -> None:
    with pytest.raises(SaslFailed):
        PlainClient("alice", "right").answer(b"?")
