"""Options of TLS and SASL are checked, and no error shows a secret."""

from __future__ import annotations

import copy
import getpass
import pickle
import re
import ssl
from pathlib import Path
from typing import Any

import pytest

from consumer import Admin
from consumer.options import consumer_options, producer_options
from consumer.security.option_names import SPELLINGS
from consumer.security.tls import sentence
from kproto.errors import ConfigError
from kproto.testing.certificates import certificates
from tests.bundles import check_each

SECRET = "hunter2-hunter2"
SCRAM = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "SCRAM-SHA-256",
    "sasl_username": "alice",
    "sasl_password": SECRET,
}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"security_protocol": "TLS"}, "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security_protocol": "SASL_SSL"}, "sasl_mechanism=None is not allowed; .* needs one of PLAIN"),
        ({"sasl_mechanism": "PLAIN"}, "only with security_protocol SASL_SSL"),
        ({"ssl_cafile": "ca.pem"}, "only with security_protocol SSL or SASL_SSL"),
        ({**SCRAM, "sasl_username": None}, "SCRAM-SHA-256 needs a string that is not empty"),
        ({**SCRAM, "sasl_mechanism": "GSSAPI"}, "GSSAPI uses Kerberos instead"),
        ({**SCRAM, "sasl_kerberos_principal": "alice"}, "only with sasl_mechanism GSSAPI"),
        ({**SCRAM, "sasl_mechanism": "AWS_MSK_IAM"}, "use OAUTHBEARER"),
        ({**SCRAM, "sasl_mechanism": "OAUTHBEARER"}, "OAUTHBEARER sends a token instead"),
        ({**SCRAM, "sasl_extensions": {"a": "b"}}, "only with sasl_mechanism OAUTHBEARER"),
        ({"security_protocol": "SSL", "ssl_cafile": "/nowhere/ca.pem"}, "PEM certificates"),
        ({"security_protocol": "SSL", "ssl_keyfile": "key.pem"}, "it needs ssl_certfile"),
        ({"security_protocol": "SSL", "ssl_certfile": "/nowhere/own.jks"}, "keytool -importkeystore"),
        ({"security_protocol": "SSL", "ssl_min_version": "SSLv3"}, "TLSv1.2"),
        ({"security_protocol": "SSL", "ssl_check_hostname": "no"}, "True or False"),
        ({"security_protocol": "SSL", "ssl_context": 1}, "ssl.SSLContext"),
        (
            {"security_protocol": "SSL", "ssl_context": ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)},
            "a context for clients.*this one is for servers",
        ),
        ({"security_protocl": "SSL"}, "did you mean security_protocol"),
    ],
)
def test_wrong_options_are_rejected_with_a_suggestion(config: Any, words: str) -> None:
    for options in (consumer_options, producer_options, lambda config: Admin("a:1", **config)):
        with pytest.raises(ConfigError, match=words):
            options(config)


@pytest.mark.parametrize("name", ["sasl_username", "sasl_password"])
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_an_unpaired_surrogate_is_rejected(name: str, mechanism: str) -> None:
    config = {**SCRAM, "sasl_mechanism": mechanism, name: f"{SECRET}\udc80"}
    with pytest.raises(ConfigError, match="a string that UTF-8 can encode") as caught:
        consumer_options(config)
    assert caught.value.option == name
    if name == "sasl_password":
        assert SECRET not in repr(caught.value)


def test_pem_text_may_have_any_comments(tmp_path: Path) -> None:
    files_made = certificates(tmp_path)
    text = "# Fő \N{GRINNING FACE}\n"
    authority, own = (text + Path(file).read_text() for file in (files_made.ca, files_made.client))
    options = consumer_options({"security_protocol": "SSL", "ssl_cafile": authority, "ssl_certfile": own})
    assert options.security.tls is not None
    assert len(options.security.tls.context.get_ca_certs()) == 1
    with pytest.raises(ConfigError, match="a string that UTF-8 can encode") as caught:
        consumer_options({"security_protocol": "SSL", "ssl_certfile": f"# \udc80\n{own}"})
    assert "BEGIN" not in repr(caught.value)


def test_files_may_be_given_as_path_objects(tmp_path: Path) -> None:
    certificate_files = certificates(tmp_path)
    files = {"ssl_cafile": Path(certificate_files.ca), "ssl_certfile": Path(certificate_files.client)}
    assert consumer_options({"security_protocol": "SSL", **files}).security.tls is not None


def test_a_folder_must_hold_certificates_in_the_layout_of_openssl(tmp_path: Path) -> None:
    folder = {"security_protocol": "SSL", "ssl_cafile": tmp_path}
    certificates(tmp_path)
    with pytest.raises(ConfigError, match="in this folder OpenSSL finds none"):
        consumer_options(folder)
    (tmp_path / "0a1b2c3d.0").write_bytes((tmp_path / "ca.pem").read_bytes())
    assert consumer_options(folder).security.tls is not None


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({}, "no trusted authority has signed"),
        (
            {"ssl_cafile": "FILE"},
            "^ssl_cafile='.*ca.pem' has no authority for the certificate of a .*add the certificate",
        ),
        ({"ssl_cafile": "TEXT"}, "^ssl_cafile='PEM text' has no authority"),
        ({"ssl_context": ssl.create_default_context()}, "^your ssl_context has no authority"),
    ],
)
def test_an_unknown_authority_names_the_source_of_the_trusted_ones(
    tmp_path: Path, own: dict[str, Any], words: str
) -> None:
    ca = certificates(tmp_path).ca
    texts = {"FILE": ca, "TEXT": Path(ca).read_text()}
    options = {
        name: texts.get(value, value) if isinstance(value, str) else value for name, value in own.items()
    }
    tls = consumer_options({"security_protocol": "SSL", **options}).security.tls
    error = ssl.SSLCertVerificationError("unknown")
    error.verify_code, error.verify_message = 19, "self-signed certificate in certificate chain"
    assert re.search(words, sentence(error, "a", tls.trusts))


OAUTH = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}


def test_a_token_provider_may_be_given_by_name() -> None:
    named = consumer_options({**OAUTH, "sasl_oauth_token_provider": "getpass:getuser"})
    assert named.security.tokens.provider is getpass.getuser
    within = consumer_options({**OAUTH, "sasl_oauth_token_provider": "pathlib:Path.cwd"})
    assert within.security.tokens.provider() == Path.cwd()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no.such:token", "No module named 'no'"),
        ("getpass:no_such", "has no attribute 'no_such'"),
        ("sys:version", "this name belongs to a str"),
        ("getpass", "its name as MODULE:FUNCTION"),
        ("a:b:c", "its name as MODULE:FUNCTION"),
    ],
)
def test_a_missing_token_provider_is_reported_when_the_client_is_created(name: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        consumer_options({**OAUTH, "sasl_oauth_token_provider": name})
    assert str(caught.value).startswith("sasl_oauth_token_provider=")


def test_the_message_of_a_failing_module_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_tokens.py").write_text(f"raise RuntimeError({SECRET!r})")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"imported in this process \(RuntimeError\)") as caught:
        consumer_options({**OAUTH, "sasl_oauth_token_provider": "failing_tokens:token"})
    assert SECRET not in repr(caught.value)


@pytest.mark.parametrize(
    "provider", ["eyJhbGciOiJub25lIn0.eyJzdWIi.x", SECRET, f"Bearer {SECRET}", "", 5, b"x"]
)
def test_a_token_passed_as_its_provider_is_not_shown(provider: Any) -> None:
    with pytest.raises(ConfigError, match=r"='\[hidden\]' is not allowed; a function that returns a token"):
        consumer_options({**OAUTH, "sasl_oauth_token_provider": provider})


def test_spellings_of_other_clients_name_the_option() -> None:
    def check(name: str) -> None:
        with pytest.raises(ConfigError, match="use ") as caught:
            consumer_options({name: SECRET})
        assert name.replace(".", "_") not in consumer_options({}).__slots__
        is_shown = SECRET in str(caught.value)
        assert not is_shown or ("password" not in name and "key" not in name) or "location" in name

    check_each([*SPELLINGS, *(name.replace("_", ".") for name in SPELLINGS)], check)


@pytest.mark.parametrize(
    "config",
    [
        {**SCRAM, "sasl_pasword": SECRET},
        {**SCRAM, "sasl.password": SECRET},
        {**SCRAM, "sasl_jaas_config": SECRET},
        {**SCRAM, "sasl_password": SECRET.encode()},
        {"sasl_password": SECRET},
        {**SCRAM, "sasl_mechanism": "OAUTHBEARER"},
        {**SCRAM, "sasl_oauthbearer_client_secret": SECRET},
        {**SCRAM, "security_protocol": "SASL_SSL", "ssl_password": SECRET, "ssl_certfile": "/nowhere"},
    ],
)
def test_no_error_shows_a_secret(config: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        consumer_options(config)
    assert SECRET not in f"{caught.value} {caught.value!r} {caught.value.args}"


def test_a_password_in_the_token_endpoints_url_is_rejected_and_not_shown() -> None:
    oauth = {"sasl_oauthbearer_token_endpoint_url": f"https://me:{SECRET}@login.example.com/token"}
    with pytest.raises(ConfigError, match="without a password") as caught:
        consumer_options({**OAUTH, **oauth, "sasl_oauthbearer_client_id": "me"})
    assert SECRET not in repr(caught.value)


@pytest.mark.parametrize(
    "url",
    ["https://a/token\n", "https://a/to ken", "https://", "https://:1/", "https://a:x/", "https://[::1/"],
)
def test_an_invalid_token_endpoint_url_is_rejected(url: str) -> None:
    oauth = {"sasl_oauthbearer_client_id": "me", "sasl_oauthbearer_client_secret": SECRET}
    with pytest.raises(ConfigError, match="an address such as https"):
        consumer_options({**OAUTH, **oauth, "sasl_oauthbearer_token_endpoint_url": url})


def test_sasl_extensions_are_not_shown() -> None:
    oauth = {"sasl_oauth_token_provider": "getpass:getuser", "sasl_extensions": {"key": SECRET}}
    assert SECRET not in repr(consumer_options({**OAUTH, **oauth}))


def test_the_repr_of_options_shows_the_user_but_no_secret() -> None:
    options = consumer_options(SCRAM)
    assert "alice" in repr(options)
    assert SECRET not in repr(options) + repr(options.security.password) + str(options.security.password)


def test_options_with_a_secret_cannot_be_pickled() -> None:
    for object_ in (consumer_options(SCRAM), consumer_options(SCRAM).security.password):
        with pytest.raises(TypeError, match="pickled"):
            pickle.dumps(object_)


def test_options_without_a_secret_can_be_pickled() -> None:
    options = consumer_options({"group_id": "g"})
    assert pickle.loads(pickle.dumps(options)) == copy.copy(options)
    assert options.security is None
