"""Java's client.properties as options."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.security.properties import client_properties, from_java, read_jaas, read_properties
from kproto.errors import ConfigError

trustme = pytest.importorskip("trustme")
SCRAM = (
    'org.apache.kafka.common.security.scram.ScramLoginModule required username="al\\"ice" password="s=3;,";'
)


def test_a_file_as_it_is_at_work(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# ours\nsecurity.protocol=SASL_SSL\nsasl.mechanism : SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        '   username="alice" password="secret";\n'
        "ssl.truststore.type=PEM\nssl.truststore.location=/etc/ca.pem\ngroup.id=g\nacks all\n"
    )
    assert client_properties(file) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "alice",
        "sasl_password": "secret",
        "ssl_cafile": "/etc/ca.pem",
    }


def test_a_jaas_line_is_read_as_java_reads_it() -> None:
    module, options = read_jaas(SCRAM)
    assert module.endswith("ScramLoginModule")
    assert options == {"username": 'al"ice', "password": "s=3;,"}


def test_a_function_that_gives_tokens_is_named() -> None:
    java = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauth.token.provider": "a.b:c",
    }
    assert from_java(java)["sasl_oauth_token_provider"] == "a.b:c"


def test_an_empty_algorithm_switches_the_check_of_names_off() -> None:
    java = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
    assert from_java(java)["ssl_check_hostname"] is False


def test_certificates_may_stand_in_the_file_itself() -> None:
    java = {
        "security.protocol": "SSL",
        "ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----",
        "ssl.keystore.certificate.chain": "-----BEGIN CERTIFICATE-----",
        "ssl.keystore.key": "-----BEGIN PRIVATE KEY-----",
        "ssl.key.password": "p",
    }
    assert from_java(java) == {
        "security_protocol": "SSL",
        "ssl_cafile": "-----BEGIN CERTIFICATE-----",
        "ssl_certfile": "-----BEGIN CERTIFICATE-----",
        "ssl_keyfile": "-----BEGIN PRIVATE KEY-----",
        "ssl_password": "p",
    }


def test_a_store_is_what_its_content_says_where_java_reads_both(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
    from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
    from cryptography.x509 import load_pem_x509_certificate

    text = trustme.CA().cert_pem.bytes()
    authority, how = load_pem_x509_certificate(text), BestAvailableEncryption(b"s")
    store = serialize_key_and_certificates(b"ca", None, None, [authority], how)
    (tmp_path / "trust.jks").write_bytes(store)
    java = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(tmp_path / "trust.jks"),
        "ssl.truststore.password": "s",
    }
    assert from_java(java)["ssl_cafile"] == text.decode()
    (tmp_path / "trust.jks").write_bytes(b"\xfe\xed\xfe\xed" + store)
    with pytest.raises(ConfigError, match="keytool -importkeystore"):
        from_java(java)


@pytest.mark.parametrize(
    ("java", "words"),
    [
        ({"ssl.truststore.location": "a.jks", "security.protocol": "SSL"}, "keytool"),
        ({"sasl.jaas.config": "nonsense sasl-secret"}, "required"),
        ({"sasl.jaas.config": 'x.Krb5LoginModule required password="sasl-secret";'}, "ScramLoginModule"),
        ({"sasl.jaas.config": 'x.PlainLoginModule required password="sasl-secret";'}, "username"),
        ({"sasl.jaas.config": SCRAM, "sasl.mechanism": "PLAIN"}, "PLAIN"),
        ({"ssl.cipher.suites": "TLS_AES"}, "ssl_context"),
        ({"sasl.unheard.password": "sasl-secret"}, "nothing like it"),
    ],
)
def test_what_can_not_be_honoured_is_refused_without_a_secret(java: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        from_java(java)
    assert "sasl-secret" not in str(caught.value)


WORDS = st.text(st.characters(exclude_categories=["Cs"], min_codepoint=33, max_codepoint=0x2FFF), min_size=1)


def _escaped(text: str) -> str:
    return "".join(f"\\u{ord(letter):04x}" for letter in text)


@given(st.dictionaries(WORDS, WORDS))
def test_properties_come_back_as_they_were_written(known: dict[str, str]) -> None:
    text = "\n".join(f"{_escaped(name)} = {_escaped(value)}" for name, value in known.items())
    assert read_properties(text) == known


@given(st.text())
def test_any_text_is_properties(text: str) -> None:
    assert all(isinstance(value, str) for value in read_properties(text).values())
