"""What goes wrong with security where a socket is: known without importing `ssl`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kproto.errors import FrameError

from ..engine.network import Broken, GotToken

if TYPE_CHECKING:
    from .tokens import TokenSource


# How a TLS alert begins: its kind, and the first half of its version (RFC 8446, 5.1).
_ALERT = 0x1503


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


def no_frames(key: int, error: FrameError) -> Broken:
    """What becomes of a connection that brought something else than answers."""
    if error.size is not None and error.size >> 16 == _ALERT:
        return Broken(key, "this port speaks TLS: set security_protocol to SSL, or SASL_SSL", True)
    return Broken(key, f"the answer makes no sense: {error}")


def answer(key: int, source: TokenSource) -> GotToken | Broken:
    """What becomes of a GetToken; waits in this thread."""
    try:
        return GotToken(key, source.blocking())
    except NoToken as error:
        return Broken(key, str(error), error.final)


async def awaited_answer(key: int, source: TokenSource) -> GotToken | Broken:
    """What becomes of a GetToken; waits in this loop."""
    try:
        return GotToken(key, await source.awaited())
    except NoToken as error:
        return Broken(key, str(error), error.final)
