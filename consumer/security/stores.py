"""Loads trusted authorities and the client's own certificate into an SSLContext.

The sources are PEM files, PEM text or PKCS12 files.

Rules:

* PEM is read as Java's clients read it. Text around the blocks, a byte order mark, UTF-16, indentation, and
  LF, CR LF or CR as line ends are accepted. Spaces may replace line ends, as in a properties file.

* Every fault raises ConfigError, for example a block without an end, a file without blocks, or another
  format. The error contains the option, the fault, and a remedy.

* Keys are not written to disk if the system supports files in memory (Linux).
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kproto.errors import ConfigError, MissingExtra

_PEM: Final = "-----BEGIN "
# The file names that OpenSSL reads in a folder of certificate authorities.
_HASHED_FILE_NAME: Final = re.compile(r"[0-9a-f]{8}\.\d+")
_CERTIFICATE, _KEY = r"(?:X509 |TRUSTED )?CERTIFICATE", r"(?:[A-Z0-9]+ )*PRIVATE KEY"
_BEGIN: Final = re.compile(rf"-----BEGIN (?:{_CERTIFICATE}|{_KEY})-----")
_BLOCK: Final = re.compile(
    rf"-----BEGIN (?P<label>{_CERTIFICATE}|{_KEY})-----\s*"
    r"(?P<headers>(?:[ \t]*[A-Za-z][A-Za-z -]*:[^\r\n]*[\r\n]+)*)"
    r"(?P<body>[A-Za-z0-9+/=\s]*)"
    r"-----END (?P=label)-----"
)
# Byte order mark -> the codec that removes the mark.
_BYTE_ORDER_MARKS: Final = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}
_JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_JKS_EXTENSIONS: Final = (".jks", ".keystore", ".truststore")
_KEYTOOL_HINT: Final = (
    "a Java keystore is not PEM: export with `keytool -exportcert -rfc` (authorities), or convert with "
    "`keytool -importkeystore -deststoretype PKCS12` (certificates with their keys)"
)
_AUTHORITIES_ALLOWED: Final = "a file of PEM certificates, or their text"
_CERTIFICATE_ALLOWED: Final = "a PEM certificate, with its key in the same file or in ssl_keyfile"


def is_pem(value: str) -> bool:
    """Return whether the value of an option is PEM text, and not the path of a file."""
    return _PEM in value


def is_pkcs12(path: str) -> bool:
    """Return whether a file's content is a PKCS12 store, which keytool creates by default since Java 9."""
    with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
        return _is_pkcs12_data(file.read(16))
    return False


def trust(context: ssl.SSLContext, option: str, cafile: str) -> None:
    """Trust the certificates in a file, PEM text or folder, even if they are not self-signed."""
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not is_pem(cafile) and os.path.isdir(cafile):
        if not any(map(_HASHED_FILE_NAME.fullmatch, os.listdir(cafile))):
            allowed = (
                f"{_AUTHORITIES_ALLOWED}; in this folder OpenSSL finds none (`openssl rehash` renames them)"
            )
            raise ConfigError(option, cafile, allowed)
        context.load_verify_locations(capath=cafile)
        return
    blocks = _read_blocks(option, cafile, _AUTHORITIES_ALLOWED)
    if not blocks.certificates:
        raise _store_error(option, cafile, _AUTHORITIES_ALLOWED, "it has a key, but no certificate")
    with _temporary_file("\n".join(blocks.certificates)) as path:
        try:
            context.load_verify_locations(path)
        except (OSError, ValueError) as error:
            raise _store_error(option, cafile, _AUTHORITIES_ALLOWED, _error_text(error)) from None


def identify(
    context: ssl.SSLContext, option: str, certfile: str, keyfile: str | None, password: str | None
) -> None:
    """Load the client's own certificate and its key."""
    if not is_pem(certfile) and (certfile.lower().endswith((".p12", ".pfx")) or is_pkcs12(certfile)):
        if keyfile is not None:
            raise ConfigError(
                "ssl_keyfile",
                _describe_value(keyfile),
                "it cannot be combined with a PKCS12 file, because that file already contains the "
                "private key",
            )
        certificate_blocks = key_blocks = _parse_blocks(_read_pkcs12(option, certfile, password))
        password = None  # The text from `_read_pkcs12` is not encrypted.
    else:
        certificate_blocks, key_blocks = _read_certificate_and_key(option, certfile, keyfile)
    if not key_blocks.keys:
        if keyfile is not None:
            raise _store_error("ssl_keyfile", keyfile, "a PEM key", "it has a certificate, but no key")
        raise _store_error(option, certfile, _CERTIFICATE_ALLOWED, "it has no key")
    with _temporary_file("\n".join((key_blocks.keys[0], *certificate_blocks.certificates))) as path:
        try:
            # The password is passed as a function. Without a function, OpenSSL would ask for a missing
            # password at the terminal.
            context.load_cert_chain(path, password=lambda: password or "")
        except ssl.SSLError as error:
            reason = (error.reason or "").upper()
            if "MISMATCH" in reason or "NO_CERTIFICATE_ASSIGNED" in reason:
                allowed = "the key belongs to another certificate; this client's own one must be the first"
                raise ConfigError(option, _describe_value(certfile), allowed) from None
            if "ENCRYPTED" in key_blocks.keys[0]:
                allowed = "the key can't be decrypted: ssl_password must be its password"
                key_option, key_value = (option, certfile) if keyfile is None else ("ssl_keyfile", keyfile)
                raise ConfigError(key_option, _describe_value(key_value), allowed) from None
            raise _store_error(option, certfile, _CERTIFICATE_ALLOWED, _error_text(error)) from None
        except (OSError, ValueError) as error:
            raise _store_error(option, certfile, _CERTIFICATE_ALLOWED, _error_text(error)) from None


def _read_certificate_and_key(option: str, certfile: str, keyfile: str | None) -> tuple[_Blocks, _Blocks]:
    """Return the PEM blocks of `certfile`, and the PEM blocks that must contain the key.

    The key must be in `keyfile` or, if `keyfile` is None, in `certfile`. Raise ConfigError if `certfile`
    contains no certificate. The caller checks that a key exists.
    """
    certificate_blocks = key_blocks = _read_blocks(option, certfile, _CERTIFICATE_ALLOWED)
    if keyfile is not None:
        key_blocks = _read_blocks("ssl_keyfile", keyfile, "a PEM key, a file or its text")
        # `_read_blocks` has found a key or a certificate in each of the two sources. So if `certfile` has no
        # certificate, it has a key; and if `keyfile` has no key, it has a certificate.
        are_swapped = not certificate_blocks.certificates and not key_blocks.keys
        if are_swapped:
            raise ConfigError(
                option,
                _describe_value(certfile),
                f"{_CERTIFICATE_ALLOWED}: this is the key, and ssl_keyfile is the certificate",
            )
    if not certificate_blocks.certificates:
        raise _store_error(option, certfile, _CERTIFICATE_ALLOWED, "it has a key, but no certificate")
    return certificate_blocks, key_blocks


# ---- PEM


@dataclass(frozen=True, slots=True)
class _Blocks:
    """The certificates and keys of a PEM text, each as a block in the layout that OpenSSL reads."""

    certificates: tuple[str, ...]
    keys: tuple[str, ...]


def _read_blocks(option: str, value: str, allowed: str) -> _Blocks:
    """Return the blocks of a PEM file or of PEM text. Raise ConfigError if there are none."""
    if is_pem(value):
        text = value
    else:
        try:
            data = Path(value).read_bytes()
        except (OSError, ValueError) as error:
            if value.lower().endswith(_JKS_EXTENSIONS):
                raise ConfigError(option, value, f"{allowed}; {_KEYTOOL_HINT}") from None
            raise _store_error(option, value, allowed, _error_text(error)) from None
        if why := _conversion_hint(data):
            raise ConfigError(option, value, f"{allowed}; {why}")
        codec = _BYTE_ORDER_MARKS.get(data[:2]) or _BYTE_ORDER_MARKS.get(data[:3], "utf-8")
        text = data.decode(codec, "replace")
    blocks = _parse_blocks(text)
    begin_count, block_count = len(_BEGIN.findall(text)), len(blocks.certificates) + len(blocks.keys)
    if "\\n" in text and not block_count:
        raise _store_error(
            option, value, allowed, "its lines end with the two characters \\n, which are not a line end"
        )
    if block_count < begin_count:
        raise _store_error(
            option, value, allowed, "a block that begins with -----BEGIN has no end, or is not base64"
        )
    if not block_count:
        why = "it has none" if text.strip() else "it is empty"
        raise _store_error(option, value, allowed, why)
    return blocks


def _parse_blocks(text: str) -> _Blocks:
    """Find the complete PEM blocks in a text. Only the block of an encrypted key keeps its header lines."""
    certificates: list[str] = []
    keys: list[str] = []
    for match in _BLOCK.finditer(text):
        label, body = match["label"], "".join(match["body"].split())
        headers = [line.strip() for line in match["headers"].splitlines() if line.strip()]
        if not any("ENCRYPTED" in line for line in headers):
            headers = []
        lines = [*headers, *([""] if headers else []), *_base64_lines(body)]
        block = "\n".join((f"-----BEGIN {label}-----", *lines, f"-----END {label}-----\n"))
        (keys if label.endswith("KEY") else certificates).append(block)
    return _Blocks(tuple(certificates), tuple(keys))


def _base64_lines(body: str) -> Iterator[str]:
    """Divide base64 text into lines of 64 characters, as OpenSSL requires."""
    return (body[at : at + 64] for at in range(0, len(body), 64))


def _conversion_hint(data: bytes) -> str | None:
    """Return the file's format, and a command that converts it to PEM; None for PEM or an unknown format."""
    if data.startswith(_JKS_MAGIC):
        return _KEYTOOL_HINT
    if _is_pkcs12_data(data[:16]):
        return "this is PKCS12: `openssl pkcs12 -in FILE -out FILE.pem -nodes` converts it to PEM"
    if data[:2] in (b"\x30\x81", b"\x30\x82") and _PEM.encode() not in data:
        return (
            "this is DER: `openssl x509 -inform der` (a key: `openssl pkey -inform der`) converts it to PEM"
        )
    return None


def _is_pkcs12_data(data: bytes) -> bool:
    """Return whether the data begins like a PKCS12 file: with a DER structure of version 3."""
    return data.startswith(b"\x30") and b"\x02\x01\x03" in data


@contextlib.contextmanager
def _temporary_file(text: str) -> Generator[str]:
    """Yield the path of a temporary file with this text; only this user may read the file.

    The file exists until the end of the block, in which `ssl` loads it.
    """
    handle, name = -1, ""
    with contextlib.suppress(OSError, AttributeError):
        handle = os.memfd_create("kproto")
        name = f"/proc/self/fd/{handle}"
    in_memory = os.path.exists(name)
    if not in_memory:
        if handle >= 0:
            os.close(handle)
        handle, name = tempfile.mkstemp(prefix="kproto-", suffix=".pem")
    try:
        with open(handle, "wb", buffering=0) as file:
            file.write(text.encode())
            yield name
    finally:
        if not in_memory:
            os.unlink(name)


# ---- PKCS12


def _read_pkcs12(option: str, path: str, password: str | None) -> str:
    """Read a PKCS12 file, and return its key and certificates as PEM text."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise MissingExtra("a PKCS12 file", "cryptography", "security") from None
    try:
        data = Path(path).read_bytes()
        bundle: Any = pkcs12.load_key_and_certificates(data, None if password is None else password.encode())
    except OSError as error:
        raise _store_error(option, path, "a PKCS12 file", _error_text(error)) from None
    except ValueError:
        raise ConfigError(option, path, "a PKCS12 file; ssl_password must be its password") from None
    key, certificate, chain = bundle
    if key is None or certificate is None:
        raise ConfigError(option, path, "a PKCS12 file with a certificate and its key")
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return b"".join([private, *(link.public_bytes(pem) for link in (certificate, *chain))]).decode()


# ---- errors


def _store_error(option: str, value: str, allowed: str, why: str) -> ConfigError:
    return ConfigError(option, _describe_value(value), f"{allowed} ({why})")


def _describe_value(value: str) -> str:
    return "PEM text" if is_pem(value) else value


def _error_text(error: Exception) -> str:
    words = getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
    return str(words).replace("_", " ").lower()
