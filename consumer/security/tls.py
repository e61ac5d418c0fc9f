"""TLS on bytes in memory (`ssl.MemoryBIO`), without a socket: the same code serves threads and asyncio.

    pipe = tls.pipe("kafka-1.example.com")
    send(pipe.begin())
    ... pipe.feed(received); send(pipe.outgoing()); pipe.secured; pipe.read_into(room)
    send(pipe.seal(request))

Rules:

* Every failure raises `TlsFailed`, with one sentence that contains a remedy. `final` is set if retries cannot
  succeed until the configuration changes.

* No application data is sent before the broker's certificate has been verified.

* The minimum version is TLS 1.2. A connection resumes the last session with its host, if one exists.
"""

from __future__ import annotations

import contextlib
import re
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from .failures import CLOSED, TlsFailed
from .stores import identify, trust

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

# The value of `trusts` and `shows` if the option `ssl_context` is set: this module does not know which
# authorities and which certificate the application has loaded into it.
YOURS: Final = "your ssl_context"

# The numbers of X509_V_ERR_* errors, from OpenSSL's x509_vfy.h.
_CERTIFICATE_EXPIRED, _CERTIFICATE_NOT_YET_VALID = 10, 9
_UNKNOWN_AUTHORITY: Final = (2, 18, 19, 20, 21)
_HOST_MISMATCH: Final = (62, 64)
# Parts of the names of alerts with which a broker rejects the client's certificate.
_CERTIFICATE_ALERTS: Final = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")
# The alerts that a broker may send if the client has sent no certificate.
_MISSING_CERTIFICATE_ALERTS: Final = ("CERTIFICATE_REQUIRED", "BAD_CERTIFICATE", "HANDSHAKE_FAILURE")
_CRL_UNUSABLE: Final = "the list of revoked certificates (CRL) is missing, or has expired"
_REMEDIES: Final = {
    3: _CRL_UNUSABLE,
    12: _CRL_UNUSABLE,
    26: "it must be a certificate for servers (extended key usage serverAuth)",
}
# The reasons that OpenSSL gives if the received bytes are not TLS.
_NOT_TLS_REASONS: Final = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "HTTP_REQUEST",
    "PACKET_LENGTH_TOO_LONG",
)


class Tls:
    """The TLS settings of one client: a context, and the last session with each host.

    Error messages contain `trusts` and `shows`. `trusts` names the configured authorities; None means the
    authorities that the system trusts. `shows` names the client's own certificate; None means that the
    client has no certificate.
    """

    __slots__ = ("context", "sessions", "shows", "trusts")

    def __init__(self, context: ssl.SSLContext, trusts: str | None = None, shows: str | None = None) -> None:
        self.context = context
        self.trusts = trusts
        self.shows = shows
        self.sessions: dict[str, ssl.SSLSession] = {}

    def pipe(self, host: str) -> Pipe:
        """Return the TLS stream of a new connection.

        A dot at the end of `host`, as in fully qualified names, is removed: names in certificates have no
        such dot.
        """
        return Pipe(self, host.removesuffix("."))

    def sentence(self, error: Exception, host: str) -> str:
        """Return a sentence with the failure and its remedy.

        If a certificate has expired, the sentence also names the authorities with expired certificates.
        """
        message = sentence(error, host, self.trusts, self.shows)
        if getattr(error, "verify_code", 0) != _CERTIFICATE_EXPIRED or self.trusts is None:
            return message
        expired = [
            _subject_name(certificate)
            for certificate in self.context.get_ca_certs()
            if _has_expired(certificate)
        ]
        return f"{message}; expired in {self.trusts}: {', '.join(expired)}" if expired else message

    def __repr__(self) -> str:
        return "Tls()"


class Pipe:
    """The TLS stream of one connection."""

    __slots__ = ("_host", "_in", "_out", "_read_error", "_ssl", "_tls", "secured")

    def __init__(self, tls: Tls, host: str) -> None:
        self._tls = tls
        self._host = host
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            self._ssl = tls.context.wrap_bio(
                self._in, self._out, server_hostname=host, session=tls.sessions.get(host)
            )
        except (ssl.SSLError, ValueError) as error:
            raise TlsFailed(f"TLS can't start with {host!r}: {error}", final=True) from None
        self.secured = False
        self._read_error: ssl.SSLError | None = None

    def begin(self) -> bytes:
        """Return the first bytes of the handshake. Raises TlsFailed if it cannot be started."""
        self._continue_handshake()
        return self._out.read()

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Process received bytes. Raises TlsFailed if the handshake or the decryption fails.

        After each call of `feed`, check `outgoing`, `secured` and `read_into`.
        """
        self._in.write(data)
        if not self.secured:
            self._continue_handshake()

    def end(self) -> str:
        """Return the error message for a connection that the broker has closed."""
        if self.secured:
            return CLOSED
        return f"{CLOSED} in the middle of the TLS handshake; does this port speak TLS?"

    def outgoing(self) -> bytes:
        """Return the bytes to send now. After TlsFailed, they may contain a TLS alert."""
        return self._out.read()

    def read_into(self, room: memoryview) -> int:
        """Decrypt received bytes into `room`. Return the number of decrypted bytes.

        The number is 0 if more bytes must be received first. If the stream fails, the bytes before the
        failure are returned first, and the next call raises TlsFailed.
        """
        if not self.secured:
            return 0
        # One call of `read` reads at most one TLS record (16 KiB). With a buffer argument, `read` returns the
        # number of bytes, although typeshed says otherwise.
        read = cast("Callable[[int, memoryview], int]", self._ssl.read)
        filled, capacity = 0, len(room)
        if self._read_error is None:
            try:
                while filled < capacity and (count := read(capacity - filled, room[filled:])):
                    filled += count
                if filled < capacity:  # `read` has returned 0: the broker has closed the stream.
                    self._read_error = ssl.SSLZeroReturnError()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                self._read_error = error
        if filled or self._read_error is None:
            return filled
        if isinstance(self._read_error, ssl.SSLZeroReturnError):
            raise TlsFailed(CLOSED, final=False)
        raise self._tls_failure(self._read_error)

    def seal(self, data: bytes) -> bytes:
        """Encrypt `data`, and return the bytes to send."""
        remaining = memoryview(data)
        try:
            while remaining:
                remaining = remaining[self._ssl.write(remaining) :]
        except ssl.SSLError as error:
            raise self._tls_failure(error) from None
        return self._out.read()

    def close(self) -> bytes:
        """Close the stream, and return the last bytes to send.

        The last bytes are TLS's close_notify, which shows the broker that the stream was not truncated. The
        session is stored: the next connection to the host resumes it.
        """
        if self.secured:
            with contextlib.suppress(ssl.SSLError, ValueError):
                if (session := self._ssl.session) is not None:
                    self._tls.sessions[self._host] = session
            with contextlib.suppress(ssl.SSLError):
                self._ssl.unwrap()
        return self._out.read()

    def _continue_handshake(self) -> None:
        """Process the received bytes of the handshake. Set `secured` if the handshake is complete."""
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return
        except (ssl.SSLError, ssl.CertificateError, ValueError) as error:
            raise self._tls_failure(error) from None
        self.secured = True

    def _tls_failure(self, error: Exception) -> TlsFailed:
        # A failed handshake is final, unless the connection was closed (SSLEOFError). In TLS 1.3, a broker
        # can reject the client's certificate after the handshake. This rejection is final, too.
        reason = str(getattr(error, "reason", ""))
        certificate_rejected = any(alert in reason for alert in _CERTIFICATE_ALERTS)
        return TlsFailed(
            self._tls.sentence(error, self._host),
            final=(not self.secured or certificate_rejected) and not isinstance(error, ssl.SSLEOFError),
        )


def sentence(error: Exception, host: str, trusts: str | None = None, shows: str | None = None) -> str:
    """Return the error message for a TLS failure, with a remedy if one is known.

    `trusts` names the configured authorities; None means the system's authorities. `shows` names the
    client's own certificate; None means that the client has no certificate.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate_sentence(error, host, trusts)
    reason = (getattr(error, "reason", None) or "").upper()
    if reason in _NOT_TLS_REASONS:
        return (
            "the response is not TLS: this port is for clients without TLS (security_protocol PLAINTEXT or "
            "SASL_PLAINTEXT), or belongs to another program"
        )
    problem = _readable_reason(reason)
    rejection = f"the broker rejects the handshake ({problem})"
    if shows in (None, YOURS) and any(alert in reason for alert in _MISSING_CERTIFICATE_ALERTS):
        remedy = (
            "set ssl_certfile and ssl_keyfile" if shows is None else f"does {YOURS} have one for this broker?"
        )
        return f"{rejection}: it may ask for a client certificate; {remedy}"
    if "HANDSHAKE_FAILURE" in reason:
        return f"{rejection}: it may reject {shows}, or have no cipher in common with this client"
    if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        return (
            f"the broker rejects this client's certificate ({problem}): it must be signed by an "
            "authority that the broker trusts, be for clients (clientAuth), and not have expired; see "
            f"{shows or 'ssl_certfile'}"
        )
    if "PROTOCOL_VERSION" in reason or "UNSUPPORTED_PROTOCOL" in reason:
        return f"the broker and this client have no TLS version in common ({problem}); see ssl_min_version"
    if isinstance(error, ssl.SSLEOFError):
        return "the broker closed the TLS connection without a TLS close"
    return f"the TLS connection failed ({problem or type(error).__name__})"


def _certificate_sentence(error: ssl.SSLCertVerificationError, host: str, trusts: str | None) -> str:
    """Return the error message, with a remedy, for a broker's certificate that this client rejects."""
    code = error.verify_code
    if code == _CERTIFICATE_EXPIRED:
        return (
            f"the certificate of {host} or of its authority has expired: renew it on the broker (or "
            "set this machine's clock)"
        )
    if code == _CERTIFICATE_NOT_YET_VALID:
        return (
            f"the certificate of {host} or of its authority is not valid yet: is this machine's clock right?"
        )
    if code in _HOST_MISMATCH:
        return (
            f"the certificate is not for the host name {host}: connect by a name that is in it, or set "
            "ssl_check_hostname=False if you know why"
        )
    if code in _UNKNOWN_AUTHORITY and trusts is not None:
        return (
            f"{trusts} has no authority for the certificate of {host} ({error.verify_message}): add "
            "the certificate of the authority that signed it (the broker must send an intermediate one, "
            "or it must be added as well)"
        )
    if code in _UNKNOWN_AUTHORITY:
        return (
            f"no trusted authority has signed the certificate of {host} ({error.verify_message}): set "
            "ssl_cafile to the certificate of the authority that signed it"
        )
    remedy = _REMEDIES.get(code, "the broker needs another certificate")
    return f"the certificate of {host} is rejected ({error.verify_message}): {remedy}"


def _has_expired(certificate: Mapping[str, Any]) -> bool:
    return ssl.cert_time_to_seconds(certificate["notAfter"]) < time.time()


def _subject_name(certificate: Mapping[str, Any]) -> str:
    """Return the last part of a certificate's subject, which is usually the common name."""
    parts: tuple[tuple[tuple[str, str], ...], ...] = certificate.get("subject", ())
    return repr(parts[-1][0][1]) if parts else "a certificate without a name"


def _readable_reason(reason: str) -> str:
    """Return the name of an OpenSSL reason in lower-case words."""
    return re.sub(r"^(SSLV3|TLSV1|TLSV13)_ALERT_", "alert ", reason).replace("_", " ").lower()


# ---- contexts


def context(
    *,
    cafile: str | None = None,
    certfile: str | None = None,
    keyfile: str | None = None,
    password: str | None = None,
    check_hostname: bool = True,
    min_version: str = "TLSv1.2",
) -> ssl.SSLContext:
    """Return an SSLContext for a client, from files or PEM text.

    Raises ConfigError for a file or PEM text that cannot be read.
    """
    tls_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls_context.minimum_version = _VERSIONS[min_version]
    tls_context.check_hostname = check_hostname
    if cafile is None:
        tls_context.load_default_certs()
    else:
        trust(tls_context, "ssl_cafile", cafile)
    if certfile is not None:
        identify(tls_context, "ssl_certfile", certfile, keyfile, password)
    return tls_context
