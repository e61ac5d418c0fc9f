"""Certificates and keys as files and texts come: what is read, which option is told to be wrong, and why."""

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


def made(folder: Path, **texts: str | bytes) -> dict[str, str]:
    """Options whose texts are in files; passwords are as they are."""
    given = {"security_protocol": "SSL"}
    for name, text in texts.items():
        given[name] = str(text)
        if name != "ssl_password":
            given[name] = str(folder / f"{name}.pem")
            Path(given[name]).write_bytes(text if isinstance(text, bytes) else text.encode())
    return given


def context(given: dict[str, str]) -> ssl.SSLContext:
    tls = security_options(given).tls
    assert tls is not None
    return tls.context


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("as_text", [False, True])
def test_certificates_are_read_however_their_text_came(tmp_path: Path, form: str, as_text: bool) -> None:
    text = FORMS[form](ROOT.pem + OTHER.pem)
    given = made(
        tmp_path,
        ssl_cafile=text,
        ssl_certfile=FORMS[form](ALICE.pem),
        ssl_keyfile=FORMS[form](ALICE.secret()),
    )
    if as_text and isinstance(text, str):
        given |= {"ssl_cafile": text, "ssl_certfile": str(FORMS[form](ALICE.own))}
        del given["ssl_keyfile"]
    names = [dict(one[0] for one in ca["subject"])["commonName"] for ca in context(given).get_ca_certs()]
    assert names == ["root", "other"]


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("password", ["", "geheim"])
@pytest.mark.parametrize("how", [form.PrivateFormat.PKCS8, OLD])
def test_keys_of_each_kind_are_read(tmp_path: Path, kind: str, password: str, how: Any) -> None:
    if kind == "Ed25519" and how is OLD:
        pytest.skip("there is no such form")
    one = named("x", ROOT, kind=kind)
    text = one.pem + one.secret(password, how)
    assert context(made(tmp_path, ssl_certfile=text, **({"ssl_password": password} if password else {})))


SWAPPED = {"ssl_certfile": ALICE.secret(), "ssl_keyfile": ALICE.pem}
CLOSED = ALICE.secret("geheim")


@pytest.mark.parametrize(
    ("option", "given", "words"),
    [
        ("ssl_cafile", {"ssl_cafile": ""}, "it is empty"),
        ("ssl_cafile", {"ssl_cafile": "some words"}, "it has none"),
        ("ssl_cafile", {"ssl_cafile": ALICE.secret()}, "it has a key, and no certificate"),
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
        ("ssl_certfile", {"ssl_certfile": ALICE.secret()}, "it has a key, and no certificate"),
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
            "it has a certificate, and no key",
        ),
        ("ssl_keyfile", {"ssl_certfile": ALICE.pem, "ssl_keyfile": ""}, "it is empty"),
    ],
)
def test_what_can_not_be_read_is_told_by_its_option_and_its_cure(
    tmp_path: Path, option: str, given: dict[str, Any], words: str
) -> None:
    asked = made(tmp_path, **given)
    for password in ({}, {"ssl_password": "wrong"} if words.startswith("ssl_password") else {}):
        with pytest.raises(ConfigError, match=words) as told:
            security_options({**asked, **password})
        assert (told.value.option, told.value.value) == (option, asked[option])
        assert "PRIVATE" not in str(told.value)
        assert "\n" not in str(told.value)


def test_a_key_that_is_not_there_is_told_as_the_key(tmp_path: Path) -> None:
    given = {**made(tmp_path, ssl_certfile=ALICE.pem), "ssl_keyfile": "/nowhere/alice.key"}
    with pytest.raises(ConfigError, match=r"^ssl_keyfile='/nowhere/alice.key' .*no such file") as told:
        security_options(given)
    assert told.value.option == "ssl_keyfile"


def test_a_store_with_its_key_wants_no_other_one(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.serialization import pkcs12

    store = pkcs12.serialize_key_and_certificates(
        b"own", ALICE.key, ALICE.certificate, None, form.BestAvailableEncryption(b"geheim")
    )
    given = made(tmp_path, ssl_certfile=store, ssl_password="geheim")
    assert is_pkcs12(given["ssl_certfile"])
    assert context(given)
    with pytest.raises(ConfigError, match="not together with a PKCS12 file") as told:
        security_options({**given, "ssl_keyfile": ALICE.secret()})
    assert told.value.option == "ssl_keyfile"
    assert "PRIVATE" not in str(told.value)


def test_nothing_is_left_behind_by_whom_reading_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a file with the key nor a file that is open, with and without files in memory."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    for in_memory in (True, False):
        if not in_memory:
            monkeypatch.delattr("os.memfd_create", raising=False)
        opened = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
        for text in (ALICE.own, ALICE.secret() + BOB.pem):
            for _ in range(5):
                try:
                    security_options({"security_protocol": "SSL", "ssl_certfile": text})
                except ConfigError:
                    assert text != ALICE.own
        assert list(tmp_path.iterdir()) == []
        if opened:
            assert len(os.listdir("/proc/self/fd")) == opened
