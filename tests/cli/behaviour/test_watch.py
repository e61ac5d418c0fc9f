"""`kproto watch` writes an HTML page with each group's timeline and requests, and reports its own errors."""

from __future__ import annotations

import argparse
import json
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from kproto.broker.server import running
from kproto.cli import main
from kproto.cli.watch import ExchangePrinter, add_output_options
from kproto.errors import ConfigError
from kproto.group.subscription import Assignment, TopicPartition
from kproto.inspect.exchanges import Exchange
from kproto.messages.end_txn import EndTxnRequest, EndTxnResponse
from kproto.messages.headers import encode_request
from kproto.messages.leave_group import LeaveGroupRequest
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kproto.testing.certificates import certificates


def printer(*words: str) -> ExchangePrinter:
    parser = argparse.ArgumentParser()
    add_output_options(parser)
    return ExchangePrinter(parser.parse_args(words))


def sync_exchange(group: str = "g") -> Exchange:
    request = SyncGroupRequest(group_id=group, generation_id=1, member_id="m-1", assignments=[])
    assignment = Assignment(partitions=(TopicPartition("t", 0),)).encode()
    response = SyncGroupResponse(error_code=0, assignment=assignment)
    return Exchange(1, "p:1", "me", "SyncGroup", 5, 1, 0, request, 1, response, broker="kafka:9092")


def test_the_page_has_the_timeline_and_the_requests(tmp_path: Path) -> None:
    exchange_printer = printer("--html", str(tmp_path / "life.html"))
    exchange_printer.add(sync_exchange())
    exchange_printer.print_summary()
    page = (tmp_path / "life.html").read_text()
    assert "t-0 owned by me" in page
    assert "SyncGroup: got t-0" in page
    assert "kafka:9092" in page


def test_the_cause_of_a_generation_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    text, as_json = printer(), printer("--json")
    text.add(sync_exchange())
    assert "group g               generation 1: not seen" in capsys.readouterr().out
    as_json.add(sync_exchange())
    generation = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert generation == {
        "at": 1,
        "group": "g",
        "generation": 1,
        "cause": "not seen: nothing that was observed explains it",
    }
    text.print_summary()
    assert "generation 1: not seen" in capsys.readouterr().out


def test_each_group_has_its_own_section(tmp_path: Path) -> None:
    exchange_printer = printer("--html", str(tmp_path / "life.html"))
    exchange_printer.add(sync_exchange())
    exchange_printer.add(sync_exchange("other"))
    exchange_printer.print_summary()
    page = (tmp_path / "life.html").read_text()
    assert page.count("<table>") == 2
    assert "<h2>Group g</h2>" in page
    assert "<h2>Group other</h2>" in page


def test_the_page_has_the_outcomes_of_transactions(tmp_path: Path) -> None:
    exchange_printer = printer("--html", str(tmp_path / "life.html"))
    request = EndTxnRequest(transactional_id="billing", producer_id=1, producer_epoch=0, committed=True)
    response = EndTxnResponse(throttle_time_ms=0, error_code=0)
    exchange_printer.add(
        Exchange(1, "p:1", "me", "EndTxn", 4, 1, 0, request, 1, response, broker="kafka:9092")
    )
    exchange_printer.print_summary()
    page = (tmp_path / "life.html").read_text()
    assert "Transactions of billing: 1 committed, 0 aborted, 0 open" in page


def test_the_filters_apply_to_the_requests_on_the_page(tmp_path: Path) -> None:
    exchange_printer = printer("--html", str(tmp_path / "life.html"), "--group", "other")
    exchange_printer.add(sync_exchange())
    exchange_printer.print_summary()
    written = (tmp_path / "life.html").read_text()
    assert "SyncGroup: got t-0" not in written
    assert "A bar shows when a member owned a partition" not in written


def test_a_page_without_exchanges_says_so(tmp_path: Path) -> None:
    printer("--html", str(tmp_path / "life.html")).print_summary()
    assert "No classic group was seen" in (tmp_path / "life.html").read_text()


def test_an_unwritable_page_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--html"):
        printer("--html", str(tmp_path / "no" / "life.html")).print_summary()


def test_a_missing_cluster_is_not_reported_as_an_invalid_listen_address(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["watch", "127.0.0.1:1", "--listen", "127.0.0.1:0"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith("kproto watch: no broker at 127.0.0.1:1")
    assert "--listen" not in printed


@pytest.mark.parametrize(
    ("certificate", "is_trusted", "message"),
    [
        ("server", False, "no trusted authority has signed the certificate of localhost.*: set ssl_cafile"),
        ("expired", True, "the certificate of localhost or of its authority has expired: renew it"),
        ("elsewhere", True, "the certificate is not for the host name localhost: connect by a name"),
    ],
)
def test_an_invalid_certificate_is_reported_with_its_remedy(
    certificate: str, is_trusted: bool, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("trustme")
    files = certificates(tmp_path)
    truststore = f"ssl.truststore.type=PEM\nssl.truststore.location={files.ca}\n" if is_trusted else ""
    (tmp_path / "client.properties").write_text(f"security.protocol=SSL\n{truststore}")
    tls = files.context(server=getattr(files, certificate))
    with running(listen=["SSL://localhost:0"], tls=tls) as server:
        address = "localhost:" + server.bootstrap.rpartition(":")[2]
        words = ["--listen", "127.0.0.1:0", "--command-config", str(tmp_path / "client.properties")]
        assert main(["watch", address, *words]) == 1
    assert re.fullmatch(rf"kproto watch: no broker at {address}: {message}.*\n", capsys.readouterr().err)


def test_a_cluster_without_tls_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "client.properties").write_text("security.protocol=SSL\n")
    with running() as server:
        words = ["--listen", "127.0.0.1:0", "--command-config", str(tmp_path / "client.properties")]
        assert main(["watch", server.bootstrap, *words]) == 1
    assert capsys.readouterr().err.endswith("does this port speak TLS?\n")


def test_a_self_signed_certificate_can_be_trusted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("trustme")
    files = certificates(tmp_path)
    with running(listen=["SSL://localhost:0"], tls=files.context(server=files.elsewhere)) as server:
        address = "localhost:" + server.bootstrap.rpartition(":")[2]
        words = [address, "--listen", "127.0.0.1:0", "--tls", f"--tls-ca={files.elsewhere}"]
        assert main(["watch", *words]) == 1  # The certificate is trusted, but issued for a different host.
    assert "the certificate is not for the host name localhost" in capsys.readouterr().err


def test_an_invalid_ca_file_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    words = ["127.0.0.1:1", "--listen", "127.0.0.1:0", "--tls", f"--tls-ca={tmp_path / 'ca.pem'}"]
    assert main(["watch", *words]) == 2
    printed = capsys.readouterr().err
    assert re.match(r"kproto watch: --tls-ca='.*ca.pem' is not allowed; a file of PEM certificates", printed)


def test_exchanges_interrupted_by_ctrl_c_are_printed(tmp_path: Path) -> None:
    """Requests that are still unanswered when Ctrl-C is pressed are printed.

    sarama-cluster, for example, does not wait for the response to its LeaveGroup.
    """
    request = encode_request(LeaveGroupRequest(group_id="g", member_id="m-1"), 0, 7, "me")
    with socket.create_server(("127.0.0.1", 0)) as cluster:
        words = [f"127.0.0.1:{cluster.getsockname()[1]}", "--listen", "127.0.0.1:0", "--json"]
        with subprocess.Popen(
            [sys.executable, "-m", "kproto", "watch", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stderr is not None
            host, port = process.stderr.readline().split()[3].split(":")
            # The proxy's first connection only checks whether the cluster is reachable.
            cluster.accept()[0].close()
            with socket.create_connection((host, int(port))) as client:
                client.sendall(len(request).to_bytes(4, "big") + request)
                connection, _ = cluster.accept()
                with connection, connection.makefile("rb") as stream:
                    assert stream.read(4 + len(request))[4:] == request
                    process.send_signal(signal.SIGINT)
                    out, _ = process.communicate(timeout=20)
    (exchange,) = map(json.loads, out.splitlines())
    assert (exchange["client"], exchange["api"]) == ("me", "LeaveGroup")
    assert exchange["trouble"] == "the connection ended before the response"


def test_a_client_id_cannot_inject_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A line break in a client id must not forge an output line.

    An escape sequence in a client id must not reach the terminal.
    """
    exchange_printer = printer()
    name = "g\r\n    9.999  admin  DeleteTopics v6\x1b[31m\x9b1m\u202e"
    exchange = sync_exchange(name)
    exchange.client = name
    exchange_printer.add(exchange)
    request = EndTxnRequest(transactional_id=name, producer_id=1, producer_epoch=0, committed=True)
    response = EndTxnResponse(throttle_time_ms=0, error_code=0)
    exchange_printer.add(
        Exchange(1, "p:1", name, "EndTxn", 4, 1, 0, request, 1, response, broker="kafka:9092")
    )
    exchange_printer.print_summary()
    printed = capsys.readouterr().out
    assert all(line.isprintable() for line in printed.split("\n"))
    assert r"group=g\u000d\u000a    9.999  admin  DeleteTopics v6\u001b[31m\u009b1m\u202e" in printed
    assert not [line for line in printed.split("\n") if line.startswith("    9.999")]
