"""What bytes say: a request or a response found out by its header, and printed field by field.

    for line in lines(dissect(frame)):
        print(line)

A request names its API and version itself. A response doesn't: `dissect(frame, response=("Fetch", 17))` says
what was asked. A size in front of the frame is known by being that of the bytes behind it. Where the
bytes are wrong, the printed fields end at the wrong byte, and an arrow points at it. The record sets in
fields are read too; `record_lines` reads one alone. What is inside of bytes fields (subscriptions,
assignments, user data) stands below them: see `kproto.inspect.embedded`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ..error_codes import ErrorCode
from ..errors import DecodeError, MissingExtra, RecordError, UnsupportedVersion
from ..messages.headers import (
    RequestHeader,
    ResponseHeader,
    request_header_version,
    response_header_version,
)
from ..messages.index import API_NAMES, key_of, kind_of, message_class, request_class
from ..messages.json_form import json_name, to_json
from ..wire.message import Message, check_version
from ..wire.spans import AnnotatedMessage, FieldSpan, annotate, value_text
from .embedded import Inside, inside

if TYPE_CHECKING:
    from ..records import Batch
    from ..records.record import Record


@dataclass(frozen=True, slots=True)
class Part:
    """One message of the bytes: the header, or the body."""

    message: type[Message]
    version: int
    reading: AnnotatedMessage[Message]


@dataclass(frozen=True, slots=True)
class Dissection:
    """The bytes, and the parts that they were read as: a header and a body, or either alone.

    `error` is what ended the reading too early, `start` the size of the size in front.
    """

    data: bytes
    parts: tuple[Part, ...]
    error: DecodeError | None
    start: int = 0

    @property
    def end(self) -> int:
        """The offset at which reading ended."""
        return self.parts[-1].reading.end

    @property
    def wrong(self) -> bool:
        """Whether anything is wrong with the bytes, also inside of a field, in front and behind."""
        return self.error is not None or any(True for _ in self.faults())

    def faults(self) -> Iterator[str]:
        """What is wrong although the message could be read to its end."""
        if self.error is not None:
            return
        if self.start and int.from_bytes(self.data[:4], "big", signed=True) != len(self.data) - 4:
            yield f"the size in front is not that of the {len(self.data) - 4} bytes here"
        for part in self.parts:
            for one in inside(part.message, part.reading.spans, self.data):
                if one.reading.error is not None:
                    yield f"in {'.'.join(one.path)}: {one.reading.error}"
            for span in part.reading.spans:
                if span.type == "records" and isinstance(span.value, bytes):
                    error = _fault_of_records(span.value)
                    if error is not None:
                        yield f"in {'.'.join(span.path)}: {error}"
        if self.end < len(self.data):
            yield f"{len(self.data) - self.end} bytes are behind the end"

    def messages(self) -> Iterator[dict[str, Any]]:
        """What was read, in Kafka's JSON form: one object for the header, one for the body.

        What is inside of bytes fields is in the list "inside", which isn't there if it is empty.
        """
        for part in self.parts:
            name = part.message.__name__
            assert part.reading.message is not None
            told = {
                "kind": kind_of(name),
                "name": name,
                "api_key": key_of(name),
                "version": part.version,
                "json": to_json(part.reading.message, part.version),
            }
            within = [
                {
                    "field": ".".join(map(json_name, one.path)),
                    "name": one.message.__name__,
                    "version": one.version,
                    "json": to_json(one.reading.message, one.version),
                }
                for one in inside(part.message, part.reading.spans, self.data)
                if one.reading.message is not None
            ]
            yield told | ({"inside": within} if within else {})


def dissect(data: bytes, response: tuple[str, int] | None = None, *, sized: bool | None = None) -> Dissection:
    """Read a frame as a request, or as the response to (API name, version).

    `sized` says whether its size stands in front; None: find out. What is wrong with the bytes, an API or a
    version that Kafka 4.3 doesn't have too, is in the answer's `error`. Raises UnsupportedVersion only for a
    `response` that doesn't exist.
    """

    def read(at: int) -> Dissection:
        return _request(data, at) if response is None else _response(data, at, *response)

    if sized is not None:
        return read(4 if sized else 0)
    if int.from_bytes(data[:4], "big") == len(data) - 4:
        # A response may begin with a correlation id that looks like its size.
        with_size = read(4)
        if response is None or with_size.error is None:
            return with_size
        without = read(0)
        return without if without.error is None and without.end == len(data) else with_size
    found = read(0)
    if response is None and len(found.parts) == 1:  # no header: perhaps a frame that is cut, or too long
        with_size = read(4)
        return with_size if len(with_size.parts) == 2 else found
    return found


def split(data: bytes) -> list[bytes]:
    """The frames, with their sizes, of bytes that are nothing but such; else the bytes as they are."""
    found: list[bytes] = []
    at = 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if not at + 12 <= end <= len(data):  # the smallest header of a request has 8 bytes
            return [data]
        found.append(data[at:end])
        at = end
    return found or [data]


def dissect_message(data: bytes, name: str, version: int) -> Dissection:
    """Read a body without a header: any message by Kafka's name.

    Raises KeyError for an unknown name, and UnsupportedVersion.
    """
    return _dissection(data, 0, _part(message_class(name), data, 0, version))


def _request(data: bytes, at: int) -> Dissection:
    key, version = (
        int.from_bytes(data[i : i + 2], "big", signed=True) if len(data) >= i + 2 else None
        for i in (at, at + 2)
    )
    if key is None or version is None:
        return _dissection(data, at, _part(RequestHeader, data, at, 1))
    if key not in API_NAMES:
        return _unknown(data, at, "request_api_key", at, f"Kafka 4.3 has no API with the key {key}")
    cls = request_class(key)
    if version not in cls.__versions__:
        detail = f"{API_NAMES[key]} has the versions {cls.__versions__}"
        return _unknown(data, at, "request_api_version", at + 2, detail)
    return _with_body(data, at, RequestHeader, request_header_version(cls, version), cls, version)


def _unknown(data: bytes, at: int, field: str, offset: int, detail: str) -> Dissection:
    """A request that can't be read: its header is, in the form that all versions begin with."""
    part = _part(RequestHeader, data, at, 1)
    return Dissection(data, (part,), DecodeError("RequestHeader", 1, field, offset, detail), at)


def _response(data: bytes, at: int, api: str, version: int) -> Dissection:
    try:
        cls = message_class(f"{api}Response")
    except KeyError:
        raise UnsupportedVersion(f"{api}Response", version, "no API has this name") from None
    check_version(cls, version)
    return _with_body(data, at, ResponseHeader, response_header_version(cls, version), cls, version)


def _with_body(
    data: bytes, at: int, header: type[Message], header_version: int, body: type[Message], version: int
) -> Dissection:
    head = _part(header, data, at, header_version)
    if head.reading.error is not None:
        return _dissection(data, at, head)
    return _dissection(data, at, head, _part(body, data, head.reading.end, version))


def _dissection(data: bytes, start: int, *parts: Part) -> Dissection:
    return Dissection(data, parts, parts[-1].reading.error, start)


def _part(message: type[Message], data: bytes, at: int, version: int) -> Part:
    return Part(message, version, annotate(message, data, at, version))


# Printing


def lines(dissection: Dissection, *, width: int = 8, whole: bool = False) -> Iterator[str]:
    """One line per field: offset, bytes, name, type, value. `whole`: all bytes and records."""
    data = dissection.data
    digits = max(4, len(f"{len(data):x}"))

    def line(at: int, taken: str, told: str) -> str:
        return f"{at:0{digits}x}  {taken:{3 * width}}  {told}".rstrip()

    if dissection.start:
        size, behind = int.from_bytes(data[:4], "big", signed=True), len(data) - 4
        but = "" if size == behind else f", but {behind} bytes are here"
        yield line(0, data[:4].hex(" "), f"the size of the frame: int32 = {size}{but}")

    def fields(spans: tuple[FieldSpan, ...], above: tuple[str, ...], indent: str) -> Iterator[str]:
        path: tuple[str, ...] = ()
        for span in spans:
            for depth in range(_shared(path, span.path), len(span.path) - 1):
                yield f"{margin}{indent}{'  ' * depth}{span.path[depth]}"
            path = span.path
            first, *more = _rows(data[span.start : span.end], width)
            deep = indent + "  " * (len(path) - 1)
            told = f"{deep}{path[-1]}: {span.type} = {value_text(span.value)}{_meaning(span)}"
            yield line(span.start, first + ("…" if more and not whole else ""), told)
            if whole:
                for number, row in enumerate(more, 1):
                    yield line(span.start + number * width, row, "")
            if span.type == "records" and isinstance(span.value, bytes):
                for told in record_lines(span.value, whole=whole):
                    yield f"{margin}{deep}  {told}"
            if span.type == "bytes":
                for one in opened.get((*above, *path), ()):
                    yield f"{margin}{deep}  {one.message.__name__} v{one.version}"
                    yield from fields((*one.first, *one.reading.spans), (*above, *path), f"{deep}    ")
                    if one.reading.error is not None:
                        yield f"{margin}{deep}    <-- {one.reading.error}"
                    elif left := one.end - one.reading.end:
                        yield f"{margin}{deep}    {left} bytes behind it, which readers skip"

    margin = " " * (digits + 3 * width + 4)
    for part in dissection.parts:
        yield f"{part.message.__name__} v{part.version}"
        opened: dict[tuple[str, ...], list[Inside]] = {}
        for one in inside(part.message, part.reading.spans, data):
            opened.setdefault(one.path, []).append(one)
        yield from fields(part.reading.spans, (), "")
    if dissection.error is not None:
        at = min(dissection.error.offset, len(data))
        yield line(at, _rows(data[at:], width)[0] or "(the end)", f"<-- {dissection.error}")
    elif dissection.end < len(data):
        left = data[dissection.end :]
        yield line(dissection.end, _rows(left, width)[0], f"{len(left)} bytes behind the end")


def record_lines(data: bytes, *, whole: bool = False) -> Iterator[str]:
    """A record set as text: a line per batch, one per record below. `whole`: all records."""
    from ..records import batches  # here, because most messages hold none

    end = 0
    try:
        for batch in batches(data):
            end = batch.end
            yield _batch_line(batch)
            found = batch.records()
            for record in found if whole else found[:_FEW]:
                yield f"  {_record_line(batch, record)}"
            if len(found) > _FEW and not whole:
                yield f"  ... and {len(found) - _FEW} more (--hex shows all)"
    except RecordError as error:
        yield f"<-- {error}"
    except MissingExtra as error:
        yield f"({error})"
    else:
        if end < len(data):
            yield f"{len(data) - end} bytes of a batch that is cut; readers ask for it again"


def _fault_of_records(data: bytes) -> RecordError | None:
    from ..records import batches

    try:
        for batch in batches(data):
            batch.records()
    except RecordError as error:
        return error
    except MissingExtra:
        pass  # what can't be looked at is not called wrong
    return None


_FEW = 10


def _batch_line(batch: Batch) -> str:
    first, last, count = batch.base_offset, batch.last_offset, batch.count
    told = [f"offset {first}" if first == last else f"offsets {first} to {last}"]
    told += [f"{count} record{'s' * (count != 1)}", batch.compression, f"magic {batch.magic}"]
    told.append(
        batch.timestamp_type if batch.magic == 0 else f"{batch.timestamp_type} {_moment(batch.max_timestamp)}"
    )
    if batch.producer_id >= 0:
        told.append(
            f"producer {batch.producer_id} epoch {batch.producer_epoch} sequence {batch.base_sequence}"
        )
    if batch.partition_leader_epoch >= 0:
        told.append(f"leader epoch {batch.partition_leader_epoch}")
    told += ["transactional"] * batch.is_transactional + ["control"] * batch.is_control
    if batch.delete_horizon_ms is not None:
        told.append(f"delete horizon {_moment(batch.delete_horizon_ms)}")
    return f"batch at {batch.start:04x}, {batch.size} bytes: {', '.join(told)}"


def _record_line(batch: Batch, record: Record) -> str:
    told = [f"{record.offset}", _moment(record.timestamp)]
    told += [f"key {_content(record.key)}", f"value {_content(record.value)}"]
    if batch.is_control and record.key is not None and len(record.key) >= 4:
        kind = int.from_bytes(record.key[2:4], "big")
        told[2] = f"marker {_MARKERS.get(kind, f'of the unknown type {kind}')}"
    told += [f"header {value_text(name)} {_content(value)}" for name, value in record.headers]
    return "  ".join(told)


def _content(value: bytes | None) -> str:
    """Text where it is text, else the first bytes."""
    try:
        text = None if value is None else value.decode()
    except UnicodeDecodeError:
        return value_text(value)
    return value_text(text if text is None or text.isprintable() else value)


# What the int16 in a control record's key means, behind its int16 version: Kafka's ControlRecordType.
_MARKERS = {
    0: "ABORT",
    1: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}


def _moment(milliseconds: int) -> str:
    """Time in UTC, or the number where it isn't in the years that a date can say."""
    if milliseconds == -1:
        return "no time"
    if not 0 <= milliseconds < 253_402_300_800_000:
        return str(milliseconds)
    return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"


def _meaning(span: FieldSpan) -> str:
    """What a number stands for, where Kafka has a table of it."""
    if span.type == "int16" and isinstance(span.value, int):
        if span.path[-1].endswith("error_code"):
            return f" ({ErrorCode(span.value).name})" if span.value in _ERROR_CODES else ""
        if span.path[-1] == "request_api_key" and span.value in API_NAMES:
            return f" ({API_NAMES[span.value]})"
    return ""


_ERROR_CODES = frozenset(ErrorCode)


def _rows(data: bytes, width: int) -> list[str]:
    return [data[at : at + width].hex(" ") for at in range(0, max(len(data), 1), width)]


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How many structs two paths have in common; the last part of a path is the field itself."""
    count = 0
    while count < min(len(one), len(other)) - 1 and one[count] == other[count]:
        count += 1
    return count
