"""Verify signed tokens (JWT, RFC 7519) with the issuer's published keys (JWKS, RFC 7517).

    check = signed(jwks, now_ms, issuer="https://issuer.example", audience=["kafka"])
    OAuthBearerServer(check)

Rules, as in Kafka's OAuthBearerValidatorCallbackHandler (BrokerJwtValidator, which uses jose4j):

* A token is verified with the first key that fits. A key fits if three conditions hold: its type suits the
  token's algorithm, its "use" is "sig" or missing, and its "kid" is the token's "kid", if the token has one.

* If several keys fit, only those whose "alg" is missing or is the token's algorithm are considered.

* Unsigned tokens are rejected, whatever their header says.

* "exp" and "iat" are required, and "nbf" is optional. "exp" and "nbf" are checked with the allowed clock
  skew. An "iat" in the future is accepted.

* A token with "aud" is rejected if no audience is expected.

* The principal is the value of one claim, without surrounding white space.

PyJWT verifies the signatures. It is installed with the extra `security`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, cast

from ..errors import ConfigError, MissingExtra
from .oauthbearer import Check, Claims, TokenRejected, unbase64

# The allowed clock skew in seconds: Kafka's default of sasl.oauthbearer.clock.skew.seconds.
SKEW_S: Final = 30

# The key type and the curve that each algorithm needs.
_KEYS: Final[Mapping[str, tuple[str, str | None]]] = {
    **{f"{name}{bits}": ("RSA", None) for name in ("RS", "PS") for bits in (256, 384, 512)},
    **{f"HS{bits}": ("oct", None) for bits in (256, 384, 512)},
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}


def signed(
    jwks: str | Mapping[str, Any],
    now_ms: Callable[[], int],
    *,
    issuer: str | None = None,
    audience: Collection[str] = (),
    skew_s: int = SKEW_S,
    subject_claim: str = "sub",
    scope_claim: str = "scope",
) -> Check:
    """Return a function that accepts tokens whose signature matches a key in `jwks`, and rejects others.

    `jwks` is {"keys": [...]}, or its JSON text. `now_ms` returns the time in ms since 1970.

    Raises ConfigError for an invalid `jwks`, and MissingExtra if PyJWT is not installed.
    """
    try:
        library: Any = import_module("jwt")
    except ImportError:
        raise MissingExtra("signed tokens of OAUTHBEARER", "pyjwt", "security") from None
    keys = _keys(jwks)

    def check(token: str) -> Claims:
        now_s = now_ms() // 1000
        claims = _believed(library, token, keys)
        _check_times(claims, now_s, skew_s)
        _check_audience(claims.get("aud"), audience)
        if issuer is not None and claims.get("iss") != issuer:
            raise TokenRejected(f"the token is from {claims.get('iss')!r}, not from {issuer!r}")
        _check_scopes(claims.get(scope_claim, ()), scope_claim)
        for name in ("sub", "jti"):
            if not isinstance(claims.get(name, ""), str):
                raise TokenRejected(f'the token\'s "{name}" is not a string')
        subject: object = claims.get(subject_claim)
        if not isinstance(subject, str) or not subject.strip():
            raise TokenRejected(f'the token has no "{subject_claim}"')
        return Claims(subject.strip(), int(claims["exp"]) * 1000)

    return check


def _keys(jwks: str | Mapping[str, Any]) -> list[dict[str, Any]]:
    try:
        key_set: Any = _object(jwks) if isinstance(jwks, str) else jwks
        return [dict(key) for key in key_set["keys"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ConfigError("jwks", "[the given value]", 'a JSON object such as {"keys": [...]}') from None


def _believed(library: Any, token: str, keys: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the claims of a token after verifying its signature."""
    head, _, signed_part = token.partition(".")
    body = signed_part.partition(".")[0]
    try:
        header, claims = _object(unbase64(head).decode()), _object(unbase64(body).decode())
    except (ValueError, RecursionError):
        raise TokenRejected("the token is not a JWT of the form HEADER.CLAIMS.SIGNATURE") from None
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in _KEYS:
        raise TokenRejected(f"the token is signed with {algorithm!r}; allowed: {', '.join(_KEYS)}")
    key = _fitting(keys, algorithm, header.get("kid"))
    try:
        verify = library.PyJWS(options={"enforce_minimum_key_length": True})
        verify.decode_complete(token, library.PyJWK(key, algorithm), [algorithm])
    except library.PyJWTError as error:
        # The message of PyJWT is left out, because a message about a key may quote the key.
        why = (
            "the signature is wrong"
            if type(error).__name__ == "InvalidSignatureError"
            else "the key does not fit"
        )
        raise TokenRejected(f"the key {key.get('kid')!r} did not sign the token: {why}") from None
    return claims


def _fitting(keys: Sequence[dict[str, Any]], algorithm: str, kid: object) -> dict[str, Any]:
    kind, curve = _KEYS[algorithm]
    fit = [
        key
        for key in keys
        if (kid is None or key.get("kid") == kid)
        and key.get("kty") == kind
        and (curve is None or key.get("crv") == curve)
        and key.get("use", "sig") == "sig"
    ]
    if len(fit) > 1:
        fit = [key for key in fit if key.get("alg", algorithm) == algorithm]
    if fit:
        return fit[0]
    known = ", ".join(f"{key.get('kid')} ({key.get('alg', key.get('kty'))})" for key in keys) or "none"
    raise TokenRejected(
        f"no key matches the token's key id {kid!r} and {algorithm}; the issuer's keys are {known}"
    )


def _check_times(claims: Mapping[str, Any], now_s: int, skew_s: int) -> None:
    ends, issued, begins = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
    if ends is None or issued is None:
        raise TokenRejected(f'the token has no "{"exp" if ends is None else "iat"}"')
    if now_s - skew_s >= ends:
        raise TokenRejected(f"the token expired {now_s - ends} s ago; do the clocks agree?")
    if ends < max(issued, ends if begins is None else begins) or ends < 0 or issued < 0:
        raise TokenRejected('the token\'s "exp" is before its "iat" or "nbf", or a time is negative')
    if begins is not None and now_s + skew_s < begins:
        raise TokenRejected(f"the token is not valid until {begins - now_s} s from now; do the clocks agree?")


def _seconds(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**53:
        raise TokenRejected(f'the token\'s "{name}" is not a number of seconds since 1970')
    return int(value)


def _check_audience(audience_claim: object, expected: Collection[str]) -> None:
    audiences = (
        []
        if audience_claim is None
        else [audience_claim]
        if isinstance(audience_claim, str)
        else audience_claim
    )
    if not isinstance(audiences, list) or not all(
        isinstance(value, str) for value in cast("list[object]", audiences)
    ):
        raise TokenRejected('the token\'s "aud" is neither a string nor a list of strings')
    if not set(cast("list[str]", audiences)) & set(expected) and (audiences or expected):
        wanted = ", ".join(expected) or "any audience: this broker expects none"
        raise TokenRejected(f"the token is meant for {audiences}, not for {wanted}")


def _check_scopes(scope_claim: object, name: str) -> None:
    scopes = (
        [scope_claim]
        if isinstance(scope_claim, str)
        else cast("list[object]", scope_claim)
        if isinstance(scope_claim, list)
        else []
    )
    plain = [scope.strip() for scope in scopes if isinstance(scope, str)]
    if len(plain) < len(scopes) or "" in plain or len(set(plain)) < len(plain):
        raise TokenRejected(
            f'the token\'s "{name}" must be a string or a list of different strings, none of them empty'
        )


def _object(text: str) -> dict[str, Any]:
    """Parse a JSON object. Raises ValueError for other text, and for duplicate names, NaN and infinity."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(parsed := dict(pairs)) < len(pairs):
            raise ValueError
        return parsed

    def number(text: str) -> float:
        raise ValueError(text)

    parsed: object = json.loads(text, object_pairs_hook=once, parse_constant=number)
    if not isinstance(parsed, dict):
        raise ValueError
    return cast("dict[str, Any]", parsed)
