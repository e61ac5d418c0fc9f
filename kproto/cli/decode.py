"""`kproto decode`: print bytes field by field."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError
from ..inspect.capture_file import GZIP, MAGIC_NUMBERS
from ..inspect.hexdump import FORMS, ParsedText, is_text, parse
from .arguments import Subparsers, api_version, message_version, port
from .lines import answer_lines
from .watch import ExchangePrinter, add_filters, reject_filters

if TYPE_CHECKING:
    from uuid import UUID

    from ..inspect.capture import CapturedFrame
    from ..inspect.dissect import Dissection
    from ..inspect.exchanges import Conversation, Exchange

_RAW = "raw"
# Kafka's default port, for --pcap.
_BROKER_PORT = 9092
# The last second of the year 9999, in seconds since 1970. A later time in a capture is shown as this second,
# because a datetime cannot represent it.
_MAX_TIMESTAMP = 253_402_300_799


def add(commands: Subparsers) -> None:
    decode = commands.add_parser(
        "decode",
        help="decode a request, a response, a message or a record set",
        description="Print bytes field by field, with offsets, and mark the first invalid byte. Without "
        "--response, --message or --records, the bytes are read as a request, whose header "
        "identifies it. The frame size may precede it, and more frames may follow. Exit code "
        "1 if the bytes are invalid.",
        epilog="The bytes may be pasted as tools and languages print them; --form lists the forms. "
        "Other forms than plain hex are reported on stderr. Data that is not text is read as raw bytes.",
    )
    decode.add_argument(
        "data",
        nargs="*",
        help="bytes as text (one word or several), the name of a file, or - for stdin (default)",
    )
    decode.add_argument(
        "--form",
        choices=(*FORMS, _RAW),
        help="the form of the bytes (default: as detected): "
        + "; ".join(f"{name}: {form.description}" for name, form in FORMS.items())
        + f"; {_RAW}: the bytes themselves",
    )
    kind = decode.add_mutually_exclusive_group()
    kind.add_argument(
        "--response",
        type=api_version,
        metavar="API:VERSION",
        help="decode a response to this API and version, header and body, such as Fetch:17; a "
        "response does not contain its API and version",
    )
    kind.add_argument(
        "--message",
        type=message_version,
        metavar="NAME:VERSION",
        help="decode a body without a header, by Kafka's name, such as FetchResponse:17 or "
        "OffsetCommitValue:4",
    )
    kind.add_argument(
        "--records", action="store_true", help="decode a record set: the contents of a records field"
    )
    decode.add_argument(
        "--topic",
        metavar="NAME",
        help="with --records: the internal topic of the records, such as __consumer_offsets; the messages in "
        "keys and values are decoded too",
    )
    kind.add_argument(
        "--pcap",
        type=Path,
        metavar="FILE",
        help="decode a capture (pcap or pcapng, plain or gzipped): all requests, and the responses whose "
        "request is in it; needs kproto[pcap]",
    )
    decode.add_argument(
        "--port",
        type=port,
        metavar="N",
        help=f"the broker's port in the capture (default: {_BROKER_PORT})",
    )
    capture_options = decode.add_argument_group("with --pcap")
    capture_options.add_argument(
        "--short",
        action="store_true",
        help="print a line per request and response, and a summary at the end, as `kproto watch` does",
    )
    add_filters(capture_options)
    decode.add_argument("--hex", action="store_true", help="print all bytes of each field, and all records")
    decode.add_argument("--json", action="store_true", help="print Kafka's JSON form instead of fields")
    decode.add_argument(
        "--lines",
        action="store_true",
        help='read JSON lines such as {"kind": "request", "name": "HeartbeatRequest", "version": 4, '
        '"hex": "..."} from stdin, and answer on stdout; with --records, lines are {"hex": '
        '"..."}',
    )
    decode.set_defaults(run=_decode)


def _decode(options: argparse.Namespace) -> int:
    if options.lines:
        return _decode_lines(options)
    if options.pcap:
        return _decode_capture(options)
    _reject_capture_options(options, "allowed only with --pcap FILE")
    _check_topic(options)
    data, form = _read_bytes(" ".join(options.data) if options.data else "-", options.form)
    if form not in ("hex", _RAW):
        print(f"kproto decode: read as {FORMS[form].description} (--form {form})", file=sys.stderr)
    if options.records:
        return _decode_records(data, options)
    from ..inspect import dissect

    if options.message:
        return _print_dissection(dissect.dissect_message(data, *options.message), options)
    if not data:
        raise ConfigError("data", "", "allowed: at least one byte")
    if options.response:
        return _print_dissection(dissect.dissect(data, options.response), options)
    return _decode_requests(data, form, options)


def _decode_requests(data: bytes, form: str, options: argparse.Namespace) -> int:
    """Print one or several requests. If they are invalid, print a hint on how else to read the bytes."""
    from ..inspect import dissect

    dissections = [dissect.dissect(frame) for frame in dissect.split(data)]
    exit_code = max(_print_dissection(dissection, options) for dissection in dissections)
    text = " ".join(options.data)
    if exit_code and form == "base64" and options.data not in ([], ["-"]) and not os.path.exists(text):
        print(
            f"kproto decode: the file {text!r} does not exist, so the text was read as base64",
            file=sys.stderr,
        )
    elif any(
        dissection.error is not None and len(dissection.parts) < 2 for dissection in dissections
    ):  # Nothing after the request header was decoded, so perhaps the bytes are not a request.
        print(
            "kproto decode: the bytes were read as a request. For a response use --response "
            "API:VERSION, for a body without a header --message NAME:VERSION, for a record set "
            "--records",
            file=sys.stderr,
        )
    return exit_code


def _print_dissection(dissection: Dissection, options: argparse.Namespace) -> int:
    """Print the fields or the JSON form of a frame or message. Return the exit code.

    The exit code is 1 if the frame or message is invalid, and otherwise 0.
    """
    from ..inspect.dissect import lines
    from ..messages.json_form import one_line

    if not options.json:
        print("\n".join(lines(dissection, whole=options.hex)))
    elif dissection.error is None:
        for message in dissection.messages():
            print(one_line(message))
    else:
        print(one_line({"error": str(dissection.error)}))
    if dissection.wrong and dissection.error is None and options.json:
        print(f"kproto decode: {'; '.join(dissection.faults())}", file=sys.stderr)
    return 1 if dissection.wrong else 0


def _decode_lines(options: argparse.Namespace) -> int:
    """Decode JSON lines from stdin. Return the exit code."""
    from ..inspect import json_lines

    others = ("response", "message", "pcap", "topic", "form", "hex")
    if options.data not in ([], ["-"]) or any(getattr(options, name) for name in others):
        raise ConfigError(
            "--lines",
            True,
            "allowed only alone or with --records: each line from stdin says what it contains",
        )
    _reject_capture_options(options, "allowed only with --pcap FILE")
    return answer_lines(json_lines.decode_records if options.records else json_lines.decode)


def _reject_capture_options(options: argparse.Namespace, allowed: str) -> None:
    """Raise ConfigError for an option that has an effect only on a capture."""
    for name in ("port", "short"):
        if value := getattr(options, name):
            raise ConfigError(f"--{name}", value, allowed)
    reject_filters(options, allowed)


def _check_topic(options: argparse.Namespace) -> None:
    """Raise ConfigError if --topic is not an internal topic, or is used without --records."""
    from ..messages.index import RECORDS_OF

    if options.topic is not None and not (options.records and options.topic in RECORDS_OF):
        raise ConfigError("--topic", options.topic, f"allowed with --records: {', '.join(RECORDS_OF)}")


def _decode_records(data: bytes, options: argparse.Namespace) -> int:
    """Print a record set. If it is invalid, the last printed line is an error, and the exit code is 1."""
    from ..inspect.dissect import ERROR_MARK, record_lines
    from ..inspect.json_lines import decode_records
    from ..messages.json_form import one_line

    if options.json:
        topic = {} if options.topic is None else {"topic": options.topic}
        decoded = decode_records({"hex": data.hex(), **topic})
        print(one_line(decoded))
        return 0 if decoded["valid"] else 1
    line = ""
    for line in record_lines(data, whole=options.hex, topic=options.topic):
        print(line)
    if not line:
        print("no batch")
    return 1 if line.startswith(ERROR_MARK) else 0


def _decode_capture(options: argparse.Namespace) -> int:
    """Print the frames of a capture, or with --short its exchanges. Return 1 if a frame is invalid."""
    from ..inspect.capture import frames

    if options.data:
        raise ConfigError("--pcap", str(options.pcap), "allowed only without other data")
    if options.form:
        raise ConfigError("--form", options.form, "allowed only without --pcap")
    _check_topic(options)
    if options.short and options.hex:
        raise ConfigError("--hex", True, "allowed only without --short")
    for name in ("all", "html"):
        if getattr(options, name) and not options.short:
            raise ConfigError(f"--{name}", getattr(options, name), "allowed only with --short")
    printer = ExchangePrinter(options)
    broker_port = options.port or _BROKER_PORT
    has_filters = bool(options.api or options.not_api or options.client or options.group)
    conversations: dict[str, Conversation] = {}
    # Topic id -> topic name. All connections share the names that any of them contains.
    names: dict[UUID, str] = {}
    invalid_frames = frame_count = 0
    for frame in frames(options.pcap, broker_port):
        frame_count += 1
        exchange, is_complete = _add_frame(conversations, names, frame)
        if has_filters and (exchange is None or not printer.matches_filters(exchange)):
            continue
        invalid_frames += frame.dissection is None or frame.dissection.wrong
        if not options.short:
            _print_frame(frame, options)
        elif exchange is None:
            printer.print_message(f"{frame.connection} {frame.title} {frame.note}".rstrip())
        elif is_complete:
            printer.add(exchange)
    if options.short:
        unanswered = [
            exchange_ for conversation in conversations.values() for exchange_ in conversation.close()
        ]
        for exchange in sorted(unanswered, key=_request_time):
            printer.add(exchange)
        printer.print_summary()
    elif not frame_count:
        print(
            f"kproto decode: the connections to port {broker_port} carry no data in this capture",
            file=sys.stderr,
        )
    return 1 if invalid_frames else 0


def _request_time(exchange: Exchange) -> int:
    return exchange.asked_at


def _add_frame(
    conversations: dict[str, Conversation], names: dict[UUID, str], frame: CapturedFrame
) -> tuple[Exchange | None, bool]:
    """Add a frame to its connection's conversation, which the first frame creates.

    Returns the exchange (a request with its response) of the frame, and whether the exchange is complete. The
    exchange is None if the frame was not decoded, or is a response whose request is not in the capture.
    """
    from ..inspect.exchanges import Conversation

    if frame.dissection is None:
        return None, False
    is_request = " -> " in frame.connection
    client, broker = frame.connection.split(" -> " if is_request else " <- ")
    name = f"{client} -> {broker}"
    if name not in conversations:
        conversations[name] = Conversation(client, len(conversations) + 1, names, broker)
    now = int(frame.at * 1_000)
    if is_request:
        return conversations[name].add_request(frame.dissection.data, now)
    return conversations[name].add_response(frame.dissection.data, now), True


def _print_frame(frame: CapturedFrame, options: argparse.Namespace) -> None:
    from datetime import UTC, datetime

    from ..inspect.dissect import lines
    from ..messages.json_form import one_line

    dissection = frame.dissection
    if options.json:
        parts = [] if dissection is None or dissection.error else list(dissection.messages())
        error = {"error": frame.note if dissection is None else str(dissection.error)} if not parts else {}
        output = {"at": frame.at, "connection": frame.connection, "title": frame.title, "parts": parts}
        print(one_line(output | error))
        return
    at = f"{datetime.fromtimestamp(min(frame.at, _MAX_TIMESTAMP), UTC):%Y-%m-%dT%H:%M:%S.%f}Z"
    note = f" ({frame.note})" if frame.note else ""
    print(f"\n{at} {frame.connection} {frame.title}{note}")
    if dissection is not None:
        print("\n".join(lines(dissection, whole=options.hex)))


def _read_bytes(text: str, form: str | None) -> ParsedText:
    """Return the bytes that an argument stands for, and the name of their form, such as hex.

    `text` is a file name, - for stdin, or the bytes in a text form such as hex. A file and stdin may contain
    text or raw bytes.
    """
    if text == "-":
        if sys.stdin.isatty():
            print("paste the bytes as text, then press Ctrl-D on a new line", file=sys.stderr)
        return _parse_content("stdin", sys.stdin.buffer.read(), form)
    # For a string that cannot be a file name, os.path.exists returns False, but Path.exists may raise an
    # OSError.
    if os.path.exists(text):
        try:
            return _parse_content(text, Path(text).read_bytes(), form)
        except OSError as error:
            raise ConfigError("data", text, error.strerror or str(error)) from None
    if form == _RAW:
        raise ConfigError("--form", form, "allowed only with the name of an existing file, or - for stdin")
    parsed = parse(text, form)
    if parsed is None:
        raise ConfigError(
            "data",
            text if len(text) <= 60 else text[:57] + "...",
            f"allowed: an existing file, or {_form_descriptions()}",
        )
    return parsed


def _parse_content(name: str, data: bytes, form: str | None) -> ParsedText:
    """Return the bytes that the content of a file or of stdin represents.

    If `form` is "raw", the content is returned unchanged. Otherwise text, such as hex digits or a dump, is
    parsed. Content that is not text is returned unchanged if `form` is None.

    Raises ConfigError in three cases: the content is a capture, it is text that cannot be parsed, or `form`
    names a form of text and the content is not text. `name` (the file's name or "stdin") is for error
    messages.
    """
    if form == _RAW:
        return ParsedText(data, _RAW)
    if data[:4] in MAGIC_NUMBERS or data.startswith(GZIP):
        raise ConfigError("data", "a capture", "use --pcap FILE for a capture")
    try:
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8")
    except UnicodeDecodeError:
        text = "\0"
    if is_text(text):
        parsed = parse(text, form)
        if parsed is None:
            raise ConfigError(
                "data",
                name,
                f"allowed: {_form_descriptions()}, or --form {_RAW} if the text itself is the bytes",
            )
        return parsed
    if form is not None:
        raise ConfigError("--form", form, f"use --form {_RAW}, because {name} is not text")
    return ParsedText(data, _RAW)


def _form_descriptions() -> str:
    return "; ".join(form.description for form in FORMS.values())
