"""The failures of TLS and of tokens, defined in a module that does not import `ssl`."""

from __future__ import annotations

CLOSED = "the broker closed the connection"


class TlsFailed(Exception):
    """The error of a failed TLS handshake or stream. If `final` is true, retries fail, too."""

    def __init__(self, why: str, *, final: bool) -> None:
        super().__init__(why)
        self.final = final


class NoToken(Exception):
    """Raised when no token is available. If `final` is true, retries fail, too."""

    def __init__(self, why: str, *, final: bool) -> None:
        super().__init__(why)
        self.final = final
