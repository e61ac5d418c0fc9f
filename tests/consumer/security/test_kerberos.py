"""Clients log in with Kerberos: an MIT Kerberos KDC issues the tickets, and gssapi verifies them for the
broker.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consumer.security.failures import NoToken
from consumer.security.options import security_options
from kproto.errors import ConfigError, MissingExtra
from kproto.security.exchange import SaslFailed
from tests.consumer.security.kerberos_realm import MISSING, REALM, running_kdc

try:
    import gssapi
except (ImportError, OSError):
    # Only CI installs gssapi, because its build needs Kerberos headers. With KPROTO_JUDGES=required, a skip
    # by `importorskip` would count as a failure.
    pytest.skip("needs gssapi, and the packages krb5-kdc and krb5-admin-server", allow_module_level=True)

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(bool(MISSING), reason=MISSING),
]


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run a KDC, and yield the folder with the keytabs."""
    folder = tmp_path_factory.mktemp("krb5")
    with running_kdc(folder):
        yield folder


class Acceptor:
    """The broker's side of GSSAPI. `evaluate` returns the next challenge, and sets `user` when the login
    succeeds.
    """

    def __init__(self, layers: int = 1) -> None:
        self.context = gssapi.SecurityContext(usage="accept")
        self.layers = layers
        self.offered = False
        self.user: tuple[str, str] | None = None

    def evaluate(self, response: bytes) -> bytes:
        if not self.context.complete:
            return self.context.step(response) or b""
        if not self.offered:
            assert response == b""
            self.offered = True
            return bytes(self.context.wrap(bytes([self.layers, 0, 255, 255]), False).message)
        chosen = self.context.unwrap(response).message
        assert chosen[:4] == b"\1\0\0\0"
        self.user = str(self.context.initiator_name), chosen[4:].decode()
        return b""


def settings(realm: Path, **options: Any) -> Any:
    return security_options(
        {
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "GSSAPI",
            "sasl_kerberos_keytab": realm / "alice",
            "sasl_kerberos_principal": "alice",
            **{f"sasl_kerberos_{name}": value for name, value in options.items()},
        }
    )


def log_in(client: Any, acceptor: Acceptor) -> None:
    message = client.begin()
    while message is not None:
        message = client.answer(acceptor.evaluate(message))


def test_a_login_with_a_keytab_is_accepted(realm: Path) -> None:
    security, acceptor = settings(realm), Acceptor()
    login = security.token_source("localhost").blocking()
    assert security.exchange(login) is login
    log_in(login, acceptor)
    assert acceptor.user == (f"alice@{REALM}", f"alice@{REALM}")


def test_a_login_of_an_asyncio_client_begins_in_a_thread(realm: Path) -> None:
    acceptor = Acceptor()
    log_in(asyncio.run(settings(realm).token_source("localhost").awaited()), acceptor)
    assert acceptor.user is not None


def test_each_connection_has_a_login_of_its_own(realm: Path) -> None:
    source = settings(realm).token_source("localhost")
    first, second = source.blocking(), source.blocking()
    for login in (second, first):
        log_in(login, acceptor := Acceptor())
        assert acceptor.user is not None


@pytest.mark.parametrize(
    ("host", "options", "message", "final"),
    [
        ("other", {}, "no Kerberos ticket for kafka@other: .*not found in Kerberos database", False),
        ("localhost", {"service_name": "http"}, "no Kerberos ticket for http@localhost", False),
        ("other", {"domain_name": "third"}, "no Kerberos ticket for kafka@third", False),
        ("localhost", {"keytab": None, "principal": None}, "run kinit, or set sasl_kerberos_keytab", True),
    ],
)
def test_a_missing_ticket_names_the_service(
    realm: Path, host: str, options: dict[str, Any], message: str, final: bool
) -> None:
    source = settings(realm, **options).token_source(host)
    with pytest.raises(NoToken, match=message) as raised:
        source.blocking()
    assert raised.value.final == final
    with pytest.raises(NoToken, match=message):
        asyncio.run(source.awaited())


def test_a_broker_that_requires_a_security_layer_is_rejected(realm: Path) -> None:
    login = settings(realm).token_source("localhost").blocking()
    with pytest.raises(SaslFailed, match="requires a Kerberos security layer"):
        log_in(login, Acceptor(layers=6))


def test_an_invalid_answer_of_the_broker_is_an_error(realm: Path) -> None:
    login = settings(realm).token_source("localhost").blocking()
    with pytest.raises(SaslFailed, match="Kerberos rejected the broker's answer"):
        login.answer(b"junk")


def test_invalid_options_are_named(realm: Path) -> None:
    with pytest.raises(ConfigError, match=r"sasl_kerberos_keytab='/nowhere'"):
        settings(realm, keytab="/nowhere")
    with pytest.raises(ConfigError, match="only with sasl_mechanism GSSAPI"):
        security_options(
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "PLAIN",
                "sasl_username": "a",
                "sasl_password": "b",
                "sasl_kerberos_service_name": "kafka",
            }
        )


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(MissingExtra, match="kerberos"):
        security_options({"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"})
