"""Create the certificates of a private authority, a server and a client for tests.

    made = certificates(folder)                      # PEM files: made.ca, made.server, made.client
    with running(listen=["SSL://127.0.0.1:0"], tls=made.context()) as server:
        Consumer(server.bootstrap, security_protocol="SSL", ssl_cafile=made.ca)

Needs the library trustme, which comes with the extra `testing`.
"""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ..broker.security.tls import server_context
from ..errors import ConfigError, MissingExtra
from ..validation import TEXTS, Rule, checked

HOSTS = ("localhost", "127.0.0.1", "::1")
CLIENT_AUTH = ("none", "requested", "required")


def _is_path(value: Any) -> bool:
    return isinstance(value, Path)


# Rules of arguments.
_PATH: Final = Rule(_is_path, "a pathlib.Path")


@dataclass(frozen=True, slots=True)
class Certificates:
    """The paths of PEM files with certificates.

    Each file except `ca` begins with the certificate's private key.

    `expired` is an expired certificate for the server. `elsewhere` is a server certificate for another host.
    `stranger` is a client certificate that another authority has signed.
    """

    ca: str
    server: str
    client: str
    stranger: str
    expired: str
    elsewhere: str

    def context(self, client_auth: str = "none", server: str | None = None) -> ssl.SSLContext:
        """Return the TLS context of a broker.

        `client_auth` is "none", "requested" or "required", as in Kafka's ssl.client.auth. `server` is the
        path of the server certificate to use instead of the default one.

        Raises ConfigError if `client_auth` has any other value, or if `server` is not a PEM file with a
        certificate and its key.
        """
        if client_auth not in CLIENT_AUTH:
            raise ConfigError("client_auth", client_auth, f"allowed: {', '.join(CLIENT_AUTH)}")
        try:
            return server_context(server or self.server, client_auth, self.ca)
        except (OSError, TypeError) as error:
            raise ConfigError(
                "server", server, f"a PEM file with a certificate and its key ({error})"
            ) from None


@checked(folder=_PATH, hosts=TEXTS)
def certificates(folder: Path, hosts: Sequence[str] = HOSTS, *, expired: bool = False) -> Certificates:
    """Create certificates and private keys in `folder`, to which only the current user should have access.

    `hosts` are the names in the server's certificate. With `expired`, this certificate has expired.

    Raises MissingExtra if trustme is not installed.
    """
    try:
        trustme: Any = import_module("trustme")
        serialization: Any = import_module("cryptography.hazmat.primitives.serialization")
    except ImportError:
        raise MissingExtra("certificates for tests", "trustme", "testing") from None
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    expired_dates = {"not_before": past, "not_after": past.replace(year=2021)}
    ca, other_ca = trustme.CA(), trustme.CA()
    ca.cert_pem.write_to_path(str(folder / "ca.pem"))
    for authority, name, names, dates in (
        (ca, "server", hosts, expired_dates if expired else {}),
        (ca, "client", ("client@example.com",), {}),
        (other_ca, "stranger", ("stranger@example.com",), {}),
        (ca, "expired", hosts, expired_dates),
        (ca, "elsewhere", ("elsewhere.example.com",), {}),
    ):
        issued = authority.issue_cert(*names, common_name=name, **dates)
        key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
        # Java reads private keys only in PKCS8.
        pem_key = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = folder / f"{name}.pem"
        path.touch(mode=0o600)
        path.write_bytes(pem_key + b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    return Certificates(**{field.name: str(folder / f"{field.name}.pem") for field in fields(Certificates)})
