"""OAUTHBEARER (RFC 7628, KIP-255): a token that somebody else signed.

Rules that hold here:

* A server that refuses answers with JSON in a challenge; the client says \\x01, and only then the exchange
  ends with an error.
* Extensions are `name=value` pairs beside the token: names are letters, values printable; "auth" is the
  token's own name.
* A token is checked by a function that the owner gives: `jwks.signed` makes one. `unsecured` is Kafka's own
  for tests: no signature at all, as in OAuthBearerUnsecuredValidatorCallbackHandler.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from .exchange import Accepted, Challenge, Refused, SaslFailed

MECHANISM: Final = "OAUTHBEARER"
_SEPARATOR: Final = "\x01"
_INVALID: Final = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
_NO_TOKEN: Final = "Invalid OAUTHBEARER client first message: 'auth' is no bearer token"
_NAME: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7E \t\r\n]+")
_TOKEN: Final = re.compile(r"[-_~+/.A-Za-z0-9]+=*")
_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authzid>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)*)\x01", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Claims:
    """Who a token is about, and until when it holds (ms since 1970; None: for ever)."""

    principal: str
    until_ms: int | None = None
    extensions: Mapping[str, str] = field(default_factory=dict[str, str])


class TokenRefused(Exception):
    """A token that is not accepted; the text is what the client hears."""


# Looks at a token; raises TokenRefused.
Check = Callable[[str], Claims]


class OAuthBearerClient:
    """The client's half."""

    __slots__ = ("_first", "mechanism")

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        self.mechanism = MECHANISM
        pairs = [f"auth=Bearer {token}", *(f"{name}={value}" for name, value in (extensions or {}).items())]
        self._first = ("n,," + _SEPARATOR + _SEPARATOR.join(pairs) + _SEPARATOR * 2).encode()

    def begin(self) -> bytes:
        return self._first

    def answer(self, challenge: bytes) -> bytes | None:
        if not challenge:
            return None
        if self._first == _SEPARATOR.encode():
            raise SaslFailed("the broker goes on asking after it refused the token")
        self._first = _SEPARATOR.encode()
        return self._first


def wrong_extension(name: str, value: str) -> str | None:
    """Why a pair can be no extension; None when it can."""
    if not _NAME.fullmatch(name) or name == "auth":
        return 'names are letters only, and not "auth"'
    return None if _VALUE.fullmatch(value) else "values are printable and not empty"


def is_token(text: str) -> bool:
    """Can this be sent as a token at all?"""
    return _TOKEN.fullmatch(text) is not None


class OAuthBearerServer:
    """The broker's half."""

    __slots__ = ("_check", "_why", "mechanism")

    def __init__(self, check: Check) -> None:
        self.mechanism = MECHANISM
        self._check = check
        self._why = ""

    def take(self, response: bytes) -> Challenge | Accepted | Refused:
        if self._why:
            return Refused(_INVALID, self._why)
        try:
            found = _FIRST.fullmatch(response.decode())
        except UnicodeDecodeError:
            found = None
        if found is None:
            return Refused("Invalid OAUTHBEARER client first message", "the first message makes no sense")
        pairs = dict(pair.split("=", 1) for pair in found["pairs"].split(_SEPARATOR) if pair)
        scheme, _, token = pairs.pop("auth", "").partition(" ")
        if scheme.lower() != "bearer" or not is_token(token.strip()):
            return Refused(_NO_TOKEN, "no bearer token")
        try:
            claims = self._check(token.strip())
        except TokenRefused as error:
            return self._refuse(str(error))
        if found["authzid"] and found["authzid"] != claims.principal:
            told = (
                "Authentication failed: Client requested an authorization id that is different from the "
                "token's principal name"
            )
            return Refused(told, f"{claims.principal!r} wants to be somebody else")
        return Accepted(claims.principal, b"", claims.until_ms)

    def _refuse(self, why: str) -> Challenge:
        self._why = why
        return Challenge(_INVALID.encode())


def payload(token: str) -> dict[str, Any]:
    """The claims of a token in JWT form, without looking at its signature; TokenRefused when it has none."""
    parts = token.split(".")
    try:
        if len(parts) != 3:
            raise ValueError
        found: object = json.loads(unbase64(parts[1]))
    except (ValueError, binascii.Error, RecursionError):
        raise TokenRefused("the token is no JWT") from None
    if not isinstance(found, dict):
        raise TokenRefused("the token's claims are no JSON object")
    return cast("dict[str, Any]", found)


def unsecured(now_ms: Callable[[], int], *, allowed_skew_ms: int = 0) -> Check:
    """A check that believes any token with `"alg": "none"` that has not run out: for tests."""

    def check(token: str) -> Claims:
        header, _, rest = token.partition(".")
        try:
            algorithm: object = json.loads(unbase64(header))["alg"]
        except (ValueError, binascii.Error, KeyError, TypeError, RecursionError):
            raise TokenRefused("the token is no JWT") from None
        if algorithm != "none" or not rest.endswith("."):
            raise TokenRefused("the token is signed, and this broker takes unsecured ones only")
        return claims_of(payload(token), now_ms(), allowed_skew_ms)

    return check


def claims_of(found: Mapping[str, Any], now_ms: int, allowed_skew_ms: int = 0) -> Claims:
    """Who a token's claims are about; TokenRefused for one that has run out or doesn't hold yet."""
    until, since = found.get("exp"), found.get("nbf", found.get("iat"))
    subject = found.get("sub")
    if not isinstance(subject, str) or not subject:
        raise TokenRefused('the token has no "sub"')
    if isinstance(until, bool) or not isinstance(until, int | float) or until != until:
        raise TokenRefused('the token has no "exp"')
    if until * 1000 + allowed_skew_ms <= now_ms:
        raise TokenRefused(f"the token ran out {_span(now_ms - until * 1000)} ago")
    if isinstance(since, int | float) and since * 1000 - allowed_skew_ms > now_ms:
        raise TokenRefused(f"the token holds in {_span(since * 1000 - now_ms)} only; do the clocks agree?")
    return Claims(subject, int(min(until * 1000, 2**62)))


def unsecured_token(
    subject: str, issued_ms: int, lifetime_ms: int, claims: Mapping[str, Any] | None = None
) -> str:
    """A token that `unsecured` believes."""
    said = {
        "sub": subject,
        "iat": issued_ms / 1000,
        "exp": (issued_ms + lifetime_ms) / 1000,
        **(claims or {}),
    }
    return f"{_base64({'alg': 'none'})}.{_base64(said)}."


def _base64(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def unbase64(text: str) -> bytes:
    """A part of a JWT; raises ValueError (binascii.Error is one)."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _span(ms: float) -> str:
    return f"{ms / 1000:.0f} s"
