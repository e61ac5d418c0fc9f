"""`kproto broker --tls-self-signed` prints what a client needs to connect."""

from __future__ import annotations

import argparse
import base64
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from consumer import Admin
from kproto.cli import broker, main
from kproto.errors import AuthenticationFailed, UnsupportedVersion
from kproto.messages.metadata import MetadataRequest
from kproto.security.oauthbearer import unsecured_token
from tests.cli.stage import PASSWORD, StoppedAt, running_broker

pytest.importorskip("trustme")


@contextmanager
def first_line(*words: str) -> Generator[str]:
    """Run `kproto broker WORDS` during the `with` block, and yield the first line that it prints."""
    command = [sys.executable, "-m", "kproto", "broker", "--listen", "127.0.0.1:0", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield next(process.stdout)
        finally:
            process.terminate()


@pytest.mark.parametrize(
    ("protocol", "words"),
    [
        ("SASL_SSL", []),
        pytest.param("SSL", ["--set", "ssl.client.auth=required"], marks=pytest.mark.thorough),
    ],
)
def test_the_printed_python_call_connects(tmp_path: Path, protocol: str, words: list[str]) -> None:
    with running_broker(tmp_path / "made", *words, protocol=protocol) as lines:
        assert re.fullmatch(
            rf"listening on PLAINTEXT://127.0.0.1:\d+, {protocol}://localhost:\d+; .*\n", lines[0]
        )
        [line] = [line for line in lines if "kproto " in line]
        call = line.split(maxsplit=1)[1].replace("...", PASSWORD)
        with eval(call, {"Consumer": Admin}) as cluster:
            assert cluster.topics() == {"flights": 1}
    assert PASSWORD not in "".join(lines)
    assert (tmp_path / "made").stat().st_mode & 0o077 == 0


def test_unsigned_tokens_are_accepted_only_if_the_option_says_so(tmp_path: Path) -> None:
    """Unsigned tokens need --unsecured-tokens, because any client can forge a token for any user."""

    def topics_seen_by_token(lines: list[str]) -> dict[str, int]:
        place = re.search(r"SASL_SSL://(localhost:\d+)", lines[0])
        assert place is not None
        with Admin(
            place[1],
            security_protocol="SASL_SSL",
            ssl_cafile=str(tmp_path / "made" / "ca.pem"),
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=lambda: unsecured_token("alice", int(time.time() * 1000), 60_000),
        ) as cluster:
            return cluster.topics(timeout=30)

    with (
        running_broker(tmp_path / "made", protocol="SASL_SSL") as lines,
        pytest.raises(AuthenticationFailed, match="OAUTHBEARER is not enabled"),
    ):
        topics_seen_by_token(lines)
    with running_broker(tmp_path / "made", "--unsecured-tokens", protocol="SASL_SSL") as lines:
        assert topics_seen_by_token(lines) == {"flights": 1}
        assert "warning: tokens need no signature" in lines[1]


@pytest.mark.parametrize("more", [[], pytest.param(["--trace"], marks=pytest.mark.thorough)])
def test_metadata_has_the_address_of_the_option_advertise(more: list[str]) -> None:
    with first_line("--advertise", "kafka:9092", *more) as line:
        place = re.search(r"listening on (\S+), advertised as kafka:9092;", line)
        assert place is not None
        with Admin(place[1]) as cluster:
            [node] = cluster.request(MetadataRequest(topics=[]), timeout=30).brokers
    assert (node.host, node.port) == ("kafka", 9092)


@pytest.mark.thorough
def test_with_telemetry_clients_receive_instance_ids() -> None:
    def instance_id(*words: str) -> UUID:
        with first_line(*words) as line, Admin(line.split()[2].rstrip(";")) as admin:
            return admin.client_instance_id()

    assert instance_id("--telemetry").int
    with pytest.raises(UnsupportedVersion, match="GetTelemetrySubscriptions"):
        instance_id()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "--advertise h:1 --set advertised.listeners=PLAINTEXT://h:2",
            "only without --set advertised.listeners",
        ),
        ("--trace --advertise h:0", "allowed: a port from 1 to 65535"),
        (
            "--trace --listen 127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
            "only with a single listener, without TLS",
        ),
        ("--trace --listen SSL://127.0.0.1:0", "only with a single listener, without TLS"),
        ("--tls-cert c.pem", "SSL or SASL_SSL listener: add such a listener"),
        ("--tls-self-signed folder", "SSL or SASL_SSL listener: add such a listener"),
        ("--listen SSL://127.0.0.1:0", "needs either --tls-self-signed FOLDER or --tls-cert FILE"),
        (
            "--listen SSL://127.0.0.1:0 --tls-self-signed folder --tls-cert c.pem",
            "needs either --tls-self-signed FOLDER or --tls-cert FILE",
        ),
        (
            "--listen SSL://127.0.0.1:0 --tls-self-signed /dev/null/x",
            "cannot be used: Not a directory; allowed: a writable folder",
        ),
        ("--listen SSL://127.0.0.1:0 --tls-cert /nowhere", "allowed: a PEM certificate with its key"),
        ("--set ssl.client.auth=maybe", "allowed: none, requested or required"),
        (
            "--unsecured-tokens --set sasl.oauthbearer.jwks.endpoint.url=file:///keys",
            "allowed only without sasl.oauthbearer.jwks.endpoint.url",
        ),
        ("--set sasl.enabled.mechanisms=PLAIN,OAUTHBEARER", "or --unsecured-tokens"),
    ],
)
def test_options_that_exclude_each_other_are_rejected_before_the_broker_starts(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["broker", *words.split()]) == 2
    printed = capsys.readouterr()
    assert message in " ".join(printed.err.split())
    assert printed.out == ""


def stopped_at(text: str, words: str, monkeypatch: pytest.MonkeyPatch, stream: str = "stdout") -> list[str]:
    """Run `kproto broker WORDS` until it writes `text` to `sys.<stream>`; return that stream's lines."""
    output = StoppedAt(text)
    monkeypatch.setattr(sys, stream, output)
    assert main(["broker", "--listen", "127.0.0.1:0", *words.split()]) == 0
    return output.getvalue().splitlines()


def test_a_broker_prints_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    (line,) = stopped_at("listening", "--topic flights:2", monkeypatch)
    assert re.fullmatch(r"listening on 127\.0\.0\.1:\d+; press Ctrl-C to stop", line)


def test_a_broker_with_trace_prints_a_summary_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _, summary, *page = stopped_at("listening", f"--trace --html {tmp_path / 'p.html'}", monkeypatch)
    assert re.fullmatch(r"listening on 127\.0\.0\.1:\d+; press Ctrl-C to stop", first)
    assert summary == "no requests"
    assert page == [f"the timeline of the groups and their requests: {tmp_path / 'p.html'}"]


def test_with_json_the_address_is_printed_to_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line, *_ = stopped_at("listening", "--trace --json --advertise kafka:9092", monkeypatch, "stderr")
    assert re.fullmatch(
        r"listening on 127\.0\.0\.1:\d+, advertised as kafka:9092; press Ctrl-C to stop", line
    )
    assert capsys.readouterr().out == ""


def test_all_listeners_are_printed_with_a_warning_about_unsigned_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = "--listen PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0 --unsecured-tokens"
    first, warning = stopped_at("warning: tokens need no signature", words, monkeypatch)
    assert re.fullmatch(
        r"listening on PLAINTEXT://127\.0\.0\.1:\d+, SASL_PLAINTEXT://127\.0\.0\.1:\d+; press .*", first
    )
    assert "every client can be every user" in warning


def test_a_test_certificate_is_valid_for_all_names_of_the_broker(tmp_path: Path) -> None:
    listen = "advertised.listeners=SSL://kafka.test:9092, SSL://10.1.2.3:9093"
    parser = argparse.ArgumentParser()
    broker.add(parser.add_subparsers())  # type: ignore[arg-type]
    options = parser.parse_args(["broker", "--tls-self-signed", str(tmp_path / "a" / "b"), "--set", listen])
    made, context = broker._listener_tls(options, dict(options.set), ["broker.test"])
    assert made is not None
    assert context is not None
    assert context.verify_mode == ssl.CERT_NONE
    certificate = Path(made.server).read_bytes().split(b"-----BEGIN CERTIFICATE-----")[1]
    der = base64.b64decode(certificate.partition(b"-----END")[0])
    for name in (b"localhost", b"broker.test", b"kafka.test", bytes([10, 1, 2, 3])):
        assert name in der
    options.tls_self_signed, options.tls_cert = None, Path(made.server)
    for auth, mode in (("required", ssl.CERT_REQUIRED), ("none", ssl.CERT_NONE)):
        options.tls_ca = made.ca if auth == "required" else None
        none, context = broker._listener_tls(options, {"ssl.client.auth": auth}, ["broker.test"])
        assert (none, context and context.verify_mode) == (None, mode)
