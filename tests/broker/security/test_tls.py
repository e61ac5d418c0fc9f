"""A TLS listener accepts only secure protocols and ciphers. The tests probe it as sslyze does."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator

import pytest

from consumer import Consumer, Producer, TopicPartition
from consumer.security import SecurityConfig
from kproto.broker.server import running
from kproto.errors import ConfigError
from kproto.messages.headers import encode_request
from kproto.messages.metadata import MetadataRequest
from kproto.testing.certificates import Certificates, certificates
from kproto.wire.frame import frame

pytest.importorskip("trustme")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def place(files: Certificates) -> Iterator[tuple[str, int]]:
    with running(listen=["SSL://127.0.0.1:0"], tls=files.context()) as server:
        host, _, port = server.bootstrap.rpartition(":")
        yield host, int(port)


def client_context(files: Certificates, ciphers: str = "ALL:COMPLEMENTOFALL:@SECLEVEL=0") -> ssl.SSLContext:
    """Return the context of a client that accepts every protocol and cipher."""
    context = ssl.create_default_context(cafile=files.ca)
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.options &= ~(ssl.OP_NO_TLSv1 | ssl.OP_NO_TLSv1_1 | ssl.OP_NO_COMPRESSION)
    context.set_ciphers(ciphers)
    return context


def tls_connection(place: tuple[str, int], context: ssl.SSLContext) -> ssl.SSLSocket:
    with socket.create_connection(place, timeout=60) as raw:
        return context.wrap_socket(raw, server_hostname="localhost")


def test_an_ssl_context_for_clients_is_refused() -> None:
    with (
        pytest.raises(ConfigError, match=r"tls=.* a context for servers; this one is for clients"),
        running(listen=["SSL://127.0.0.1:0"], tls=ssl.create_default_context()),
    ):
        raise AssertionError


@pytest.mark.parametrize("auth", ["requested", "required"])
def test_a_context_that_contradicts_ssl_client_auth_is_rejected(files: Certificates, auth: str) -> None:
    """An SSL context that contradicts ssl.client.auth is rejected.

    Only the context's `verify_mode` takes effect, so ssl.client.auth would be ignored silently.
    """
    settings = {"ssl.client.auth": auth}
    with (
        pytest.raises(ConfigError, match=rf"ssl\.client\.auth='{auth}'.*set its verify_mode to ssl\.CERT_"),
        running(listen=["SSL://127.0.0.1:0"], settings=settings, tls=files.context()),
    ):
        raise AssertionError
    with running(listen=["SSL://127.0.0.1:0"], settings=settings, tls=files.context(auth)) as server:
        assert server.places


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_tls_1_2_and_1_3_are_accepted(place: tuple[str, int], files: Certificates, version: str) -> None:
    context = client_context(files)
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    with tls_connection(place, context) as connection:
        assert connection.version() == version.replace("_", ".")
        assert connection.compression() is None
        name, _, bits = connection.cipher() or ("", "", 0)
        assert bits >= 128
        assert name.startswith(("TLS_", "ECDHE-", "DHE-"))  # forward secrecy


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
@pytest.mark.parametrize("version", ["TLSv1", "TLSv1_1"])
def test_older_protocols_are_refused(place: tuple[str, int], files: Certificates, version: str) -> None:
    context = client_context(files)
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    with pytest.raises((ssl.SSLError, OSError)):
        tls_connection(place, context)


# The broker rejects CBC ciphers. It also rejects ciphers with an anonymous key exchange, without encryption,
# with a broken algorithm or without forward secrecy.
@pytest.mark.parametrize(
    "ciphers",
    ["aNULL", "eNULL", "3DES", "RC4", "kRSA", "PSK", "SRP", "ARIA:CAMELLIA:SEED:IDEA", "AES:!AESGCM:!AESCCM"],
)
def test_weak_ciphers_are_refused(place: tuple[str, int], files: Certificates, ciphers: str) -> None:
    try:
        context = client_context(files, f"{ciphers}:@SECLEVEL=0")
    except ssl.SSLError:
        pytest.skip("this OpenSSL has none of them at all")
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # TLS 1.3 has none of these ciphers.
    with pytest.raises((ssl.SSLError, OSError)):
        tls_connection(place, context)


def tcp_connection(bootstrap: str) -> socket.socket:
    host, _, port = bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=60)


@pytest.mark.parametrize("version", ["TLSv1_2", "TLSv1_3"])
def test_a_missing_client_certificate_is_answered_with_an_alert(files: Certificates, version: str) -> None:
    """A client without a certificate gets an alert.

    In TLS 1.3 the client may send its first request before the alert arrives.
    """
    context = client_context(files)
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]

    def talk(bootstrap: str) -> None:
        with context.wrap_socket(tcp_connection(bootstrap), server_hostname="localhost") as connection:
            connection.sendall(bytes(1000))
            connection.recv(1)

    with (
        running(listen=["SSL://127.0.0.1:0"], tls=files.context("required")) as server,
        pytest.raises(ssl.SSLError, match=r"ALERT_(CERTIFICATE_REQUIRED|HANDSHAKE_FAILURE)"),
    ):
        talk(server.bootstrap)


def test_a_client_without_tls_is_closed_and_logged(
    place: tuple[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_connection(place, timeout=60) as plain:
        plain.sendall(bytes(100))
        while plain.recv(100):
            pass
    assert "closed: the client does not use TLS, but this listener does" in caplog.text


def test_stop_does_not_wait_for_a_handshake(files: Certificates) -> None:
    with running(listen=["SSL://127.0.0.1:0"], tls=files.context()) as server:
        half, out = tcp_connection(server.bootstrap), ssl.MemoryBIO()
        mine = client_context(files).wrap_bio(ssl.MemoryBIO(), out, server_hostname="localhost")
        with contextlib.suppress(ssl.SSLWantReadError):
            mine.do_handshake()
        half.sendall(out.read())
        assert half.recv(1 << 16)  # By now the broker has sent its certificate and waits for the client.
    with half, contextlib.suppress(ConnectionResetError):
        while half.recv(1 << 16):
            pass


def test_a_response_of_many_tls_records_is_complete(files: Certificates) -> None:
    value = bytes(range(256)) * 3000
    with running({"t": 1}, listen=["SSL://127.0.0.1:0"], tls=files.context()) as server:
        how: SecurityConfig = {"security_protocol": "SSL", "ssl_cafile": files.ca}
        with Producer(server.bootstrap, **how) as producer:
            producer.send("t", value).result(60)
        with Consumer(server.bootstrap, auto_offset_reset="earliest", **how) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            assert next(iter(consumer)).value == value


@pytest.mark.parametrize("secured", [True, False])
def test_a_client_that_closes_after_a_request_causes_no_log(
    files: Certificates, secured: bool, caplog: pytest.LogCaptureFixture
) -> None:
    listen = ["SSL://127.0.0.1:0" if secured else "PLAINTEXT://127.0.0.1:0"]
    requests = b"".join(
        bytes(frame(encode_request(MetadataRequest(topics=None), 12, number, "me"))) for number in range(50)
    )
    clients: list[str] = []
    with running({"t": 1}, listen=listen, tls=files.context()) as server:
        for _ in range(10):
            with tcp_connection(server.bootstrap) as plain:
                clients.append(str(plain.getsockname()[1]))
                if not secured:
                    plain.sendall(requests)
                    continue
                with client_context(files).wrap_socket(plain, server_hostname="localhost") as connection:
                    connection.sendall(requests)
        how: SecurityConfig = {"security_protocol": "SSL", "ssl_cafile": files.ca} if secured else {}
        with Producer(server.bootstrap, **how) as producer:
            assert producer.send("t", b"x").result(60).offset == 0
    # Servers of other tests in this process may log, too.
    assert [line for line in caplog.messages if any(f":{port})" in line for port in clients)] == []
