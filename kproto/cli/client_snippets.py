"""Client settings in several languages, for a broker with generated certificates.

In the printed settings, passwords are replaced by `...`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..testing.certificates import Certificates

_LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def connection_snippets(
    addresses: Mapping[str, str], certificates: Certificates, users: Mapping[str, str], auth: str
) -> str:
    """Return client settings to copy, for the most secure listener and the first user.

    `auth` is the value of ssl.client.auth.
    """
    protocol = "SASL_SSL" if "SASL_SSL" in addresses else "SSL"
    address, user = addresses[protocol], next(iter(users), "NAME")
    uses_sasl, with_client_certificate = protocol == "SASL_SSL", auth != "none"
    snippets = {
        "kproto": [_kproto_call(address, protocol, certificates, user, uses_sasl, with_client_certificate)],
        "Java": _java_properties(protocol, certificates, user, uses_sasl, with_client_certificate),
        "librdkafka": _librdkafka_properties(
            protocol, certificates, user, uses_sasl, with_client_certificate
        ),
        "Go": _go_tls_lines(certificates, with_client_certificate),
        "  franz-go": [_franz_go_line(address, user, uses_sasl)],
        "  sarama": [_sarama_line(user, uses_sasl)],
    }
    output = [
        f"certificates are in {Path(certificates.ca).parent}: ca.pem, and client.pem for clients that need "
        "a certificate"
    ]
    for client_name, snippet in snippets.items():
        # Only the first line of a snippet has the name of the client.
        output += [
            f"  {label:<11} {line}"
            for label, line in zip([client_name, *[""] * len(snippet)], snippet, strict=False)
        ]
    return "\n".join(output)


def _kproto_call(
    address: str,
    protocol: str,
    certificates: Certificates,
    user: str,
    uses_sasl: bool,
    with_client_certificate: bool,
) -> str:
    arguments = [f'"{address}"', f'security_protocol="{protocol}"', f'ssl_cafile="{certificates.ca}"']
    if with_client_certificate:
        arguments += [f'ssl_certfile="{certificates.client}"']
    if uses_sasl:
        arguments += ['sasl_mechanism="SCRAM-SHA-512"', f'sasl_username="{user}"', 'sasl_password="..."']
    return f"Consumer({', '.join(arguments)})"


def _java_properties(
    protocol: str, certificates: Certificates, user: str, uses_sasl: bool, with_client_certificate: bool
) -> list[str]:
    properties = [
        f"security.protocol={protocol}",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={certificates.ca}",
    ]
    if with_client_certificate:
        properties += ["ssl.keystore.type=PEM", f"ssl.keystore.location={certificates.client}"]
    if uses_sasl:
        login = f'{_LOGIN_MODULE} required username="{user}" password="...";'
        properties += ["sasl.mechanism=SCRAM-SHA-512", f"sasl.jaas.config={login}"]
    return properties


def _librdkafka_properties(
    protocol: str, certificates: Certificates, user: str, uses_sasl: bool, with_client_certificate: bool
) -> list[str]:
    properties = [f"security.protocol={protocol}", f"ssl.ca.location={certificates.ca}"]
    if with_client_certificate:
        properties += [
            f"ssl.certificate.location={certificates.client}",
            f"ssl.key.location={certificates.client}",
        ]
    if uses_sasl:
        properties += ["sasl.mechanism=SCRAM-SHA-512", f"sasl.username={user}", "sasl.password=..."]
    return properties


def _go_tls_lines(certificates: Certificates, with_client_certificate: bool) -> list[str]:
    """Return Go code that defines `trust`, the TLS configuration for franz-go and sarama."""
    lines = [
        f'pem, _ := os.ReadFile("{certificates.ca}")',
        "pool := x509.NewCertPool(); pool.AppendCertsFromPEM(pem)",
        "trust := &tls.Config{RootCAs: pool}",
    ]
    if with_client_certificate:
        lines += [
            f'own, _ := tls.LoadX509KeyPair("{certificates.client}", "{certificates.client}")',
            "trust.Certificates = []tls.Certificate{own}",
        ]
    return lines


def _franz_go_line(address: str, user: str, uses_sasl: bool) -> str:
    login = f', kgo.SASL(scram.Auth{{User: "{user}", Pass: "..."}}.AsSha512Mechanism())' if uses_sasl else ""
    return f'kgo.NewClient(kgo.SeedBrokers("{address}"), kgo.DialTLSConfig(trust){login})'


def _sarama_line(user: str, uses_sasl: bool) -> str:
    # The settings for sarama use PLAIN, because its SCRAM support needs extra code.
    login = (
        f'; c.Net.SASL.Enable, c.Net.SASL.User, c.Net.SASL.Password = true, "{user}", "..."'
        if uses_sasl
        else ""
    )
    return f"c := sarama.NewConfig(); c.Net.TLS.Enable, c.Net.TLS.Config = true, trust{login}"
