"""TLS between a socket and an engine, without the socket: `ssl` over memory, for threads and asyncio alike.

    pipe = tls.pipe("kafka-1.example.com")
    send(pipe.begin())
    ... pipe.feed(received); send(pipe.outgoing()); pipe.secured; pipe.read_into(room)
    send(pipe.seal(request))

Rules that hold here:

* What is wrong raises `TlsFailed`, and nothing else: with one sentence and its cure, and `final` when trying
  again is useless until somebody changes something.
* Nothing of the application is sent before the other side has shown its certificate.
* TLS 1.2 at least. A session is resumed where the last connection to that host left one.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Final, cast

from kproto.errors import ConfigError, MissingExtra

from .failures import CLOSED, TlsFailed

_PEM: Final = "-----BEGIN "
_HASHED: Final = re.compile(r"[0-9a-f]{8}\.\d+")  # what OpenSSL looks for in a folder
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

# X509_V_ERR_*, as in OpenSSL's x509_vfy.h.
_EXPIRED, _NOT_YET = 10, 9
_UNKNOWN: Final = (2, 18, 19, 20, 21)
_ANOTHER_NAME: Final = (62, 64)
# Alerts of a broker that doesn't like a client's certificate.
_REFUSALS: Final = ("CERTIFICATE", "UNKNOWN_CA", "HANDSHAKE_FAILURE", "ACCESS_DENIED")
# What OpenSSL calls bytes that are no TLS.
_NO_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")


class Tls:
    """One client's TLS: a context, what it `trusts` as errors say, and the last session with each host."""

    __slots__ = ("context", "sessions", "trusts")

    def __init__(self, context: ssl.SSLContext, trusts: str | None = None) -> None:
        self.context = context
        self.trusts = trusts
        self.sessions: dict[str, ssl.SSLSession] = {}

    def pipe(self, host: str) -> Pipe:
        return Pipe(self, host)

    def __repr__(self) -> str:
        return "Tls()"


class Pipe:
    """One connection's TLS."""

    __slots__ = ("_host", "_in", "_out", "_ssl", "_tls", "_wrong", "secured")

    def __init__(self, tls: Tls, host: str) -> None:
        self._tls = tls
        self._host = host
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = tls.context.wrap_bio(
            self._in, self._out, server_hostname=host, session=tls.sessions.get(host)
        )
        self.secured = False
        self._wrong: ssl.SSLError | None = None

    def begin(self) -> bytes:
        """The first bytes to send."""
        self._shake()
        return self._out.read()

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Bytes came. Then look at `outgoing`, `secured` and `read_into`. Raises TlsFailed."""
        self._in.write(data)
        if not self.secured:
            self._shake()

    def end(self) -> str:
        """No more bytes will come: what that means."""
        if self.secured:
            return CLOSED
        return f"{CLOSED} in the middle of the TLS handshake; does this port speak TLS?"

    def outgoing(self) -> bytes:
        """What is to be sent now; it may be there when TlsFailed was raised, too."""
        return self._out.read()

    def read_into(self, room: memoryview) -> int:
        """How many bytes of the application's came into `room`, which is filled if there are enough; 0 when
        there are no more now. Raises TlsFailed, behind the bytes in front of what is wrong."""
        if not self.secured:
            return 0
        # A record is 16 KiB at most, and so is what one read brings: into a buffer it returns their number,
        # whatever typeshed says.
        read = cast("Callable[[int, memoryview], int]", self._ssl.read)
        at, size = 0, len(room)
        if self._wrong is None:
            try:
                while at < size and (came := read(size - at, room[at:])):
                    at += came
                if at < size:  # 0 bytes are the other side's goodbye
                    self._wrong = ssl.SSLZeroReturnError()
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                self._wrong = error
        if at or self._wrong is None:
            return at
        if isinstance(self._wrong, ssl.SSLZeroReturnError):
            raise TlsFailed(CLOSED, final=False)
        raise self._failed(self._wrong)

    def seal(self, data: bytes) -> bytes:
        """`data` as it travels."""
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._ssl.write(rest) :]
        except ssl.SSLError as error:
            raise self._failed(error) from None
        return self._out.read()

    def close(self) -> bytes:
        """The last bytes to send, so that the broker knows that nothing was cut off."""
        if self.secured:
            with contextlib.suppress(ssl.SSLError, ValueError):
                if (session := self._ssl.session) is not None:
                    self._tls.sessions[self._host] = session
            with contextlib.suppress(ssl.SSLError):
                self._ssl.unwrap()
        return self._out.read()

    def _shake(self) -> None:
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            return
        except (ssl.SSLError, ssl.CertificateError, ValueError) as error:
            raise self._failed(error) from None
        self.secured = True

    def _failed(self, error: Exception) -> TlsFailed:
        # Who refuses a client's certificate says so behind the handshake, in TLS 1.3.
        final = not self.secured or any(word in str(getattr(error, "reason", "")) for word in _REFUSALS)
        return TlsFailed(
            sentence(error, self._host, self._tls.trusts),
            final=final and not isinstance(error, ssl.SSLEOFError),
        )


def sentence(error: Exception, host: str, trusts: str | None = None) -> str:
    """What went wrong with TLS, and what helps. `trusts`: what was given to believe; None: the system's."""
    if isinstance(error, ssl.SSLCertVerificationError):
        code = error.verify_code
        if code == _EXPIRED:
            return (
                f"the certificate of {host} has expired: renew it on the broker (or set this machine's clock)"
            )
        if code == _NOT_YET:
            return f"the certificate of {host} does not hold yet: is this machine's clock right?"
        if code in _ANOTHER_NAME:
            return (
                f"the certificate is not for the host name {host}: connect by a name that is in it, or set "
                "ssl_check_hostname=False if you know why"
            )
        if code in _UNKNOWN and trusts is not None:
            return (
                f"{trusts} does not vouch for the certificate of {host} ({error.verify_message}): the "
                "certificate of the authority that signed it is not in there"
            )
        if code in _UNKNOWN:
            return (
                f"nobody known vouches for the certificate of {host} ({error.verify_message}): set "
                "ssl_cafile to the certificate of the authority that signed it"
            )
        return f"the certificate of {host} is refused: {error.verify_message}"
    reason = (getattr(error, "reason", None) or "").upper()
    if reason in _NO_TLS:
        return (
            "the answer is no TLS: this port is for clients without it (security_protocol PLAINTEXT or "
            "SASL_PLAINTEXT), or another program's"
        )
    if "CERTIFICATE_REQUIRED" in reason or "BAD_CERTIFICATE" in reason or "HANDSHAKE_FAILURE" in reason:
        return (
            f"the broker refuses the handshake ({_words(reason)}): it may ask for a client certificate; set "
            "ssl_certfile and ssl_keyfile"
        )
    if "ALERT_CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        return (
            f"the broker refuses this client's certificate ({_words(reason)}): ssl_certfile must be signed "
            "by an authority that the broker trusts, and not have expired"
        )
    if "PROTOCOL_VERSION" in reason or "UNSUPPORTED_PROTOCOL" in reason:
        words = _words(reason)
        return f"the broker and this client have no TLS version in common ({words}); see ssl_min_version"
    if isinstance(error, ssl.SSLEOFError):
        return "the broker broke the TLS connection off"
    return f"the TLS connection failed ({_words(reason) or type(error).__name__})"


def _words(reason: str) -> str:
    return re.sub(r"^(SSLV3|TLSV1|TLSV13)_ALERT_", "alert ", reason).replace("_", " ").lower()


# ---- contexts


def is_pem(given: str) -> bool:
    """Is it PEM text, and not the path of a file?"""
    return _PEM in given


def context(
    *,
    cafile: str | None = None,
    certfile: str | None = None,
    keyfile: str | None = None,
    password: str | None = None,
    check_hostname: bool = True,
    min_version: str = "TLSv1.2",
) -> ssl.SSLContext:
    """A client's context from files or PEM texts. Raises ConfigError for what can't be read."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = _VERSIONS[min_version]
    made.check_hostname = check_hostname
    if cafile is None:
        made.load_default_certs()
    else:
        trust(made, "ssl_cafile", cafile)
    if certfile is not None:
        identify(made, "ssl_certfile", certfile, keyfile, password)
    return made


def trust(made: ssl.SSLContext, option: str, cafile: str) -> None:
    """Lets a context believe the authorities in a file or text."""
    if os.path.isdir(cafile) and not any(map(_HASHED.fullmatch, os.listdir(cafile))):
        allowed = "a file of PEM certificates, or their text; in this folder OpenSSL finds none"
        raise ConfigError(option, cafile, f"{allowed} (`openssl rehash` would name them)")
    try:
        if is_pem(cafile):
            # Bundles have the names of authorities in comments, which `ssl` wants to be ASCII in a text.
            made.load_verify_locations(cadata=cafile.encode("ascii", "replace").decode())
        elif os.path.isdir(cafile):
            made.load_verify_locations(capath=cafile)
        else:
            made.load_verify_locations(cafile=cafile)
    except (OSError, ssl.SSLError, ValueError) as error:
        what = "PEM text" if is_pem(cafile) else cafile
        raise ConfigError(
            option, what, f"a file of PEM certificates, or their text{_why(error, cafile)}"
        ) from None


def identify(
    made: ssl.SSLContext, option: str, certfile: str, keyfile: str | None, password: str | None
) -> None:
    """Gives a context its own certificate and key."""
    shown = "PEM text" if is_pem(certfile) else certfile
    with contextlib.ExitStack() as stack:
        secret = password
        if certfile.lower().endswith((".p12", ".pfx")) or is_pkcs12(certfile):
            text, secret = _pkcs12(option, certfile, password), None
            cert, key = stack.enter_context(_as_file(text)), None
        else:
            cert = stack.enter_context(_as_file(certfile))
            key = None if keyfile is None else stack.enter_context(_as_file(keyfile))
        try:
            # A password that is a function: else OpenSSL asks at the terminal where none is given.
            made.load_cert_chain(cert, key, password=lambda: secret or "")
        except ssl.SSLError as error:
            reason = (error.reason or "").upper()
            if "KEY_VALUES_MISMATCH" in reason:
                raise ConfigError(
                    option, shown, "the key in ssl_keyfile belongs to another certificate"
                ) from None
            if "ENCRYPTED" in _content(key or cert):
                allowed = "the key can't be decrypted: ssl_password must be its password"
                raise ConfigError(option, shown, allowed) from None
            allowed = "a PEM certificate, with its key in the same file or in ssl_keyfile"
            raise ConfigError(option, shown, f"{allowed}{_why(error, certfile)}") from None
        except (OSError, ValueError) as error:
            allowed = f"files of a PEM certificate and its key, or their text{_why(error, certfile)}"
            raise ConfigError(option, shown, allowed) from None


def _why(error: Exception, given: str) -> str:
    """The reason in brackets, and what stands behind the commonest mistake."""
    if given.lower().endswith((".jks", ".keystore", ".truststore")) or _is_jks(given):
        return (
            "; a Java keystore is none: export with `keytool -exportcert -rfc` (authorities), or convert by "
            "`keytool -importkeystore -deststoretype PKCS12` (certificates with their keys)"
        )
    words = getattr(error, "strerror", None) or getattr(error, "reason", None) or type(error).__name__
    return f" ({str(words).replace('_', ' ').lower()})"


def _content(path: str) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text(errors="replace")
    return ""


def _is_jks(given: str) -> bool:
    return _begins(given, b"\xfe\xed\xfe\xed")


def is_pkcs12(given: str) -> bool:
    """Is it a store as keytool makes it since Java 9, whatever its name says? DER begins so, in version 3."""
    return _begins(given, b"\x30", b"\x02\x01\x03")


def _begins(given: str, first: bytes, within: bytes = b"") -> bool:
    if is_pem(given):
        return False
    with contextlib.suppress(OSError, ValueError), open(given, "rb") as file:
        head = file.read(16)
        return head.startswith(first) and within in head
    return False


@contextlib.contextmanager
def _as_file(given: str) -> Generator[str]:
    """PEM text as a file, for the moment that `ssl` needs to read it: only this user may."""
    if not is_pem(given):
        yield given
        return
    handle, name = tempfile.mkstemp(prefix="kproto-", suffix=".pem")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(given)
        yield name
    finally:
        os.unlink(name)


def _pkcs12(option: str, path: str, password: str | None) -> str:
    """A PKCS12 file's key and certificates, as PEM text."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise MissingExtra("a PKCS12 file", "cryptography", "security") from None
    try:
        data = Path(path).read_bytes()
        found: Any = pkcs12.load_key_and_certificates(data, None if password is None else password.encode())
    except OSError as error:
        raise ConfigError(option, path, f"a PKCS12 file{_why(error, path)}") from None
    except ValueError:
        raise ConfigError(option, path, "a PKCS12 file, and ssl_password its password") from None
    key, certificate, others = found
    if key is None or certificate is None:
        raise ConfigError(option, path, "a PKCS12 file with a certificate and its key")
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return b"".join([private, *(one.public_bytes(pem) for one in (certificate, *others))]).decode()
