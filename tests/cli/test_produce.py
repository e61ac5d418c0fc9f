"""`kproto produce` sends the lines of stdin as records."""

from __future__ import annotations

import io
import json
import socket
import sys
import time
from collections.abc import Callable

import pytest

from kproto.cli import main
from tests.cli.stage import Shell


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | bytes], None]:
    """Return a function that sets the text or bytes that the next command reads from stdin."""

    def set_text(text: str | bytes) -> None:
        data = text.encode() if isinstance(text, str) else text
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return set_text


def test_each_line_is_a_value(shell: Shell, stdin: Callable[[str | bytes], None]) -> None:
    shell("topics create p1")
    stdin(b"one\ntwo\r\n\n\xff\xfe")
    assert shell("produce p1") == []
    assert shell("consume p1 --value-format hex") == ["6f6e65", "74776f", "", "fffe"]


def test_keys_headers_and_nulls(shell: Shell, stdin: Callable[[str | bytes], None]) -> None:
    shell("topics create p2 --partitions 3")
    stdin("k:v:w\nk:NULL\n")
    shell("produce p2 --key-separator : --null-marker NULL --header source=test --partition 1")
    assert [
        (row["partition"], row["key"], row["value"], row["headers"]) for row in shell.json("consume p2")
    ] == [
        (1, "k", "v:w", [["source", "test"]]),
        (1, "k", None, [["source", "test"]]),
    ]


def test_the_json_lines_of_consume_can_be_sent_again(
    shell: Shell, stdin: Callable[[str | bytes], None]
) -> None:
    shell("topics create p3 p4 --partitions 2")
    stdin(
        '{"key": "k", "value": {"n": 1}, "headers": [["a", "1"], ["b", null]], "partition": 1, '
        '"timestamp": 5}\n'
        '{"value": "text", "partition": 0}\n'
    )
    assert shell.json("produce p3") == [
        {"topic": "p3", "partition": 1, "offset": 0},
        {"topic": "p3", "partition": 0, "offset": 0},
    ]
    printed = shell.json("consume p3 --value-format string")
    stdin("\n".join(shell("consume p3 --json")))
    shell.json("produce p4")
    copied = shell.json("consume p4")
    assert sorted(map(str, copied)) == sorted(str(row).replace("'p3'", "'p4'") for row in printed)
    [row] = [row for row in copied if row["partition"] == 1]
    assert (row["timestamp"], row["headers"], row["value"]) == (5, [["a", "1"], ["b", None]], '{"n": 1}')


def test_bytes_that_are_not_utf_8_survive_a_copy_by_json_lines(
    shell: Shell, stdin: Callable[[str | bytes], None]
) -> None:
    shell("topics create bytes copied")
    key, value, header = {"base64": "AP8="}, {"base64": "/w=="}, {"base64": "/g=="}
    stdin(json.dumps({"key": key, "value": value, "headers": [["h", header]]}))
    shell.json("produce bytes")
    for copy in ("bytes", "copied"):
        lines = shell(f"consume {copy} --json")
        [row] = [json.loads(line) for line in lines]
        assert (row["key"], row["value"], row["headers"]) == (key, value, [["h", header]])
        assert shell(f"consume {copy} --value-format hex") == ["ff"]
        if copy == "bytes":
            stdin("\n".join(lines))
            shell.json("produce copied")


@pytest.mark.parametrize(
    ("value", "sent"), [('{"base64": "/w==", "n": 1}', '{"base64": "/w==", "n": 1}'), ('"\\\\xff"', "\\xff")]
)
def test_other_objects_and_texts_are_sent_as_they_are(
    shell: Shell, stdin: Callable[[str | bytes], None], value: str, sent: str
) -> None:
    topic = f"others{len(sent)}"
    shell(f"topics create {topic}")
    stdin(f'{{"value": {value}}}\n')
    shell.json(f"produce {topic}")
    assert [row["value"] for row in shell.json(f"consume {topic}")] == [sent]


def test_on_a_terminal_the_commands_that_read_stdin_say_how_to_end_the_input(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return True

    shell("topics create typed")
    messages: list[str] = []
    for data, words in ((b"x\n", ["produce", "typed"]), (b"{}\n", ["encode"]), (b"0000\n", ["decode"])):
        monkeypatch.setattr(sys, "stdin", Terminal(io.BytesIO(data)))
        main([*words, "--bootstrap", shell.bootstrap] if words[0] == "produce" else words)
        messages.append(capsys.readouterr().err.splitlines()[0])
    assert messages == [
        "type one record per line, then press Ctrl-D",
        "type one JSON object per line, then press Ctrl-D",
        "paste the bytes as text, then press Ctrl-D on a new line",
    ]


@pytest.mark.parametrize(
    ("line", "form", "expected"),
    [("6f6e65", "hex", "one"), ("b25l", "base64", "one"), ('{"n":1}', "json", '{"n":1}')],
)
def test_formats_of_values(
    shell: Shell, stdin: Callable[[str | bytes], None], line: str, form: str, expected: str
) -> None:
    shell(f"topics create p5-{form}")
    stdin(line)
    shell(f"produce p5-{form} --value-format {form}")
    assert shell(f"consume p5-{form}") == [expected]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", ""),
        ("--key-separator ;", "line 2 of stdin='second' is not allowed; allowed: KEY;VALUE"),
        ("--json", 'allowed: an object such as {"key": "UA1", "value": "departed"}'),
        ("--value-format hex", "a value in the format hex (non-hexadecimal"),
    ],
)
def test_an_invalid_line_is_an_error_after_the_lines_before_it(
    shell: Shell, stdin: Callable[[str | bytes], None], words: str, message: str
) -> None:
    first = {
        "--json": '{"value": "first"}',
        "--value-format hex": "6669727374",
        "--key-separator ;": "k;first",
    }
    topic = f"p6-{len(words)}"
    shell(f"topics create {topic}")
    stdin(f"{first.get(words, 'first')}\nsecond\n")
    shell(f"produce {topic} {words}", code=2 if message else 0)
    assert message in shell.errors
    assert shell(f"consume {topic}")[0] == "first"


@pytest.mark.parametrize("line", ['{"value": {"base64": "A"}}', '{"headers": [["h", {"base64": "A"}]]}'])
def test_invalid_base64_in_a_json_line_is_an_error(
    shell: Shell, stdin: Callable[[str | bytes], None], line: str
) -> None:
    stdin(line)
    shell("produce p1 --json", code=2)
    assert 'allowed: {"base64": TEXT}, where TEXT is bytes in base64 (' in shell.errors


def test_the_timeout_limits_the_wait_for_a_cluster(
    stdin: Callable[[str | bytes], None], capsys: pytest.CaptureFixture[str]
) -> None:
    stdin("x\n")
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert main(["produce", "t", "--bootstrap", address, "--timeout", "0.5"]) == 1
        assert "500 ms" in capsys.readouterr().err
        assert main(["consume", "t", "--bootstrap", address, "--timeout", "0.5"]) == 1
        assert "500 ms" in capsys.readouterr().err
    assert time.monotonic() - began < 30  # Without --timeout each client would wait for 60 s.


@pytest.mark.parametrize("number", ["-1", "x", ""])
def test_an_invalid_partition_is_rejected(
    number: str, shell: Shell, stdin: Callable[[str | bytes], None]
) -> None:
    shell(f"produce t --partition={number}", code=2)
    assert f"'{number}' is not the number of a partition" in shell.errors


@pytest.mark.parametrize("headers", ['["trace"]', '[["trace", 1]]', '[["a", "b", "c"]]'])
def test_invalid_headers_are_rejected(
    headers: str, shell: Shell, stdin: Callable[[str | bytes], None]
) -> None:
    shell("topics create headed --if-not-exists")
    stdin(f'{{"value": "x", "headers": {headers}}}\n')
    shell("produce headed --json", code=2)
    assert 'headers such as [["trace", "1a2b"]]' in shell.errors
