"""`kproto watch` prints the requests and responses that its filters select, and a summary at the end."""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import re
import signal
import ssl
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kproto.broker.server import running
from kproto.cli import main
from kproto.cli.watch import (
    ExchangeHandler,
    ExchangePrinter,
    _tls_context,
    add_filters,
    add_output_options,
    capture_file,
    interrupted_by_signals,
    reject_filters,
    reject_output_options,
    run_until_interrupted,
)
from kproto.errors import ConfigError
from kproto.inspect.exchanges import Exchange
from kproto.inspect.pcap import PcapWriter
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from kproto.messages.metadata import MetadataRequest, MetadataResponse
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kproto.testing.proxy import WatchProxy
from kproto.wire.message import Message
from tests.cli.stage import StoppedAt


def printer(*words: str) -> ExchangePrinter:
    parser = argparse.ArgumentParser()
    add_output_options(parser)
    return ExchangePrinter(parser.parse_args(words))


def exchange(
    request: Message, response: Message | None, *, client: str = "app-1", at: int = 5_000, took: int = 4
) -> Exchange:
    api = type(request).__name__.removesuffix("Request")
    answered_at = None if response is None else at + took
    return Exchange(1, "p:1", client, api, 4, 1, at, request, answered_at, response, broker="k:9092")


def heartbeat(code: int = 0, group: str = "g", **fields: Any) -> Exchange:
    request = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
    return exchange(request, HeartbeatResponse(error_code=code), **fields)


def metadata(**fields: Any) -> Exchange:
    return exchange(MetadataRequest(topics=[]), MetadataResponse(brokers=[], topics=[]), **fields)


def join(group: str = "g") -> Exchange:
    request = JoinGroupRequest(
        group_id=group, session_timeout_ms=1_000, member_id="", protocol_type="consumer", protocols=[]
    )
    members = [JoinGroupResponseMember(member_id="m", metadata=b"")]
    response = JoinGroupResponse(
        error_code=0, generation_id=1, protocol_name="range", leader="m", member_id="m", members=members
    )
    return exchange(request, response)


def sync(group: str = "g") -> Exchange:
    request = SyncGroupRequest(group_id=group, generation_id=1, member_id="m", assignments=[])
    return exchange(request, SyncGroupResponse(error_code=0, assignment=b""))


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ([], ["failed heartbeat", "metadata", "other client"]),
        (["--all"], ["heartbeat", "failed heartbeat", "metadata", "other client"]),
        (["--api", "Heartbeat"], ["heartbeat", "failed heartbeat"]),
        (
            ["--api", "Heartbeat", "--api", "Metadata", "--client", "app"],
            ["heartbeat", "failed heartbeat", "metadata"],
        ),
        (["--not-api", "Metadata"], ["failed heartbeat"]),
        (["--client", "other"], ["other client"]),
        (["--group", "g", "--all"], ["heartbeat"]),
        (["--group", "h"], ["failed heartbeat"]),
    ],
)
def test_the_filters_select_the_printed_exchanges(
    words: list[str], shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    exchanges = {
        "heartbeat": heartbeat(),
        "failed heartbeat": heartbeat(25, "h"),
        "metadata": metadata(),
        "other client": metadata(client="other-1"),
    }
    watch = printer(*words)
    printed: list[str] = []
    for name, exchange_ in exchanges.items():
        watch.add(exchange_)
        if capsys.readouterr().out:
            printed.append(name)
    assert printed == shown


def test_times_begin_with_the_first_exchange_even_if_it_is_not_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    watch = printer("--api", "Metadata")
    watch.add(heartbeat(at=5_000))
    watch.add(metadata(at=6_500))
    assert capsys.readouterr().out.split()[0] == "1.500"


@pytest.mark.parametrize(
    ("words", "is_printed"),
    [
        ([], True),
        (["--group", "g"], True),
        (["--group", "h"], False),
        (["--client", "app"], False),
        (["--not-api", "JoinGroup"], False),
        (["--api", "SyncGroup"], False),
        (["--api", "SyncGroup", "--api", "JoinGroup"], True),
    ],
)
def test_a_generation_is_printed_unless_a_filter_excludes_the_joins(
    words: list[str], is_printed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = printer(*words)
    watch.add(join())
    watch.add(sync())
    assert ("generation 1: app-1 joined" in capsys.readouterr().out) == is_printed


def test_the_summary_counts_responses_and_their_times(capsys: pytest.CaptureFixture[str]) -> None:
    watch = printer()
    for took in (1, 4, 10):
        watch.add(metadata(took=took))
    watch.add(exchange(MetadataRequest(topics=[]), None))
    watch.add(exchange(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), None))
    capsys.readouterr()
    watch.print_summary()
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line]
    assert lines == [
        ["API", "answers", "none", "median", "ms", "most", "ms"],
        ["Heartbeat", "0", "1", "-", "-"],
        ["Metadata", "3", "1", "4", "10"],
    ]


def test_a_summary_without_requests_has_no_empty_table(capsys: pytest.CaptureFixture[str]) -> None:
    printer().print_summary()
    assert capsys.readouterr().out == "\nno requests\n"


def test_with_json_stdout_has_only_json_lines(capsys: pytest.CaptureFixture[str]) -> None:
    watch = printer("--json")
    watch.add(metadata())
    watch.print_message("a message")
    watch.print_summary()
    printed = capsys.readouterr()
    (line,) = printed.out.splitlines()
    assert json.loads(line)["api"] == "Metadata"
    assert printed.err.startswith("a message\n")
    assert "Metadata" in printed.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--api", "Fetch", "--api", "Produce"], "--api='Fetch,Produce' is not allowed; allowed: never"),
        (["--not-api", "Fetch"], "--not-api='Fetch' is not allowed"),
        (["--client", "a"], "--client='a'"),
        (["--group", "g"], "--group='g'"),
        (["--all"], "--all=True"),
        (["--html", "page.html"], "--html='page.html'"),
    ],
)
def test_a_filter_that_does_not_apply_is_named(words: list[str], message: str) -> None:
    parser = argparse.ArgumentParser()
    add_filters(parser)
    reject_filters(parser.parse_args([]), "allowed: never")
    with pytest.raises(ConfigError) as caught:
        reject_filters(parser.parse_args(words), "allowed: never")
    assert message in str(caught.value)


def test_output_options_that_do_not_apply_are_named() -> None:
    parser = argparse.ArgumentParser()
    add_output_options(parser)
    reject_output_options(parser.parse_args([]), "allowed: never")
    for words in (["--json"], ["--all"]):
        with pytest.raises(ConfigError, match=f"{words[0]}=True"):
            reject_output_options(parser.parse_args(words), "allowed: never")


def test_a_capture_that_is_not_writable_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(ConfigError, match=r"--pcap=.*cannot be written: No such file"),
        capture_file(tmp_path / "missing" / "c.pcap"),
    ):
        raise AssertionError("the block must not run")


def test_a_failed_write_to_a_capture_is_reported_once_and_stops_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "c.pcap"
    with capture_file(path) as write:
        write(("127.0.0.1", 1), ("127.0.0.1", 2), True, b"frame")
        monkeypatch.setattr(PcapWriter, "write_frame", fail)
        for _ in range(2):
            write(("127.0.0.1", 1), ("127.0.0.1", 2), True, b"frame")
        write(("127.0.0.1", 1), ("127.0.0.1", 2), True, None)
    assert capsys.readouterr().err == f"kproto watch: stopped writing {path}: No space left on device\n"
    assert b"frame" in path.read_bytes()


@pytest.mark.parametrize(
    ("port", "hint"),
    [
        (9092, ""),
        (9094, " (Wireshark decodes port 9094 as Kafka with -d tcp.port==9094,kafka)"),
    ],
)
def test_a_capture_of_another_port_has_a_hint_for_wireshark(
    port: int, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Proxy(WatchProxy):
        """A proxy that connects to no cluster, and raises KeyboardInterrupt at its start, as Ctrl-C does."""

        async def __aenter__(self) -> WatchProxy:
            raise KeyboardInterrupt

    monkeypatch.setattr("kproto.testing.proxy.WatchProxy", Proxy)
    path = tmp_path / "c.pcap"
    assert main(["watch", f"kafka:{port}", "--pcap", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"the frames: {path}{hint}"


def test_a_proxy_prints_its_address_and_a_summary_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    output = StoppedAt("clients can use")
    monkeypatch.setattr(sys, "stdout", output)
    with running() as server:
        assert main(["watch", server.bootstrap, "--listen", "127.0.0.1:0"]) == 0
    first, _, summary = output.getvalue().splitlines()
    assert re.fullmatch(
        rf"clients can use 127\.0\.0\.1:\d+ for {server.bootstrap}; press Ctrl-C to stop", first
    )
    assert summary == "no requests"


def test_an_exchange_reaches_a_pipe_when_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe))
    watch = printer()
    for action in (lambda: watch.print_message("ready"), lambda: watch.add(metadata()), watch.print_summary):
        size = len(pipe.getvalue())
        action()
        assert len(pipe.getvalue()) > size
    watch.add(join())
    size = len(pipe.getvalue())
    watch.add(sync())
    assert b"generation 1" in pipe.getvalue()[size:]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--tls-ca ca.pem", "--tls-ca='ca.pem' is not allowed; allowed only with --tls"),
        ("--tls --command-config c", "--tls='True' is not allowed; allowed only without --command-config"),
        (
            "--tls-ca ca.pem --command-config c",
            "--tls-ca='ca.pem' is not allowed; allowed only without --com",
        ),
    ],
)
def test_tls_options_that_exclude_each_other_are_rejected(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", "127.0.0.1:1", "--listen", "127.0.0.1:0", *words.split()]) == 2
    assert message in capsys.readouterr().err


def context(**options: object) -> ssl.SSLContext | None:
    return _tls_context(
        argparse.Namespace(**{"command_config": None, "tls": False, "tls_ca": None, **options})
    )


def test_tls_to_the_cluster_checks_its_certificate_and_host_name(tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SSL\n")
    for tls in (context(tls=True), context(command_config=config)):
        assert tls is not None
        assert (tls.verify_mode, tls.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_the_client_configuration_decides_whether_the_connection_to_the_cluster_uses_tls(
    tmp_path: Path,
) -> None:
    """`kproto watch` ignores the SASL settings: its clients authenticate through the proxy."""
    assert context() is None
    sasl = 'sasl.mechanism=PLAIN\nsasl.jaas.config=x.PlainLoginModule required username="u" password="p";\n'
    config = tmp_path / "client.properties"
    for protocol, uses_tls in (("PLAINTEXT", False), ("SASL_PLAINTEXT", False), ("SASL_SSL", True)):
        config.write_text(f"security.protocol={protocol}\n{sasl}ssl.endpoint.identification.algorithm=\n")
        tls = context(command_config=config)
        assert (tls is not None) == uses_tls
        assert tls is None or not tls.check_hostname


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_a_command_as_ctrl_c_does(number: signal.Signals) -> None:
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), interrupted_by_signals():
            signal.raise_signal(number)
        assert signal.getsignal(number) == signal.SIG_IGN
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_arrives_before_the_loop_waits_ends_the_wait(number: signal.Signals) -> None:
    """A signal that arrives before the loop waits must wake the loop.

    Such a signal does not interrupt the system call in which the loop waits. Neither does a signal that is
    sent to another thread, as in this test.
    """
    waits = threading.Event()

    async def serve() -> None:
        asyncio.get_running_loop().call_soon(waits.set)
        await asyncio.sleep(20)

    def receive_signal() -> None:
        assert waits.wait(20)
        time.sleep(0.2)
        signal.pthread_kill(threading.get_ident(), number)

    thread = threading.Thread(target=receive_signal)
    thread.start()
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_until_interrupted(serve())
    assert time.monotonic() - start < 10
    thread.join()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_a_command_whose_loop_is_blocked(number: signal.Signals) -> None:
    """For example, a write to a full pipe blocks the loop. In this test, a read from an empty pipe does."""
    read_end, write_end = os.pipe()
    main_thread = threading.get_ident()
    blocks, ended, unblocked = threading.Event(), threading.Event(), threading.Event()

    async def serve() -> None:
        blocks.set()
        os.read(read_end, 1)

    def send_signals() -> None:
        assert blocks.wait(20)
        for _ in range(2):
            time.sleep(0.3)  # Meanwhile the main thread enters `os.read`, and blocks there.
            signal.pthread_kill(main_thread, number)
        if not ended.wait(5):
            unblocked.set()
            os.write(write_end, b"x")

    thread = threading.Thread(target=send_signals)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        run_until_interrupted(serve())
    ended.set()
    thread.join()
    os.close(read_end)
    os.close(write_end)
    assert not unblocked.is_set()


def test_signal_handlers_are_only_set_in_the_main_thread() -> None:
    handlers: list[Any] = []

    def serve() -> None:
        with interrupted_by_signals():
            handlers.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=serve)
    thread.start()
    thread.join(30)
    assert handlers == [before]


def test_a_command_ends_when_its_output_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    added: list[Exchange] = []

    def add(exchange: Exchange) -> None:
        added.append(exchange)
        raise BrokenPipeError

    async def run() -> None:
        watch = printer()
        monkeypatch.setattr(watch, "add", add)
        handler = ExchangeHandler(watch)
        handler(metadata())
        handler(metadata())
        with pytest.raises(BrokenPipeError):
            await handler.wait_for_failure()

    asyncio.run(asyncio.wait_for(run(), 30))
    assert len(added) == 1  # Once the pipe is broken, no more exchanges are printed.


def test_the_page_has_a_note_about_a_disconnected_member(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    watch = printer("--html", str(path))
    watch.add(join())
    watch.add(sync())
    watch.history.add_disconnection(1, 9_000)
    watch.print_summary()
    assert "its connection ended without LeaveGroup" in path.read_text()
