"""The trace of a world as JSON lines: one for each event, action, request, response and call.

    {"n": 17, "turn": 9, "at": 1000003, "who": "a", "what": "request", "to": 1, "api": "JoinGroup", ...}

`at` is the virtual time in ms. Entries hold the original objects, which become JSON when the trace is read.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, NamedTuple, cast
from uuid import UUID

import msgspec

from ...errors import DecodeError
from ...group.subscription import TopicPartition
from ...inspect.exchanges import Conversation, Exchange
from ...messages.headers import Envelope, decode_request, decode_response
from ...messages.index import API_NAMES, response_class
from ...messages.json_form import one_line, to_json
from ...wire.message import Message, Struct


class Entry(NamedTuple):
    """One line of the trace. `data` is the object that the line shows."""

    turn: int
    at: int
    who: str
    kind: str
    data: Any


class RequestEntry(NamedTuple):
    """A request that a broker received on the connection number `conn`."""

    node: int
    body: bytes
    conn: int


class ResponseEntry(NamedTuple):
    """A broker's response. `key` and `version` are the API key and version of its request."""

    node: int
    key: int
    version: int
    body: bytes
    conn: int


def exchanges(entries: Iterable[Entry]) -> Iterator[Exchange]:
    """Yield the exchanges, as `kproto watch` does. An exchange is a request with its response.

    The exchanges are in the order of the responses. Requests without a response come last, except Fetch
    requests: these are omitted, because the broker may still be delaying the response.

    The client id is the client's name in the world.
    """
    conversations: dict[int, Conversation] = {}
    topic_names_by_client: dict[str, dict[UUID, str]] = {}
    for entry in entries:
        exchange: Exchange | None = None
        if isinstance(entry.data, RequestEntry):
            request_entry = entry.data
            topic_names = topic_names_by_client.setdefault(entry.who, {})
            conversation = conversations.setdefault(
                request_entry.conn,
                Conversation(entry.who, request_entry.conn, topic_names, f"broker {request_entry.node}"),
            )
            exchange_in_progress, is_complete = conversation.add_request(request_entry.body, entry.at)
            exchange_in_progress.client = entry.who
            exchange = exchange_in_progress if is_complete else None
        elif isinstance(entry.data, ResponseEntry):
            exchange = conversations[entry.data.conn].add_response(entry.data.body, entry.at)
        if exchange is not None:
            yield exchange
    for conversation in conversations.values():
        for unanswered in conversation.close():
            unanswered.trouble = "no answer"
            if unanswered.api != "Fetch":
                yield unanswered


def lines(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield the trace as JSON lines."""
    for number, entry in enumerate(entries):
        head = {"n": number, "turn": entry.turn, "at": entry.at, "who": entry.who, "what": entry.kind}
        yield one_line({**head, **_entry_fields(entry.data)})


def digest(entries: Iterable[Entry]) -> str:
    """Return the SHA-256 of the JSON lines. Identical runs have equal digests."""
    sha256 = hashlib.sha256()
    for line in lines(entries):
        sha256.update(line.encode())
        sha256.update(b"\n")
    return sha256.hexdigest()


def _entry_fields(data: Any) -> dict[str, Any]:
    """Return the fields that show an entry's `data` in its JSON line."""
    match data:
        case None:
            return {}
        case RequestEntry(node, body, _):
            return {"to": node, **_request_fields(body)}
        case ResponseEntry(node, key, version, body, _):
            return {"from": node, **_response_fields(key, version, body)}
        case _:
            plain_json: Any = to_plain_json(data)
            return cast(Any, plain_json) if isinstance(plain_json, dict) else {"value": plain_json}


def _request_fields(body: bytes) -> dict[str, Any]:
    try:
        envelope: Envelope = decode_request(body)
    except DecodeError as error:
        return {"undecodable": str(error)}
    key = envelope.header.request_api_key
    body_json = to_json(envelope.request, envelope.version)
    return {"api": API_NAMES[key], "version": envelope.version, "body": body_json}


def _response_fields(key: int, version: int, body: bytes) -> dict[str, Any]:
    try:
        _, response = decode_response(body, response_class(key), version)
    except DecodeError as error:
        return {"api": API_NAMES[key], "version": version, "undecodable": str(error)}
    return {"api": API_NAMES[key], "version": version, "body": to_json(response, version)}


def to_plain_json(value: Any) -> Any:
    """Convert any object to JSON values that do not differ between identical runs."""
    untyped_value: Any = value  # `match` narrows the type of `value`, but not of `untyped_value`.
    match value:
        case None | bool() | int() | float() | str():
            return value
        case TopicPartition():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return bytes(untyped_value).decode("utf-8", "backslashreplace")
        case enum.Enum():
            return value.name
        case BaseException():
            return {"error": type(value).__name__, "text": str(value)}
        case Message() | Struct():
            return {
                type(value).__name__: {
                    f.name: to_plain_json(getattr(value, f.name)) for f in value.__fields__
                }
            }
        case dict():
            return {str(key): to_plain_json(element) for key, element in untyped_value.items()}
        case set() | frozenset():
            return sorted((to_plain_json(element) for element in untyped_value), key=str)
        case _:
            return _object_to_json(value)


def _object_to_json(value: Any) -> Any:
    untyped_value: Any = value  # `isinstance` narrows the type of `value`, but not of `untyped_value`.
    name = type(value).__name__
    if isinstance(value, tuple) and hasattr(untyped_value, "_fields"):
        return {
            name: {
                key: to_plain_json(element)
                for key, element in zip(untyped_value._fields, untyped_value, strict=True)
            }
        }
    if isinstance(value, list | tuple):
        return [to_plain_json(element) for element in untyped_value]
    if isinstance(value, msgspec.Struct):
        return {name: {key: to_plain_json(getattr(value, key)) for key in value.__struct_fields__}}
    if is_dataclass(untyped_value) and not isinstance(untyped_value, type):
        return {name: {f.name: to_plain_json(getattr(untyped_value, f.name)) for f in fields(untyped_value)}}
    return f"<{getattr(untyped_value, '__qualname__', name)}>"
