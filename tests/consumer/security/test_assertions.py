"""Signed assertions replace the client secret in token requests (KIP-1139, KIP-1258)."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

pytest.importorskip("jwt")
pytest.importorskip("urllib3")

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from consumer.security import Security, client_properties
from consumer.security.failures import NoToken
from consumer.security.options import security_options
from kproto.errors import ConfigError

P = "sasl_oauthbearer_assertion_"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
PASSPHRASE = "hunter2-hunter2"
RSA = rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())


def pem(key: Any, passphrase: str | None = None) -> bytes:
    encryption = NoEncryption() if passphrase is None else BestAvailableEncryption(passphrase.encode())
    encoded: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    return encoded


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key.pem"
    path.write_bytes(pem(RSA))
    return path


@contextmanager
def endpoint(status: int = 200) -> Generator[tuple[str, list[dict[str, str]]]]:
    """Serve tokens. Yield the URL and the requests: the fields of each form, and the Authorization header."""
    forms: list[dict[str, str]] = []

    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            forms.append({name: values[0] for name, values in form.items()})
            forms[-1]["Authorization"] = self.headers.get("Authorization", "")
            body = json.dumps({"access_token": "a.b.c", "expires_in": 60}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token", forms
        finally:
            server.shutdown()
            thread.join()


def security(url: str = "https://login.example.com/token", **options: Any) -> Security:
    return security_options(
        {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url": url,
            **{name if name.startswith("sasl") else f"{P}{name}": value for name, value in options.items()},
        }
    )


def token(settings: Security) -> str:
    assert settings.tokens is not None
    return settings.tokens.blocking().value.reveal()


def claims(assertion: str, key: Any = RSA, algorithm: str = "RS256", **options: Any) -> dict[str, Any]:
    decoded: dict[str, Any] = jwt.decode(assertion, key.public_key(), [algorithm], **options)
    return decoded


def test_the_endpoint_gets_a_signed_assertion_instead_of_a_secret(key_file: Path) -> None:
    with endpoint() as (url, forms):
        settings = security(
            url,
            private_key_file=key_file,
            claim_aud="kafka",
            claim_iss="orders",
            claim_sub="alice",
            sasl_oauthbearer_scope="read",
        )
        assert token(settings) == "a.b.c"
    [form] = forms
    assert form["grant_type"] == JWT_BEARER
    assert (form["scope"], form["Authorization"]) == ("read", "")
    now, sent = time.time(), claims(form["assertion"], audience="kafka", issuer="orders")
    assert (sent["sub"], sent["exp"] - sent["iat"], sent["iat"] - sent["nbf"]) == ("alice", 300, 60)
    assert abs(now - sent["iat"]) < 60
    assert "jti" not in sent
    assert jwt.get_unverified_header(form["assertion"]) == {"alg": "RS256", "typ": "JWT"}


@pytest.mark.parametrize("client_id", [None, "orders"])
def test_client_credentials_have_an_assertion_instead_of_a_secret(
    key_file: Path, client_id: str | None
) -> None:
    """The fields of the request are those of Java's ClientAssertionRequestFormatter (KIP-1258)."""
    with endpoint() as (url, forms):
        settings = security(
            url,
            private_key_file=key_file,
            claim_iss="orders",
            sasl_oauthbearer_grant_type="client_credentials",
            sasl_oauthbearer_scope="read",
            **({} if client_id is None else {"sasl_oauthbearer_client_id": client_id}),
        )
        assert token(settings) == "a.b.c"
    [form] = forms
    assert claims(form.pop("client_assertion"))["iss"] == "orders"
    assert form == {
        "grant_type": "client_credentials",
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "scope": "read",
        "Authorization": "",
        **({} if client_id is None else {"client_id": client_id}),
    }


def test_template_claims_are_between_those_of_options_and_of_the_time(key_file: Path, tmp_path: Path) -> None:
    template = tmp_path / "template.json"
    payload = {"iss": "template", "team": ["a"], "exp": 1}
    template.write_text(json.dumps({"header": {"kid": "k1", "alg": "none"}, "payload": payload}))
    key_file.write_bytes(pem(EC, PASSPHRASE))
    with endpoint() as (url, forms):
        settings = security(
            url,
            private_key_file=str(key_file),
            private_key_passphrase=PASSPHRASE,
            algorithm="ES256",
            template_file=template,
            claim_iss="option",
            claim_sub="alice",
            claim_exp_seconds=30,
            claim_nbf_seconds=0,
            claim_jti_include=True,
        )
        assert token(settings) == "a.b.c"
    assertion = forms[0]["assertion"]
    sent = claims(assertion, EC, "ES256")
    assert (sent["iss"], sent["sub"], sent["team"]) == ("template", "alice", ["a"])
    assert (sent["exp"] - sent["iat"], sent["nbf"] - sent["iat"], len(sent["jti"])) == (30, 0, 36)
    assert jwt.get_unverified_header(assertion) == {"alg": "ES256", "kid": "k1", "typ": "JWT"}


def test_a_new_key_and_a_new_assertion_are_used_for_the_next_token(key_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "assertion"
    file.write_text("a.b.c\n")
    with endpoint() as (url, forms):
        settings = security(url, file=file)
        provider = settings.tokens.provider if settings.tokens is not None else None
        assert provider is not None
        provider()
        file.write_text("d.e.f")
        provider()
        assert [form["assertion"] for form in forms] == ["a.b.c", "d.e.f"]
        file.unlink()
        with pytest.raises(NoToken, match=rf"{P}file='.*assertion': no such file or directory") as raised:
            provider()
    assert not raised.value.final


def test_an_endpoint_that_rejects_the_assertion_is_a_final_error(key_file: Path) -> None:
    with endpoint(401) as (url, forms):
        settings = security(url, private_key_file=key_file)
        with pytest.raises(NoToken, match="HTTP 401: does the endpoint trust the key") as raised:
            token(settings)
    assert raised.value.final
    assert forms[0]["assertion"] not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "client_id"),
        ({"claim_aud": "a"}, "private_key_file=None"),
        ({"private_key_file": "missing.pem"}, "no such file"),
        ({"private_key_file": "KEY", "algorithm": "ES256"}, "no key that signs with ES256"),
        ({"private_key_file": "KEY", "private_key_passphrase": PASSPHRASE}, "no key with this passphrase"),
        ({"private_key_file": "JUNK"}, "no key that signs with RS256"),
        ({"private_key_file": "PEM"}, r"private_key_file='\[hidden\]'"),
        ({"private_key_file": "KEY", "template_file": "KEY"}, 'it is not JSON of the form {"header"'),
        ({"private_key_file": "KEY", "template_file": "LIST"}, 'it is not JSON of the form {"header"'),
        ({"private_key_file": "KEY", "file": "KEY"}, f"{P}file is also set"),
        ({"file": "KEY"}, "it contains no JWT"),
        ({"private_key_file": "KEY", "algorithm": "none"}, "allowed: RS256, ES256"),
        ({"private_key_file": "KEY", "claim_exp_seconds": -1}, "a whole number of seconds"),
        ({"private_key_file": "KEY", "claim_jti_include": 1}, "True or False"),
        (
            {"private_key_file": "KEY", "sasl_oauthbearer_client_id": "me"},
            "options that begin with .* are also set",
        ),
        (
            {
                "private_key_file": "KEY",
                "sasl_oauthbearer_grant_type": "client_credentials",
                "sasl_oauthbearer_client_secret": PASSPHRASE,
            },
            "options that begin with .* are also set",
        ),
        ({"sasl_oauthbearer_grant_type": "password"}, "allowed: client_credentials, urn:ietf"),
        ({"sasl_oauthbearer_grant_type": JWT_BEARER}, "only together with options that begin"),
    ],
)
def test_an_invalid_option_is_an_error_without_secrets(
    key_file: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    (tmp_path / "junk").write_text("junk")
    (tmp_path / "list").write_text("[]")
    places = {"KEY": key_file, "JUNK": tmp_path / "junk", "LIST": tmp_path / "list", "PEM": pem(RSA).decode()}
    options = {name: places.get(str(value), value) for name, value in options.items()}
    with pytest.raises(ConfigError, match=message) as raised:
        security(**options)
    for secret in (PASSPHRASE, *pem(RSA).decode().splitlines()[1:-1]):
        assert secret not in str(raised.value)
        assert secret not in repr(raised.value.__context__)


def test_a_properties_file_of_java_selects_the_grant_by_its_class(key_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    lines = [
        "security.protocol=SASL_SSL",
        "sasl.mechanism=OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url=https://login.example.com/token",
        f"sasl.oauthbearer.assertion.private.key.file={key_file}",
        "sasl.oauthbearer.assertion.claim.exp.seconds=30",
        "sasl.oauthbearer.assertion.claim.jti.include=true",
    ]
    file.write_text("\n".join(lines))
    with pytest.raises(ConfigError, match=r"jwt\.retriever\.class=None .* a JwtBearerJwtRetriever"):
        client_properties(file, "admin")
    retriever = "sasl.oauthbearer.jwt.retriever.class=org.apache.kafka.common.security.oauthbearer."
    file.write_text("\n".join([*lines, f"{retriever}JwtBearerJwtRetriever"]))
    options: Any = client_properties(file, "admin")
    assert options[f"{P}claim_exp_seconds"] == 30
    assert options[f"{P}claim_jti_include"] is True
    assert security_options(options).tokens is not None
    file.write_text("\n".join([*lines[:3], f"{retriever}JwtBearerJwtRetriever"]))
    with pytest.raises(ConfigError, match=r"with sasl\.oauthbearer\.assertion properties"):
        client_properties(file, "admin")


@pytest.mark.parametrize("retriever", ["", "DefaultJwtRetriever", "ClientCredentialsJwtRetriever"])
def test_javas_default_class_sends_a_client_assertion(key_file: Path, tmp_path: Path, retriever: str) -> None:
    """As in Java, a client whose properties name an issuer (claim iss) sends an assertion, not its secret."""
    file = tmp_path / "client.properties"
    jaas = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
    lines = [
        "security.protocol=SASL_SSL",
        "sasl.mechanism=OAUTHBEARER",
        f'sasl.jaas.config={jaas} clientId="orders" clientSecret="{PASSPHRASE}";',
        "sasl.oauthbearer.header.urlencode=true",
        "sasl.oauthbearer.token.endpoint.url=https://login.example.com/token",
        f"sasl.oauthbearer.assertion.private.key.file={key_file}",
        "sasl.oauthbearer.assertion.claim.iss=orders",
    ]
    if retriever:
        lines.append(
            f"sasl.oauthbearer.jwt.retriever.class=org.apache.kafka.common.security.oauthbearer.{retriever}"
        )
    file.write_text("\n".join(lines))
    settings = security_options(client_properties(file, "admin"))
    assert settings.tokens is not None
    provider: Any = settings.tokens.provider
    assert (provider.grant_type, provider.client_id) == ("client_credentials", "orders")
    file.write_text("\n".join(line for line in lines if "claim.iss" not in line))
    with pytest.raises(ConfigError, match=r"claim\.iss"):
        client_properties(file, "admin")


def test_a_properties_file_may_name_the_grant(key_file: Path, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    lines = [
        "security.protocol=SASL_SSL",
        "sasl.mechanism=OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url=https://login.example.com/token",
        f"sasl.oauthbearer.assertion.private.key.file={key_file}",
        f"sasl.oauthbearer.grant.type={JWT_BEARER}",
    ]
    file.write_text("\n".join(lines))
    options: Any = client_properties(file, "admin")
    assert options["sasl_oauthbearer_grant_type"] == JWT_BEARER
    assert security_options(options).tokens is not None
