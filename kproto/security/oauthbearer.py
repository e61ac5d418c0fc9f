r"""OAUTHBEARER (RFC 7628, KIP-255): authentication with a token that a third party has issued.

* A broker that rejects a token sends JSON in a challenge. The client responds with \x01, and the exchange
  ends with an error.

* Extensions are `name=value` pairs in addition to the token. Names consist of letters, and values of
  printable characters. The name "auth" is reserved for the token.

* The application supplies a function that checks tokens. `jwks.signed` creates such a function.

* For tests, `unsecured` makes a function that accepts tokens without a signature, as Kafka's
  OAuthBearerUnsecuredValidatorCallbackHandler does.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from .exchange import Accepted, Challenge, Rejected, SaslFailed

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
    """The principal of a token, and the time at which the token expires (ms since 1970; None for never)."""

    principal: str
    until_ms: int | None = None
    extensions: Mapping[str, str] = field(default_factory=dict[str, str])


class TokenRejected(Exception):
    """A function that checks tokens raises this error for an unacceptable token.

    The message is for the broker's log.
    """


# A function that returns the claims of a valid token, and raises TokenRejected for any other token.
Check = Callable[[str], Claims]


class OAuthBearerClient:
    """The client side of OAUTHBEARER."""

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
            raise SaslFailed("the broker sent another challenge after it rejected the token")
        self._first = _SEPARATOR.encode()
        return self._first


def wrong_extension(name: str, value: str) -> str | None:
    """Return the reason why a pair is not a valid extension, or None if it is valid."""
    if not _NAME.fullmatch(name) or name == "auth":
        return 'names are letters only, and not "auth"'
    return None if _VALUE.fullmatch(value) else "values are printable and not empty"


def is_token(text: str) -> bool:
    """Return whether a string has the syntax of a bearer token."""
    return _TOKEN.fullmatch(text) is not None


class OAuthBearerServer:
    """The broker side of OAUTHBEARER."""

    __slots__ = ("_check", "_reason", "mechanism")

    def __init__(self, check: Check) -> None:
        self.mechanism = MECHANISM
        self._check = check
        self._reason = ""

    def evaluate_response(self, response: bytes) -> Challenge | Accepted | Rejected:
        if self._reason:
            return Rejected(_INVALID, self._reason)
        try:
            match = _FIRST.fullmatch(response.decode())
        except UnicodeDecodeError:
            match = None
        if match is None:
            return Rejected("Invalid OAUTHBEARER client first message", "the first message is malformed")
        pairs = dict(pair.split("=", 1) for pair in match["pairs"].split(_SEPARATOR) if pair)
        scheme, _, token = pairs.pop("auth", "").partition(" ")
        if scheme.lower() != "bearer" or not is_token(token.strip()):
            return Rejected(_NO_TOKEN, "the token is not a bearer token")
        try:
            claims = self._check(token.strip())
        except TokenRejected as error:
            return self._reject_token(str(error))
        if match["authzid"] and match["authzid"] != claims.principal:
            message = (
                "Authentication failed: Client requested an authorization id that is different from the "
                "token's principal name"
            )
            return Rejected(message, f"{claims.principal!r} requested another authorization id")
        return Accepted(claims.principal, b"", claims.until_ms)

    def _reject_token(self, reason: str) -> Challenge:
        self._reason = reason
        return Challenge(_INVALID.encode())


def payload(token: str) -> dict[str, Any]:
    """Return the claims of a JWT without verifying its signature. Raises TokenRejected if the JWT is
    malformed.
    """
    parts = token.split(".")
    try:
        if len(parts) != 3:
            raise ValueError
        claims: object = json.loads(unbase64(parts[1]))
    except (ValueError, binascii.Error, RecursionError):
        raise TokenRejected("the token is not a JWT of the form HEADER.CLAIMS.SIGNATURE") from None
    if not isinstance(claims, dict):
        raise TokenRejected("the token's claims are not a JSON object")
    return cast("dict[str, Any]", claims)


def unsecured(now_ms: Callable[[], int], *, allowed_skew_ms: int = 0) -> Check:
    """Return a check that accepts unexpired tokens with `"alg": "none"`; for tests only."""

    def check(token: str) -> Claims:
        header, _, signed_part = token.partition(".")
        try:
            algorithm: object = json.loads(unbase64(header))["alg"]
        except (ValueError, binascii.Error, KeyError, TypeError, RecursionError):
            raise TokenRejected("the token is not a JWT of the form HEADER.CLAIMS.SIGNATURE") from None
        if algorithm != "none" or not signed_part.endswith("."):
            raise TokenRejected("the token is signed, but this broker only accepts unsecured tokens")
        return claims_of(payload(token), now_ms(), allowed_skew_ms)

    return check


def claims_of(token_claims: Mapping[str, Any], now_ms: int, allowed_skew_ms: int = 0) -> Claims:
    """Check the claims of a token, and return its principal and expiration time.

    A token becomes valid at the time in "nbf" or, if "nbf" is missing, in "iat".

    Raises TokenRejected if "sub" or "exp" is missing, or if the token is not valid at `now_ms`.
    """
    until, since = token_claims.get("exp"), token_claims.get("nbf", token_claims.get("iat"))
    subject = token_claims.get("sub")
    if not isinstance(subject, str) or not subject:
        raise TokenRejected('the token has no "sub"')
    if isinstance(until, bool) or not isinstance(until, int | float) or until != until:
        raise TokenRejected('the token has no "exp"')
    if until * 1000 + allowed_skew_ms <= now_ms:
        raise TokenRejected(f"the token expired {_span(now_ms - until * 1000)} ago")
    if isinstance(since, int | float) and since * 1000 - allowed_skew_ms > now_ms:
        raise TokenRejected(
            f"the token is not valid until {_span(since * 1000 - now_ms)} from now; do the clocks agree?"
        )
    return Claims(subject, int(min(until * 1000, 2**62)))


def unsecured_token(
    subject: str, issued_ms: int, lifetime_ms: int, claims: Mapping[str, Any] | None = None
) -> str:
    """Make a token that `unsecured` accepts; times are in ms."""
    payload_claims = {
        "sub": subject,
        "iat": issued_ms / 1000,
        "exp": (issued_ms + lifetime_ms) / 1000,
        **(claims or {}),
    }
    return f"{_base64({'alg': 'none'})}.{_base64(payload_claims)}."


def _base64(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def unbase64(text: str) -> bytes:
    """Decode a part of a JWT from base64url. Raises ValueError for malformed text."""
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _span(ms: float) -> str:
    return f"{ms / 1000:.0f} s"
