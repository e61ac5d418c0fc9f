"""PLAIN and OAUTHBEARER, the client's and the broker's half."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.security.exchange import Accepted, Challenge, Rejected, SaslFailed
from kproto.security.oauthbearer import OAuthBearerClient, OAuthBearerServer, unsecured, unsecured_token
from kproto.security.plain import PlainClient, PlainServer

USERS = {"alice": "right"}
NOW = 1_700_000_000_000


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
def test_plain_rejects_random_messages(said: bytes) -> None:
    assert isinstance(PlainServer(USERS.get).evaluate_response(said), Rejected)


def test_plain_rejects_another_authorization_id() -> None:
    assert isinstance(PlainServer(USERS.get).evaluate_response(b"bob\0alice\0right"), Rejected)


def test_a_plain_client_fails_on_a_challenge() -> None:
    with pytest.raises(SaslFailed):
        PlainClient("alice", "right").answer(b"?")


def oauth(token: str, skew_ms: int = 0) -> tuple[object, object]:
    """Return the broker's first step, and its step after the client's acknowledgement."""
    server = OAuthBearerServer(unsecured(lambda: NOW, allowed_skew_ms=skew_ms))
    client = OAuthBearerClient(token, {"tenant": "a b"})
    first = server.evaluate_response(client.begin())
    if not isinstance(first, Challenge):
        return first, None
    after = client.answer(first.data)
    assert after == b"\x01"
    return first, server.evaluate_response(after)


def test_a_valid_token_is_accepted_until_it_expires() -> None:
    token = unsecured_token("alice", NOW, 60_000)
    assert oauth(token)[0] == Accepted("alice", b"", NOW + 60_000)


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (unsecured_token("alice", NOW - 120_000, 60_000), "ran out 60 s ago"),
        (
            unsecured_token("alice", NOW + 90_000, 60_000),
            "not valid before 90 s from now",
        ),
        (unsecured_token("", NOW, 60_000), "sub"),
        ("abc", "not a JWT"),
        ("a.b.c", "not a JWT"),
        ("eyJhbGciOiJSUzI1NiJ9.e30.c2ln", "signed"),
    ],
)
def test_an_invalid_token_is_rejected_after_a_challenge(token: str, why: str) -> None:
    first, end = oauth(token)
    assert first == Challenge(b'{"status":"invalid_token"}')
    assert isinstance(end, Rejected)
    assert why in end.reason


def test_clocks_may_differ_by_the_skew() -> None:
    token = unsecured_token("alice", NOW - 70_000, 60_000)
    assert isinstance(oauth(token, 20_000)[0], Accepted)


@given(st.binary() | st.binary().map(lambda rest: b"n,,\x01auth=Bearer " + rest + b"\x01\x01"))
def test_oauthbearer_rejects_random_messages(said: bytes) -> None:
    assert not isinstance(OAuthBearerServer(unsecured(lambda: NOW)).evaluate_response(said), Accepted)


def test_a_client_acknowledges_a_rejection_once() -> None:
    client = OAuthBearerClient("t")
    assert client.answer(b"{}") == b"\x01"
    with pytest.raises(SaslFailed):
        client.answer(b"{}")
