"""OAUTHBEARER: the client's and the broker's half of the exchange."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.security.exchange import Accepted, Challenge, Rejected, SaslFailed
from kproto.security.oauthbearer import OAuthBearerClient, OAuthBearerServer, unsecured, unsecured_token

NOW = 1_700_000_000_000


def oauth(token: str, skew_ms: int = 0) -> tuple[object, object]:
    """Return the broker's first step, and the step after the client's acknowledgement of an error."""
    server = OAuthBearerServer(unsecured(lambda: NOW, allowed_skew_ms=skew_ms))
    client = OAuthBearerClient(token, {"tenant": "a b"})
    first = server.evaluate_response(client.begin())
    if not isinstance(first, Challenge):
        return first, None
    acknowledgement = client.answer(first.data)
    assert acknowledgement == b"\x01"
    return first, server.evaluate_response(acknowledgement)


def test_a_valid_token_is_accepted_until_it_expires() -> None:
    token = unsecured_token("alice", NOW, 60_000)
    assert oauth(token)[0] == Accepted("alice", b"", NOW + 60_000)


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (unsecured_token("alice", NOW - 120_000, 60_000), "expired 60 s ago"),
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
def test_an_invalid_token_is_rejected_after_a_challenge(token: str, reason: str) -> None:
    first, end = oauth(token)
    assert first == Challenge(b'{"status":"invalid_token"}')
    assert isinstance(end, Rejected)
    assert reason in end.reason


def test_clocks_may_differ_by_the_skew() -> None:
    token = unsecured_token("alice", NOW - 70_000, 60_000)
    assert isinstance(oauth(token, 20_000)[0], Accepted)


@given(st.binary() | st.binary().map(lambda token: b"n,,\x01auth=Bearer " + token + b"\x01\x01"))
def test_oauthbearer_rejects_random_messages(message: bytes) -> None:
    assert not isinstance(OAuthBearerServer(unsecured(lambda: NOW)).evaluate_response(message), Accepted)


def test_a_client_acknowledges_a_rejection_once() -> None:
    client = OAuthBearerClient("t")
    assert client.answer(b"{}") == b"\x01"
    with pytest.raises(SaslFailed):
        client.answer(b"{}")
