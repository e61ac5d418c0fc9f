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
from .watch import Teller, add_filters, refuse_filters

if TYPE_CHECKING:
    from uuid import UUID

    from ..inspect.capture import Frame
    from ..inspect.dissect import Dissection
    from ..inspect.exchanges import Conversation, Exchange

_CAPTURES = ("a1b2c3d4", "d4c3b2a1", "a1b23c4d", "4d3cb2a1", "0a0d0d0a")  # How pcap and pcapng files begin.
_LAST = 253_402_300_799  # The last second of the year 9999, for captures with broken times.


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
    of_captures = decode.add_argument_group("with --pcap")
    of_captures.add_argument(
        "--short",
        action="store_true",
        help="a line for each request and its answer, and at the end what was seen, as `kproto watch` does",
    )
    add_filters(of_captures)
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
        if options.data:
            raise ConfigError("--pcap", str(options.pcap), "without other bytes beside it")
        return _decode_capture(options)
    if options.short:
        raise ConfigError("--short", True, "with --pcap FILE")
    refuse_filters(options, "with --pcap FILE")
    data = _bytes(" ".join(options.data) if options.data else "-")
    if options.records:
        return _decode_records(data, options)
    from ..inspect import dissect, hexdump

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
    if wrong and hexdump.is_base64(word) and not os.path.exists(word):
        print(f"kproto decode: there is no file {word!r}, so it was read as base64", file=sys.stderr)
    elif any(one.error is not None and len(one.parts) < 2 for one in found):  # no header of a request
        print(
            "kproto decode: this was read as a request. If it is a response, say --response API:VERSION; "
            "a body without header, --message NAME:VERSION; a record set, --records",
            file=sys.stderr,
        )
    return wrong


def _tell(found: Dissection, options: argparse.Namespace) -> int:
    from ..inspect.dissect import lines
    from ..messages.json_form import one_line

    if not options.json:
        print("\n".join(lines(found, whole=options.hex)))
    elif found.error is None:
        for question in found.messages():
            print(one_line(question))
    else:
        print(one_line({"error": str(found.error)}))
    if found.wrong and found.error is None and options.json:
        print(f"kproto decode: {'; '.join(found.faults())}", file=sys.stderr)
    return 1 if found.wrong else 0


def _decode_lines(options: argparse.Namespace) -> int:
    from ..inspect import json_lines

    if options.data not in ([], ["-"]) or options.response or options.message or options.pcap:
        raise ConfigError("--lines", True, "the lines come from stdin and say themselves what they are")
    return answer(json_lines.decode_records if options.records else json_lines.decode)


def _decode_records(data: bytes, options: argparse.Namespace) -> int:
    from ..inspect.dissect import record_lines
    from ..inspect.json_lines import decode_records
    from ..messages.json_form import one_line

    told = decode_records({"hex": data.hex()})
    if options.json:
        print(one_line(told))
    else:
        print("\n".join(record_lines(data, whole=options.hex)) or "no batch")
    return 0 if told["valid"] else 1


def _decode_capture(options: argparse.Namespace) -> int:
    from ..inspect.capture import frames

    for name in ("all", "html"):
        if getattr(options, name) and not options.short:
            raise ConfigError(f"--{name}", getattr(options, name), "with --short")
    teller = Teller(options)
    filtered = bool(options.api or options.not_api or options.client or options.group)
    talks: dict[str, Conversation] = {}
    names: dict[UUID, str] = {}  # of topics: told on one connection, used on all
    wrong = count = 0
    for frame in frames(options.pcap, options.port):
        count += 1
        exchange, over = _exchange(talks, names, frame)
        if filtered and (exchange is None or not teller.lets_through(exchange)):
            continue
        wrong += frame.dissection is None or frame.dissection.wrong
        if not options.short:
            _tell_frame(frame, options)
        elif exchange is None:
            teller.say(f"{frame.connection} {frame.title} {frame.note}".rstrip())
        elif over:
            teller.tell(exchange)
    if options.short:
        for exchange in sorted((one for talk in talks.values() for one in talk.ended()), key=_asked_at):
            teller.tell(exchange)
        teller.end()
    elif not count:
        print(f"kproto decode: the connections to port {options.port} carry no data here", file=sys.stderr)
    return 1 if wrong else 0


def _asked_at(exchange: Exchange) -> int:
    return exchange.asked_at


def _exchange(
    talks: dict[str, Conversation], names: dict[UUID, str], frame: Frame
) -> tuple[Exchange | None, bool]:
    """What a frame is a part of, None for what can't be read; and whether that is over now."""
    from ..inspect.exchanges import Conversation

    if frame.dissection is None:
        return None, False
    asking = " -> " in frame.connection
    client, broker = frame.connection.split(" -> " if asking else " <- ")
    name = f"{client} -> {broker}"
    if name not in talks:
        talks[name] = Conversation(client, len(talks) + 1, names, broker)
    now = int(frame.at * 1_000)
    if asking:
        return talks[name].asked(frame.dissection.data, now)
    return talks[name].answered(frame.dissection.data, now), True


def _tell_frame(frame: Frame, options: argparse.Namespace) -> None:
    from datetime import UTC, datetime

    from ..inspect.dissect import lines
    from ..messages.json_form import one_line

    found = frame.dissection
    if options.json:
        parts = [] if found is None or found.error else list(found.messages())
        error = {"error": frame.note if found is None else str(found.error)} if not parts else {}
        told = {"at": frame.at, "connection": frame.connection, "title": frame.title, "parts": parts}
        print(one_line(told | error))
        return
    at = f"{datetime.fromtimestamp(min(frame.at, _LAST), UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
    note = f" ({frame.note})" if frame.note else ""
    print(f"\n{at} {frame.connection} {frame.title}{note}")
    if found is not None:
        print("\n".join(lines(found, whole=options.hex)))


def _bytes(text: str) -> bytes:
    """The bytes that an argument means: hex, base64, or a file (- is stdin) of these or of raw bytes."""
    from ..inspect import hexdump

    if text == "-":
        if sys.stdin.isatty():
            print("paste hex or base64; end it with Ctrl-D on a line of its own", file=sys.stderr)
        return _content(sys.stdin.buffer.read())
    if os.path.exists(text):  # which takes any text, unlike Path.exists
        try:
            return _content(Path(text).read_bytes())
        except OSError as error:
            raise ConfigError("data", text, error.strerror or str(error)) from None
    found = hexdump.read(text)
    if found is None:
        raise ConfigError(
            "data",
            text if len(text) <= 60 else text[:57] + "...",
            f"no such file is there; allowed: {hexdump.FORMS}",
        )
    return found


def _content(data: bytes) -> bytes:
    from ..inspect import hexdump

    if data[:4].hex() in _CAPTURES:
        raise ConfigError("data", "a capture", "say --pcap FILE")
    try:
        found = hexdump.read(data.decode("ascii"))
    except UnicodeDecodeError:
        found = None
    return data if found is None else found
