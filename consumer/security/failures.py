"""Failures of security at a socket, defined without importing `ssl`."""

from __future__ import annotations

CLOSED = "the broker closed the connection"


class TlsFailed(Exception):
    """The TLS handshake or stream is broken. `final`: a retry fails as well."""

    def __init__(self, why: str, *, final: bool) -> None:
        super().__init__(why)
        self.final = final


class NoToken(Exception):
    """There is no token. `final`: a retry fails as well."""

    def __init__(self, why: str, *, final: bool) -> None:
        super().__init__(why)
        self.final = final
