"""The interface between a network client and the owner of its sockets: actions and events.

Each action and event contains the key of its connection. Keys are never reused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from kproto.errors import FrameError

    from ...dialers import Dialer
    from ...security.kerberos import KerberosLogin, KerberosSource
    from ...security.tls import Tls
    from ...security.tokens import Token, TokenSource

# Interval (s) at which the owner of the sockets sends an empty `Data` while a long response arrives.
PROGRESS_INTERVAL_S = 1.0
# The default maximum size (bytes) of a response, as in librdkafka (receive.message.max.bytes). The maximum is
# at least fetch.max.bytes plus the overhead below.
RECEIVE_MESSAGE_MAX_BYTES = 100_000_000
RESPONSE_OVERHEAD_BYTES = 512


# Actions: what the owner of the sockets must do.


class Open(msgspec.Struct, frozen=True):
    """Connect a socket to host:port, with TLS if `tls` is set.

    `dialer` is the application's function that opens the connection, or None.

    The owner closes the connection if a response has more than `max_response` bytes.

    The owner then sends `Opened(key)`, or `Broken(key, why)`. With TLS it sends `Reached(key)` before
    `Opened(key)`.
    """

    key: int
    host: str
    port: int
    tls: Tls | None = None
    max_response: int = RECEIVE_MESSAGE_MAX_BYTES
    dialer: Dialer | None = None


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
    """Request a token from `source`, then send `GotToken(key, token)` or `Broken(key, why)`."""

    key: int
    source: TokenSource | KerberosSource


# Events: what has happened.


class Opened(msgspec.Struct, frozen=True):
    """The connection is established.

    If the connection breaks before the first response, the owner connects to the host's next address and
    sends `Opened` again. The first request is then repeated.
    """

    key: int


class Reached(msgspec.Struct, frozen=True):
    """The socket is connected, and the TLS handshake begins."""

    key: int


class Data(msgspec.Struct, frozen=True):
    """Received bytes, in pieces of any size.

    While a long response is arriving, the owner sends this event with empty `data`, at most once every
    `PROGRESS_INTERVAL_S`, so that the request does not count as late. The whole response follows as an
    `Answer`.
    """

    key: int
    data: bytes


class Answer(msgspec.Struct, frozen=True):
    """A whole response frame, without its size.

    The records of a large frame are views of `body`, so the owner must not change `body`. Its memory is
    reused when the last view has been freed.
    """

    key: int
    body: bytes | bytearray


# The first two bytes of a TLS alert: the record type and the major version (RFC 8446, 5.1).
_TLS_ALERT = 0x1503


class Broken(msgspec.Struct, frozen=True):
    """The connection has ended.

    `why` is the reason, or `CLOSED` if the peer closed the connection without an error.

    If `denied` is true, new connections will also fail until the configuration is changed.
    """

    key: int
    why: str
    denied: bool = False

    @classmethod
    def from_frame_error(cls, key: int, error: FrameError) -> Broken:
        """Return the event for a peer whose bytes are not Kafka responses, or whose response is too large."""
        if error.size is not None and error.limit is not None and error.size > error.limit:
            return cls(
                key, f"a response has {error.size} bytes, and receive_message_max_bytes allows {error.limit}"
            )
        # The peer's first four bytes were read as a size. A TLS alert is recognized by the first two of them.
        if error.size is not None and error.size >> 16 == _TLS_ALERT:
            return cls(key, "this port speaks TLS: set security_protocol to SSL, or SASL_SSL", denied=True)
        return cls(key, f"the response cannot be decoded: {error}")


class GotToken(msgspec.Struct, frozen=True):
    """The token or Kerberos login that a `GetToken` requested."""

    key: int
    token: Token | KerberosLogin


NetworkAction = Open | Write | Shut | GetToken
NetworkEvent = Reached | Opened | Data | Answer | Broken | GotToken
