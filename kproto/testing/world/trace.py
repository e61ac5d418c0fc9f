"""What happened in a world, as JSON lines: one for each event, action, request, answer and call.

{"n": 17, "turn": 9, "at": 1000003, "who": "a", "what": "asks", "to": 1, "api": "JoinGroup", "version": 9,
...}

`at` is virtual ms. Lines are made when they are asked for; what is kept until then are the objects
themselves.
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
    """One line to be: `data` is whatever it was."""

    turn: int
    at: int
    who: str
    what: str
    data: Any


class RequestEntry(NamedTuple):
    """A request as it came to a broker, over its connection `conn`."""

    node: int
    body: bytes
    conn: int


class ResponseEntry(NamedTuple):
    """An answer as it left a broker; `key` and `version` are those of the request."""

    node: int
    key: int
    version: int
    body: bytes
    conn: int


def exchanges(entries: Iterable[Entry]) -> Iterator[Exchange]:
    """The requests in a trace, each with its answer, as `kproto watch` sees them, in the order of their ends.

    A client's id is its name in the world. What was never answered comes last, but for fetches: those wait.
    """
    talks: dict[int, Conversation] = {}
    names: dict[str, dict[UUID, str]] = {}
    for entry in entries:
        found: Exchange | None = None
        if isinstance(entry.data, RequestEntry):
            asked = entry.data
            known = names.setdefault(entry.who, {})
            talk = talks.setdefault(
                asked.conn, Conversation(entry.who, asked.conn, known, f"broker {asked.node}")
            )
            begun, over = talk.asked(asked.body, entry.at)
            begun.client = entry.who
            found = begun if over else None
        elif isinstance(entry.data, ResponseEntry):
            found = talks[entry.data.conn].answered(entry.data.body, entry.at)
        if found is not None:
            yield found
    for talk in talks.values():
        for open_still in talk.ended():
            open_still.trouble = "no answer"
            if open_still.api != "Fetch":
                yield open_still


def lines(entries: Iterable[Entry]) -> Iterator[str]:
    """The trace as JSON lines."""
    for number, entry in enumerate(entries):
        head = {"n": number, "turn": entry.turn, "at": entry.at, "who": entry.who, "what": entry.what}
        yield one_line({**head, **_entry_fields(entry.data)})


def digest(entries: Iterable[Entry]) -> str:
    """A number for the whole trace: equal for equal runs, bit for bit."""
    found = hashlib.sha256()
    for line in lines(entries):
        found.update(line.encode())
        found.update(b"\n")
    return found.hexdigest()


def _entry_fields(data: Any) -> dict[str, Any]:
    match data:
        case None:
            return {}
        case RequestEntry(node, body, _):
            return {"to": node, **_request(body)}
        case ResponseEntry(node, key, version, body, _):
            return {"from": node, **_response(key, version, body)}
        case _:
            plain: Any = to_plain_json(data)
            return cast(Any, plain) if isinstance(plain, dict) else {"value": plain}


def _request(body: bytes) -> dict[str, Any]:
    try:
        envelope: Envelope = decode_request(body)
    except DecodeError as error:
        return {"undecodable": str(error)}
    key = envelope.header.request_api_key
    said = to_json(envelope.request, envelope.version)
    return {"api": API_NAMES[key], "version": envelope.version, "body": said}


def _response(key: int, version: int, body: bytes) -> dict[str, Any]:
    try:
        _, response = decode_response(body, response_class(key), version)
    except DecodeError as error:
        return {"api": API_NAMES[key], "version": version, "undecodable": str(error)}
    return {"api": API_NAMES[key], "version": version, "body": to_json(response, version)}


def to_plain_json(value: Any) -> Any:
    """Any object as what JSON has, without anything that differs from run to run."""
    several: Any = value
    match value:
        case None | bool() | int() | float() | str():
            return value
        case TopicPartition():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return bytes(several).decode("utf-8", "backslashreplace")
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
            return {str(key): to_plain_json(one) for key, one in several.items()}
        case set() | frozenset():
            return sorted((to_plain_json(one) for one in several), key=str)
        case _:
            return _object_to_json(value)


def _object_to_json(value: Any) -> Any:
    several: Any = value
    name = type(value).__name__
    if isinstance(value, tuple) and hasattr(several, "_fields"):
        return {name: {key: to_plain_json(one) for key, one in zip(several._fields, several, strict=True)}}
    if isinstance(value, list | tuple):
        return [to_plain_json(one) for one in several]
    if isinstance(value, msgspec.Struct):
        return {name: {key: to_plain_json(getattr(value, key)) for key in value.__struct_fields__}}
    if is_dataclass(several) and not isinstance(several, type):
        return {name: {f.name: to_plain_json(getattr(several, f.name)) for f in fields(several)}}
    return f"<{getattr(several, '__qualname__', name)}>"
