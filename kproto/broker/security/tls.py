"""A listener's half of TLS, without its socket: `ssl` over memory.

    pipe = Pipe(context)
    plain = pipe.feed(received); send(pipe.outgoing()); pipe.secured
    send(pipe.seal(answer))

Rules that hold here:

* What is wrong raises TlsBroken with the reason, for the log; `outgoing` has the alert for the client then.
  Who closes at once takes care that it arrives: in TLS 1.3 a client has already sent its first request.
* `context` is what the listener speaks; a scanner (sslyze) finds nothing weak in it.
* Nothing is sealed, and nothing of the client's comes out, before the handshake is over.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping
from typing import Any, Final

# Bytes that are taken out at a time; TLS itself has at most 16 KiB in a record.
_ROOM: Final = 1 << 18
# What a client without TLS is sent, as by Java: a fatal alert, "unexpected message". OpenSSL sends none.
_ALERT: Final = bytes((21, 3, 3, 0, 2, 2, 10))
# What OpenSSL calls bytes that are no TLS.
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")


# Keys of the moment, and ciphers that vouch for themselves (AEAD), as Mozilla's "intermediate" has it. For
# TLS 1.2; those of 1.3 are all like that.
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:DHE+CHACHA20:!aNULL:!aDSS"


def context(certificate: str, client_auth: str = "none", ca: str | None = None) -> ssl.SSLContext:
    """What a listener speaks. `certificate`: a file of PEM, with its key; `client_auth`: none, requested or
    required, as Kafka's ssl.client.auth, where the file `ca` says who vouches for clients. Raises OSError."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.set_ciphers(_CIPHERS)
    made.load_cert_chain(certificate)
    if client_auth != "none":
        made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # whoever signed those in there, as in Kafka
        made.load_verify_locations(ca)
        made.verify_mode = ssl.CERT_REQUIRED if client_auth == "required" else ssl.CERT_OPTIONAL
    return made


class TlsBroken(Exception):
    """The handshake or the stream can't go on; the text is for the broker's log."""


class Pipe:
    """One connection's TLS. `ended` is when the client has said that nothing more comes."""

    __slots__ = ("_in", "_out", "_ssl", "ended", "secured")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._in, self._out, server_side=True)
        self.secured = False
        self.ended = False

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """The client's, as `ssl` reads it; None where it showed none."""
        return self._ssl.getpeercert()

    def feed(self, data: bytes) -> bytes:
        """Bytes came: what they say. Raises TlsBroken."""
        self._in.write(data)
        found: list[bytes] = []
        try:
            if not self.secured:
                self._ssl.do_handshake()
                self.secured = True
            while piece := self._ssl.read(_ROOM):
                found.append(piece)
            self.ended = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.ended = True
        except ssl.SSLError as error:
            if error.reason in _NO_TLS and not self._out.pending:
                self._out.write(_ALERT)
            raise TlsBroken(_why(error)) from None
        return b"".join(found)

    def outgoing(self) -> bytes:
        """What is to be sent now; it may be there when TlsBroken was raised, too."""
        return self._out.read()

    def seal(self, data: bytes) -> bytes:
        """`data` as it travels. Raises TlsBroken."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._ssl.write(rest) :]
        except ssl.SSLError as error:
            raise TlsBroken(_why(error)) from None
        return self._out.read()

    def close(self) -> bytes:
        """The last bytes to send, so that the client knows that nothing was cut off."""
        if self.secured:
            with contextlib.suppress(ssl.SSLError):
                self._ssl.unwrap()
        return self._out.read()


def _why(error: ssl.SSLError) -> str:
    reason = error.reason or ""
    if reason in _NO_TLS:
        return "the client speaks no TLS, and this listener does"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"TLS: the client's certificate is refused: {error.verify_message}"
    return f"TLS: {reason.replace('_', ' ').lower() or type(error).__name__}"
