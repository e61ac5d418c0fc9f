"""What a network asks of whoever holds its sockets, and what that says of them.

Each is about one connection, known by a number that is never used twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from kproto.errors import FrameError

    from ...security import Token
    from ...security.tls import Tls
    from ...security.tokens import TokenSource

# Sockets say so often, in seconds, that a long answer is coming.
COMING_S = 1.0


# ---- what the owner must do


class Open(msgspec.Struct, frozen=True):
    """Connect a socket to host:port, by TLS if it is given; answer `Opened(key)` (through TLS `Reached(key)`
    before it) or `Broken(key, why)`."""

    key: int
    host: str
    port: int
    tls: Tls | None = None


class Write(msgspec.Struct, frozen=True):
    """Send these bytes, all of them and in order. They may be a password: no repr has them."""

    key: int
    data: bytes

    def __repr__(self) -> str:
        return f"Write(key={self.key}, {len(self.data)} bytes)"


class Shut(msgspec.Struct, frozen=True):
    """Close the socket; nothing more may be said about this key."""

    key: int


class GetToken(msgspec.Struct, frozen=True):
    """Ask for a token; answer `GotToken(key, token)` or `Broken(key, why)`."""

    key: int
    source: TokenSource


# ---- what happened


class Opened(msgspec.Struct, frozen=True):
    """There is a connection. Once more where it broke before the first answer, and the host has another
    address: what was written is to be said again."""

    key: int


class Reached(msgspec.Struct, frozen=True):
    """There is a connection, and TLS begins on it."""

    key: int


class Data(msgspec.Struct, frozen=True):
    """Bytes as the network cut them; `Answer` is the other way to say what came. None of them: part of a long
    answer has come."""

    key: int
    data: bytes


class Answer(msgspec.Struct, frozen=True):
    """A whole frame, without its size. Where it is large, records point into `body`: nobody may change it.
    Its memory is written to again when nobody has it any more, nor a view of it."""

    key: int
    body: bytes | bytearray


# How a TLS alert begins: its kind, and the first half of its version (RFC 8446, 5.1).
_ALERT = 0x1503


class Broken(msgspec.Struct, frozen=True):
    """The connection is gone. `denied`: and the next one will be, too, until somebody changes something.

    `why` is `CLOSED` when the other side ended it in good order.
    """

    key: int
    why: str
    denied: bool = False

    @classmethod
    def no_frames(cls, key: int, error: FrameError) -> Broken:
        """It brought something else than answers."""
        if error.size is not None and error.size >> 16 == _ALERT:
            return cls(key, "this port speaks TLS: set security_protocol to SSL, or SASL_SSL", True)
        return cls(key, f"the answer makes no sense: {error}")


class GotToken(msgspec.Struct, frozen=True):
    key: int
    token: Token


NetworkAction = Open | Write | Shut | GetToken
NetworkEvent = Reached | Opened | Data | Answer | Broken | GotToken
