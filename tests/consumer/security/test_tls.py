"""TLS in memory: a client's `Pipe` connects to a simulated broker, with certificates made for the test."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from consumer.security.failures import CLOSED, TlsFailed
from consumer.security.tls import Pipe, Tls, context
from kproto.errors import ConfigError

trustme = pytest.importorskip("trustme")
CA = trustme.CA()
OTHER = trustme.CA()
ROOM = 1 << 20


def pem(certificate: Any) -> str:
    return "".join(
        pem_part.bytes().decode() for pem_part in (certificate.private_key_pem, *certificate.cert_chain_pems)
    )


def trusting(ca: Any = CA, **options: Any) -> Tls:
    return Tls(context(cafile=ca.cert_pem.bytes().decode(), **options))


class Server:
    """The broker's side of a TLS connection in memory."""

    def __init__(
        self, name: str = "kafka", *, asks: bool = False, newest: bool = True, **options: Any
    ) -> None:
        ssl_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        CA.issue_cert(name, **options).configure_cert(ssl_context)
        if not newest:
            ssl_context.maximum_version = ssl.TLSVersion.TLSv1_2
        if asks:
            ssl_context.verify_mode = ssl.CERT_REQUIRED
            CA.configure_trust(ssl_context)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = ssl_context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.done = False
        self.got = b""

    def feed(self, data: bytes) -> bytes:
        self.incoming.write(data)
        try:
            if not self.done:
                self.tls.do_handshake()
                self.done = True
            self.got += self.tls.read(ROOM)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:  # After a failed handshake the outgoing bytes contain the TLS alert.
            self.done = True
        return self.outgoing.read()


def do_handshake(client: Pipe, server: Server) -> None:
    data = client.begin()
    for _ in range(4):
        back = server.feed(data)
        if back:
            client.feed(back)
        data = client.outgoing()


def failed_handshake(client: Callable[[], Pipe], server: Server) -> TlsFailed:
    pipe = client()
    try:
        do_handshake(pipe, server)
        pipe.read_into(memoryview(bytearray(100)))
    except TlsFailed as error:
        return error
    raise AssertionError("the handshake succeeded")


def test_bytes_of_one_side_arrive_at_the_other() -> None:
    client, server = trusting().pipe("kafka"), Server()
    do_handshake(client, server)
    assert client.secured
    sent = bytes(range(256)) * 1000
    sealed = client.seal(sent)
    assert sent[:100] not in sealed
    while sealed:
        server.feed(sealed[:16_000])
        sealed = sealed[16_000:]
    for _ in range(20):
        server.feed(b"")
    assert server.got == sent
    server.tls.write(b"answer")
    client.feed(server.outgoing.read())
    buffer = memoryview(bytearray(100))
    assert bytes(buffer[: client.read_into(buffer)]) == b"answer"
    assert client.read_into(buffer) == 0


def test_a_buffer_is_filled_from_many_tls_records() -> None:
    client, server = trusting().pipe("kafka"), Server()
    do_handshake(client, server)
    for number in range(50):
        server.tls.write(bytes([number]) * 1000)
    client.feed(server.outgoing.read())
    buffer = memoryview(bytearray(30_000))
    assert [client.read_into(buffer) for _ in range(3)] == [30_000, 20_000, 0]
    assert bytes(buffer[:20_000]) == b"".join(bytes([number]) * 1000 for number in range(30, 50))


@pytest.mark.parametrize("broken", [False, True])
def test_bytes_before_the_end_are_read_before_the_end_is_raised(broken: bool) -> None:
    client, server = trusting().pipe("kafka"), Server()
    do_handshake(client, server)
    server.tls.write(b"answer")
    client.feed(server.outgoing.read())
    if broken:
        server.tls.write(b"another")
        sealed = bytearray(server.outgoing.read())
        sealed[-1] ^= 1
        client.feed(sealed)
    else:
        with suppress(ssl.SSLWantReadError):
            server.tls.unwrap()
        client.feed(server.outgoing.read())
    buffer = memoryview(bytearray(100))
    assert bytes(buffer[: client.read_into(buffer)]) == b"answer"
    for _ in range(2):
        with pytest.raises(TlsFailed, match="BAD RECORD MAC|bad record mac" if broken else CLOSED):
            client.read_into(buffer)


def test_bytes_may_arrive_one_by_one() -> None:
    client, server = trusting().pipe("kafka"), Server()
    data = client.begin()
    while not client.secured:
        for byte in server.feed(data):
            client.feed(bytes([byte]))
        data = client.outgoing()
    assert client.secured


PAST = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("host", "client", "server", "words"),
    [
        ("kafka", {"ca": OTHER}, {}, "no trusted authority has signed .* set ssl_cafile"),
        ("other", {}, {}, "not for the host name other: connect by a name that is in it"),
        ("127.0.0.1", {}, {}, "not for the host name 127.0.0.1"),
        ("kafka", {}, {"not_before": PAST, "not_after": PAST.replace(year=2021)}, "has expired: renew it"),
        (
            "kafka",
            {"min_version": "TLSv1.3"},
            {"newest": False},
            "no TLS version in common .*ssl_min_version",
        ),
        ("kafka", {}, {"asks": True}, "it may ask for a client certificate; set ssl_certfile"),
        ("kafka", {}, {"asks": True, "newest": False}, "it may ask for a client certificate"),
        (
            "kafka",
            {"certfile": pem(OTHER.issue_cert("a@example.com"))},
            {"asks": True},
            "rejects this client's certificate .* signed by an authority that the broker trusts",
        ),
    ],
)
def test_a_failed_handshake_says_why_and_what_to_do(host: str, client: Any, server: Any, words: str) -> None:
    tls = trusting(**client)
    failed = failed_handshake(lambda: tls.pipe(host), Server(**server))
    assert failed.final
    with pytest.raises(TlsFailed, match=words):
        raise failed


@pytest.mark.parametrize("received", [b"\x00\x00\x00\x04abcd" * 8, b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_a_port_without_tls_is_named_as_one(received: bytes) -> None:
    pipe = trusting().pipe("kafka")
    pipe.begin()
    with pytest.raises(TlsFailed, match="this port is for clients without TLS"):
        pipe.feed(received)


def test_a_different_host_name_is_accepted_without_check_hostname() -> None:
    client = trusting(check_hostname=False).pipe("other")
    do_handshake(client, Server())
    assert client.secured


def test_a_client_certificate_is_sent(tmp_path: Path) -> None:
    own = CA.issue_cert("client@example.com")
    own.private_key_pem.write_to_path(tmp_path / "key.pem")
    chain = "".join(pem.bytes().decode() for pem in own.cert_chain_pems)
    for options in ({"certfile": pem(own)}, {"certfile": chain, "keyfile": str(tmp_path / "key.pem")}):
        client, server = trusting(**options).pipe("kafka"), Server(asks=True)
        do_handshake(client, server)
        assert server.tls.getpeercert()


def test_a_session_is_resumed() -> None:
    server = Server()
    server_context = server.tls.context
    tls = trusting()
    first = tls.pipe("kafka")
    do_handshake(first, server)
    # The server sends the session ticket after the handshake, so the client has to read once more.
    first.read_into(memoryview(bytearray(100)))
    first.close()
    second_server = Server()
    second_server.tls = server_context.wrap_bio(
        second_server.incoming, second_server.outgoing, server_side=True
    )
    second = tls.pipe("kafka")
    do_handshake(second, second_server)
    assert second_server.tls.session_reused


def encrypted() -> str:
    from cryptography.hazmat.primitives import serialization as form

    own = CA.issue_cert("client@example.com")
    key = form.load_pem_private_key(own.private_key_pem.bytes(), None)
    text = key.private_bytes(
        form.Encoding.PEM, form.PrivateFormat.PKCS8, form.BestAvailableEncryption(b"key-secret")
    )
    return text.decode() + own.cert_chain_pems[0].bytes().decode()


def test_an_encrypted_key_needs_its_password() -> None:
    text = encrypted()
    assert trusting(certfile=text, password="key-secret")
    for wrong in ("other-secret", None):
        with pytest.raises(ConfigError, match="ssl_password must be its password") as caught:
            trusting(certfile=text, password=wrong)
        assert "secret" not in str(caught.value)
        assert "PRIVATE" not in str(caught.value)


def test_a_pkcs12_file_is_a_certificate_with_its_key(tmp_path: Path) -> None:
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.serialization import pkcs12

    own = CA.issue_cert("client@example.com")
    key: Any = form.load_pem_private_key(own.private_key_pem.bytes(), None)
    certificate = x509.load_pem_x509_certificate(own.cert_chain_pems[0].bytes())
    how = form.BestAvailableEncryption(b"store-secret")
    path = tmp_path / "own.p12"
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"own", key, certificate, None, how))
    client, server = trusting(certfile=str(path), password="store-secret").pipe("kafka"), Server(asks=True)
    do_handshake(client, server)
    assert server.tls.getpeercert()
    with pytest.raises(ConfigError, match="ssl_password must be its password"):
        trusting(certfile=str(path), password="wrong")


def test_a_connection_that_openssl_cannot_start_raises_tls_failed() -> None:
    server = Tls(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    for tls, host in ((server, "kafka"), (trusting(), ".kafka"), (trusting(), "")):
        with pytest.raises(TlsFailed, match="TLS can't start with") as caught:
            tls.pipe(host)
        assert caught.value.final


@pytest.mark.parametrize("end", [0, 1, 50])
def test_a_stream_that_ends_during_the_handshake_says_so(end: int) -> None:
    client, server = trusting().pipe("kafka"), Server()
    client.feed(server.feed(client.begin())[:end])
    assert "in the middle of the TLS handshake" in client.end()
