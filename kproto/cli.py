"""The command `kproto`: one function per subcommand, and one place where errors become one sentence.

Exit codes: 0 all is well, 1 the command found something wrong or failed, 2 the words of the call are off,
130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from .errors import ConfigError, KprotoError

if TYPE_CHECKING:
    from io import BufferedReader


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the answer is the exit code."""
    options = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except KprotoError as error:
        print(f"kproto {options.command}: {error}", file=sys.stderr)
        return 1
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
        "--response or --message the bytes are a request, which names itself.",
    )
    decode.add_argument(
        "data", nargs="?", default="-", help="hex or base64, a file's name, or - for stdin (default)"
    )
    decode.add_argument(
        "--response",
        type=_name_and_version,
        metavar="API:VERSION",
        help="the bytes answer this, such as Fetch:17",
    )
    decode.add_argument(
        "--message",
        type=_name_and_version,
        metavar="NAME:VERSION",
        help="a body without header, by Kafka's name",
    )
    decode.add_argument("--records", action="store_true", help="the bytes are a record set")
    decode.add_argument(
        "--pcap", type=Path, metavar="FILE", help="every frame of a capture; needs kproto[pcap]"
    )
    decode.add_argument(
        "--port", type=_positive, default=9092, help="the broker's, in the capture (default: 9092)"
    )
    decode.add_argument("--hex", action="store_true", help="show all bytes of each field, not only the first")
    decode.add_argument("--json", action="store_true", help="Kafka's JSON form")
    decode.add_argument(
        "--lines", action="store_true", help="with --json: JSON lines on stdin, answers on stdout"
    )
    decode.set_defaults(run=_decode)

    encode = commands.add_parser(
        "encode",
        help="bytes of a message or a record set from Kafka's JSON form",
        description="Read JSON objects on stdin, one a line, and answer each with its bytes in hex.",
    )
    encode.add_argument("--records", action="store_true", help="record sets instead of messages")
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
    import json

    from . import dissect, json_lines

    if options.lines:
        _answer(json_lines.decode_records if options.records else json_lines.decode)
        return 0
    if options.pcap:
        return _decode_capture(options)
    data = _bytes(options.data)
    if options.records:
        told = json_lines.decode_records({"hex": data.hex()})
        print(json.dumps(told, indent=None if options.json else 2, ensure_ascii=False))
        return 0 if told["valid"] else 1
    if options.message:
        name, version = options.message
        try:
            found = dissect.dissect_message(data, name, version)
        except KeyError:
            raise ConfigError(
                "--message", name, "allowed: Kafka's name of a message, such as JoinGroupRequest"
            ) from None
    else:
        found = dissect.dissect(data, options.response)
    if options.json and found.error is None:
        for question in found.messages():
            print(json.dumps(question, ensure_ascii=False))
    elif options.json:
        print(json.dumps({"error": str(found.error)}, ensure_ascii=False))
    else:
        print("\n".join(dissect.lines(found, whole=options.hex)))
    return 1 if found.error else 0


def _decode_capture(options: argparse.Namespace) -> int:
    import json

    from .capture import frames
    from .dissect import lines

    wrong = 0
    for frame in frames(options.pcap, options.port):
        found = frame.dissection
        wrong += found is None or found.error is not None
        if options.json:
            parts = [] if found is None or found.error else list(found.messages())
            error = {"error": frame.note if found is None else str(found.error)} if not parts else {}
            told = {"at": frame.at, "connection": frame.connection, "title": frame.title, "parts": parts}
            print(json.dumps(told | error, ensure_ascii=False))
        else:
            print(
                f"\n{frame.at:.6f} {frame.connection} {frame.title}{f' ({frame.note})' if frame.note else ''}"
            )
            if found is not None:
                print("\n".join(lines(found, whole=options.hex)))
    return 1 if wrong else 0


def _encode(options: argparse.Namespace) -> int:
    from . import json_lines

    _answer(json_lines.encode_records if options.records else json_lines.encode)
    return 0


def _answer(answer: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
    """Answer the lines of stdin as soon as they are there: all that have come, then one flush."""
    from .json_lines import answers

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
    if text == "-":
        return _from_text(sys.stdin.buffer.read())
    if Path(text).is_file():
        return _from_text(Path(text).read_bytes())
    return _from_text(text.encode(), strict=True)


def _from_text(data: bytes, strict: bool = False) -> bytes:
    import base64
    import binascii

    words = b"".join(data.split())
    try:
        return bytes.fromhex(words.decode("ascii"))
    except ValueError:
        pass
    try:
        return base64.b64decode(words, validate=True)
    except binascii.Error:
        if strict:
            raise ConfigError(
                "data", data.decode()[:60], "allowed: hex, base64, the name of a file, or -"
            ) from None
        return data


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
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of at least 1")
    return number


def _name_and_version(text: str) -> tuple[str, int]:
    name, colon, version = text.rpartition(":")
    if not colon or not name or not version.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a name and a version, such as Fetch:17")
    return name, int(version)


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
