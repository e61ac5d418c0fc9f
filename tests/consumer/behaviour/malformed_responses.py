"""Simulated clusters whose brokers send malformed responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from consumer.engine.network.transport import Broken
from kproto.messages.headers import decode_response, encode_response
from kproto.messages.index import response_class
from kproto.records import rows
from kproto.testing.world.clients import Wire
from kproto.wire.message import Array, Message, Struct
from tests.consumer.behaviour.hostile_brokers import (
    KEYS,
    Refusing,
    parts,
)
from tests.consumer.stage import World

Change = Callable[[Any], Any]


CHANGES: dict[str, Change] = {
    "empty": lambda value: value[:0],
    "left out": lambda value: value[1:],
    "twice": lambda value: value * 2,
    "another": lambda value: UUID(int=77) if isinstance(value, UUID) else f"{value}-other",
    "null": lambda value: None,
}


LIST_CHANGES, NAME_CHANGES = ("empty", "left out", "twice"), ("another",)


# The changes of a whole response. "cut" truncates it. "denied" rejects the login. With "undone" the broker
# ignores the request and responds with empty lists and zeros.
RESPONSE_CHANGES = ("cut", "denied", "undone")


WRITE_APIS = {"CreateTopics", "CreatePartitions", "DeleteTopics", "DeleteGroups", "OffsetCommit", "Produce"}


# A malformed field: its API, its path, and one of CHANGES or a function of the old value.
Malformation = tuple[str, str, str | Change]


def places(message: type[Struct], path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    for field in message.__fields__:
        field_path, kind = (*path, field.name), field.kind
        if isinstance(kind, Array):
            yield from ((".".join(field_path), change) for change in LIST_CHANGES)
            kind = kind.element
            if isinstance(kind, type) and issubclass(kind, Struct):
                yield from places(kind, field_path)
        elif getattr(kind, "name", "") in ("string", "uuid"):
            yield from ((".".join(field_path), change) for change in NAME_CHANGES)
            if field.nullable.max >= 0 and "message" not in field.name:
                yield ".".join(field_path), "null"


def malformations(*apis: str) -> list[Malformation]:
    changes = [
        (api, "", how) for api in apis for how in RESPONSE_CHANGES if how != "undone" or api in WRITE_APIS
    ]
    return changes + [(api, path, how) for api in apis for path, how in places(response_class(KEYS[api]))]


class MalformedWorld(Refusing):
    """A simulated cluster whose brokers send malformed responses while `bad` is set."""

    def __init__(self, change: Malformation, **options: Any) -> None:
        super().__init__("ApiVersions error_code", 0, **options)
        api, path, self.how = change
        self.key, self.path = KEYS[api], path.split(".")
        self.change = self.how if callable(self.how) else CHANGES.get(self.how)
        self.tamper = self.undo if self.how == "undone" else None

    def undo(self, client: Any, request: Any, version: int) -> Message | None:
        if not self.bad or request.__api_key__ != self.key:
            return None
        answer = response_class(self.key)
        return answer(
            **{field.name: [] if isinstance(field.kind, Array) else 0 for field in answer.__fields__}
        )

    def _send_response(self, wire: Wire, body: bytes) -> None:
        key, version = self.pending_requests[wire.conn]
        malformed = self.bad and key == self.key and self.how != "undone"
        self.hits += malformed
        if not malformed:
            World._send_response(self, wire, body)
        elif self.how == "denied":
            self.network.send(wire, wire.down, wire.client.run_when_awake, self.deny, wire)
        elif self.how == "cut":
            World._send_response(self, wire, body[:4] + b"\xff")
        else:
            number, answer = decode_response(body, response_class(key), version)
            for part in parts(answer, self.path):
                value = getattr(part, self.path[-1])
                # An empty field is not changed: it may exist only in other versions of the response.
                if value:
                    setattr(part, self.path[-1], self.change(value))
            World._send_response(self, wire, encode_response(answer, version, number))

    def deny(self, wire: Wire) -> None:
        if wire.open:
            wire.open = False
            del wire.client.wires[wire.key]
            wire.client.do(Broken(wire.key, "the password is wrong", denied=True))  # type: ignore[attr-defined]
            self.disconnect_broker(wire)

    def offsets(self) -> dict[tuple[int, str], int]:
        return {
            (partition.partition, (row.value or b"").decode()): row.offset
            for partition in self.partitions()
            for row in rows(b"".join(self.log(partition).read(0, 2**30, at_least_one=True)))
        }
