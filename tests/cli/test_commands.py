"""Commands read hex, base64, files and standard input, and report errors with an exit code."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kproto
from kproto.broker.server import running
from kproto.cli import main
from kproto.messages.api_versions import ApiVersionsRequest
from kproto.messages.group_records import GroupMetadataKey
from kproto.messages.headers import encode_request
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.records import Record, encode_batch
from kproto.wire.frame import frame

REQUEST_LINE = (
    b'{"kind": "request", "name": "HeartbeatRequest", "version": 4, "hex": "026700000003046d2d310000"}'
)
DECODED = {"json": {"groupId": "g", "generationId": 3, "memberId": "m-1", "groupInstanceId": None}}


class SlowPipe(io.RawIOBase):
    """A pipe whose bytes arrive in chunks of `size` bytes."""

    def __init__(self, data: bytes, size: int) -> None:
        self.data = io.BytesIO(data)
        self.size = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self.data.readinto(memoryview(buffer)[: self.size])


def decode_lines(monkeypatch: pytest.MonkeyPatch, data: bytes, size: int = 1 << 20) -> list[object]:
    """Run `kproto decode --json --lines` on `data`, which arrives in chunks of `size` bytes.

    Return the decoded result of each line of `data`.
    """
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(SlowPipe(data, size))))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, write_through=True))
    code = main(["decode", "--json", "--lines"])
    results = [json.loads(line) for line in out.getvalue().splitlines()]
    assert code == any("error" in result for result in results)
    return results


@pytest.mark.parametrize("size", [1, 7, 94, 95, 96, 1000])
def test_lines_are_complete_however_they_arrive(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    assert decode_lines(monkeypatch, (REQUEST_LINE + b"\n") * 3, size) == [DECODED] * 3


def test_the_last_line_needs_no_line_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decode_lines(monkeypatch, REQUEST_LINE + b"\n" + REQUEST_LINE) == [DECODED] * 2


def test_lines_may_end_with_crlf(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decode_lines(monkeypatch, (REQUEST_LINE + b"\r\n") * 2) == [DECODED] * 2


def test_every_line_has_a_result(monkeypatch: pytest.MonkeyPatch) -> None:
    results = decode_lines(monkeypatch, b"\n".join([b"", REQUEST_LINE, b"\xff", b"", REQUEST_LINE, b""]))
    assert [isinstance(result, dict) and "error" in result for result in results] == [
        True,
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("words", "line", "code"),
    [
        ("encode", json.dumps({**json.loads(REQUEST_LINE), **DECODED}), 0),
        ("encode", "{}", 1),
        ("encode --records", '{"batches": []}', 1),
        ("decode --lines", "[]", 1),
        ("decode --lines --records", '{"hex": ""}', 0),
        ("decode --lines --records", json.dumps({"hex": "00" * 70}), 1),
    ],
)
def test_an_invalid_line_exits_with_1(
    words: str, line: str, code: int, monkeypatch: pytest.MonkeyPatch, capsysbinary: Any
) -> None:
    for expected, lines in ((code, line), (1, f"{line}\n{{}}"), (1, f"{{}}\n{line}")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
        assert main(words.split()) == expected


HEARTBEAT = "000c00040000000700026d6500086c65616465727300000003046d2d310000"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("decode --response Nope:3 00", "such as JoinGroupRequest"),
        ("decode --response Fetch:99 00", "Fetch has no version 99; its versions are 4-18"),
        ("decode --response Fetch 00", "not NAME:VERSION, such as Fetch:17"),
        ("decode --message Heartbeat:4 00", "such as HeartbeatRequest"),
        ("decode --message FetchRequest:3 00", "FetchRequest has no version 3; its versions are 4-18"),
        ("decode --message HeartbeatRequest:4 --records 00", "not allowed with argument --message"),
        ("decode --port 0 00", "port from 1 to 65535"),
        ("decode --pcap /nowhere/at/all", "No such file"),
        ("decode /", "Is a directory"),
        ("decode nothing-of-the-kind!", "an existing file, or rows with offsets"),
        ("decode --lines 00", "allowed only alone or with --records: each line"),
        ("broker --topic flights:x", "NAME:PARTITIONS"),
        ("broker --topic a:1 --topic a:2", "--topic='a:2' is not allowed; allowed: each topic once; a:1"),
        ("broker --user alice:secret", "--user='alice' is not allowed; with a SASL listener"),
        (
            "broker --set sasl.enabled.mechanisms=OAUTHBEARER",
            "with OAUTHBEARER also sasl.oauthbearer.jwks.endpoint.url=file:///..., or --unsecured-tokens",
        ),
        (
            "broker --unsecured-tokens --set sasl.oauthbearer.jwks.endpoint.url=file:///keys",
            "--unsecured-tokens=True is not allowed; allowed only without sasl.oauthbearer.jwks.endpoint.url",
        ),
        ("broker --group g", "--group='g' is not allowed; allowed only with --trace"),
        ("broker --json", "--json=True is not allowed; allowed only with --trace"),
        ("broker --port 9092", "usage: kproto broker"),
        ("broker --port 9092", "unrecognized arguments: --port ..."),
        ("broker --listen 127.0.0.1:99999", "a port up to 65535"),
        ("watch 127.0.0.1:99999", "the port of '127.0.0.1:99999' is above 65535"),
        ("demo --records x", "a whole number of at least 1"),
        ("demo --seconds 0", "'0' is not a number of seconds above 0"),
        ("demo --seconds -1", "'-1' is not a number of seconds above 0"),
        ("demo --seconds nan", "'nan' is not a number of seconds"),
        ("broker --listen 192.0.2.1:9092", "an address of the broker's own host, such as 127.0.0.1:9092"),
        ("broker --listen nowhere.invalid:9092", "an address of the broker's own host"),
        ('member --as java a:1 c g {"session_ms":"x"}', "session_ms='x' is not allowed; an integer"),
        ('member --as sarama a:1 c g {"assignors":5}', "assignors=5 is not allowed; a list of strings"),
        ('member --as sarama a:1 c g {"assignors":"range"}', "assignors='range' is not allowed"),
        (f"member --as java a:1 c g {'[' * 200_000}", "is not valid JSON: maximum recursion depth"),
        (f'member --as java a:1 c g {{"session_ms":{"9" * 4000}}}', "9... (4000 characters) is not allowed"),
        ('member --as java a:1 c g {"sesion_ms":5}', "sesion_ms=5 is not allowed; did you mean session_ms?"),
        ('member --as librdkafka a:1 c g {"isolation":"x"}', "read_committed or read_uncommitted"),
        ('member --as kafka-go a:1 c g {"watch":1}', "watch=1 is not allowed; true or false"),
        (f"scenario loss --refresh {'9' * 400}ms", "is too long; the longest time is a year"),
        (f"demo --records {'9' * 5000}", "9... (5002 characters) is not a whole number of at least 1"),
        (f"broker --topic t:{'9' * 5000}", "... (5004 characters) is not NAME:PARTITIONS"),
        ("broker --topic t:\u00b2", "is not NAME:PARTITIONS"),
        (f"watch a:{'9' * 5000}", "... (5004 characters) is not HOST:PORT"),
        (f"decode --response Fetch:{'9' * 5000} 00", "... (5008 characters) is not NAME:VERSION"),
        (f"decode --port {'9' * 5000} 00", "... (5002 characters) is not a port from 1 to 65535"),
        (f"{'x' * 5000} 00", "... (5002 characters) does not exist; available: demo"),
        (f"versions {'x' * 5000}", "... (50"),
        (f"decode {'!' * 5000}", "!...' is not allowed"),
        ("brokr", "the command 'brokr' does not exist; did you mean broker?"),
        ("xyzzy", "available: demo, scenario,"),
        ("lesson", "available: demo, scenario,"),
        ("-x", "-x: this option does not exist"),
        ("versions JoinGruop", "JoinGroupResponse (`kproto versions` lists the APIs)"),
        ("broker --api Fetch --api 11", "--api='Fetch,JoinGroup' is not allowed; allowed only with --trace"),
        ("broker --html page", "--html='page' is not allowed; allowed only with --trace"),
        ("decode --not-api Fetch 00", "--not-api='Fetch' is not allowed; allowed only with --pcap FILE"),
        ("decode --short 00", "--short=True is not allowed; allowed only with --pcap FILE"),
    ],
)
def test_invalid_arguments_exit_with_2_and_an_error_that_names_valid_ones(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(words.split())
    except SystemExit as end:
        code = end.code
    assert code == 2
    error = " ".join(capsys.readouterr().err.split())
    assert message in error
    assert len(error) < 2000


@pytest.mark.parametrize("api", ["Heartbeat", "heartbeat", "HeartbeatResponse", "12"])
def test_an_api_is_found_by_name_or_key(api: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "--response", f"{api}:4", "00000001 00 00000000 0019 00"]) == 0
    assert "UNKNOWN_MEMBER_ID" in capsys.readouterr().out


def test_a_port_in_use_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert main(["broker", "--listen", address]) == 2
        message = "the address is in use; use another port, or 127.0.0.1:0 for any free port"
        assert message in capsys.readouterr().err
        with running() as server:
            assert main(["watch", server.bootstrap, "--listen", address]) == 2
        assert message in capsys.readouterr().err


def test_a_trace_with_json_prints_only_json() -> None:
    words = [sys.executable, "-m", "kproto", "broker", "--listen", "127.0.0.1:0", "--trace", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        listening = re.match(r"listening on 127\.0\.0\.1:(\d+)", process.stderr.readline())
        assert listening is not None
        with socket.create_connection(("127.0.0.1", int(listening[1])), timeout=30) as client:
            request = encode_request(ApiVersionsRequest(), 0, 1, "me")
            client.sendall(len(request).to_bytes(4, "big") + request)
            client.recv(1)
        process.terminate()
        lines = process.communicate(timeout=30)[0].splitlines()
    assert [json.loads(line)["api"] for line in lines] == ["ApiVersions"]


def test_a_file_name_read_as_base64_is_reported_as_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["decode", "capture1"]) == 1
    assert "the file 'capture1' does not exist, so the text was read as base64" in capsys.readouterr().err


def test_decode_reports_the_form_of_the_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", str(list(bytes.fromhex(HEARTBEAT)))]) == 0
    captured = capsys.readouterr()
    assert "HeartbeatRequest v4" in captured.out
    assert (
        "read as decimal numbers, as printed by Java, Go, JSON, Python or Erlang (--form decimal)"
        in captured.err
    )


def test_a_file_of_text_in_no_form_is_not_read_as_raw_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "text"
    path.write_text("no bytes at all!")
    assert main(["decode", str(path)]) == 2
    assert "--form raw" in capsys.readouterr().err
    assert main(["decode", "--form", "raw", str(path)]) == 1
    assert "6e 6f" in capsys.readouterr().out


def test_a_file_of_powershell_is_utf_16(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text").write_text(HEARTBEAT, "utf-16")
    assert main(["decode", str(tmp_path / "text")]) == 0
    assert "HeartbeatRequest v4" in capsys.readouterr().out


def test_an_existing_file_is_not_reported_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken").write_bytes(bytes.fromhex(HEARTBEAT)[:-4])
    monkeypatch.chdir(tmp_path)
    assert main(["decode", "broken"]) == 1
    assert capsys.readouterr().err == ""


def test_a_truncated_request_is_still_a_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", HEARTBEAT[:-8]]) == 1
    assert capsys.readouterr().err == ""


def test_without_a_command_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "COMMAND" in capsys.readouterr().out


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"kproto {kproto.__version__}\n"


def test_versions_of_some_apis(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["versions", "joingroup", "SyncGroupRequest"]) == 0
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == [
        "API",
        "JoinGroup",
        "SyncGroup",
    ]


def test_hex_may_be_longer_than_a_file_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", HEARTBEAT + "00" * 5000]) == 1
    assert "5000 bytes after the end" in capsys.readouterr().out
    assert main(["decode", "--message", "SaslAuthenticateRequest:0", "00001388" + "00" * 5000]) == 0


def test_no_bytes_are_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", ""]) == 2
    assert "at least one byte" in capsys.readouterr().err
    assert main(["decode", "--message", "ApiVersionsRequest:0", ""]) == 0


def test_hex_may_be_several_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", *bytes.fromhex(HEARTBEAT).hex(" ").split()]) == 0
    assert "HeartbeatRequest v4" in capsys.readouterr().out


def test_several_frames_are_printed_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    beat = encode_request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, 7, "me")
    assert main(["decode", frame(beat).hex() * 2]) == 0
    assert capsys.readouterr().out.count("HeartbeatRequest v4") == 2


def test_a_message_or_its_error_is_a_json_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "--json", HEARTBEAT]) == 0
    assert [json.loads(line)["name"] for line in capsys.readouterr().out.splitlines()] == [
        "RequestHeader",
        "HeartbeatRequest",
    ]
    assert main(["decode", "--json", HEARTBEAT[:-4]]) == 1
    assert json.loads(capsys.readouterr().out)["error"].startswith("HeartbeatRequest v4: ")
    assert main(["decode", "--json", "--message", "HeartbeatResponse:0", "000000"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["name"] == "HeartbeatResponse"
    assert printed.err == "kproto decode: 1 bytes follow the end of the message\n"


@pytest.mark.parametrize("order", [["good", "bad"], ["bad", "good"]])
def test_one_invalid_frame_of_several_exits_with_1(
    order: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    frames = {"good": HEARTBEAT, "bad": HEARTBEAT.replace("000c0004", "000c0063")}
    data = "".join(f"{len(frames[name]) // 2:08x}{frames[name]}" for name in order)
    assert main(["decode", data]) == 1
    printed = capsys.readouterr().out
    assert printed.count("HeartbeatRequest") == 1
    assert "Heartbeat has the versions 0-4" in printed


def test_invalid_bytes_are_followed_by_a_hint_at_other_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "ffff00000000"]) == 1
    assert "--response API:VERSION" in capsys.readouterr().err


def test_a_capture_given_as_data_is_rejected_with_a_hint_at_pcap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c").write_bytes(bytes.fromhex("d4c3b2a1") + bytes(20))
    assert main(["decode", str(tmp_path / "c")]) == 2
    assert "--pcap" in capsys.readouterr().err


def test_an_ascii_terminal_gets_escapes() -> None:
    command = [sys.executable, "-m", "kproto", "decode", "--message", "SaslHandshakeRequest:1", "0002c3a9"]
    done = subprocess.run(
        command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=True
    )
    assert b'mechanism: string = "\\xe9"' in done.stdout


def run_in_shell(words: str) -> subprocess.CompletedProcess[str]:
    """Run `python -m kproto` with these arguments in a shell, which handles redirections."""
    command = f"'{sys.executable}' -m kproto {words}"
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("decode <&-", 2, "at least one byte"),
        ("decode --lines <&-", 0, ""),
        ("encode <&- >&-", 0, ""),
        ("versions >&-", 0, ""),
        ("versions Fetch >/dev/full", 1, "No space left on device"),
        # The same code reports a full device for all commands, so the quick tests check only one command.
        pytest.param("show Fetch >/dev/full", 1, "No space left on device", marks=pytest.mark.thorough),
    ],
)
def test_closed_or_full_streams_are_reported_in_one_line(words: str, code: int, message: str) -> None:
    done = run_in_shell(words)
    assert (done.returncode, len(done.stderr.splitlines())) == (code, 1 if message else 0), done.stderr
    assert message in done.stderr


def test_a_closed_pipe_prints_no_traceback() -> None:
    done = run_in_shell("versions Fetch | true")
    assert done.stderr == ""


def test_records_are_text_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    data = encode_batch([Record(0, 0, None, b"v")]).hex()
    assert main(["decode", "--records", data]) == 0
    assert capsys.readouterr().out.splitlines()[1] == '  0  1970-01-01T00:00:00.000Z  key null  value "v"'
    assert main(["decode", "--records", "--json", data]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["value"] == "dg=="


def test_records_of_an_internal_topic_show_their_messages(capsys: pytest.CaptureFixture[str]) -> None:
    key = b"\0\2" + GroupMetadataKey(group="g").encode(0)
    data = encode_batch([Record(0, 0, key, None), Record(1, 0, b"\0\x63", b"")]).hex()
    words = ["decode", "--records", "--topic", "__consumer_offsets", data]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == '      key GroupMetadataKey v0 {"group": "g"}'
    assert lines[4].startswith("      <-- __consumer_offsets v99: field key at offset 0: record type 99")
    assert main([*words, "--json"]) == 0
    first, second = json.loads(capsys.readouterr().out)["rows"]
    assert first["keyMessage"] == {"name": "GroupMetadataKey", "version": 0, "json": {"group": "g"}}
    assert first["valueMessage"] is None
    assert "record type 99 is unknown" in second["messageError"]
    assert main(["decode", "--records", "--topic", "flights", data]) == 2
    assert "allowed with --records: __consumer_offsets, __transaction_state" in capsys.readouterr().err


def test_an_invalid_record_set_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    data = encode_batch([Record(0, 0, None, b"v")])
    assert main(["decode", "--records", (data[:-1] + b"x").hex()]) == 1
    assert "crc" in capsys.readouterr().out


def test_a_demo_without_its_packages_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.delitem(sys.modules, "kproto.demo.script", raising=False)
    assert main(["demo"]) == 1
    assert "pip install 'kproto[demo]'" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.thorough)])
def test_a_signal_stops_a_background_broker_which_writes_its_page(number: int, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN);"
        "from kproto.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    words = ["broker", "--listen", "127.0.0.1:0", "--trace", "--html", str(page)]
    with subprocess.Popen([sys.executable, "-c", code, *words], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "listening on" in process.stdout.readline()
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode == 0
    assert "</html>" in page.read_text()


@pytest.mark.parametrize(
    "words",
    [
        "scenario",
        "scenario S3-1",
        "scenario S0-1",
        "scenario race",
        pytest.param("scenario S1-20", marks=pytest.mark.thorough),
    ],
)
def test_stories_fit_a_narrow_terminal_without_loss(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed: dict[int, str] = {}
    for columns in (40, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(words.split()) == 0
        printed[columns] = capsys.readouterr().out
        assert max(map(len, printed[columns].splitlines())) <= columns
    if "race" not in words:  # `scenario race` prints a table in a wide terminal, and a list in a narrow one.
        assert re.findall(r"\w+", printed[40]) == re.findall(r"\w+", printed[200])


def test_field_notes_are_wrapped_for_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed: dict[int, str] = {}
    for columns in (1, 40, 59, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(["show", "FindCoordinator"]) == 0
        printed[columns] = capsys.readouterr().out
        notes = [line for line in printed[columns].splitlines() if re.fullmatch(r" {4,}\S+( \S+)*", line)]
        assert max(map(len, notes), default=0) <= max(26, columns)
    words = {columns: sorted(text.split()) for columns, text in printed.items()}
    assert words[40] == words[59] == words[200] == words[1]


def test_ctrl_c_ends_a_command_with_130_and_one_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("kproto.cli.versions._versions", interrupted)
    assert main(["versions"]) == 130
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "\nstopped\n")


def test_all_exit_codes_are_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    help_text = " ".join(capsys.readouterr().out.split())
    assert "2 invalid arguments; 130 Ctrl-C." in help_text


@pytest.mark.parametrize(
    "command",
    [
        "broker --listen 127.0.0.1:0 --trace",
        pytest.param("watch {} --listen 127.0.0.1:0", marks=pytest.mark.thorough),
    ],
)
def test_a_closed_output_stops_the_command_without_an_error(command: str) -> None:
    with running() as server:
        words = [sys.executable, "-m", "kproto", *command.format(server.bootstrap).split()]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            address = re.search(rb"127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert address is not None
            process.stdout.close()  # Like `| head -1`.
            try:
                with socket.create_connection(("127.0.0.1", int(address[1])), timeout=30) as client:
                    request = encode_request(ApiVersionsRequest(), 0, 1, "me")
                    client.sendall(len(request).to_bytes(4, "big") + request)
                    assert process.wait(timeout=30) == 1
                assert process.stderr.read() == b""
            finally:
                process.kill()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    "command",
    [
        "watch {} --listen 127.0.0.1:0",
        pytest.param("broker --listen 127.0.0.1:0", marks=pytest.mark.thorough),
    ],
)
def test_a_full_output_is_not_reported_as_an_invalid_address(command: str) -> None:
    with running() as server, open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "kproto", *command.format(server.bootstrap).split()]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == f"kproto {command.split()[0]}: No space left on device\n"


@pytest.mark.parametrize(
    "words",
    [
        "topics list --bootstrap alice:s3cr3t@h:9092",
        "member --as kproto alice:s3cr3t@h:9092 c g",
        "watch alice:s3cr3t@h:9092",
        "watch alice:s3cr3t%40h:9092",
        "watch 127.0.0.1:1 --listen alice:s3cr3t@h:9092",
        "broker --listen alice:s3cr3t@h:9092",
        "broker --advertise alice:s3cr3t@h:9092",
        "broker --set sasl.password=s3cr3t",
        "broker --set advertised.listeners=alice:s3cr3t@h:9",
        "broker --set advertised.listeners=PLAINTEXT://[alice:s3cr3t@h]:9",
        "broker --set ssl.keystore.password:s3cr3t",
        "broker --advertise [alice:s3cr3t@h]:9092",
        "broker --password s3cr3t",
        "broker --pasword=s3cr3t",
        "watch alice:s3cr3t@h:99999",
        "watch alice%3As3cr3t%40h:9092",
        "watch h:9092?password=s3cr3t",
        "topics list --bootstrap-server alice:s3cr3t@h:9092",
        "topics --bootstrap-server alice:s3cr3t@h:1,alice:s3cr3t@i:2 list",
        "decode 00 --schema-registry http://alice:s3cr3t@h:8081",
        "alice:s3cr3t@h:9092",
    ],
)
def test_no_error_shows_a_password(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors hide a password that is part of an address or of another option's value."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with contextlib.suppress(SystemExit):
        assert main(words.split()) != 0
    printed = capsys.readouterr()
    assert "kproto" in printed.err
    assert "s3cr3t" not in printed.out + printed.err
