"""Validation of signed tokens. tests/conformance/test_tokens_like_kafka.py compares it with Kafka's."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.errors import ConfigError
from kproto.security.jwks import signed
from kproto.security.oauthbearer import Check, Claims, TokenRejected
from kproto.testing.issuer import Issuer

pytest.importorskip("jwt")
ISSUER = Issuer(algorithm="ES256", audience=None)
NOW = int(time.time())
# One token for all examples. A token per example would have another random signature, and Hypothesis draws
# positions in it.
TOKEN = ISSUER.token("alice", iat=NOW, exp=NOW + 5)


def check(now_s: float = NOW, **how: Any) -> Check:
    return signed(json.dumps(ISSUER.jwks), lambda: int(now_s * 1000), **how)


def refusal(token: str, now_s: float = NOW, **how: Any) -> str:
    with pytest.raises(TokenRejected) as raised:
        check(now_s, **how)(token)
    return str(raised.value)


def test_a_token_has_a_principal_until_it_expires() -> None:
    assert check()(TOKEN) == Claims("alice", (NOW + 5) * 1000)


def test_an_unknown_key_is_reported_with_the_known_keys() -> None:
    stranger = Issuer(algorithm="ES256")
    stranger.kid = "stranger"
    reason = refusal(stranger.token("eve"))
    assert (
        reason
        == "no key matches the token's key id 'stranger' and ES256; the issuer's keys are key-1 (ES256)"
    )


@pytest.mark.parametrize(
    ("claims", "how", "words"),
    [
        ({"iat": NOW - 99, "exp": NOW - 31}, {}, "the token expired 31 s ago; do the clocks agree?"),
        ({"nbf": NOW + 40}, {}, "the token is not valid before 40 s from now; do the clocks agree?"),
        ({"iss": "x"}, {"issuer": "y"}, "the token is from 'x', not from 'y'"),
        ({"aud": "x"}, {"audience": ["y", "z"]}, "the token is meant for ['x'], not for y, z"),
        ({"aud": "x"}, {}, "not for any audience: this broker expects none"),
        ({"sub": None}, {}, 'the token has no "sub"'),
        ({}, {"subject_claim": "client"}, 'the token has no "client"'),
        ({"exp": True}, {}, 'the token\'s "exp" is not a number of seconds since 1970'),
        ({"exp": 1e300}, {}, 'the token\'s "exp" is not a number of seconds since 1970'),
        ({"iat": None}, {}, 'the token has no "iat"'),
    ],
)
def test_a_rejected_token_has_a_reason(claims: dict[str, Any], how: dict[str, Any], words: str) -> None:
    assert words in refusal(ISSUER.token("alice", **claims), **how)


def test_the_algorithm_of_the_token_header_is_not_trusted() -> None:
    body = ISSUER.token("alice").split(".")[1]
    for header in ("eyJhbGciOiJub25lIn0", "eyJhbGciOiJOT05FIn0", "eyJhbGciOlsiRVMyNTYiXX0"):
        assert "the token is signed by" in refusal(f"{header}.{body}.")


@given(st.text(alphabet="abeyJ0.-_=", max_size=60) | st.binary(max_size=60).map(lambda data: data.hex()))
def test_random_tokens_are_rejected(token: str) -> None:
    refusal(token)


@given(st.data())
def test_a_token_with_a_changed_byte_is_rejected(data: st.DataObject) -> None:
    # The last character is excluded, because some of its bits are unused.
    place = data.draw(st.integers(0, len(TOKEN) - 2))
    changed = data.draw(st.sampled_from("Aa0.-_").filter(lambda character: character != TOKEN[place]))
    refusal(TOKEN[:place] + changed + TOKEN[place + 1 :])


@pytest.mark.parametrize("jwks", ["", "[]", "{}", '{"keys": 5}', '{"keys": [5]}', "{" * 100_000])
def test_an_invalid_jwks_is_rejected_immediately(jwks: str) -> None:
    with pytest.raises(ConfigError, match="a JSON object such as"):
        signed(jwks, lambda: 0)
