"""Creates certificates that trustme cannot make: expired, for another key usage, or without intermediates."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass, field
from typing import Any

import pytest

pytest.importorskip("cryptography")

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as form
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HOST = "kafka.example.com"
FOR_SERVERS, FOR_CLIENTS = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
KEYS = {
    "ECDSA": lambda: ec.generate_private_key(ec.SECP256R1()),
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
    "RSA": lambda: rsa.generate_private_key(65537, 2048),
}


@dataclass(frozen=True)
class Named:
    """A certificate with its private key. `sent` contains the intermediate certificates that are sent with
    it.
    """

    name: str
    key: Any = field(repr=False)
    certificate: x509.Certificate
    sent: str = ""

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(form.Encoding.PEM).decode()

    def secret(self, password: str = "", how: form.PrivateFormat = form.PrivateFormat.PKCS8) -> str:
        """Return the private key as PEM text."""
        encryption = form.BestAvailableEncryption(password.encode()) if password else form.NoEncryption()
        text: bytes = self.key.private_bytes(form.Encoding.PEM, how, encryption)
        return text.decode()

    @property
    def own(self) -> str:
        """Return the key and the certificates that a broker or a client presents, as PEM text."""
        return self.secret() + self.pem + self.sent


def named(
    name: str,
    by: Named | None = None,
    hosts: tuple[str, ...] = (HOST,),
    *,
    days: tuple[int, int] = (-1, 30),
    use: x509.ObjectIdentifier | None = None,
    kind: str = "ECDSA",
    authority: bool = False,
    sends: bool = True,
) -> Named:
    """Return a certificate that is valid from `days[0]` to `days[1]`, both in days from today.

    The certificate is signed with the key of `by`. If `by` is None, it is self-signed.
    """
    key = KEYS[kind]()
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    today = datetime.datetime.now(datetime.UTC)
    begin, end = (today + datetime.timedelta(days=day) for day in days)
    builder = x509.CertificateBuilder(
        issuer_name=by.certificate.subject if by else subject,
        subject_name=subject,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=begin,
        not_valid_after=end,
    ).add_extension(x509.BasicConstraints(authority, None), critical=True)
    names = [] if authority else [_alternative(host) for host in hosts]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if use is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage([use]), critical=False)
    signer = by.key if by else key
    signed = builder.sign(signer, None if isinstance(signer, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    between = by is not None and by.certificate.issuer != by.certificate.subject and sends
    return Named(name, key, signed, by.pem if by is not None and between else "")


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
