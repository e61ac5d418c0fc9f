"""What bytes say: a request or a response found out by its header, and printed field by field.

    for line in lines(dissect(frame)):
        print(line)

A request names its API and version itself. A response doesn't: `dissect(frame, response=("Fetch", 17))` says
what was asked. A size in front of the frame is known by being that of the bytes behind it. Where the
bytes are wrong, the printed fields end at the wrong byte, and an arrow points at it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .errors import DecodeError, UnsupportedVersion
from .messages.headers import (
    RequestHeader,
    ResponseHeader,
    request_header_version,
    response_header_version,
)
from .messages.index import API_NAMES, kind_of, message_class, request_class
from .messages.json_form import to_json
from .wire.annotate import Reading, annotate, shown
from .wire.message import Message


@dataclass(frozen=True, slots=True)
class Part:
    """One message of the bytes: the header, or the body."""

    message: type[Message]
    version: int
    reading: Reading[Message]


@dataclass(frozen=True, slots=True)
class Dissection:
    """The bytes, and the parts that they were read as: a header and a body, or a body alone."""

    data: bytes
    parts: tuple[Part, ...]

    @property
    def end(self) -> int:
        """The offset at which reading ended."""
        return self.parts[-1].reading.end

    @property
    def error(self) -> DecodeError | None:
        """What ended the reading too early."""
        return self.parts[-1].reading.error

    def messages(self) -> Iterator[dict[str, Any]]:
        """What was read, in Kafka's JSON form: one object for the header, one for the body."""
        for part in self.parts:
            name = part.message.__name__
            assert part.reading.message is not None
            yield {
                "kind": kind_of(name),
                "name": name,
                "api_key": part.message.__api_key__,
                "version": part.version,
                "json": to_json(part.reading.message, part.version),
            }


def dissect(data: bytes, response: tuple[str, int] | None = None, *, sized: bool | None = None) -> Dissection:
    """Read a frame as a request, or as the response to (API name, version).

    `sized` says whether its size stands in front; None: find out. Raises UnsupportedVersion for an API or a
    version that Kafka 4.3 doesn't have; any other fault of the bytes is in the answer's `error`.
    """

    def read(at: int) -> Dissection:
        return _request(data, at) if response is None else _response(data, at, *response)

    if sized is not None:
        return read(4 if sized else 0)
    if int.from_bytes(data[:4], "big") != len(data) - 4:
        return read(0)
    # A response may begin with a correlation id that looks like its size.
    with_size = read(4)
    return with_size if response is None or with_size.error is None else read(0)


def dissect_message(data: bytes, name: str, version: int) -> Dissection:
    """Read a body without a header: any message by Kafka's name. Raises KeyError for an unknown name."""
    cls = message_class(name)
    return Dissection(data, (_part(cls, data, 0, version),))


def _request(data: bytes, at: int) -> Dissection:
    if len(data) - at < 4:
        return Dissection(data, (_part(RequestHeader, data, at, 1),))
    key = int.from_bytes(data[at : at + 2], "big", signed=True)
    version = int.from_bytes(data[at + 2 : at + 4], "big", signed=True)
    if key not in API_NAMES:
        raise UnsupportedVersion(f"the request with API key {key}", version, "no API has this key")
    cls = request_class(key)
    if version not in cls.__versions__:
        raise UnsupportedVersion(cls.__name__, version, str(cls.__versions__))
    return _with_body(data, at, RequestHeader, request_header_version(cls, version), cls, version)


def _response(data: bytes, at: int, api: str, version: int) -> Dissection:
    try:
        cls = message_class(f"{api}Response")
    except KeyError:
        raise UnsupportedVersion(f"{api}Response", version, "no API has this name") from None
    return _with_body(data, at, ResponseHeader, response_header_version(cls, version), cls, version)


def _with_body(
    data: bytes, at: int, header: type[Message], header_version: int, body: type[Message], version: int
) -> Dissection:
    head = _part(header, data, at, header_version)
    if head.reading.error is not None:
        return Dissection(data, (head,))
    return Dissection(data, (head, _part(body, data, head.reading.end, version)))


def _part(message: type[Message], data: bytes, at: int, version: int) -> Part:
    return Part(message, version, annotate(message, data, at, version))


# Printing


def lines(dissection: Dissection, *, width: int = 8, whole: bool = False) -> Iterator[str]:
    """One line per field: offset, bytes, name, type, value. `whole`: all bytes, not only the first ones."""
    data = dissection.data
    digits = max(4, len(f"{len(data):x}"))

    def line(at: int, taken: str, told: str) -> str:
        return f"{at:0{digits}x}  {taken:{3 * width}}  {told}".rstrip()

    for part in dissection.parts:
        yield f"{part.message.__name__} v{part.version}"
        path: tuple[str, ...] = ()
        for span in part.reading.spans:
            for depth in range(_shared(path, span.path), len(span.path) - 1):
                yield f"{'':{digits + 3 * width + 4}}{'  ' * depth}{span.path[depth]}"
            path = span.path
            first, *more = _rows(data[span.start : span.end], width)
            told = f"{'  ' * (len(path) - 1)}{path[-1]}: {span.type} = {shown(span.value)}"
            yield line(span.start, first + ("…" if more and not whole else ""), told)
            if whole:
                for number, row in enumerate(more, 1):
                    yield line(span.start + number * width, row, "")
    if dissection.error is not None:
        at = min(dissection.error.offset, len(data))
        yield line(at, _rows(data[at:], width)[0] or "(the end)", f"<-- {dissection.error}")
    elif dissection.end < len(data):
        left = data[dissection.end :]
        yield line(dissection.end, _rows(left, width)[0], f"{len(left)} bytes behind the end")


def _rows(data: bytes, width: int) -> list[str]:
    return [data[at : at + width].hex(" ") for at in range(0, max(len(data), 1), width)]


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How many structs two paths have in common; the last part of a path is the field itself."""
    count = 0
    while count < min(len(one), len(other)) - 1 and one[count] == other[count]:
        count += 1
    return count
