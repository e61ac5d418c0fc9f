"""Java's client.properties are read as options of kproto."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.options import consumer_options, producer_options
from consumer.security.properties import client_properties, from_java, read_properties
from kproto.errors import ConfigError

trustme = pytest.importorskip("trustme")
SCRAM = (
    'org.apache.kafka.common.security.scram.ScramLoginModule required username="al\\"ice" password="s=3;,";'
)


def test_a_typical_file_is_read(tmp_path: Path) -> None:
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
        "group_id": "g",
    }


def test_each_kind_of_client_takes_its_own_options(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=a:1\nclient.id=jens\nrequest.timeout.ms=7000\nsecurity.protocol=PLAINTEXT\n"
        "group.id=g\nenable.auto.commit=false\nauto.offset.reset=earliest\nisolation.level=read_committed\n"
        "max.poll.records= 100 \ngroup.instance.id=\n"
        "partition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor,"
        "org.apache.kafka.clients.consumer.CooperativeStickyAssignor\ngroup.protocol=classic\n"
        "acks=all\ncompression.type=zstd\ncompression.zstd.level=5\nlinger.ms=20\nretries=3\n"
        "key.deserializer=a.B\nvalue.serializer=a.C\ntransactional.id=\n"
    )
    common = {"client_id": "jens", "request_timeout_ms": 7000, "security_protocol": "PLAINTEXT"}
    read = client_properties(file)
    assert read == {
        **common,
        "group_id": "g",
        "group_protocol": "classic",
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
        "max_poll_records": 100,
        "partition_assignment_strategy": ["range", "cooperative-sticky"],
    }
    assert not consumer_options(read).enable_auto_commit
    written = client_properties(file, "producer")
    assert written == {
        **common,
        "acks": "all",
        "compression_type": "zstd",
        "compression_level": 5,
        "linger_ms": 20,
    }
    assert producer_options(written).acks == -1
    assert client_properties(file, "admin") == {"security_protocol": "PLAINTEXT"}


def test_ignored_properties_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=a:1\nacks=all\nkey.deserializer=a.B\nschema.registry.url=http://a\n")
    with caplog.at_level("INFO", "kproto.consumer"):
        assert client_properties(file) == {}
    (ignored, unknown) = caplog.records
    assert (ignored.levelname, unknown.levelname) == ("INFO", "WARNING")
    assert ignored.getMessage().endswith(": bootstrap.servers (its first argument), acks, key.deserializer")
    assert unknown.getMessage() == f"{file}: ignored, as unknown: schema.registry.url"


@pytest.mark.parametrize(
    ("line", "client", "words"),
    [
        ("enable.auto.commit=no", "consumer", "enable.auto.commit='no' is not allowed; true or false"),
        ("max.poll.records=1_000", "consumer", "max.poll.records='1_000' is not allowed; a whole number"),
        ("group.protocol=consumer", "consumer", "group.protocol='consumer'"),
        ("auto.offset.rest=earliest", "consumer", "did you mean auto.offset.reset"),
        ("partition.assignment.strategy=a.Mine", "consumer", "clients.consumer.CooperativeStickyAssignor"),
        ("interceptor.classes=a.B", "consumer", "Java classes are not run"),
        ("partitioner.class=a.B", "producer", "use send"),
        ("retries=0", "producer", "delivery.timeout.ms"),
        ("config.providers=env", "consumer", r"config.providers='env' is not allowed; .* is not resolved"),
        ("config.providers=env", "admin", r"config.providers='env' is not allowed; .* is not resolved"),
        ("sasl.mechanisms=PLAIN", "admin", r"use sasl\.mechanism$"),
        ("ssl.ca.location=a.pem", "admin", r"use ssl\.cafile$"),
    ],
)
def test_properties_that_change_the_behaviour_are_rejected_by_the_name_in_the_file(
    tmp_path: Path, line: str, client: Any, words: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"security.protocol=SASL_SSL\n{line}\n")
    with pytest.raises(ConfigError, match=words) as caught:
        client_properties(file, client)
    assert caught.value.option == line.partition("=")[0]


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SSL\n", encoding="utf-8-sig")
    assert client_properties(file) == {"security_protocol": "SSL"}


@pytest.mark.parametrize(
    "properties",
    [
        'sasl.jaas.config=x.PlainLoginModule required password="sasl-secret";',
        "sasl.password: sasl-secret",
        {"sasl.password": "sasl-secret"},
    ],
)
def test_the_text_of_a_file_passed_as_its_path_is_not_shown(properties: Any) -> None:
    with pytest.raises(ConfigError, match="the path of a Java client") as caught:
        client_properties(properties)
    assert "sasl-secret" not in repr(caught.value)


def test_a_missing_file_is_reported_as_a_path(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file") as caught:
        client_properties(tmp_path / "nope")
    assert (caught.value.option, caught.value.value) == ("path", str(tmp_path / "nope"))


@pytest.mark.parametrize("store", ["ssl.truststore", "ssl.keystore"])
def test_a_missing_store_is_reported_by_its_property(store: str) -> None:
    with pytest.raises(ConfigError, match="this file does not exist") as caught:
        from_java({"security.protocol": "SSL", f"{store}.location": "missing.jks"})
    assert (caught.value.option, caught.value.value) == (f"{store}.location", "missing.jks")


def test_a_token_provider_is_named_by_module_and_function() -> None:
    java = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauth.token.provider": "a.b:c",
    }
    assert from_java(java)["sasl_oauth_token_provider"] == "a.b:c"


def test_an_empty_endpoint_identification_algorithm_disables_the_host_name_check() -> None:
    java = {"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": ""}
    assert from_java(java)["ssl_check_hostname"] is False


def test_certificates_may_be_in_the_file_itself() -> None:
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


def test_the_format_of_a_store_is_detected_from_its_content(tmp_path: Path) -> None:
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


def test_blanks_at_the_end_of_a_value_are_stripped_as_in_java() -> None:
    java = read_properties(
        "security.protocol=SASL_SSL \nsasl.mechanism=SCRAM-SHA-512\t\n"
        'sasl.jaas.config=ScramLoginModule required username="alice" password="sasl-secret "; \n'
        "ssl.truststore.location=ca.pem \nssl.truststore.type=PEM \n"
        "ssl.keystore.location=own.pem \nssl.key.password=key-secret \n"
        "ssl.endpoint.identification.algorithm=\\u0020\n"
    )
    assert from_java(java) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "alice",
        "sasl_password": "sasl-secret ",
        "ssl_cafile": "ca.pem",
        "ssl_certfile": "own.pem",
        "ssl_password": "key-secret",
        "ssl_check_hostname": False,
    }
    ours = {"security.protocol": "SASL_SSL", "sasl.password": "ends with one "}
    # Java has no property `sasl.password`, so the value is not trimmed, unlike values of Java's properties.
    assert from_java(ours)["sasl_password"] == "ends with one "


def test_an_empty_trust_store_is_reported_by_its_property(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
    from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

    key, how = generate_private_key(SECP256R1()), BestAvailableEncryption(b"s")
    store = tmp_path / "trust.p12"
    store.write_bytes(serialize_key_and_certificates(b"a key", key, None, None, how))
    java = {"security.protocol": "SSL", "ssl.truststore.location": str(store), "ssl.truststore.password": "s"}
    with pytest.raises(ConfigError, match="it has none") as caught:
        from_java(java)
    assert caught.value.option == "ssl.truststore.location"


@pytest.mark.parametrize(
    ("java", "words"),
    [
        ({"sasl.jaas.config": "nonsense sasl-secret"}, "required"),
        ({"sasl.jaas.config": 'x.LdapLoginModule required password="sasl-secret";'}, "ScramLoginModule"),
        ({"sasl.jaas.config": 'x.PlainLoginModule required password="sasl-secret";'}, "username"),
        ({"sasl.jaas.config": SCRAM, "sasl.mechanism": "PLAIN"}, "PLAIN"),
        ({"sasl.jaas.config": 'OAuthBearerLoginModule required ssl.truststore.type="PEM";'}, "ssl_context"),
        ({"ssl.enabled.protocols": "TLSv1,TLSv1.1"}, "TLSv1.2, TLSv1.3, or both"),
        ({"ssl.cipher.suites": "TLS_AES"}, "ssl_context"),
        ({"sasl.unheard.password": "sasl-secret"}, "has no such option"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "https://a"}, "brokers verify tokens"),
    ],
)
def test_unsupported_properties_are_rejected_without_showing_a_secret(
    java: dict[str, str], words: str
) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        from_java(java)
    assert "sasl-secret" not in str(caught.value)


WORDS = st.text(st.characters(exclude_categories=["Cs"], min_codepoint=33), min_size=1)


def _escaped(text: str) -> str:
    r"""Escape text as Java does: a character above \uffff becomes two surrogates."""
    halves = text.encode("utf-16-be")
    return "".join(f"\\u{halves[at : at + 2].hex()}" for at in range(0, len(halves), 2))


@given(st.dictionaries(WORDS, WORDS))
def test_written_properties_are_read_back(known: dict[str, str]) -> None:
    text = "\n".join(f"{_escaped(name)} = {_escaped(value)}" for name, value in known.items())
    assert read_properties(text) == known


@given(st.text())
def test_any_text_can_be_read_as_properties(text: str) -> None:
    assert all(isinstance(value, str) for value in read_properties(text).values())


@pytest.mark.parametrize("line", [r"sasl.password=sasl-secret\user", r"sasl.password\u00=sasl-secret"])
def test_an_incomplete_escape_is_rejected_as_by_java(line: str) -> None:
    with pytest.raises(ConfigError, match=r"\\u with four hexadecimal digits") as caught:
        read_properties(line)
    assert "sasl-secret" not in repr(caught.value)


def test_a_comment_after_a_line_with_only_a_backslash_is_a_comment() -> None:
    assert read_properties("\\\n# it goes on \\\na=\\\n# no comment\n\\\n\nb=1\n") == {
        "a": "# no comment",
        "b": "1",
    }


def test_the_properties_of_kerberos_are_those_of_java() -> None:
    module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
    kerberos = {
        "security.protocol": "SASL_SSL",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": f'{module} keyTab="/etc/orders.keytab" principal="orders@EXAMPLE.COM";',
    }
    assert from_java(kerberos) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
        "sasl_kerberos_keytab": "/etc/orders.keytab",
        "sasl_kerberos_principal": "orders@EXAMPLE.COM",
    }
    plain = {"sasl.mechanism": "PLAIN", "sasl.kerberos.service.name": "kafka"}
    assert from_java(plain) == {"sasl_mechanism": "PLAIN"}  # Only GSSAPI uses the service name.


@pytest.mark.parametrize(("value", "by_token"), [("true", True), ("TRUE", True), ("false", False)])
def test_a_jaas_line_for_scram_may_contain_a_delegation_token(value: str, by_token: bool) -> None:
    lines = {"sasl.jaas.config": f'{SCRAM[:-1]} tokenauth="{value}";', "sasl.mechanism": "SCRAM-SHA-256"}
    assert from_java(lines).get("sasl_token_auth", False) is by_token
