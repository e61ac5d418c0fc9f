"""Server-side TLS without a socket: `ssl` on memory buffers.

    tls = ServerTls(context)
    plaintext = tls.feed(received); send(tls.outgoing()); tls.is_handshake_complete
    send(tls.encrypt(response))

Rules:

* A failed handshake or a corrupt stream raises TlsError with the reason for the log. `outgoing` then returns
  the TLS alert.

* After TlsError, the caller must not close the socket before the client has had time to read the alert.
  Closing a socket with unread bytes resets the connection, and the alert may be lost.

* No application data is encrypted or decrypted before the handshake is complete.

* `server_context` accepts no weak protocol or cipher. The scanner sslyze finds none.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping
from typing import Any, Final

# The maximum size of the plaintext that one read returns: 256 KiB, or 16 TLS records of the maximum size.
_READ_SIZE: Final = 1 << 18
# The fatal alert "unexpected message" for a client that does not use TLS. Java sends this alert, but OpenSSL
# does not.
_UNEXPECTED_MESSAGE: Final = bytes((21, 3, 3, 0, 2, 2, 10))
# OpenSSL's error reasons for bytes that are not TLS.
_NOT_TLS_REASONS: Final = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "RECORD_LAYER_FAILURE",
    "PACKET_LENGTH_TOO_LONG",
)


# The ciphers for TLS 1.2, from Mozilla's "intermediate" recommendation: all use ephemeral keys and
# authenticated encryption (AEAD). All ciphers of TLS 1.3 have both properties, too.
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20:!aNULL:!aDSS"


def server_context(certificate: str, client_auth: str = "none", ca: str | None = None) -> ssl.SSLContext:
    """Return the SSL context of a listener. Raises OSError if a file cannot be read.

    `certificate` is a PEM file with a certificate and its key.

    `client_auth` is none, requested or required, as in Kafka's ssl.client.auth.

    `ca` is a PEM file with the trusted issuers of client certificates. It is required unless `client_auth` is
    none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.load_cert_chain(certificate)
    if client_auth != "none":
        # As in Kafka, an intermediate certificate in `ca` is trusted even if its root is missing.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(ca)
        context.verify_mode = ssl.CERT_REQUIRED if client_auth == "required" else ssl.CERT_OPTIONAL
    return context


class TlsError(Exception):
    """The error of a failed handshake or a corrupt stream; the message is for the broker's log."""


class ServerTls:
    """The TLS state of one connection."""

    __slots__ = ("_in", "_out", "_ssl", "is_closed_by_client", "is_handshake_complete")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._in, self._out, server_side=True)
        self.is_handshake_complete = False
        self.is_closed_by_client = False

    @property
    def client_certificate(self) -> Mapping[str, Any] | None:
        """The client's certificate as `ssl` parses it, or None if the client sent none."""
        return self._ssl.getpeercert()

    def feed(self, data: bytes) -> bytes:
        """Continue the handshake, or decrypt received bytes and return the plaintext.

        Raises TlsError if the handshake fails or the bytes are corrupt.
        """
        self._in.write(data)
        pieces: list[bytes] = []
        try:
            if not self.is_handshake_complete:
                self._ssl.do_handshake()
                self.is_handshake_complete = True
            while piece := self._ssl.read(_READ_SIZE):
                pieces.append(piece)
            self.is_closed_by_client = True
        except ssl.SSLWantReadError:
            # OpenSSL needs more bytes, for the handshake or for the next record.
            pass
        except ssl.SSLZeroReturnError:
            self.is_closed_by_client = True
        except ssl.SSLError as error:
            if error.reason in _NOT_TLS_REASONS and not self._out.pending:
                self._out.write(_UNEXPECTED_MESSAGE)
            raise TlsError(_log_message(error)) from None
        return b"".join(pieces)

    def outgoing(self) -> bytes:
        """Return the bytes to send now; after a TlsError, the bytes may be an alert."""
        return self._out.read()

    def encrypt(self, data: bytes | memoryview) -> bytes:
        """Encrypt `data` and return the bytes to send. Raises TlsError if the encryption fails."""
        remaining = memoryview(data)
        try:
            while remaining:
                remaining = remaining[self._ssl.write(remaining) :]
        except ssl.SSLError as error:
            raise TlsError(_log_message(error)) from None
        return self._out.read()

    def close(self) -> bytes:
        """Return the close_notify alert to send, which tells the client that the stream is complete."""
        if self.is_handshake_complete:
            with contextlib.suppress(ssl.SSLError):
                self._ssl.unwrap()
        return self._out.read()


def _log_message(error: ssl.SSLError) -> str:
    """Return the message of the `TlsError` for an error of `ssl`."""
    reason = error.reason or ""
    if reason in _NOT_TLS_REASONS:
        return "the client does not use TLS, but this listener does"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: the client's certificate is refused: {error.verify_message}"
    return f"TLS: {reason.replace('_', ' ').lower() or type(error).__name__}"
