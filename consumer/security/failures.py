"""Failures of security at a socket, defined without importing `ssl`."""

from __future__ import annotations

CLOSED = "the broker closed the connection"


class TlsFailed(Exception):
    """The TLS handshake or stream failed. `final` says that a retry would fail as well."""

    def __init__(self, why: str, *, final: bool) -> None:
        super().__init__(why)
        self.final = final


class NoToken(Exception):
    """No token is available. `final` says that a retry would fail as well."""

    def __init__(self, why: str, *, final: bool) -> None:
        super().__init__(why)
        self.final = final
