"""PLAIN (RFC 4616): the name and the password as they are; only for listeners with TLS."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from typing import Final

from .exchange import OTHER_ID, Accepted, Challenge, Refused, SaslFailed

_TOLD: Final = "Authentication failed: Invalid username or password"


class PlainClient:
    """The client's half."""

    __slots__ = ("_first", "mechanism")

    def __init__(self, username: str, password: str) -> None:
        self.mechanism = "PLAIN"
        self._first = b"\0".join((b"", username.encode(), password.encode()))

    def begin(self) -> bytes:
        return self._first

    def answer(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise SaslFailed("the broker asks something where PLAIN knows no question")
        return None


class PlainServer:
    """The broker's half. `look_up` gives a user's password, or None."""

    __slots__ = ("_look_up", "mechanism")

    def __init__(self, look_up: Callable[[str], str | None]) -> None:
        self.mechanism = "PLAIN"
        self._look_up = look_up

    def take(self, response: bytes) -> Challenge | Accepted | Refused:
        texts = response.decode(errors="replace").split("\0", 3)
        if len(texts) != 3:
            told = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(texts)}"
            return Refused(told, "a PLAIN message that is not three texts")
        authzid, name, password = texts
        if not name or not password:
            empty = "password" if name else "username"
            return Refused(f"Authentication failed: {empty} not specified", f"an empty {empty}")
        known = self._look_up(name)
        right = hmac.compare_digest(_digest(password), _digest("" if known is None else known))
        if known is None:
            return Refused(_TOLD, f"there is no user {name!r}")
        if not right:
            return Refused(_TOLD, f"a wrong password for {name!r}")
        if authzid and authzid != name:
            return Refused(OTHER_ID, f"{name!r} wants to be somebody else")
        return Accepted(name)


def _digest(text: str) -> bytes:
    """Of one length for all, so that a comparison takes one time for all."""
    return hashlib.sha256(text.encode()).digest()
