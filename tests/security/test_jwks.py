"""Valid signed tokens are accepted. Other tokens are rejected with a reason.

tests/conformance/test_tokens_like_kafka.py compares the validation with Kafka's.
"""

from __future__ import annotations

import base64
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

jwt: Any = pytest.importorskip("jwt")
ISSUER = Issuer(algorithm="ES256", audience=None)
NOW = int(time.time())
# All examples share one token, because Hypothesis draws positions in its signature. Each new token would have
# a different signature, because ES256 signatures are random.
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
        ({"nbf": NOW + 40}, {}, "the token is not valid until 40 s from now; do the clocks agree?"),
        ({"iss": "x"}, {"issuer": "y"}, "the token is from 'x', not from 'y'"),
        ({"aud": "x"}, {"audience": ["y", "z"]}, "the token is meant for ['x'], not for y, z"),
        ({"aud": "x"}, {}, "not for any audience: this broker expects none"),
        ({"sub": None}, {}, 'the token has no "sub"'),
        ({}, {"subject_claim": "client"}, 'the token has no "client"'),
        ({"exp": True}, {}, 'the token\'s "exp" is not a number of seconds since 1970'),
        ({"exp": 1e300}, {}, 'the token\'s "exp" is not a number of seconds since 1970'),
        ({"iat": None}, {}, 'the token has no "iat"'),
        ({"exp": NOW + 0.5, "iat": None}, {}, 'the token has no "iat"'),
        ({"exp": None, "iat": None}, {}, 'the token has no "exp"'),
        ({"exp": 2**53}, {}, 'the token\'s "exp" is not a number of seconds since 1970'),
        ({"iat": -(2**53)}, {}, 'the token\'s "iat" is not a number of seconds since 1970'),
        ({"nbf": "soon"}, {}, 'the token\'s "nbf" is not a number of seconds since 1970'),
        ({"exp": NOW - 30}, {}, "the token expired 30 s ago"),
        ({"exp": NOW}, {"skew_s": 0}, "the token expired 0 s ago"),
        ({"exp": NOW + 5, "iat": NOW + 6}, {}, "or a time is negative"),
        ({"exp": NOW + 5, "nbf": NOW + 6}, {}, "or a time is negative"),
        ({"iat": -1}, {}, "or a time is negative"),
        ({"exp": -1, "iat": -2}, {"skew_s": 2 * NOW}, "or a time is negative"),
        ({"exp": NOW + 90, "nbf": NOW + 31}, {}, "the token is not valid until 31 s from now"),
        ({"aud": ["x", 5]}, {"audience": ["x"]}, '"aud" is neither a string nor a list of strings'),
        ({"aud": 5}, {"audience": ["x"]}, '"aud" is neither a string nor a list of strings'),
        ({}, {"audience": ["x"]}, "the token is meant for [], not for x"),
        ({"jti": 5}, {}, 'the token\'s "jti" is not a string'),
        ({"sub": 5}, {"subject_claim": "jti"}, 'the token\'s "sub" is not a string'),
        ({"sub": "  "}, {}, 'the token has no "sub"'),
        ({"iss": None}, {"issuer": "y"}, "the token is from None, not from 'y'"),
        ({"scope": ["a", " a"]}, {}, '"scope" must be a string or a list of different strings'),
        ({"scope": ["a", 5]}, {}, '"scope" must be a string or a list of different strings'),
        ({"scope": " "}, {}, '"scope" must be a string or a list of different strings'),
        ({"may": [""]}, {"scope_claim": "may"}, '"may" must be a string or a list of different strings'),
    ],
)
def test_a_rejected_token_has_a_reason(claims: dict[str, Any], how: dict[str, Any], words: str) -> None:
    assert words in refusal(ISSUER.token("alice", **{"iat": NOW, **claims}), **how)


@pytest.mark.parametrize(
    ("claims", "how"),
    [
        ({"exp": NOW - 29, "iat": NOW - 60}, {}),
        ({"exp": NOW + 5, "iat": NOW + 5, "nbf": NOW + 5}, {}),
        ({"exp": NOW + 90, "nbf": NOW + 30}, {}),
        ({"exp": NOW + 90, "iat": NOW + 80}, {}),
        ({"exp": NOW + 5.5, "iat": 0}, {}),
        ({"exp": 0, "iat": 0}, {"skew_s": 2 * NOW}),
        ({"exp": 2**53 - 1}, {}),
        ({"aud": "x"}, {"audience": ["y", "x"]}),
        ({"aud": ["w", "x"]}, {"audience": ["y", "x"]}),
        ({"aud": []}, {}),
        ({"iss": "x"}, {"issuer": "x"}),
        ({"sub": "x", "client": " alice "}, {"subject_claim": "client"}),
        ({"jti": "x", "scope": "a b"}, {}),
        ({"scope": ["a", "b"]}, {}),
        ({"scope": 5}, {}),
    ],
)
def test_a_valid_token_is_accepted_within_the_clock_skew(claims: dict[str, Any], how: dict[str, Any]) -> None:
    end = int(claims.get("exp", NOW + 5))
    token = ISSUER.token("alice", **{"iat": NOW, "exp": NOW + 5, **claims})
    assert check(**how)(token) == Claims("alice", end * 1000)


def test_the_key_is_the_first_one_that_fits_the_token() -> None:
    stranger = Issuer(algorithm="ES256")
    (other,), (right,) = stranger.jwks["keys"], ISSUER.jwks["keys"]
    unfit: list[dict[str, Any]] = [
        {"kid": "other"},
        {"kty": "RSA"},
        {"crv": "P-384"},
        {"use": "enc"},
        {"alg": "ES384"},
    ]
    for change in unfit:
        signed({"keys": [{**other, **change}, right]}, lambda: NOW * 1000)(TOKEN)
    for fit in ({}, {"use": "sig"}):
        with pytest.raises(TokenRejected, match="the signature is wrong"):
            signed({"keys": [{**other, **fit}, right]}, lambda: NOW * 1000)(TOKEN)
    # The "alg" of a key is compared only if several keys fit the token.
    signed({"keys": [{**right, "alg": "ES384"}]}, lambda: NOW * 1000)(TOKEN)
    without_use = {name: value for name, value in right.items() if name not in ("use", "alg")}
    signed({"keys": [{**other, "alg": "ES384"}, without_use]}, lambda: NOW * 1000)(TOKEN)


def test_a_token_without_key_id_is_checked_with_the_first_key_of_its_type() -> None:
    stranger = Issuer(algorithm="ES256")
    stranger._keys[0]["kid"] = "stranger"
    token = jwt.encode({"sub": "alice", "iat": NOW, "exp": NOW + 5}, ISSUER._private_key, "ES256")
    signed({"keys": [*ISSUER.jwks["keys"], *stranger.jwks["keys"]]}, lambda: NOW * 1000)(token)
    with pytest.raises(TokenRejected, match="key 'stranger' did not sign the token: the signature is wrong"):
        signed({"keys": [*stranger.jwks["keys"], *ISSUER.jwks["keys"]]}, lambda: NOW * 1000)(token)


def test_a_damaged_key_does_not_fit() -> None:
    (right,) = ISSUER.jwks["keys"]
    with pytest.raises(TokenRejected, match="the key does not fit"):
        signed({"keys": [{**right, "x": "AA"}]}, lambda: NOW * 1000)(TOKEN)


def test_without_keys_the_reason_says_that_there_are_none() -> None:
    with pytest.raises(TokenRejected, match="the issuer's keys are none"):
        signed({"keys": []}, lambda: NOW * 1000)(TOKEN)


@pytest.mark.parametrize("part", ['{"sub": 1, "sub": 2}', '{"exp": NaN}', "[]", "5"])
def test_header_and_claims_are_strict_json_objects(part: str) -> None:
    encoded = base64.urlsafe_b64encode(part.encode()).rstrip(b"=").decode()
    header, claims, signature = TOKEN.split(".")
    for token in (f"{encoded}.{claims}.{signature}", f"{header}.{encoded}.{signature}"):
        assert "not a JWT of the form" in refusal(token)


def test_the_algorithm_of_the_token_header_is_not_trusted() -> None:
    body = ISSUER.token("alice").split(".")[1]
    for header in ("eyJhbGciOiJub25lIn0", "eyJhbGciOiJOT05FIn0", "eyJhbGciOlsiRVMyNTYiXX0"):
        assert "the token is signed with" in refusal(f"{header}.{body}.")


@given(st.text(alphabet="abeyJ0.-_=", max_size=60) | st.binary(max_size=60).map(lambda data: data.hex()))
def test_random_tokens_are_rejected(token: str) -> None:
    refusal(token)


@given(st.data())
def test_a_token_with_a_changed_byte_is_rejected(data: st.DataObject) -> None:
    # The last character is not changed, because some of its bits do not belong to the signature.
    place = data.draw(st.integers(0, len(TOKEN) - 2))
    changed = data.draw(st.sampled_from("Aa0.-_").filter(lambda character: character != TOKEN[place]))
    refusal(TOKEN[:place] + changed + TOKEN[place + 1 :])


@pytest.mark.parametrize("jwks", ["", "[]", "{}", '{"keys": 5}', '{"keys": [5]}', "{" * 100_000])
def test_an_invalid_jwks_is_rejected_immediately(jwks: str) -> None:
    with pytest.raises(ConfigError, match="a JSON object such as"):
        signed(jwks, lambda: 0)
