"""`kproto broker --tls-self-signed` prints client settings for its most secure listener."""

from __future__ import annotations

import pytest

from kproto.cli.client_snippets import connection_snippets
from kproto.testing.certificates import Certificates

CERTIFICATES = Certificates(*(f"/certs/{name}.pem" for name in ("ca", "server", "client", "x", "y", "z")))
ADDRESSES = {"PLAINTEXT": "h:1", "SSL": "h:2", "SASL_SSL": "h:3"}


def snippets(*protocols: str, auth: str = "none", users: dict[str, str] | None = None) -> list[str]:
    addresses = {protocol: ADDRESSES[protocol] for protocol in protocols}
    return connection_snippets(addresses, CERTIFICATES, users or {}, auth).splitlines()


def test_the_most_secure_listener_and_the_first_user_are_used() -> None:
    lines = snippets("PLAINTEXT", "SSL", "SASL_SSL", users={"alice": "s3cr3t", "bob": "x"})
    assert lines[0].startswith("certificates are in /certs: ca.pem, and client.pem")
    assert lines[1] == (
        '  kproto      Consumer("h:3", security_protocol="SASL_SSL", ssl_cafile="/certs/ca.pem", '
        'sasl_mechanism="SCRAM-SHA-512", sasl_username="alice", sasl_password="...")'
    )
    assert not any("s3cr3t" in line or "bob" in line or "client.pem" in line for line in lines[1:])
    assert [line[2:14].strip() for line in lines[1:]] == [
        "kproto",
        *["Java", "", "", "", ""],
        *["librdkafka", "", "", "", ""],
        *["Go", "", ""],
        "franz-go",
        "sarama",
    ]
    text = "\n".join(lines)
    assert "security.protocol=SASL_SSL" in text
    assert 'ScramLoginModule required username="alice" password="...";' in text
    assert "sasl.username=alice" in text
    assert 'kgo.SeedBrokers("h:3")' in text
    assert 'scram.Auth{User: "alice", Pass: "..."}' in text
    assert 'c.Net.SASL.User, c.Net.SASL.Password = true, "alice", "..."' in text


def test_without_sasl_no_client_logs_in() -> None:
    lines = snippets("PLAINTEXT", "SSL", users={"alice": "s3cr3t"})
    assert lines[1].endswith('Consumer("h:2", security_protocol="SSL", ssl_cafile="/certs/ca.pem")')
    text = "\n".join(lines)
    assert "alice" not in text
    assert "sasl" not in text.lower()
    assert "security.protocol=SSL" in text
    assert "SASL" not in text


def test_without_a_user_the_settings_have_a_placeholder() -> None:
    assert 'sasl_username="NAME"' in snippets("SASL_SSL")[1]


@pytest.mark.parametrize("auth", ["requested", "required"])
def test_clients_show_a_certificate_if_the_broker_asks_for_one(auth: str) -> None:
    text = "\n".join(snippets("SSL", auth=auth)[1:])
    assert 'ssl_certfile="/certs/client.pem"' in text
    assert "ssl.keystore.type=PEM" in text
    assert "ssl.keystore.location=/certs/client.pem" in text
    assert "ssl.certificate.location=/certs/client.pem" in text
    assert "ssl.key.location=/certs/client.pem" in text
    assert 'tls.LoadX509KeyPair("/certs/client.pem", "/certs/client.pem")' in text
    assert "trust.Certificates = []tls.Certificate{own}" in text
