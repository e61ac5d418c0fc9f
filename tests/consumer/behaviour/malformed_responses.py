"""Worlds whose brokers send malformed responses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from consumer.engine.network.transport import Broken
from kproto.messages.headers import decode_response, encode_response
from kproto.messages.index import response_class
from kproto.records import rows
from kproto.testing.world.network import Wire
from kproto.wire.message import Array, Message, Struct
from tests.consumer.behaviour.hostile_brokers import (
    KEYS,
    Refusing,
    parts,
)
from tests.consumer.stage import World

Change = Callable[[Any], Any]


CHANGES: dict[str, Change] = {
    "empty": lambda found: found[:0],
    "left out": lambda found: found[1:],
    "twice": lambda found: found * 2,
    "another": lambda found: UUID(int=77) if isinstance(found, UUID) else f"{found}-other",
    "null": lambda found: None,
}


OF_LISTS, OF_NAMES = ("empty", "left out", "twice"), ("another",)


# What happens to an answer as a whole; "undone": the request is answered with nothing, and not done.
WHOLE = ("cut", "denied", "undone")


DONE = {"CreateTopics", "CreatePartitions", "DeleteTopics", "DeleteGroups", "OffsetCommit", "Produce"}


# API, place, change: one of those above, or a way to change what is there.
Odd = tuple[str, str, str | Change]


def places(message: type[Struct], path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    for field in message.__fields__:
        at, kind = (*path, field.name), field.kind
        if isinstance(kind, Array):
            yield from ((".".join(at), how) for how in OF_LISTS)
            kind = kind.element
            if isinstance(kind, type) and issubclass(kind, Struct):
                yield from places(kind, at)
        elif getattr(kind, "name", "") in ("string", "uuid"):
            yield from ((".".join(at), how) for how in OF_NAMES)
            if field.nullable.max >= 0 and "message" not in field.name:
                yield ".".join(at), "null"


# What a broker doesn't know is told each time, for as long as the connection lasts.
UNKNOWN = ("ApiVersions", "api_keys", "left out")


def odd(*apis: str) -> list[Odd]:
    found = [(api, "", how) for api in apis for how in WHOLE if how != "undone" or api in DONE]
    found += [(api, at, how) for api in apis for at, how in places(response_class(KEYS[api]))]
    return [change for change in found if change != UNKNOWN]


class Mad(Refusing):
    """Its brokers give odd answers while `bad`."""

    def __init__(self, change: Odd, **made: Any) -> None:
        super().__init__("ApiVersions error_code", 0, **made)
        api, at, self.how = change
        self.key, self.path = KEYS[api], at.split(".")
        self.change = self.how if callable(self.how) else CHANGES.get(self.how)
        self.tamper = self.undo if self.how == "undone" else None

    def undo(self, client: Any, request: Any, version: int) -> Message | None:
        if not self.bad or request.__api_key__ != self.key:
            return None
        answer = response_class(self.key)
        return answer(**{one.name: [] if isinstance(one.kind, Array) else 0 for one in answer.__fields__})

    def _reply(self, wire: Wire, body: bytes) -> None:
        key, version = self.pending_requests[wire.conn]
        odd = self.bad and key == self.key and self.how != "undone"
        self.hits += odd
        if not odd:
            World._reply(self, wire, body)
        elif self.how == "denied":
            self.network.send(wire, wire.down, wire.client.run_when_awake, self.deny, wire)
        elif self.how == "cut":
            World._reply(self, wire, body[:4] + b"\xff")
        else:
            number, answer = decode_response(body, response_class(key), version)
            for part in parts(answer, self.path):
                found = getattr(part, self.path[-1])
                if found:  # else it is there in other versions only, perhaps
                    setattr(part, self.path[-1], self.change(found))
            World._reply(self, wire, encode_response(answer, version, number))

    def deny(self, wire: Wire) -> None:
        if wire.open:
            wire.open = False
            del wire.client.wires[wire.key]
            wire.client.do(Broken(wire.key, "the password is another one", denied=True))  # type: ignore[attr-defined]
            self.disconnect_broker(wire)

    def offsets(self) -> dict[tuple[int, str], int]:
        return {
            (partition.partition, (row.value or b"").decode()): row.offset
            for partition in self.partitions()
            for row in rows(b"".join(self.log(partition).read(0, 2**30, at_least_one=True)))
        }
