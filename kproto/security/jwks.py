"""Tokens that somebody signed (JWT, RFC 7519), and the keys that the issuer publishes (JWKS, RFC 7517).

    check = signed(jwks, now_ms, issuer="https://issuer.example", audience=["kafka"])
    OAuthBearerServer(check)

Rules that hold here, as in Kafka's OAuthBearerValidatorCallbackHandler (BrokerJwtValidator, by jose4j):

* What signs is the first key that fits: the token's "kid" where it has one, the algorithm's kind of key, and
  what the key itself says of its use; the algorithm that a key names counts only where several fit. What
  isn't signed is not believed, whatever its header says.
* "exp" and "iat" must be there, "nbf" may. Clocks may differ by the skew; an "iat" to come is no offence.
* A token that is meant for somebody (has "aud") is refused where no audience is expected.
* The principal is the text of one claim, without the blanks around it.

Signatures are checked by PyJWT, which comes with the extra `security`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from typing import Any, Final, cast

from ..errors import ConfigError, MissingExtra
from .oauthbearer import Check, Claims, TokenRefused, unbase64

# Kafka's sasl.oauthbearer.clock.skew.seconds, unless it is set.
SKEW_S: Final = 30

# The kind of key, and the curve, that each algorithm needs.
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
    """A check that believes what one of these keys has signed. `jwks` is {"keys": [...]}, or its text.

    Raises ConfigError for one that makes no sense, MissingExtra without PyJWT.
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
            raise TokenRefused(f"the token is from {claims.get('iss')!r}, not from {issuer!r}")
        _check_scopes(claims.get(scope_claim, ()), scope_claim)
        for name in ("sub", "jti"):
            if not isinstance(claims.get(name, ""), str):
                raise TokenRefused(f'the token\'s "{name}" is no text')
        subject: object = claims.get(subject_claim)
        if not isinstance(subject, str) or not subject.strip():
            raise TokenRefused(f'the token has no "{subject_claim}"')
        return Claims(subject.strip(), int(claims["exp"]) * 1000)

    return check


def _keys(jwks: str | Mapping[str, Any]) -> list[dict[str, Any]]:
    try:
        found: Any = _object(jwks) if isinstance(jwks, str) else jwks
        return [dict(key) for key in found["keys"]]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ConfigError("jwks", "[what was given]", 'a JSON object such as {"keys": [...]}') from None


def _believed(library: Any, token: str, keys: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The claims of a token whose signature is right."""
    head, _, rest = token.partition(".")
    body = rest.partition(".")[0]
    try:
        header, claims = _object(unbase64(head).decode()), _object(unbase64(body).decode())
    except (ValueError, RecursionError):
        raise TokenRefused("the token is no JWT") from None
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in _KEYS:
        raise TokenRefused(f"the token is signed by {algorithm!r}; allowed are {', '.join(_KEYS)}")
    key = _fitting(keys, algorithm, header.get("kid"))
    try:
        verify = library.PyJWS(options={"enforce_minimum_key_length": True})
        verify.decode_complete(token, library.PyJWK(key, algorithm), [algorithm])
    except library.PyJWTError as error:
        # The texts of these say nothing of the token, but those for a key may quote it.
        why = "the signature is wrong" if type(error).__name__ == "InvalidSignatureError" else "it is unfit"
        raise TokenRefused(f"the key {key.get('kid')!r} did not sign the token: {why}") from None
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
    raise TokenRefused(f"no key fits the token's kid {kid!r} and {algorithm}; the issuer's keys are {known}")


def _check_times(claims: Mapping[str, Any], now_s: int, skew_s: int) -> None:
    ends, issued, begins = (_seconds(claims, name) for name in ("exp", "iat", "nbf"))
    if ends is None or issued is None:
        raise TokenRefused(f'the token has no "{"exp" if ends is None else "iat"}"')
    if now_s - skew_s >= ends:
        raise TokenRefused(f"the token ran out {now_s - ends} s ago; do the clocks agree?")
    if ends < max(issued, ends if begins is None else begins) or ends < 0 or issued < 0:
        raise TokenRefused("the token ends before it begins")
    if begins is not None and now_s + skew_s < begins:
        raise TokenRefused(f"the token holds in {begins - now_s} s only; do the clocks agree?")


def _seconds(claims: Mapping[str, Any], name: str) -> int | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**53:
        raise TokenRefused(f'the token\'s "{name}" is no time')
    return int(value)


def _check_audience(said: object, expected: Collection[str]) -> None:
    meant = [] if said is None else [said] if isinstance(said, str) else said
    if not isinstance(meant, list) or not all(isinstance(one, str) for one in cast("list[object]", meant)):
        raise TokenRefused('the token\'s "aud" is neither a text nor a list of texts')
    if not set(cast("list[str]", meant)) & set(expected) and (meant or expected):
        wanted = ", ".join(expected) or "nobody: no audience is expected here"
        raise TokenRefused(f"the token is meant for {meant}, not for {wanted}")


def _check_scopes(said: object, name: str) -> None:
    scopes = [said] if isinstance(said, str) else cast("list[object]", said) if isinstance(said, list) else []
    plain = [scope.strip() for scope in scopes if isinstance(scope, str)]
    if len(plain) < len(scopes) or "" in plain or len(set(plain)) < len(plain):
        raise TokenRefused(f'the token\'s "{name}" is no list of different texts')


def _object(text: str) -> dict[str, Any]:
    """JSON's object, strictly: each name once, and numbers that are some. Raises ValueError."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(found := dict(pairs)) < len(pairs):
            raise ValueError
        return found

    def number(text: str) -> float:
        raise ValueError(text)

    found: object = json.loads(text, object_pairs_hook=once, parse_constant=number)
    if not isinstance(found, dict):
        raise ValueError
    return cast("dict[str, Any]", found)
