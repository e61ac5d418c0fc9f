"""`kproto produce`: send the lines of stdin as records."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any, cast

from ..errors import ConfigError
from .arguments import Subparsers, key_values, parse_digits
from .connection import add_connection, client_options
from .record_formats import TEXT_FORMATS, add_formats, bytes_in_json, encode_text
from .schema_formats import add_schemas, encoders

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from consumer.delivery import Delivery

# The time in ms for which a batch waits for further records (linger.ms), as in Java's producer.
_LINGER_MS = 5
# The number of records after which the command waits until they are written.
_MAX_UNFINISHED = 10_000
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_RECORD_KEYS = ("key", "value", "headers", "partition", "timestamp")


def add(commands: Subparsers) -> None:
    produce = commands.add_parser(
        "produce",
        help="send the lines of stdin as records",
        description="Send each line of stdin as a record. With --json a line is an object with key, value, "
        "headers (a list of [NAME, VALUE]), partition and timestamp, as kproto consume --json prints it. The "
        "place of each written record is then printed.",
        epilog="Example: echo 'UA1:departed' | kproto produce flights --key-separator : "
        "--bootstrap localhost:9092",
    )
    produce.add_argument("topic", metavar="TOPIC")
    produce.add_argument(
        "--key-separator", metavar="TEXT", help="a line is KEY, this text, and VALUE; default: no keys"
    )
    produce.add_argument(
        "--header", action="append", default=[], metavar="NAME=VALUE", help="a header of each record"
    )
    produce.add_argument(
        "--partition", type=_parse_partition, metavar="P", help="default: by the key, as in Java"
    )
    produce.add_argument(
        "--compression", choices=_CODECS, default="none", help="compress the batches; default: none"
    )
    produce.add_argument("--null-marker", metavar="TEXT", help="a key or value with this text is null")
    add_formats(produce)
    add_schemas(produce)
    add_connection(produce)
    produce.set_defaults(run=_produce)


def _parse_partition(text: str) -> int:
    number = parse_digits(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a partition")
    return number


def _produce(options: argparse.Namespace) -> int:
    """Send the lines of stdin as records, and wait until the records are written.

    If a line is invalid, the records of all earlier lines are written before the error is reported.
    """
    from consumer import Producer

    if sys.stdin.isatty():
        print("type one record per line, then press Ctrl-D", file=sys.stderr)
    timeout_ms = int(options.timeout * 1_000)
    config = client_options(
        options,
        compression_type=options.compression,
        max_block_ms=timeout_ms,
        request_timeout_ms=min(30_000, timeout_ms),
        linger_ms=_LINGER_MS,
        delivery_timeout_ms=timeout_ms + _LINGER_MS,
    )
    headers = [(name, value.encode()) for name, value in key_values("--header", options.header).items()]
    parse_line = _record_from_json if options.json else _record_from_text
    options.encoders = encoders(options)
    deliveries: list[Delivery] = []
    with Producer(options.bootstrap, **config) as producer:
        try:
            for line_number, line in enumerate(_lines(), 1):
                record = _parse_record(parse_line, line, line_number, options)
                record.setdefault("partition", options.partition)
                record["headers"] = [*headers, *record.get("headers", ())]
                deliveries.append(producer.send(options.topic, **record))
                if len(deliveries) >= _MAX_UNFINISHED:
                    _await_deliveries(producer.flush, deliveries, options)
        finally:
            _await_deliveries(producer.flush, deliveries, options)
    return 0


def _lines() -> Iterator[str]:
    for line in sys.stdin.buffer:
        yield line.decode("utf-8", errors="surrogateescape").removesuffix("\n").removesuffix("\r")


def _await_deliveries(
    flush: Callable[[float | None], None], deliveries: list[Delivery], options: argparse.Namespace
) -> None:
    """Wait until the records are written, print their offsets if `--json` is set, and clear `deliveries`."""
    flush(options.timeout)
    for delivery in deliveries:
        written = delivery.result()
        if options.json:
            print(
                json.dumps({"topic": options.topic, "partition": written.partition, "offset": written.offset})
            )
    deliveries.clear()


def _parse_record(
    parse_line: Callable[[str, argparse.Namespace], dict[str, Any]],
    line: str,
    line_number: int,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """Parse a line of stdin. Raises ConfigError, which names the line, if the line is invalid."""
    try:
        return parse_line(line, options)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"line {line_number} of stdin", line, f"allowed: {error}") from None


def _record_from_text(line: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the key and the value of a line of text."""
    key: str | None = None
    value: str = line
    if options.key_separator:
        key, separator, value = line.partition(options.key_separator)
        if not separator:
            raise ValueError(f"KEY{options.key_separator}VALUE")
    return {
        "key": _part_bytes(key, "key", options),
        "value": _part_bytes(value, "value", options),
    }


def _part_bytes(text: str | None, part: str, options: argparse.Namespace) -> bytes | None:
    """Return the bytes of a key or value; None if there is no text, or if it is the null marker."""
    if text is None or text == options.null_marker:
        return None
    form = options.key_format if part == "key" else options.value_format
    try:
        encode = options.encoders.get(part)
        return encode_text(text, form) if encode is None else encode(text)
    # For values that do not fit the schema, the packages of the formats raise many kinds of errors.
    except Exception as error:
        raise ValueError(f"a {part} in the format {form} ({error})") from None


def _record_from_json(line: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of `Producer.send` for a JSON object. Keys not in `_RECORD_KEYS` are ignored.

    The input may be the output of `kproto consume --json`. In the text formats (string, hex and base64), a
    JSON string is the text of the key or value. Any other JSON value, and every value in another format, is
    passed to the format as JSON text.

    In the format `string`, {"base64": TEXT} stands for bytes. In every other format it is an ordinary object.
    """
    try:
        fields: object = json.loads(line)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise ValueError('an object such as {"key": "UA1", "value": "departed"}')
    record = {name: value for name, value in cast("dict[str, Any]", fields).items() if name in _RECORD_KEYS}
    for part in ("key", "value"):
        value = record.get(part)
        if value is not None:
            form = options.key_format if part == "key" else options.value_format
            is_format_text = isinstance(value, str) and form in TEXT_FORMATS
            text = value if is_format_text else json.dumps(value, ensure_ascii=False)
            data = bytes_in_json(value) if form == "string" else None
            record[part] = _part_bytes(text, part, options) if data is None else data
    record["headers"] = [_parse_header(header) for header in record.get("headers") or ()]
    return record


def _parse_header(header: Any) -> tuple[str, bytes | None]:
    match header:
        case [str(name), str(value)]:
            return name, value.encode()
        case [str(name), None]:
            return name, None
        case [str(name), dict()] if (data := bytes_in_json(cast("object", header[1]))) is not None:
            return name, data
        case _:
            raise ValueError('headers such as [["trace", "1a2b"]]')
