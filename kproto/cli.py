"""The command `kproto`: one function per subcommand, and one place where errors become one sentence.

Exit codes: 0 all is well, 1 the command found something wrong or failed, 2 the words of the call are off,
130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from .errors import ConfigError, KprotoError

if TYPE_CHECKING:
    from io import BufferedReader

    from .dissect import Dissection


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the answer is the exit code."""
    options = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    out: object = sys.stdout
    if isinstance(out, TextIOWrapper):  # whatever a terminal can't show is escaped, and JSON is UTF-8
        form = "utf-8" if getattr(options, "json", False) else None
        out.reconfigure(encoding=form, errors="backslashreplace")
    try:
        return run(options)
    except KprotoError as error:
        print(f"kproto {options.command}: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        print("\nstopped", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kproto",
        description="Kafka's consumer protocol in Python: a broker, a demo, and the protocol's tables.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    demo = commands.add_parser(
        "demo",
        help="a year of flights through broker, group and Spark, checked to the row",
        description="Produce New York's flights of 2013 to a topic, read them with a group that lives "
        "through a join, a kill and the topic's growth, aggregate them in Spark, and check every row "
        "against pandas. Exit code 1 if one record is missing or differs.",
    )
    demo.add_argument("--bootstrap", metavar="HOST:PORT", help="use this Kafka; default: an embedded broker")
    demo.add_argument("--topic", default="flights", help="the topic to create and use (default: %(default)s)")
    demo.add_argument(
        "--records", type=_positive, metavar="N", help="only the first N departures; default: all 336,776"
    )
    demo.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="draws who is killed, and when (default: %(default)s)",
    )
    demo.add_argument(
        "--eager", action="store_true", help="the eager protocol: every rebalance stops the world"
    )
    demo.add_argument("--no-spark", action="store_true", help="leave the Spark query out (no Java needed)")
    demo.add_argument(
        "--seconds",
        type=float,
        default=30.0,
        metavar="S",
        help="how long producing shall take (default: %(default)s)",
    )
    demo.add_argument(
        "--picture",
        type=Path,
        default=Path("kproto-demo.html"),
        metavar="FILE",
        help="the timeline (default: %(default)s)",
    )
    demo.set_defaults(run=_demo)

    broker = commands.add_parser(
        "broker",
        help="an embedded broker that any Kafka client can use",
        description="Serve Kafka's protocol until Ctrl-C. Everything is kept in memory and gone at the end.",
    )
    broker.add_argument(
        "--listen",
        type=_address,
        default=("127.0.0.1", 9092),
        metavar="HOST:PORT",
        help="default: 127.0.0.1:9092; port 0: any",
    )
    broker.add_argument(
        "--topic",
        type=_topic,
        action="append",
        default=[],
        metavar="NAME:PARTITIONS",
        help="create this topic; may be repeated",
    )
    broker.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a broker setting under Kafka's name",
    )
    broker.set_defaults(run=_broker)

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
        type=_api_version,
        metavar="API:VERSION",
        help="the answer to this, header and body, such as Fetch:17: a response doesn't say what it answers",
    )
    what.add_argument(
        "--message",
        type=_message_version,
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
        "--port", type=_port, default=9092, metavar="N", help="the broker's, in the capture (default: 9092)"
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

    encode = commands.add_parser(
        "encode",
        help="bytes of a message or a record set from Kafka's JSON form",
        description='Read JSON lines on stdin such as {"kind": "request", "name": "HeartbeatRequest", '
        '"version": 4, "json": {...}}, and answer each with its bytes: {"hex": "..."}, or {"error": "..."}. '
        "This is what kproto decode --json prints.",
    )
    encode.add_argument(
        "--records", action="store_true", help='record sets: {"batches": [...], "rows": [...]}'
    )
    encode.add_argument("--json", action="store_true", help="the form of the input; there is no other")
    encode.add_argument("--lines", action="store_true", help="one object a line; there is no other way")
    encode.set_defaults(run=_encode)

    versions = commands.add_parser("versions", help="the APIs and versions that kproto's codecs know")
    versions.set_defaults(run=_versions)
    return parser


def _demo(options: argparse.Namespace) -> int:
    from .demo.story import Plan, tell

    plan = Plan(
        bootstrap=options.bootstrap,
        topic=options.topic,
        records=options.records,
        seed=options.seed,
        eager=options.eager,
        spark=not options.no_spark,
        seconds=options.seconds,
        picture=options.picture,
    )
    outcome = tell(plan)
    print("\n".join([*outcome.checks, *outcome.history]))
    return 1 if outcome.faults else 0


def _broker(options: argparse.Namespace) -> int:
    import asyncio
    import contextlib

    from .broker.server import Server

    async def serve() -> None:
        host, port = options.listen
        async with Server(
            topics=dict(options.topic), settings=dict(options.set), host=host, port=port
        ) as server:
            print(f"listening on {server.bootstrap}; Ctrl-C ends it", flush=True)
            await asyncio.Event().wait()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())
    return 0


def _decode(options: argparse.Namespace) -> int:
    if options.lines:
        return _decode_lines(options)
    if options.pcap:
        return _decode_capture(options)
    data = _bytes(" ".join(options.data) if options.data else "-")
    if options.records:
        return _decode_records(data, options)
    from . import dissect

    if options.message:
        return _tell(dissect.dissect_message(data, *options.message), options)
    if not data:
        raise ConfigError("data", "", "there are no bytes")
    if options.response:
        return _tell(dissect.dissect(data, options.response), options)
    frames = dissect.split(data)
    wrong = max(_tell(dissect.dissect(frame), options) for frame in frames)
    if wrong:
        print(
            "kproto decode: this was read as a request. If it is a response, say --response API:VERSION; "
            "a body without header, --message NAME:VERSION; a record set, --records",
            file=sys.stderr,
        )
    return wrong


def _tell(found: Dissection, options: argparse.Namespace) -> int:
    from .dissect import lines
    from .messages.json_form import one_line

    if not options.json:
        print("\n".join(lines(found, whole=options.hex)))
    elif found.error is None:
        for question in found.messages():
            print(one_line(question))
    else:
        print(one_line({"error": str(found.error)}))
    return 1 if found.error else 0


def _decode_lines(options: argparse.Namespace) -> int:
    from . import json_lines

    if options.data not in ([], ["-"]) or options.response or options.message or options.pcap:
        raise ConfigError("--lines", True, "the lines come from stdin and say themselves what they are")
    _answer(json_lines.decode_records if options.records else json_lines.decode)
    return 0


def _decode_records(data: bytes, options: argparse.Namespace) -> int:
    from .dissect import record_lines
    from .json_lines import decode_records
    from .messages.json_form import one_line

    told = decode_records({"hex": data.hex()})
    if options.json:
        print(one_line(told))
    else:
        print("\n".join(record_lines(data, whole=options.hex)) or "no batch")
    return 0 if told["valid"] else 1


def _decode_capture(options: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from .capture import frames
    from .dissect import lines
    from .messages.json_form import one_line

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


_LAST = 253_402_300_799
"""The last second of the year 9999, for captures with broken times."""


def _encode(options: argparse.Namespace) -> int:
    from . import json_lines

    _answer(json_lines.encode_records if options.records else json_lines.encode)
    return 0


def _answer(answer: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
    """Answer the lines of stdin as soon as they are there: all that have come, then one flush."""
    from .json_lines import answers

    if sys.stdin.isatty():
        print("type JSON, an object a line; end it with Ctrl-D", file=sys.stderr)
    for lines in _lines(cast("BufferedReader", sys.stdin.buffer)):
        for told in answers(lines, answer):
            sys.stdout.buffer.write(told.encode() + b"\n")
        sys.stdout.buffer.flush()


def _lines(stream: BufferedReader) -> Iterator[list[bytes]]:
    """Whole lines of a stream, without their ends, in the groups in which they arrive."""
    begun: list[bytes] = []  # the pieces of a line that has not ended
    while chunk := stream.read1(1 << 16):
        first, *more = chunk.split(b"\n")
        begun.append(first)
        if more:
            *lines, rest = b"".join(begun), *more
            begun = [rest]
            yield lines
    if last := b"".join(begun):
        yield [last]


def _bytes(text: str) -> bytes:
    """The bytes that an argument means: hex, base64, or a file (- is stdin) of these or of raw bytes."""
    from . import pasted

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


_CAPTURES = ("a1b2c3d4", "d4c3b2a1", "a1b23c4d", "4d3cb2a1", "0a0d0d0a")
"""How pcap and pcapng files begin."""


def _content(data: bytes) -> bytes:
    from . import pasted

    if data[:4].hex() in _CAPTURES:
        raise ConfigError("data", "a capture", "say --pcap FILE")
    try:
        found = pasted.read(data.decode("ascii"))
    except UnicodeDecodeError:
        found = None
    return data if found is None else found


def _versions(options: argparse.Namespace) -> int:
    from .messages.index import API_NAMES, request_class

    print(f"{'key':>4}  {'API':<30} {'versions':<9} flexible from")
    for key, name in sorted(API_NAMES.items()):
        request = request_class(key)
        flexible = request.__flexible__
        first = "-" if flexible.max < flexible.min else str(max(flexible.min, request.__versions__.min))
        print(f"{key:>4}  {name:<30} {request.__versions__!s:<9} {first}")
    return 0


def _positive(text: str) -> int:
    number = int(text) if text.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of at least 1")
    return number


def _port(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 1 to 65535")
    return int(text)


def _name_and_version(text: str, such_as: str) -> tuple[str, int]:
    name, colon, version = text.rpartition(":")
    if not colon or not name or not version.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a name and a version, such as {such_as}")
    return name, int(version)


def _api_version(text: str) -> tuple[str, int]:
    """An API by its name, in any case and with or without Response behind it, or by its key."""
    from .messages.index import API_NAMES, no_message, response_class

    name, version = _name_and_version(text, "Fetch:17")
    wanted = name.lower().removesuffix("response")
    for key, api in API_NAMES.items():
        if wanted in (api.lower(), str(key)):
            versions = response_class(key).__versions__
            if version not in versions:
                raise argparse.ArgumentTypeError(f"{api} has the versions {versions}, not {version}")
            return api, version
    raise argparse.ArgumentTypeError(no_message(name))


def _message_version(text: str) -> tuple[str, int]:
    from .messages.index import message_class, no_message

    name, version = _name_and_version(text, "JoinGroupRequest:9")
    try:
        versions = message_class(name).__versions__
    except KeyError:
        raise argparse.ArgumentTypeError(no_message(name)) from None
    if version not in versions:
        raise argparse.ArgumentTypeError(f"{name} has the versions {versions}, not {version}")
    return name, version


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:9092")
    return host, int(port)


def _topic(text: str) -> tuple[str, int]:
    name, colon, partitions = text.rpartition(":")
    if not colon or not name or not partitions.isdigit() or int(partitions) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME:PARTITIONS, such as flights:3")
    return name, int(partitions)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not NAME=VALUE, such as group.initial.rebalance.delay.ms=0"
        )
    return name, value
