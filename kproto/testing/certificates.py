"""Certificates for a test or a trial: an authority that nobody else knows, a server's and a client's.

    made = certificates(folder)                      # files of PEM: made.ca, made.server, made.client
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
from typing import Any

from ..broker.security.tls import server_context
from ..errors import ConfigError, MissingExtra
from ..validation import checked

HOSTS = ("localhost", "127.0.0.1", "::1")
CLIENT_AUTH = ("none", "requested", "required")


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files, each PEM; all but `ca` have their key in front. `expired` and `elsewhere` are a server's, too,
    but of the past and of another host; `stranger` is a client's from another authority."""

    ca: str
    server: str
    client: str
    stranger: str
    expired: str
    elsewhere: str

    def context(self, client_auth: str = "none", server: str | None = None) -> ssl.SSLContext:
        """What a broker speaks. `client_auth`: none, requested or required, as Kafka's ssl.client.auth;
        `server`: another certificate. Raises ConfigError."""
        if client_auth not in CLIENT_AUTH:
            raise ConfigError("client_auth", client_auth, f"allowed: {', '.join(CLIENT_AUTH)}")
        try:
            return server_context(server or self.server, client_auth, self.ca)
        except (OSError, TypeError) as error:
            raise ConfigError("server", server, f"a file of PEM, with its key ({error})") from None


@checked
def certificates(folder: Path, hosts: Sequence[str] = HOSTS, *, expired: bool = False) -> Certificates:
    """Makes them, and writes them into `folder`, which only this user should be able to read.

    `hosts` are the names in the server's certificate; with `expired` it has run out. Raises MissingExtra.
    """
    try:
        trustme: Any = import_module("trustme")
        form: Any = import_module("cryptography.hazmat.primitives.serialization")
    except ImportError:
        raise MissingExtra("certificates for tests", "trustme", "testing") from None
    past = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    ended = {"not_before": past, "not_after": past.replace(year=2021)}
    ca, other = trustme.CA(), trustme.CA()
    ca.cert_pem.write_to_path(str(folder / "ca.pem"))
    for authority, name, names, dates in (
        (ca, "server", hosts, ended if expired else {}),
        (ca, "client", ("client@example.com",), {}),
        (other, "stranger", ("stranger@example.com",), {}),
        (ca, "expired", hosts, ended),
        (ca, "elsewhere", ("elsewhere.example.com",), {}),
    ):
        made = authority.issue_cert(*names, common_name=name, **dates)
        key = form.load_pem_private_key(made.private_key_pem.bytes(), None)
        # Java reads keys in PKCS8 only.
        text = key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
        path = folder / f"{name}.pem"
        path.touch(mode=0o600)
        path.write_bytes(text + b"".join(pem.bytes() for pem in made.cert_chain_pems))
    return Certificates(**{field.name: str(folder / f"{field.name}.pem") for field in fields(Certificates)})
