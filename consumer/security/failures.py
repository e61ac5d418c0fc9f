"""What goes wrong with security where a socket is: known without importing `ssl`."""

from __future__ import annotations

CLOSED = "the broker closed the connection"


class TlsFailed(Exception):
    """The handshake, or the stream, is broken. `final`: it will be so again."""

    def __init__(self, why: str, *, final: bool) -> None:
        super().__init__(why)
        self.final = final


class NoToken(Exception):
    """There is no token. `final`: and there will be none by waiting."""

    def __init__(self, why: str, *, final: bool) -> None:
        super().__init__(why)
        self.final = final
