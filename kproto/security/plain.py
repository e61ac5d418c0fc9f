"""PLAIN (RFC 4616): sends name and password in clear text; use it with TLS only."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Final

from .exchange import OTHER_AUTHZID, Accepted, Challenge, Rejected, SaslFailed

_REJECTION: Final = "Authentication failed: Invalid username or password"


class PlainClient:
    """The client side of PLAIN."""

    __slots__ = ("_first", "mechanism")

    def __init__(self, username: str, password: str) -> None:
        self.mechanism = "PLAIN"
        self._first = b"\0".join((b"", username.encode(), password.encode()))

    def begin(self) -> bytes:
        return self._first

    def answer(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise SaslFailed("the broker sent a challenge, which PLAIN does not have")
        return None


class PlainServer:
    """The broker side of PLAIN. `look_up` returns a user's password, or None if the user does not exist."""

    __slots__ = ("_look_up", "mechanism")

    def __init__(self, look_up: Callable[[str], str | None]) -> None:
        self.mechanism = "PLAIN"
        self._look_up = look_up

    def evaluate_response(self, response: bytes) -> Challenge | Accepted | Rejected:
        texts = response.decode(errors="replace").split("\0", 3)
        if len(texts) != 3:
            message = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(texts)}"
            return Rejected(message, "the PLAIN message does not have three parts")
        authzid, name, password = texts
        if not name or not password:
            empty = "password" if name else "username"
            return Rejected(f"Authentication failed: {empty} not specified", f"an empty {empty}")
        known = self._look_up(name)
        right = hmac.compare_digest(_digest(password), _digest("" if known is None else known))
        if known is None:
            return Rejected(_REJECTION, f"user {name!r} does not exist")
        if not right:
            return Rejected(_REJECTION, f"a wrong password for {name!r}")
        if authzid and authzid != name:
            return Rejected(OTHER_AUTHZID, f"{name!r} requested another authorization id")
        return Accepted(name)


def _digest(text: str) -> bytes:
    """Hash a string, so that a comparison takes the same time for strings of any length."""
    return hashlib.sha256(text.encode()).digest()
