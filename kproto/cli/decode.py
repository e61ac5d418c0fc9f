"""`kproto decode`: what bytes say."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError
from .arguments import Commands, api_version, message_version, port
from .lines import answer

if TYPE_CHECKING:
    from ..dissect import Dissection

_CAPTURES = ("a1b2c3d4", "d4c3b2a1", "a1b23c4d", "4d3cb2a1", "0a0d0d0a")
"""How pcap and pcapng files begin."""
_LAST = 253_402_300_799
"""The last second of the year 9999, for captures with broken times."""


def add(commands: Commands) -> None:
    decode = commands.add_parser(
        "decode",
        help="what bytes say: a request, a response, a message, a record set",
        description="Print bytes field by field, with offsets; a wrong byte is pointed at. Without "
        "--response, --message or --records the bytes are a request, which names itself in its header; the "
        "frame's size may stand in front, and more frames may follow. Exit code 1 if something is wrong "
        "with them.",
        epilog="Hex may be plain, or as xxd, hexdump -C, od -tx1, Wireshark or Python print it. Of a file "
        "that holds no such text the bytes themselves are read.",
    )
    decode.add_argument(
        "data",
        nargs="*",
        help="hex (in one word or several), base64, a file's name, or - for stdin (default)",
    )
    what = decode.add_mutually_exclusive_group()
    what.add_argument(
        "--response",
        type=api_version,
        metavar="API:VERSION",
        help="the answer to this, header and body, such as Fetch:17: a response doesn't say what it answers",
    )
    what.add_argument(
        "--message",
        type=message_version,
        metavar="NAME:VERSION",
        help="a body without header, by Kafka's name, such as FetchResponse:17 or OffsetCommitValue:4",
    )
    what.add_argument("--records", action="store_true", help="a record set: what a records field holds")
    what.add_argument(
        "--pcap",
        type=Path,
        metavar="FILE",
        help="a capture, pcap or pcapng: every request, and every response whose request is in it too; "
        "needs kproto[pcap]",
    )
    decode.add_argument(
        "--port", type=port, default=9092, metavar="N", help="the broker's, in the capture (default: 9092)"
    )
    decode.add_argument("--hex", action="store_true", help="all bytes of each field, and all records")
    decode.add_argument("--json", action="store_true", help="Kafka's JSON form instead of fields")
    decode.add_argument(
        "--lines",
        action="store_true",
        help='JSON lines on stdin such as {"kind": "request", "name": "HeartbeatRequest", "version": 4, '
        '"hex": "..."}, answers on stdout; with --records {"hex": "..."}',
    )
    decode.set_defaults(run=_decode)


def _decode(options: argparse.Namespace) -> int:
    if options.lines:
        return _decode_lines(options)
    if options.pcap:
        return _decode_capture(options)
    data = _bytes(" ".join(options.data) if options.data else "-")
    if options.records:
        return _decode_records(data, options)
    from .. import dissect, pasted

    if options.message:
        return _tell(dissect.dissect_message(data, *options.message), options)
    if not data:
        raise ConfigError("data", "", "there are no bytes")
    if options.response:
        return _tell(dissect.dissect(data, options.response), options)
    frames = dissect.split(data)
    found = [dissect.dissect(frame) for frame in frames]
    wrong = max(_tell(one, options) for one in found)
    word = " ".join(options.data)
    if wrong and pasted.is_base64(word) and not os.path.exists(word):
        print(f"kproto decode: there is no file {word!r}, so it was read as base64", file=sys.stderr)
    elif any(one.error is not None and len(one.parts) < 2 for one in found):  # no header of a request
        print(
            "kproto decode: this was read as a request. If it is a response, say --response API:VERSION; "
            "a body without header, --message NAME:VERSION; a record set, --records",
            file=sys.stderr,
        )
    return wrong


def _tell(found: Dissection, options: argparse.Namespace) -> int:
    from ..dissect import lines
    from ..messages.json_form import one_line

    if not options.json:
        print("\n".join(lines(found, whole=options.hex)))
    elif found.error is None:
        for question in found.messages():
            print(one_line(question))
    else:
        print(one_line({"error": str(found.error)}))
    return 1 if found.error else 0


def _decode_lines(options: argparse.Namespace) -> int:
    from .. import json_lines

    if options.data not in ([], ["-"]) or options.response or options.message or options.pcap:
        raise ConfigError("--lines", True, "the lines come from stdin and say themselves what they are")
    answer(json_lines.decode_records if options.records else json_lines.decode)
    return 0


def _decode_records(data: bytes, options: argparse.Namespace) -> int:
    from ..dissect import record_lines
    from ..json_lines import decode_records
    from ..messages.json_form import one_line

    told = decode_records({"hex": data.hex()})
    if options.json:
        print(one_line(told))
    else:
        print("\n".join(record_lines(data, whole=options.hex)) or "no batch")
    return 0 if told["valid"] else 1


def _decode_capture(options: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from ..capture import frames
    from ..dissect import lines
    from ..messages.json_form import one_line

    wrong = 0
    frame = None
    for frame in frames(options.pcap, options.port):
        found = frame.dissection
        wrong += found is None or found.error is not None
        if options.json:
            parts = [] if found is None or found.error else list(found.messages())
            error = {"error": frame.note if found is None else str(found.error)} if not parts else {}
            told = {"at": frame.at, "connection": frame.connection, "title": frame.title, "parts": parts}
            print(one_line(told | error))
        else:
            at = f"{datetime.fromtimestamp(min(frame.at, _LAST), UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
            note = f" ({frame.note})" if frame.note else ""
            print(f"\n{at} {frame.connection} {frame.title}{note}")
            if found is not None:
                print("\n".join(lines(found, whole=options.hex)))
    if frame is None:
        print(f"kproto decode: the connections to port {options.port} carry no data here", file=sys.stderr)
    return 1 if wrong else 0


def _bytes(text: str) -> bytes:
    """The bytes that an argument means: hex, base64, or a file (- is stdin) of these or of raw bytes."""
    from .. import pasted

    if text == "-":
        if sys.stdin.isatty():
            print("paste hex or base64; end it with Ctrl-D on a line of its own", file=sys.stderr)
        return _content(sys.stdin.buffer.read())
    if os.path.exists(text):  # which takes any text, unlike Path.exists
        try:
            return _content(Path(text).read_bytes())
        except OSError as error:
            raise ConfigError("data", text, error.strerror or str(error)) from None
    found = pasted.read(text)
    if found is None:
        raise ConfigError("data", text if len(text) <= 60 else text[:57] + "...", f"allowed: {pasted.FORMS}")
    return found


def _content(data: bytes) -> bytes:
    from .. import pasted

    if data[:4].hex() in _CAPTURES:
        raise ConfigError("data", "a capture", "say --pcap FILE")
    try:
        found = pasted.read(data.decode("ascii"))
    except UnicodeDecodeError:
        found = None
    return data if found is None else found
