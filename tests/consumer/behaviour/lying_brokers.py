"""Simulated clusters in which one response contains one wrong value."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import UUID

from kproto.error_codes import ErrorCode
from kproto.errors import EncodeError
from kproto.messages.headers import decode_response, encode_response
from kproto.messages.index import API_NAMES, response_class
from kproto.testing.world.clients import Wire
from kproto.wire.message import Message
from tests.consumer.stage import World

KEYS = {name: key for key, name in API_NAMES.items()}
CODES = [code for code in ErrorCode if code]
NUMBERS = (-1, 0, 1, 2, 99, 1_000_000, 2**31 - 1)

# The wrong response: its API, the number of right responses before it, and the change. The change is
# either a seed for a random field and value, or a pair: a field's path, and its new value or a function of
# the old value.
Lie = tuple[str, int, int | tuple[str, Any]]


class LyingWorld(World):
    """A simulated cluster in which one response to the client `victim` has one wrong value."""

    def __init__(self, lie: Lie, victim: str, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.api, self.right_before, self.change = lie
        self.victim = victim
        # Whether every later response to this API also has the wrong value, instead of only one response.
        self.is_lasting = False
        # The wrong field and its value, for assertion messages. "" before the wrong response.
        self.lie = ""

    def _send_response(self, wire: Wire, body: bytes) -> None:
        key, version = self.pending_requests[wire.conn]
        if (self.is_lasting or not self.lie) and key == KEYS[self.api] and wire.client.name == self.victim:
            self.right_before -= 1
            if self.right_before < 0:
                body = self._change(body, key, version)
        super()._send_response(wire, body)

    def _change(self, body: bytes, key: int, version: int) -> bytes:
        """Return the response with one wrong value, or unchanged if this value cannot be encoded."""
        correlation, response = decode_response(body, response_class(key), version)
        if isinstance(self.change, int):
            place = change_a_field(response, Random(self.change))
        else:
            path, value = self.change
            place = f"{path} = {value!r}"
            *way, name = path.split(".")
            for message in _parts(response, way):
                setattr(message, name, value(getattr(message, name)) if callable(value) else value)
        try:
            changed = encode_response(response, version, correlation)
        except EncodeError:
            return body
        self.lie = f"{self.api} v{version}: {place}" if place else ""
        return changed


def change_a_field(response: Message, random: Random) -> str:
    """Change one random field of a response. Return the field's name and its new value, or "" if no field can
    be changed.
    """
    places = list(_fields(response))
    random.shuffle(places)
    for message, name in places:
        value: Any = getattr(message, name)
        wrong = _wrong(value, name, random)
        if wrong != value:
            setattr(message, name, wrong)
            return f"{type(message).__name__}.{name}: {str(value)[:50]} -> {str(wrong)[:50]}"
    return ""


def _wrong(value: Any, name: str, random: Random) -> Any:
    """Return a different value of the same type, or the same value if there is no different one."""
    match value:
        case bool():
            return not value
        case int() if "error_code" in name:
            return random.choice(CODES)
        case int():
            return random.choice([*NUMBERS, value + 1, value - 1])
        case UUID():
            return random.choice([UUID(int=0), UUID(int=0xFF)])
        case str():
            return random.choice(["", "other", value + "x"])
        case list() if value:
            index = random.randrange(len(value))
            without: list[Any] = value[:index] + value[index + 1 :]
            return random.choice([[], without, [*value, value[index]]])
        case bytes() | bytearray() | memoryview() if len(value):
            data, index = bytearray(value), random.randrange(len(value))
            data[index] ^= 1 << random.randrange(8)
            return random.choice([b"", bytes(value[:index]), bytes(data)])
        case _:
            return value


def _fields(message: Message) -> Iterator[tuple[Message, str]]:
    """Yield each field of a message and of the structs in it, together with the struct that has the field."""
    for field in message.__fields__:
        value: Any = getattr(message, field.name)
        yield message, field.name
        for part in value if isinstance(value, list) else [value]:
            if hasattr(part, "__fields__"):
                yield from _fields(part)


def _parts(message: Any, way: list[str]) -> Iterator[Any]:
    """Yield the structs of a message at the path `way`, a list of nested field names."""
    if not way:
        yield message
        return
    for part in getattr(message, way[0]):
        yield from _parts(part, way[1:])
