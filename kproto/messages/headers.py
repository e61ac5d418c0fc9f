"""The headers of requests and responses, and functions that encode and decode whole frames.

A whole frame consists of a header and a body.

    frame = encode_request(request, version, correlation_id, client_id)     # a client sends
    envelope = decode_request(frame)                                        # a broker receives
    frame = encode_response(response, envelope.version, envelope.header.correlation_id)
    correlation_id, response = decode_response(frame, JoinGroupResponse, version)

Frames in this module have no size prefix: `kproto.wire.frame` adds and removes it.

The header of a flexible version can have tagged fields: it has header version 2 in requests, and 1 in
responses. Other requests have header version 1, and other responses 0. The response to ApiVersions always has
header version 0, because the client reads it before it knows the broker's versions (KIP-511).
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TypeVar

import msgspec

from ..errors import DecodeError, EncodeError, UnsupportedVersion
from ..wire.message import Message, decode_from, decode_views, encode_pieces, field
from ..wire.types import Int16, Int32, String
from . import index

_UNSUPPORTED_VERSION = (35).to_bytes(2, "big")


class RequestHeader(Message, versions="1-2", flexible="2+"):
    """The header of a request; `request_header_version` returns its version."""

    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32
    # The client id. Its length is an int16 even in v2, so that old brokers can read the header of any
    # ApiVersions request.
    client_id: String | None = field(flexible="none")


class ResponseHeader(Message, versions="0-1", flexible="1+"):
    """The header of a response; `response_header_version` returns its version."""

    correlation_id: Int32


R = TypeVar("R", bound=Message)

API_VERSIONS = 18

_STARTS, _START_SIZE = struct.Struct(">hhi").pack, 8  # Packs the fields of `_Start`.
_KEY_AND_VERSION = struct.Struct(">hh").unpack_from
_ID, _PACK_ID, _ID_SIZE = struct.Struct(">i").unpack_from, struct.Struct(">i").pack, 4


class Envelope(msgspec.Struct, frozen=True):
    """A received request: the header and the body, with the version of each."""

    header: RequestHeader
    header_version: int
    request: Message
    version: int


class UnsupportedRequest(UnsupportedVersion):
    """A request with an unsupported API key or version. `header` allows a broker to respond to it.

    A broker answers an ApiVersions request of an unknown version with version 0 and UNSUPPORTED_VERSION
    (KIP-511). After any other unsupported request, the broker closes the connection.
    """

    def __init__(self, message: str, version: int, allowed: str, header: RequestHeader) -> None:
        super().__init__(message, version, allowed)
        # The arguments of `__init__`, from which pickle re-creates the error.
        self.args = (message, version, allowed, header)
        self.header = header


def request_header_version(request: type[Message], version: int) -> int:
    """Return the header version of a request with this body version."""
    flexible = request.__flexible__
    return 2 if flexible.min <= version <= flexible.max else 1


def response_header_version(response: type[Message], version: int) -> int:
    """Return the header version of a response with this body version."""
    flexible = response.__flexible__
    is_flexible = flexible.min <= version <= flexible.max
    return 1 if is_flexible and response.__api_key__ != API_VERSIONS else 0


def encode_request(request: Message, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Encode the header and the body of a request, without the size prefix.

    Raises EncodeError and UnsupportedVersion as `Message.encode` does, and EncodeError for a message that has
    no API key.
    """
    return b"".join(request_pieces(request, version, correlation_id, client_id))


def request_pieces(request: Message, version: int, correlation_id: int, client_id: str | None) -> list[bytes]:
    """Encode as `encode_request` does, but return a list of pieces, which `kproto.wire.frame` joins."""
    api_key = request.__api_key__
    if api_key is None:
        raise EncodeError(type(request).__name__, version, "", "not a request: it has no API key")
    header_version = request_header_version(type(request), version)
    try:
        header = _STARTS(api_key, version, correlation_id) + _client(client_id, header_version)
    except (struct.error, TypeError):  # A field is invalid: RequestHeader's encoder reports which one.
        header = RequestHeader(
            request_api_key=api_key,
            request_api_version=version,
            correlation_id=correlation_id,
            client_id=client_id,
        ).encode(header_version)
    return [header, *encode_pieces(request, version)]


@lru_cache(64)
def _client(client_id: str | None, header_version: int) -> bytes:
    """Encode the part of the header that is the same for all requests of a client."""
    header = RequestHeader(
        request_api_key=0, request_api_version=0, correlation_id=0, client_id=client_id
    ).encode(header_version)
    return header[_START_SIZE:]


def decode_request(frame: bytes | bytearray | memoryview) -> Envelope:
    """Decode a request from a frame without its size prefix.

    Raises DecodeError for malformed bytes. Raises UnsupportedRequest for an API or a version that this
    release lacks. The `header` of an UnsupportedRequest has every field, except the client id if the API is
    unknown.
    """
    header, request, end = decode_request_header(frame)
    version = header.request_api_version
    body, _ = decode_from(request, frame, end, version)
    return Envelope(header, request_header_version(request, version), body, version)


def decode_request_views(frame: bytes) -> Envelope:
    """Decode as `decode_request` does, but return records as views into `frame`.

    See `kproto.wire.decode_views`.
    """
    header, request, end = decode_request_header(frame)
    version = header.request_api_version
    body, _ = decode_views(request, frame, end, version)
    return Envelope(header, request_header_version(request, version), body, version)


def decode_request_header(
    frame: bytes | bytearray | memoryview,
) -> tuple[RequestHeader, type[Message], int]:
    """Decode the header of a request; return it, the class of the body, and the offset of the body.

    Raises as `decode_request` does.
    """
    if len(frame) < _START_SIZE:
        try:
            decode_from(_Start, frame, 0, 0)
        except DecodeError as error:
            raise DecodeError("RequestHeader", -1, error.field, error.offset, error.detail) from None
    key, version = _KEY_AND_VERSION(frame)
    known = key in index.API_NAMES
    request = index.request_class(key) if known else None
    if request is None or version not in request.__versions__:
        name = f"{index.API_NAMES[key]}Request" if known else f"the request with API key {key}"
        allowed = str(request.__versions__) if request is not None else "none"
        raise UnsupportedRequest(name, version, allowed, _salvage(frame))
    full, end = decode_from(RequestHeader, frame, 0, request_header_version(request, version))
    return full, request, end


def encode_response(response: Message, version: int, correlation_id: int) -> bytes:
    """Encode the header and the body of a response, without the size prefix.

    Raises as `Message.encode` does.
    """
    header_version = response_header_version(type(response), version)
    try:  # Version 1 of the header adds the number of tagged fields: zero, in one byte.
        header = _PACK_ID(correlation_id) + bytes(header_version)
    except (struct.error, TypeError):  # The id is invalid: ResponseHeader's encoder reports it.
        header = ResponseHeader(correlation_id=correlation_id).encode(header_version)
    return b"".join([header, *encode_pieces(response, version)])


def decode_response(frame: bytes | bytearray | memoryview, response: type[R], version: int) -> tuple[int, R]:
    """Decode the response to a request of `version`; return its correlation id and its body.

    A response frame contains neither the API key nor the version, so the caller must know which request the
    frame answers. A connection returns its responses in the order of the requests, and each response repeats
    the correlation id of its request. Raises DecodeError for malformed bytes.
    """
    correlation_id, end = _answers(frame, response, version)
    body, _ = decode_from(response, frame, end, body_version(response, version, frame, end))
    return correlation_id, body


def decode_response_views(frame: bytes | bytearray, response: type[R], version: int) -> tuple[int, R]:
    """Decode as `decode_response` does, but return records as views into `frame`.

    See `kproto.wire.decode_views`.
    """
    correlation_id, end = _answers(frame, response, version)
    body, _ = decode_views(response, frame, end, version)
    return correlation_id, body


def body_version(
    response: type[Message], version: int, frame: bytes | bytearray | memoryview, offset: int
) -> int:
    """Return the version of the response body at `offset`, given the `version` of the request.

    The response has the version of the request, with one exception. A broker that does not know the version
    of an ApiVersions request responds with version 0 and UNSUPPORTED_VERSION (KIP-511).

    In every version of ApiVersions the error code is the first field. So the error code can be read before
    the version is known.
    """
    if response.__api_key__ == API_VERSIONS and frame[offset : offset + 2] == _UNSUPPORTED_VERSION:
        return 0
    return version


def _answers(frame: bytes | bytearray | memoryview, response: type[Message], version: int) -> tuple[int, int]:
    """Return the correlation id of a response and the offset of its body."""
    header_version = response_header_version(response, version)
    # The fast path for a header without tagged fields: their count is a zero byte. So far, Kafka's response
    # headers have no tagged fields.
    if len(frame) > _ID_SIZE and not (header_version and frame[_ID_SIZE]):
        return _ID(frame)[0], _ID_SIZE + header_version
    header, end = decode_from(ResponseHeader, frame, 0, header_version)
    return header.correlation_id, end


class _Start(Message, versions="0"):
    """The fields with which every version of the request header begins."""

    request_api_key: Int16
    request_api_version: Int16
    correlation_id: Int32


def _salvage(frame: bytes | bytearray | memoryview) -> RequestHeader:
    """Decode the header of an unsupported request. A client id that cannot be decoded is left out."""
    try:
        return decode_from(RequestHeader, frame, 0, 1)[0]
    except DecodeError:
        start, _ = decode_from(_Start, frame, 0, 0)
        return RequestHeader(
            request_api_key=start.request_api_key,
            request_api_version=start.request_api_version,
            correlation_id=start.correlation_id,
            client_id=None,
        )
