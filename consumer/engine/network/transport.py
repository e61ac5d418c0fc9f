"""The interface to the sockets: the actions and events of a network client.

The key of an action or event identifies its connection and is never reused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from kproto.errors import FrameError

    from ...security import Token
    from ...security.tls import Tls
    from ...security.tokens import TokenSource

# Interval (s) at which sockets send an empty `Data` while a long response arrives.
COMING_S = 1.0


# Actions: what the owner must do.


class Open(msgspec.Struct, frozen=True):
    """Connect a socket to host:port, with TLS if `tls` is given.

    Answer with `Opened(key)`, with `Reached(key)` before it for TLS, or with `Broken(key, why)`.
    """

    key: int
    host: str
    port: int
    tls: Tls | None = None


class Write(msgspec.Struct, frozen=True):
    """Send these bytes, completely and in order. They may contain a password, so the repr omits them."""

    key: int
    data: bytes

    def __repr__(self) -> str:
        return f"Write(key={self.key}, {len(self.data)} bytes)"


class Shut(msgspec.Struct, frozen=True):
    """Close the socket. Send no more events with this key."""

    key: int


class GetToken(msgspec.Struct, frozen=True):
    """Request a token. Answer with `GotToken(key, token)` or `Broken(key, why)`."""

    key: int
    source: TokenSource


# Events: what has happened.


class Opened(msgspec.Struct, frozen=True):
    """The connection is established.

    The event is sent again if the connection broke before the first response and the host has another
    address. Then the first request must be written again.
    """

    key: int


class Reached(msgspec.Struct, frozen=True):
    """The socket is connected, and the TLS handshake begins."""

    key: int


class Data(msgspec.Struct, frozen=True):
    """Received bytes, in pieces of any size.

    Empty data means that a part of a long response has arrived. The response follows as an `Answer`.
    """

    key: int
    data: bytes


class Answer(msgspec.Struct, frozen=True):
    """A whole response frame, without its size.

    Records of a large frame are views of `body`, so the owner must not change it. Its memory is reused once
    no view of it is left.
    """

    key: int
    body: bytes | bytearray


# First bytes of a TLS alert: its type and the first half of its version (RFC 8446, 5.1).
_ALERT = 0x1503


class Broken(msgspec.Struct, frozen=True):
    """The connection has ended. `denied`: a new one will also fail, until the configuration is changed.

    `why` is `CLOSED` if the peer closed the connection without an error.
    """

    key: int
    why: str
    denied: bool = False

    @classmethod
    def no_frames(cls, key: int, error: FrameError) -> Broken:
        """Return the event for a peer that sent something other than Kafka responses."""
        if error.size is not None and error.size >> 16 == _ALERT:
            return cls(key, "this port speaks TLS: set security_protocol to SSL, or SASL_SSL", True)
        return cls(key, f"the response cannot be decoded: {error}")


class GotToken(msgspec.Struct, frozen=True):
    key: int
    token: Token


NetworkAction = Open | Write | Shut | GetToken
NetworkEvent = Reached | Opened | Data | Answer | Broken | GotToken
