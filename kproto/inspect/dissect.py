"""Dissect bytes: identify a request or a response by its header, and print it field by field.

    for line in lines(dissect(frame)):
        print(line)

A request contains its API and version. A response does not, so the caller passes both, as in `dissect(frame,
response=("Fetch", 17))`. A size prefix is recognized by its value: the number of bytes after the prefix.

If the bytes are invalid, the printed fields end at the invalid byte, which an arrow marks.

Record sets in fields are also decoded. `record_lines` decodes a single record set. The contents of bytes
fields, such as subscriptions and assignments, are printed below the field (`kproto.inspect.embedded`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..error_codes import ErrorCode
from ..errors import DecodeError, MissingExtra, RecordError, UnsupportedVersion
from ..messages.headers import (
    API_VERSIONS,
    RequestHeader,
    ResponseHeader,
    body_version,
    request_header_version,
    response_header_version,
)
from ..messages.index import API_NAMES, KAFKA_RELEASE, key_of, kind_of, message_class, request_class
from ..messages.json_form import json_name, to_json
from ..wire.message import Message, check_version
from ..wire.spans import AnnotatedMessage, FieldSpan, annotate, value_text
from .embedded import EmbeddedMessage, contents

if TYPE_CHECKING:
    from ..records import Batch
    from ..records.record import Record


@dataclass(frozen=True, slots=True)
class Part:
    """One message of a frame, the header or the body, with its decoded fields."""

    message: type[Message]
    version: int
    reading: AnnotatedMessage[Message]


@dataclass(frozen=True, slots=True)
class Dissection:
    """The bytes of a frame, and its decoded parts: the header and the body.

    If the header is invalid or names an unknown API or version, the header is the only part.

    `error` is the error that ended the decoding early, or None. `start` is the offset of the first part: 4
    after a size prefix, else 0.
    """

    data: bytes
    parts: tuple[Part, ...]
    error: DecodeError | None
    start: int = 0

    @property
    def end(self) -> int:
        """Return the offset at which decoding ended."""
        return self.parts[-1].reading.end

    @property
    def wrong(self) -> bool:
        """Return whether the bytes are invalid.

        The fault may be in a field, in the frame size, or after the end of the message.
        """
        return self.error is not None or any(True for _ in self.faults())

    def faults(self) -> Iterator[str]:
        """Yield what is wrong in a frame that could be decoded to its end: sizes, bytes fields, records."""
        if self.error is not None:
            return
        if self.start and int.from_bytes(self.data[:4], "big", signed=True) != len(self.data) - 4:
            yield f"the frame size is not that of the {len(self.data) - 4} bytes after it"
        remaining_records = _MAX_CHECKED_RECORDS
        for part in self.parts:
            for content in contents(part.message, part.reading.spans, self.data):
                if content.reading.error is not None:
                    yield f"in {'.'.join(content.path)}: {content.reading.error}"
            for span in part.reading.spans:
                if span.type == "records" and isinstance(span.value, bytes):
                    remaining_records, error = _check_records(span.value, remaining_records)
                    if error is not None:
                        yield f"in {'.'.join(span.path)}: {error}"
        if self.end < len(self.data):
            yield f"{len(self.data) - self.end} bytes follow the end of the message"

    def messages(self) -> Iterator[dict[str, Any]]:
        """Yield the header and the body as objects in Kafka's JSON form.

        If bytes fields of a header or body contain messages, the object of the header or body lists these
        messages under the key "inside".
        """
        for part in self.parts:
            name = part.message.__name__
            assert part.reading.message is not None
            json_message = {
                "kind": kind_of(name),
                "name": name,
                "api_key": key_of(name),
                "version": part.version,
                "json": to_json(part.reading.message, part.version),
            }
            inner_messages = [
                {
                    "field": ".".join(map(json_name, content.path)),
                    "name": content.message.__name__,
                    "version": content.version,
                    "json": to_json(content.reading.message, content.version),
                }
                for content in contents(part.message, part.reading.spans, self.data)
                if content.reading.message is not None
            ]
            yield json_message | ({"inside": inner_messages} if inner_messages else {})


def dissect(data: bytes, response: tuple[str, int] | None = None, *, sized: bool | None = None) -> Dissection:
    """Decode a frame as a request, or as a response if `response` gives its API name and version.

    `sized` says whether the frame has a size prefix. If it is None, the prefix is detected.

    `error` of the result reports invalid bytes, or a request with an API or version that Kafka does not have.
    Raises UnsupportedVersion if `response` names an API or version that does not exist.
    """

    def dissect_from(start: int) -> Dissection:
        if response is None:
            return _dissect_request(data, start)
        return _dissect_response(data, start, *response)

    if sized is not None:
        return dissect_from(4 if sized else 0)
    if int.from_bytes(data[:4], "big") == len(data) - 4:
        # The first four bytes have the value of a size prefix. But in a response without a size prefix they
        # are the correlation id, which may have this value by chance. So a response that cannot be decoded
        # with a size prefix is decoded without one.
        with_size = dissect_from(4)
        if response is None or with_size.error is None:
            return with_size
        without_size = dissect_from(0)
        is_valid_without_size = without_size.error is None and without_size.end == len(data)
        return without_size if is_valid_without_size else with_size
    without_size = dissect_from(0)
    # The header is invalid. The bytes may begin with a wrong frame size, because the frame is truncated or
    # too long.
    if response is None and len(without_size.parts) == 1:  # without a body
        with_size = dissect_from(4)
        return with_size if len(with_size.parts) == 2 else without_size
    return without_size


def split(data: bytes) -> list[bytes]:
    """Split a sequence of requests with size prefixes into the single requests.

    Any other bytes are returned unchanged, as one element.
    """
    frames: list[bytes] = []
    start = 0
    while start < len(data):
        end = start + 4 + int.from_bytes(data[start : start + 4], "big")
        # A request has a size prefix of 4 bytes. Its header begins with 8 bytes: API key, version and
        # correlation id.
        if not start + 12 <= end <= len(data):
            return [data]
        frames.append(data[start:end])
        start = end
    return frames or [data]


def dissect_message(data: bytes, name: str, version: int) -> Dissection:
    """Decode a message without a header. `name` is Kafka's name for the message.

    Raises KeyError if the name is unknown, and UnsupportedVersion if the message does not have the version.
    """
    return _dissection(data, 0, _read_part(message_class(name), data, 0, version))


def _dissect_request(data: bytes, start: int) -> Dissection:
    # A header begins with the API key and the version, both int16.
    key, version = (
        int.from_bytes(data[at : at + 2], "big", signed=True) if len(data) >= at + 2 else None
        for at in (start, start + 2)
    )
    if key is None or version is None:
        return _dissection(data, start, _read_part(RequestHeader, data, start, 1))
    if key not in API_NAMES:
        detail = f"Kafka {KAFKA_RELEASE} has no API with the key {key}"
        return _dissect_unknown_request(data, start, "request_api_key", start, detail)
    cls = request_class(key)
    if version not in cls.__versions__:
        detail = f"{API_NAMES[key]} has the versions {cls.__versions__}"
        return _dissect_unknown_request(data, start, "request_api_version", start + 2, detail)
    header_version = request_header_version(cls, version)
    return _dissect_header_and_body(data, start, RequestHeader, header_version, cls, version)


def _dissect_unknown_request(data: bytes, start: int, field: str, offset: int, detail: str) -> Dissection:
    """Return the dissection of a request of which only the header can be decoded.

    The header is decoded as version 1. Version 2, the only other version, begins with the same fields.

    `field` is the field with the unknown API or version, and `offset` its offset.
    """
    part = _read_part(RequestHeader, data, start, 1)
    return Dissection(data, (part,), DecodeError("RequestHeader", 1, field, offset, detail), start)


def _dissect_response(data: bytes, start: int, api: str, version: int) -> Dissection:
    try:
        cls = message_class(f"{api}Response")
    except KeyError:
        raise UnsupportedVersion(f"{api}Response", version, "no API has this name") from None
    # An ApiVersions request of an unknown version gets a v0 response (KIP-511).
    if cls.__api_key__ != API_VERSIONS:
        check_version(cls, version)
    header_version = response_header_version(cls, version)
    return _dissect_header_and_body(data, start, ResponseHeader, header_version, cls, version)


def _dissect_header_and_body(
    data: bytes, start: int, header: type[Message], header_version: int, body: type[Message], version: int
) -> Dissection:
    """Decode a header and the body after it. A body after an invalid header is not decoded."""
    header_part = _read_part(header, data, start, header_version)
    if header_part.reading.error is not None:
        return _dissection(data, start, header_part)
    body_start = header_part.reading.end
    body_part = _read_part(body, data, body_start, body_version(body, version, data, body_start))
    return _dissection(data, start, header_part, body_part)


def _dissection(data: bytes, start: int, *parts: Part) -> Dissection:
    """Return the dissection with these parts. Only the last part can have an error."""
    return Dissection(data, parts, parts[-1].reading.error, start)


def _read_part(message: type[Message], data: bytes, at: int, version: int) -> Part:
    return Part(message, version, annotate(message, data, at, version))


# Printing


def lines(dissection: Dissection, *, width: int = 8, whole: bool = False) -> Iterator[str]:
    """Yield a line per field: offset, bytes, name, type, value.

    Unless `whole` is true, only the first `width` bytes of a field and the first records of a batch are
    shown.
    """
    data = dissection.data
    offset_digits = max(4, len(f"{len(data):x}"))
    margin = " " * (offset_digits + 3 * width + 4)

    def format_line(offset: int, hex_bytes: str, text: str) -> str:
        return f"{offset:0{offset_digits}x}  {hex_bytes:{3 * width}}  {text}".rstrip()

    if dissection.start:
        size, following = int.from_bytes(data[:4], "big", signed=True), len(data) - 4
        mismatch = "" if size == following else f", but {following} bytes follow"
        yield format_line(0, data[:4].hex(" "), f"the frame size: int32 = {size}{mismatch}")

    def field_lines(spans: tuple[FieldSpan, ...], outer: tuple[str, ...], indent: str) -> Iterator[str]:
        """Yield the lines of fields, and of the messages in them. `outer` is the path of the bytes field
        that contains the fields.
        """
        path: tuple[str, ...] = ()
        for span in spans:
            for depth in range(_shared_depth(path, span.path), len(span.path) - 1):
                yield f"{margin}{indent}{'  ' * depth}{span.path[depth]}"
            path = span.path
            first_row, *more_rows = _hex_rows(data[span.start : span.end], width)
            field_indent = indent + "  " * (len(path) - 1)
            text = f"{field_indent}{path[-1]}: {span.type} = {value_text(span.value)}{_code_name(span)}"
            yield format_line(span.start, first_row + ("…" if more_rows and not whole else ""), text)
            if whole:
                for number, row in enumerate(more_rows, 1):
                    yield format_line(span.start + number * width, row, "")
            if span.type == "records" and isinstance(span.value, bytes):
                for text in record_lines(span.value, whole=whole, most=most_records):
                    yield f"{margin}{field_indent}  {text}"
            if span.type == "bytes":
                full_path = (*outer, *path)
                for embedded in embedded_messages.get(full_path, ()):
                    yield f"{margin}{field_indent}  {embedded.message.__name__} v{embedded.version}"
                    spans_inside = (*embedded.first, *embedded.reading.spans)
                    yield from field_lines(spans_inside, full_path, f"{field_indent}    ")
                    if embedded.reading.error is not None:
                        yield f"{margin}{field_indent}    <-- {embedded.reading.error}"
                    elif trailing := embedded.end - embedded.reading.end:
                        yield f"{margin}{field_indent}    {trailing} bytes follow it, which readers skip"

    record_sets = sum(span.type == "records" for part in dissection.parts for span in part.reading.spans)
    most_records = _MAX_CHECKED_RECORDS // max(record_sets, 1)
    for part in dissection.parts:
        yield f"{part.message.__name__} v{part.version}"
        # Read by `field_lines`: maps the path of a bytes field to the messages in it.
        embedded_messages: dict[tuple[str, ...], list[EmbeddedMessage]] = {}
        for content in contents(part.message, part.reading.spans, data):
            embedded_messages.setdefault(content.path, []).append(content)
        yield from field_lines(part.reading.spans, outer=(), indent="")
    if dissection.error is not None:
        offset = min(dissection.error.offset, len(data))
        yield format_line(
            offset, _hex_rows(data[offset:], width)[0] or "(the end)", f"<-- {dissection.error}"
        )
    elif dissection.end < len(data):
        trailing_bytes = data[dissection.end :]
        text = f"{len(trailing_bytes)} bytes after the end"
        yield format_line(dissection.end, _hex_rows(trailing_bytes, width)[0], text)


def record_lines(
    data: bytes, *, whole: bool = False, most: int | None = None, topic: str | None = None
) -> Iterator[str]:
    """Yield a line for each batch of a record set, each followed by lines for its first records.

    `topic` is Kafka's internal topic that contains the records, or None. With a topic, the messages in each
    record's key and value are printed below the record.

    If `whole` is true, every record has a line. Otherwise about `most` records are decoded (default:
    `_MAX_CHECKED_RECORDS`), because a small compressed batch may contain millions of records. The remaining
    records are only counted, from the headers of their batches.
    """
    from ..records import batches  # The import is local, because most messages contain no records.
    from ..records.record_stream import record_lists

    end, remaining = 0, _MAX_CHECKED_RECORDS if most is None else most
    try:
        for batch in batches(data):
            end = batch.end
            yield _batch_line(batch)
            shown = decoded = 0
            for records in record_lists(batch, 1000):
                for record in records if whole else records[: _SHOWN_RECORDS - shown]:
                    yield f"  {_record_line(batch, record)}"
                    if topic is not None and not batch.is_control:
                        yield from (f"      {text}" for text in _internal_lines(topic, record))
                    shown += 1
                decoded += len(records)
                remaining -= len(records)
                if remaining <= 0 and not whole:
                    break
            if batch.count > shown:
                unchecked = batch.count - decoded
                note = f", {unchecked} of them not decoded" if unchecked else ""
                yield f"  ... and {batch.count - shown} more (--hex shows all){note}"
    except RecordError as error:
        yield f"{ERROR_MARK} {error}"
    except MissingExtra as error:
        yield f"({error})"
    else:
        if end < len(data):
            yield f"{len(data) - end} bytes of a truncated batch, which readers fetch again"


def _internal_lines(topic: str, record: Record) -> list[str]:
    """Return lines for the messages in the key and in the value, or the error if decoding fails."""
    from .internal_records import decode_internal

    try:
        decoded = decode_internal(topic, record.key, record.value)
    except DecodeError as error:
        return [f"<-- {error}"]
    return [f"{part} {message}" for part, message in decoded._asdict().items() if message is not None]


def _check_records(data: bytes, remaining: int) -> tuple[int, RecordError | None]:
    """Decode up to about `remaining` records; return how many may still be decoded, and the first error.

    The headers of all batches are checked, even if enough records have been decoded.
    """
    from ..records import batches
    from ..records.record_stream import record_lists

    try:
        for batch in batches(data):
            if remaining > 0:
                for records in record_lists(batch, 1000):
                    remaining -= len(records)
                    if remaining <= 0:
                        break
    except RecordError as error:
        return remaining, error
    except MissingExtra:
        # Records cannot be checked if their codec's package is not installed. They are then not reported as
        # invalid.
        pass
    return remaining, None


# The start of the line that reports a malformed batch.
ERROR_MARK = "<--"
# The maximum number of records printed for each batch, unless `whole` is true.
_SHOWN_RECORDS = 10
# The maximum number of records to decode when checking a frame, or when printing a frame or a record set.
# Decoding that many takes 0.1 s.
_MAX_CHECKED_RECORDS = 100_000


def _batch_line(batch: Batch) -> str:
    first, last, count = batch.base_offset, batch.last_offset, batch.count
    details = [f"offset {first}" if first == last else f"offsets {first} to {last}"]
    details += [f"{count} record{'s' * (count != 1)}", batch.compression, f"magic {batch.magic}"]
    details.append(
        batch.timestamp_type
        if batch.magic == 0
        else f"{batch.timestamp_type} {_iso_time(batch.max_timestamp)}"
    )
    if batch.producer_id >= 0:
        details.append(
            f"producer {batch.producer_id} epoch {batch.producer_epoch} sequence {batch.base_sequence}"
        )
    if batch.partition_leader_epoch >= 0:
        details.append(f"leader epoch {batch.partition_leader_epoch}")
    details += ["transactional"] * batch.is_transactional + ["control"] * batch.is_control
    if batch.delete_horizon_ms is not None:
        details.append(f"delete horizon {_iso_time(batch.delete_horizon_ms)}")
    return f"batch at {batch.start:04x}, {batch.size} bytes: {', '.join(details)}"


def _record_line(batch: Batch, record: Record) -> str:
    key = f"key {_printable_value(record.key)}"
    if batch.is_control and record.key is not None and len(record.key) >= 4:
        control_type = int.from_bytes(record.key[2:4], "big")
        key = f"marker {_CONTROL_TYPES.get(control_type, f'of the unknown type {control_type}')}"
    details = [
        f"{record.offset}",
        _iso_time(record.timestamp),
        key,
        f"value {_printable_value(record.value)}",
    ]
    details += [f"header {value_text(name)} {_printable_value(value)}" for name, value in record.headers]
    return "  ".join(details)


def _printable_value(value: bytes | None) -> str:
    """Return the value as text if it is printable, otherwise its first bytes in hex."""
    try:
        text = None if value is None else value.decode()
    except UnicodeDecodeError:
        return value_text(value)
    return value_text(text if text is None or text.isprintable() else value)


# The types of control records (Kafka's ControlRecordType). The type is the second int16 of the key, after the
# version.
_CONTROL_TYPES = {
    0: "ABORT",
    1: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}


def _iso_time(milliseconds: int) -> str:
    """Format a time in UTC, or as milliseconds if it is outside the years 1970 to 9999."""
    if milliseconds == -1:
        return "no time"
    if not 0 <= milliseconds < 253_402_300_800_000:
        return str(milliseconds)
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"


def _code_name(span: FieldSpan) -> str:
    """Return the name of an error code or API key in parentheses, or "" for other fields."""
    if span.type == "int16" and isinstance(span.value, int):
        if span.path[-1].endswith("error_code"):
            return f" ({ErrorCode(span.value).name})" if span.value in _ERROR_CODES else ""
        if span.path[-1] == "request_api_key" and span.value in API_NAMES:
            return f" ({API_NAMES[span.value]})"
    return ""


_ERROR_CODES = frozenset(ErrorCode)


def _hex_rows(data: bytes, width: int) -> list[str]:
    """Return the bytes in hex, `width` bytes per row; one empty row if there are no bytes."""
    return [data[at : at + width].hex(" ") for at in range(0, max(len(data), 1), width)]


def _shared_depth(first: tuple[str, ...], second: tuple[str, ...]) -> int:
    """Return the number of enclosing structs that two paths share.

    The last part of a path is the name of the field itself, so it is not compared.
    """
    count = 0
    while count < min(len(first), len(second)) - 1 and first[count] == second[count]:
        count += 1
    return count
