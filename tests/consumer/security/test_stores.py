"""Certificates and keys are read from files and from option values.

The tests check which formats are read, and which option an error names.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from consumer.security.options import security_options
from consumer.security.stores import is_pkcs12
from kproto.errors import ConfigError
from tests.consumer.security.authority import KEYS, form, named

ROOT, OTHER = named("root", authority=True), named("other", authority=True)
ALICE, BOB, CAROL = named("alice", ROOT), named("bob", ROOT), named("carol", ROOT, kind="RSA")
OLD = form.PrivateFormat.TraditionalOpenSSL
# Without ssl_cafile the certificates of all public authorities are loaded, which takes 50 ms.
AUTHORITY = {"security_protocol": "SSL", "ssl_cafile": ROOT.pem}
FORMS: dict[str, Callable[[str], str | bytes]] = {
    "as it is": lambda text: text,
    "comments": lambda text: f"Bag Attributes\n  name: ü -----\nsubject=x\n{text}the end",
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "CR": lambda text: text.replace("\n", "\r"),
    "a mark": lambda text: text.encode("utf-8-sig"),
    "UTF-16": lambda text: text.encode("utf-16"),
    "UTF-16, the other": lambda text: b"\xfe\xff" + text.encode("utf-16-be"),
    "indents": lambda text: "".join(f"\t {line}\n" for line in text.splitlines()),
    "one line": lambda text: text.replace("\n", " "),
    "no line ends": lambda text: text.replace("\n", ""),
    "another name": lambda text: text.replace(" CERTIFICATE", " X509 CERTIFICATE"),
    "another charset": lambda text: b"# \xfc\xff\n" + text.encode(),
}


def write_files(folder: Path, **texts: str | bytes) -> dict[str, str]:
    """Write each text to a file, except the password. Return options with the paths, and with the password
    itself.
    """
    options = {"security_protocol": "SSL"}
    for name, text in texts.items():
        options[name] = str(text)
        if name != "ssl_password":
            options[name] = str(folder / f"{name}.pem")
            Path(options[name]).write_bytes(text if isinstance(text, bytes) else text.encode())
    return options


def context(options: dict[str, str]) -> ssl.SSLContext:
    tls = security_options(options).tls
    assert tls is not None
    return tls.context


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("as_text", [False, True])
def test_certificates_are_read_in_each_form_of_the_text(tmp_path: Path, form: str, as_text: bool) -> None:
    text = FORMS[form](ROOT.pem + OTHER.pem)
    options = write_files(
        tmp_path,
        ssl_cafile=text,
        ssl_certfile=FORMS[form](ALICE.pem),
        ssl_keyfile=FORMS[form](ALICE.secret()),
    )
    if as_text and isinstance(text, str):
        options |= {"ssl_cafile": text, "ssl_certfile": str(FORMS[form](ALICE.own))}
        del options["ssl_keyfile"]
    names = [
        dict(attribute[0] for attribute in ca["subject"])["commonName"]
        for ca in context(options).get_ca_certs()
    ]
    assert names == ["root", "other"]


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("password", ["", "geheim"])
@pytest.mark.parametrize("how", [form.PrivateFormat.PKCS8, OLD])
def test_keys_of_each_kind_are_read(tmp_path: Path, kind: str, password: str, how: Any) -> None:
    if kind == "Ed25519" and how is OLD:
        pytest.skip("there is no such form")
    certificate = named("x", ROOT, kind=kind)
    text = certificate.pem + certificate.secret(password, how)
    assert context(
        AUTHORITY
        | write_files(tmp_path, ssl_certfile=text, **({"ssl_password": password} if password else {}))
    )


SWAPPED = {"ssl_certfile": ALICE.secret(), "ssl_keyfile": ALICE.pem}
CLOSED = ALICE.secret("geheim")


@pytest.mark.parametrize(
    ("option", "texts", "words"),
    [
        ("ssl_cafile", {"ssl_cafile": ""}, "it is empty"),
        ("ssl_cafile", {"ssl_cafile": "some words"}, "it has none"),
        ("ssl_cafile", {"ssl_cafile": ALICE.secret()}, "it has a key, but no certificate"),
        ("ssl_cafile", {"ssl_cafile": ROOT.pem + OTHER.pem[:99]}, "has no end"),
        ("ssl_cafile", {"ssl_cafile": OTHER.pem[:99] + "\n" + ROOT.pem}, "has no end"),
        ("ssl_cafile", {"ssl_cafile": ROOT.pem.replace("\n", "\\n")}, r"the two characters \\n"),
        ("ssl_cafile", {"ssl_cafile": ROOT.pem.replace("MII", "!II")}, "is not base64"),
        ("ssl_cafile", {"ssl_cafile": ROOT.certificate.public_bytes(form.Encoding.DER)}, "x509 -inform der"),
        (
            "ssl_cafile",
            {"ssl_cafile": b"\xfe\xed\xfe\xed\0\0"},
            "a Java keystore is not PEM.*-exportcert -rfc",
        ),
        ("ssl_cafile", {"ssl_cafile": b"\x30\x82\1\1\2\1\3\x30"}, "this is PKCS12: `openssl pkcs12"),
        ("ssl_certfile", SWAPPED, "this is the key, and ssl_keyfile is the certificate"),
        ("ssl_certfile", {"ssl_certfile": ALICE.pem}, "it has no key"),
        ("ssl_certfile", {"ssl_certfile": ALICE.secret()}, "it has a key, but no certificate"),
        (
            "ssl_certfile",
            {"ssl_certfile": ALICE.secret() + ROOT.pem + ALICE.pem},
            "own one must be the first",
        ),
        ("ssl_certfile", {"ssl_certfile": ALICE.pem, "ssl_keyfile": BOB.secret()}, "another certificate"),
        ("ssl_certfile", {"ssl_certfile": ALICE.pem, "ssl_keyfile": CAROL.secret()}, "another certificate"),
        ("ssl_certfile", {"ssl_certfile": CLOSED + ALICE.pem}, "ssl_password must be its password"),
        (
            "ssl_keyfile",
            {"ssl_certfile": ALICE.pem, "ssl_keyfile": CLOSED},
            "ssl_password must be its password",
        ),
        (
            "ssl_keyfile",
            {"ssl_certfile": ALICE.pem, "ssl_keyfile": ALICE.pem},
            "it has a certificate, but no key",
        ),
        ("ssl_keyfile", {"ssl_certfile": ALICE.pem, "ssl_keyfile": ""}, "it is empty"),
    ],
)
def test_an_unreadable_file_is_reported_with_its_option_and_what_to_do(
    tmp_path: Path, option: str, texts: dict[str, Any], words: str
) -> None:
    options = AUTHORITY | write_files(tmp_path, **texts)
    for password in ({}, {"ssl_password": "wrong"} if words.startswith("ssl_password") else {}):
        with pytest.raises(ConfigError, match=words) as caught:
            security_options({**options, **password})
        assert (caught.value.option, caught.value.value) == (option, options[option])
        assert "PRIVATE" not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_missing_key_file_is_reported_by_its_option(tmp_path: Path) -> None:
    options = {**write_files(tmp_path, ssl_certfile=ALICE.pem), "ssl_keyfile": "/nowhere/alice.key"}
    with pytest.raises(ConfigError, match=r"^ssl_keyfile='/nowhere/alice.key' .*no such file") as caught:
        security_options(options)
    assert caught.value.option == "ssl_keyfile"


def test_a_pkcs12_file_with_a_key_allows_no_other_key(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import pkcs12

    store = pkcs12.serialize_key_and_certificates(
        b"own", ALICE.key, ALICE.certificate, None, form.BestAvailableEncryption(b"geheim")
    )
    options = write_files(tmp_path, ssl_certfile=store, ssl_password="geheim")
    assert is_pkcs12(options["ssl_certfile"])
    assert context(options)
    with pytest.raises(ConfigError, match="cannot be combined with a PKCS12 file") as caught:
        security_options({**options, "ssl_keyfile": ALICE.secret()})
    assert caught.value.option == "ssl_keyfile"
    assert "PRIVATE" not in str(caught.value)


def test_a_failed_read_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read that fails leaves neither a file with the key nor an open file.

    The test covers systems with and without `os.memfd_create`, which creates files in memory.
    """
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    for in_memory in (True, False):
        if not in_memory:
            monkeypatch.delattr("os.memfd_create", raising=False)
        opened = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
        for text in (ALICE.own, ALICE.secret() + BOB.pem):
            for _ in range(5):
                try:
                    security_options({**AUTHORITY, "ssl_certfile": text})
                except ConfigError:
                    assert text != ALICE.own
        assert list(tmp_path.iterdir()) == []
        if opened:
            assert len(os.listdir("/proc/self/fd")) == opened
