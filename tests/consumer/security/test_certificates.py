"""Invalid certificates are rejected, and unusual valid ones accepted, on TLS connections in memory."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path
from typing import Any

import pytest

from consumer.security.failures import TlsFailed
from consumer.security.options import security_options
from kproto.broker.security.tls import ServerTls, TlsError
from tests.consumer.security.authority import FOR_CLIENTS, FOR_SERVERS, HOST, Named, form, hashes, named, x509

YESTERDAY, TOMORROW = (-9, -1), (1, 9)


def context_trusting(root: Named) -> ssl.SSLContext:
    """Return an SSL context, such as an application passes, that trusts only this root certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=root.pem)
    return context


def do_handshake(
    options: dict[str, Any],
    broker: Named,
    folder: Path,
    host: str = HOST,
    *,
    trusts: Named | None = None,
    newest: bool = True,
) -> None:
    """Perform a handshake with a broker. Raises TlsFailed if the client or the broker rejects the other.

    If `trusts` is an authority, the broker requires a client certificate that this authority has issued.
    """
    certificate_file = folder / "broker.pem"
    certificate_file.write_text(broker.own)
    broker_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    broker_context.load_cert_chain(certificate_file)
    if not newest:
        broker_context.maximum_version = ssl.TLSVersion.TLSv1_2
    if trusts is not None:
        broker_context.verify_mode = ssl.CERT_REQUIRED
        broker_context.load_verify_locations(cadata=trusts.pem)
    tls = security_options(options).tls
    assert tls is not None
    client, server = tls.pipe(host), ServerTls(broker_context)
    data, broken = client.begin(), False
    for _ in range(4):
        try:
            if not broken:
                server.feed(data)
        except TlsError:
            broken = True
        client.feed(server.outgoing())
        client.read_into(memoryview(bytearray(100)))
        data = client.outgoing()
    assert client.secured
    assert server.is_handshake_complete


@pytest.mark.parametrize(
    ("how", "words"),
    [
        (
            {"days": TOMORROW},
            "kafka.example.com or of its authority is not valid yet: is this machine's clock right",
        ),
        ({"use": FOR_CLIENTS}, "extended key usage serverAuth"),
        ({"by": "old"}, "has expired: .* expired in ssl_cafile='PEM text': 'old'$"),
        ({"by": "between", "sends": False}, "add the certificate .*the broker must send an intermediate one"),
        ({"by": "no authority"}, "rejected .invalid CA certificate.: the broker needs another certificate"),
    ],
)
def test_an_invalid_certificate_of_a_broker_is_reported_with_its_remedy(
    tmp_path: Path, how: dict[str, Any], words: str
) -> None:
    root, old = named("root", authority=True), named("old", authority=True, days=YESTERDAY)
    signers = {
        "old": old,
        "between": named("between", root, authority=True),
        "no authority": named("nobody", root),
    }
    signer = signers.get(how.get("by", ""), root)
    own = named("kafka", signer, **{name: value for name, value in how.items() if name != "by"})
    options = {"security_protocol": "SSL", "ssl_cafile": root.pem + old.pem}
    with pytest.raises(TlsFailed, match=words) as raised:
        do_handshake(options, own, tmp_path)
    assert raised.value.final


@pytest.mark.parametrize("newest", [True, False])
@pytest.mark.parametrize(
    "how", [{"days": YESTERDAY}, {"days": TOMORROW}, {"use": FOR_SERVERS}, {"by": "another"}]
)
def test_a_rejected_client_certificate_is_reported_as_the_cause(
    tmp_path: Path, how: dict[str, Any], newest: bool
) -> None:
    root, another_root = named("root", authority=True), named("other", authority=True)
    attributes = {name: value for name, value in how.items() if name != "by"}
    own = named("alice", another_root if "by" in how else root, **attributes)
    options = {"security_protocol": "SSL", "ssl_cafile": root.pem, "ssl_certfile": own.own}
    server = named("kafka", root)
    with pytest.raises(TlsFailed, match=r"rejects this client's certificate.*see ssl_certfile='PEM text'$"):
        do_handshake(options, server, tmp_path, trusts=root, newest=newest)
    context = context_trusting(root)
    with pytest.raises(
        TlsFailed, match="it may ask for a client certificate; does your ssl_context have one"
    ):
        do_handshake(
            {"security_protocol": "SSL", "ssl_context": context}, server, tmp_path, trusts=root, newest=newest
        )


def revocation_list(issuer: Named, revoked: Named) -> str:
    """Return a certificate revocation list (CRL) in which `issuer` revokes a certificate."""
    today = datetime.datetime.now(datetime.UTC)
    entry = x509.RevokedCertificateBuilder(revoked.certificate.serial_number, today).build()
    builder = x509.CertificateRevocationListBuilder(
        issuer.certificate.subject, today, today + datetime.timedelta(days=1), revoked_certificates=[entry]
    )
    return builder.sign(issuer.key, hashes.SHA256()).public_bytes(form.Encoding.PEM).decode()


@pytest.mark.parametrize("revoked", [True, False])
def test_revoked_certificates_are_checked_by_a_context_of_the_application(
    tmp_path: Path, revoked: bool
) -> None:
    root = named("root", authority=True)
    own = named("kafka", root)
    context = context_trusting(root)
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    if revoked:
        (tmp_path / "crl.pem").write_text(revocation_list(root, own))
        context.load_verify_locations(tmp_path / "crl.pem")
    words = "rejected .certificate revoked.: the broker needs another" if revoked else "CRL. is missing"
    with pytest.raises(TlsFailed, match=words):
        do_handshake({"security_protocol": "SSL", "ssl_context": context}, own, tmp_path)


def test_a_certificate_in_the_trust_store_is_trusted_without_its_issuer(tmp_path: Path) -> None:
    root = named("root", authority=True)
    between = named("between", root, authority=True)
    own = named("kafka", between)
    for trusted in (between, own):
        do_handshake({"security_protocol": "SSL", "ssl_cafile": trusted.pem}, own, tmp_path)


def test_a_host_name_may_end_with_a_dot(tmp_path: Path) -> None:
    root = named("root", authority=True)
    options = {"security_protocol": "SSL", "ssl_cafile": root.pem}
    do_handshake(options, named("kafka", root), tmp_path, f"{HOST}.")
