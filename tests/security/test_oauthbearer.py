"""The broker's half of OAUTHBEARER accepts valid tokens only; the client's half acknowledges a rejection."""

from __future__ import annotations

import base64
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.security.exchange import Accepted, Challenge, Rejected, SaslFailed
from kproto.security.oauthbearer import (
    Claims,
    OAuthBearerClient,
    OAuthBearerServer,
    TokenRejected,
    claims_of,
    payload,
    unsecured,
    unsecured_token,
    wrong_extension,
)

NOW = 1_700_000_000_000


def oauth(token: str, skew_ms: int = 0) -> tuple[object, object]:
    """Return the broker's response to a token, and its response to the client's acknowledgement of an error.

    The second response is None if the first one is not an error.
    """
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
            "not valid until 90 s from now",
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
    assert client.answer(b"") is None
    with pytest.raises(SaslFailed, match="after it rejected the token"):
        client.answer(b"{}")


def test_the_first_message_has_the_token_and_the_extensions() -> None:
    client = OAuthBearerClient("t", {"tenant": "a b", "x": "y"})
    assert client.begin() == b"n,,\x01auth=Bearer t\x01tenant=a b\x01x=y\x01\x01"
    assert client.mechanism == OAuthBearerServer(alice_only).mechanism == "OAUTHBEARER"


def alice_only(token: str) -> Claims:
    if token != "good":
        raise TokenRejected(f"not good: {token}")
    return Claims("alice", 5)


@pytest.mark.parametrize(
    "first",
    [
        b"n,,\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=bEARER  good \x01tenant=a=b\x01\x01",
        b"n,a=,\x01auth=Bearer good\x01\x01",
        b"n,a=alice,\x01tenant=a\x01auth=Bearer good\x01\x01",
    ],
)
def test_a_first_message_with_a_good_token_is_accepted(first: bytes) -> None:
    assert OAuthBearerServer(alice_only).evaluate_response(first) == Accepted("alice", b"", 5)


MALFORMED = Rejected("Invalid OAUTHBEARER client first message", "the first message is malformed")
NO_TOKEN = Rejected(
    "Invalid OAUTHBEARER client first message: 'auth' is no bearer token", "the token is not a bearer token"
)


@pytest.mark.parametrize(
    ("first", "rejected"),
    [
        (b"", MALFORMED),
        (b"n,,\x01auth=Bearer \xff\x01\x01", MALFORMED),
        (b"n,,\x01auth=Bearer good\x01", MALFORMED),
        (b"y,,\x01auth=Bearer good\x01\x01", MALFORMED),
        (b"n,,\x01t-1=a\x01auth=Bearer good\x01\x01", MALFORMED),
        (b"n,,\x01\x01", NO_TOKEN),
        (b"n,,\x01auth=Basic good\x01\x01", NO_TOKEN),
        (b"n,,\x01auth=good\x01\x01", NO_TOKEN),
        (b"n,,\x01auth=Bearer \x01\x01", NO_TOKEN),
        (b"n,,\x01auth=Bearer go od\x01\x01", NO_TOKEN),
        (b"n,,\x01auth=Bearer =good\x01\x01", NO_TOKEN),
        (
            b"n,a=bob,\x01auth=Bearer good\x01\x01",
            Rejected(
                "Authentication failed: Client requested an authorization id that is different from the "
                "token's principal name",
                "'alice' requested another authorization id",
            ),
        ),
    ],
)
def test_a_first_message_without_a_bearer_token_is_rejected(first: bytes, rejected: Rejected) -> None:
    assert OAuthBearerServer(alice_only).evaluate_response(first) == rejected


def test_after_a_rejected_token_every_response_is_rejected_with_the_same_reason() -> None:
    server = OAuthBearerServer(alice_only)
    first = OAuthBearerClient("bad").begin()
    assert server.evaluate_response(first) == Challenge(b'{"status":"invalid_token"}')
    rejected = Rejected('{"status":"invalid_token"}', "not good: bad")
    assert server.evaluate_response(b"\x01") == rejected
    assert server.evaluate_response(OAuthBearerClient("good").begin()) == rejected


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("tenant", "a b!\t~", None),
        ("auth", "a", 'names are letters only, and not "auth"'),
        ("a1", "a", 'names are letters only, and not "auth"'),
        ("", "a", 'names are letters only, and not "auth"'),
        ("tenant", "", "values are printable and not empty"),
        ("tenant", "a\x01", "values are printable and not empty"),
        ("tenant", "ä", "values are printable and not empty"),
    ],
)
def test_extensions_have_names_of_letters_and_printable_values(
    name: str, value: str, reason: str | None
) -> None:
    assert wrong_extension(name, value) == reason


def base64_of(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("a.b", "not a JWT"),
        (f"a.{base64_of('{}')}.b.c", "not a JWT"),
        ("a.!.b", "not a JWT"),
        (f"a.{base64_of('{')}.b", "not a JWT"),
        (f"a.{base64_of('[' * 100_000)}.b", "not a JWT"),
        (f"a.{base64_of('[]')}.b", "are not a JSON object"),
    ],
)
def test_a_payload_is_a_json_object(token: str, reason: str) -> None:
    assert payload(f"a.{base64_of('{}')}.b") == {}
    with pytest.raises(TokenRejected, match=reason):
        payload(token)


@pytest.mark.parametrize("header", ["{}", "[]", "5", "{", "[" * 100_000])
def test_a_header_without_algorithm_is_not_one_of_a_jwt(header: str) -> None:
    with pytest.raises(TokenRejected, match="not a JWT"):
        unsecured(lambda: NOW)(f"{base64_of(header)}.{base64_of('{}')}.")


def test_a_token_with_a_signature_is_rejected_even_if_its_header_says_none() -> None:
    token = unsecured_token("alice", NOW, 60_000)
    with pytest.raises(TokenRejected, match="is signed"):
        unsecured(lambda: NOW)(token + "c2ln")


NO_SUBJECT = 'the token has no "sub"'
NO_END = 'the token has no "exp"'
IN_2_S = "the token is not valid until 2 s from now; do the clocks agree?"


@pytest.mark.parametrize(
    ("claims", "skew_ms", "rejection"),
    [
        ({}, 0, None),
        ({"exp": 10.001}, 0, None),
        ({"exp": 10}, 0, "the token expired 0 s ago"),
        ({"exp": 8}, 2_000, "the token expired 2 s ago"),
        ({"exp": 8}, 2_001, None),
        ({"nbf": 10}, 0, None),
        ({"nbf": 12}, 1_999, IN_2_S),
        ({"nbf": 12}, 2_000, None),
        ({"iat": 12}, 0, IN_2_S),
        ({"iat": 12, "nbf": 10}, 0, None),
        ({"iat": "soon"}, 0, None),
        ({"sub": ""}, 0, NO_SUBJECT),
        ({"sub": 5}, 0, NO_SUBJECT),
        ({"sub": None}, 0, NO_SUBJECT),
        ({"exp": None}, 0, NO_END),
        ({"exp": True}, 0, NO_END),
        ({"exp": "90"}, 0, NO_END),
        ({"exp": math.nan}, 0, NO_END),
    ],
)
def test_unsecured_tokens_have_a_subject_and_valid_times(
    claims: dict[str, Any], skew_ms: int, rejection: str | None
) -> None:
    token_claims = {"sub": "alice", "exp": 90, **claims}
    if rejection is None:
        until_ms = round(token_claims["exp"] * 1000)
        assert claims_of(token_claims, 10_000, skew_ms) == Claims("alice", until_ms)
    else:
        with pytest.raises(TokenRejected) as raised:
            claims_of(token_claims, 10_000, skew_ms)
        assert str(raised.value) == rejection


def test_a_token_may_expire_at_infinity() -> None:
    assert claims_of({"sub": "alice", "exp": math.inf}, 0) == Claims("alice", 2**62)


def test_an_unsecured_token_has_times_in_seconds() -> None:
    claims = payload(unsecured_token("alice", 1_500, 60_000, {"scope": "x", "iat": 1}))
    assert claims == {"sub": "alice", "iat": 1, "exp": 61.5, "scope": "x"}
