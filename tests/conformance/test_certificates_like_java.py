"""Kafka's TLS in Java and kproto's TLS accept and reject the same certificates and stores.

A case consists of the properties of a client and a broker, and the host name that the client expects. Its
result is "in" if both sides accept the connection, "client" or "broker" if that side rejects it, and
"refused" if the properties are invalid.

`DIFFERENT` lists the intended differences.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from consumer.security import client_properties, security_options
from consumer.security.failures import TlsFailed
from kproto.broker.security.tls import ServerTls, TlsError, server_context
from kproto.errors import ConfigError
from tests.conformance import judges

authority = pytest.importorskip("tests.consumer.security.authority")
from tests.consumer.security.authority import FOR_CLIENTS, FOR_SERVERS, HOST, Named, named  # noqa: E402

pytestmark = pytest.mark.java

DIFFERENT: Final = {
    "a cut in the first of two": "Java ignores the truncated certificate",
    "an authority that has expired": "Java does not check the dates of trusted certificates; OpenSSL does",
    "an authority in between that has expired, alone in the store": "the same",
    "a star and one name": "OpenSSL requires two labels after the wildcard",
    "an encrypted key": "Java 17 does not support the encryption that OpenSSL uses",
    "a key of old": "Java reads only PKCS #8",
    "text without line ends": "Java requires white space after a block's first line",
    "text in UTF-16": "Java reads only UTF-8",
}
ROOT, OTHER = named("root", authority=True), named("other", authority=True)
BETWEEN = named("between", ROOT, authority=True)
ALICE, LEAF = named("alice", ROOT), named("kafka", BETWEEN)
PAST, LATER = (-9, -1), (1, 9)
FORMS: Final[Mapping[str, Callable[[str], str]]] = {
    "text around it": lambda text: f"subject=ü: y\n{text}end",
    "text with CRLF": lambda text: text.replace("\n", "\r\n"),
    "text with CR": lambda text: text.replace("\n", "\r"),
    "text with a mark in front": lambda text: f"\ufeff{text}",
    "text with indents": lambda text: "".join(f"  {line}\n" for line in text.splitlines()),
    "text in one line": lambda text: text.replace("\n", " "),
    "text without line ends": lambda text: text.replace("\n", ""),
    "text with \\n in it": lambda text: text.replace("\n", "\\n"),
    "text with headers": lambda text: text.replace("CERTIFICATE-----\n", "CERTIFICATE-----\nfrom: me\n", 1),
    "text under an older name": lambda text: text.replace(" CERTIFICATE", " X509 CERTIFICATE"),
    "text that is trusted": lambda text: text.replace(" CERTIFICATE", " TRUSTED CERTIFICATE"),
    "no text": lambda text: "",
}
Case = tuple[dict[str, str], dict[str, str], str]


def cases_by_name() -> dict[str, Case]:
    """Build the cases. File options have the files' contents instead of their paths."""
    cases: dict[str, Case] = {}

    def broker(name: str, shown: str, trusted: str, host: str = HOST) -> None:
        cases[name] = {"ssl.truststore.location": trusted}, {"ssl.keystore.location": shown}, host

    def client(name: str, shown: str, trusted: str = ROOT.pem, auth: str = "required", **more: str) -> None:
        cases[f"{name} of a client"] = (
            {
                "ssl.truststore.location": ROOT.pem,
                **({"ssl.keystore.location": shown} if shown else {}),
                **{key.replace("_", "."): value for key, value in more.items()},
            },
            {
                "ssl.keystore.location": named("kafka", ROOT).own,
                "ssl.truststore.location": trusted,
                "ssl.client.auth": auth,
            },
            HOST,
        )

    def of(signer: Named = ROOT, *hosts: str, **how: Any) -> str:
        return named("kafka", signer, hosts or (HOST,), **how).own

    old = named("old", days=PAST, authority=True)
    ended = named("ended", ROOT, days=PAST, authority=True)
    broker("a good one", of(), ROOT.pem)
    broker("one that has expired", of(days=PAST), ROOT.pem)
    broker("one that does not hold yet", of(days=LATER), ROOT.pem)
    broker("one of somebody else", of(OTHER), ROOT.pem)
    broker("one for clients", of(use=FOR_CLIENTS), ROOT.pem)
    broker("an authority that has expired", of(old), old.pem)
    broker("an authority in between that has expired", of(ended), ROOT.pem)
    broker("an authority in between that has expired, alone in the store", of(ended), ended.pem)
    broker("an authority in between", LEAF.own, ROOT.pem)
    broker("an authority in between that is not sent", of(BETWEEN, sends=False), ROOT.pem)
    broker(
        "an authority in between that is in the store, too", of(BETWEEN, sends=False), ROOT.pem + BETWEEN.pem
    )
    broker("an authority in between alone in the store", LEAF.own, BETWEEN.pem)
    broker("nothing but the certificate in the store", LEAF.own, LEAF.pem)
    broker("an address", of(ROOT, "127.0.0.1", "::1"), ROOT.pem, "127.0.0.1")
    broker("an address of six", of(ROOT, "127.0.0.1", "::1"), ROOT.pem, "::1")
    broker("an address and only names", of(), ROOT.pem, "127.0.0.1")
    broker("a name that ends with a dot", of(), ROOT.pem, f"{HOST}.")
    broker("a name in capitals", of(), ROOT.pem, HOST.upper())
    broker("a star", of(ROOT, "*.example.com"), ROOT.pem)
    broker("a star, and a name below", of(ROOT, "*.example.com"), ROOT.pem, f"a.{HOST}")
    broker("a star and one name", of(ROOT, "*.example"), ROOT.pem, "kafka.example")
    broker("no name but the common one", named(HOST, ROOT, ()).own, ROOT.pem)
    broker("a cut in the first of two", of(), ROOT.pem[:200] + OTHER.pem)
    broker("a key in the trust store", of(), ALICE.secret())
    for name, form in FORMS.items():
        broker(name, of(), form(ROOT.pem))
        client(name, form(ALICE.own) or "\n")
    client("none", "")
    client("none where it is only asked for", "", auth="requested")
    client("one of somebody else", named("alice", OTHER).own)
    client("one that has expired", named("alice", ROOT, days=PAST).own)
    client("one that does not hold yet", named("alice", ROOT, days=LATER).own)
    client("one for servers", named("alice", ROOT, use=FOR_SERVERS).own)
    client("an authority in between", LEAF.own)
    client("an authority in between that is not sent", named("alice", BETWEEN, sends=False).own)
    client("an authority in between alone in the store", LEAF.own, BETWEEN.pem)
    client("another order", ALICE.secret() + ROOT.pem + ALICE.pem)
    client("an encrypted key", ALICE.secret("geheim") + ALICE.pem, ssl_key_password="geheim")
    client("an encrypted key without its password", ALICE.secret("geheim") + ALICE.pem)
    client("a key of old", ALICE.secret(how=authority.form.PrivateFormat.TraditionalOpenSSL) + ALICE.pem)
    cases["text in UTF-16"] = ({"ssl.truststore.location": f"UTF-16{ROOT.pem}"}, cases["a good one"][1], HOST)
    return cases


def written(properties: Mapping[str, str], folder: Path) -> Path:
    """Write the properties file and, in the same folder, the files to which its properties refer."""
    folder.mkdir(parents=True)
    lines = ["security.protocol=SSL"]
    for name, value in properties.items():
        if name.endswith(".location"):
            path = folder / f"{name}.pem"
            wide = value.startswith("UTF-16")
            path.write_bytes(value.removeprefix("UTF-16").encode("utf-16" if wide else "utf-8"))
            lines += [f"{name.replace('location', 'type')}=PEM", f"{name}={path}"]
        else:
            lines.append(f"{name}={value}")
    file = folder / "all.properties"
    file.write_text("\n".join(lines))
    return file


def java_says(cases: str) -> list[str]:
    source = Path(__file__).parent / "java" / "Handshakes.java"
    run = [judges.java(), "-cp", judges.kafka_jars(), str(source)]
    done = subprocess.run(run, input=cases, capture_output=True, text=True, check=True, timeout=300)
    return [line.partition(":")[0].partition(" ")[0] for line in done.stdout.splitlines()]


def we_say(client: Path, broker: Path, host: str, auth: str) -> str:
    try:
        tls = security_options(client_properties(client, "admin")).tls
    except ConfigError:
        return "refused"
    assert tls is not None
    folder = broker.parent
    trusted = folder / "ssl.truststore.location.pem"
    server = ServerTls(server_context(str(folder / "ssl.keystore.location.pem"), auth, str(trusted)))
    client_tls, result = tls.pipe(host), "in"
    data = client_tls.begin()
    try:
        for _ in range(4):
            try:
                server.feed(data)
            except TlsError:
                result = "broker"
            if back := server.outgoing():
                client_tls.feed(back)
            client_tls.read_into(memoryview(bytearray(100)))
            data = client_tls.outgoing()
    except TlsFailed:
        return "broker" if result == "broker" else "client"
    return result if client_tls.secured and server.is_handshake_complete else "nothing"


def test_certificates_are_trusted_as_by_java(tmp_path: Path) -> None:
    every = cases_by_name()
    files = {
        name: (written(client, tmp_path / f"{at}c"), written(broker, tmp_path / f"{at}b"))
        for at, (name, (client, broker, _)) in enumerate(every.items())
    }
    lines = "".join(f"{files[name][0]}\t{files[name][1]}\t{host}\n" for name, (_, _, host) in every.items())
    theirs = dict(zip(every, java_says(lines), strict=True))
    ours = {
        name: we_say(*files[name], host, broker.get("ssl.client.auth", "none"))
        for name, (_, broker, host) in every.items()
    }
    differ = {name for name in every if ours[name] != theirs[name]}
    same = {name.removesuffix(" of a client") for name in differ}
    assert same == set(DIFFERENT), {name: (ours[name], theirs[name]) for name in differ}
