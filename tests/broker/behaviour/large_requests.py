"""Random requests that cost the broker much work: large arrays, and repeated or existing names."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

from kproto.broker.apis.table import APIS
from kproto.messages.index import request_class
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kproto.wire.message import Array, Field, Message, Struct
from kproto.wire.types import Primitive
from tests.broker.stage import NEWEST, Client, Stage, batch_of, join_request

TOPICS = {"t": 2, "wide": 50}
GROUPS = ("g", "h")
# The metadata of each member. Kafka does not limit its size, so the test uses large metadata.
METADATA = b"m" * 20_000
NAMES = (*TOPICS, *GROUPS, "consumer", "range", "retention.ms", "1", "absent", "")
NUMBERS = (-1, 0, 0, 1, 2, 3, 49, 1000, 2**31 - 1)
SERVED = sorted(APIS)


def stage_with_data() -> Stage:
    """Return a broker that has topics, records, groups with large metadata, and committed offsets."""
    stage = Stage(TOPICS, group_initial_rebalance_delay_ms=0)
    client = stage.client()
    for topic, count in TOPICS.items():
        for partition in range(min(count, 3)):
            client.produce(batch_of(*[b"v" * 100] * 20), topic, partition)
    for group in GROUPS:
        join_with_metadata(client, group)
    return stage


def join_with_metadata(client: Client, group: str) -> None:
    """Join `group` as its only member. METADATA is both the member's metadata and its assignment."""
    request = join_request(group=group)
    request.protocols[0].metadata = METADATA
    request.member_id = client.ask(request).member_id
    joined = client.ask(request)
    assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=METADATA)
    synced = client.ask(
        SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[assignment],
        )
    )
    assert synced.error_code == 0


class LargeRequests:
    """Draws random requests from a seed. In each request, one array is large, with up to `most` elements."""

    def __init__(self, seed: int, stage: Stage, most: int) -> None:
        self.random = Random(seed)
        ids = [topic.id for name in TOPICS if (topic := stage.broker.topics.named(name))]
        self.ids = [*ids, UUID(int=0), UUID(int=99)]
        self.most = most

    def draw(self, key: int | None = None) -> tuple[int, Message]:
        """Return a version of an API that the broker serves, and a random request of this version."""
        random = self.random
        api = APIS[random.choice(SERVED) if key is None else key]
        served = api.versions(NEWEST.get(api.key))
        cls = request_class(api.key)
        # As in Kafka, Produce is advertised from version 0 (KAFKA-18659), but served from version 3.
        lowest = max(served.min_version, cls.__versions__.min)
        self.version = random.randint(lowest, served.max_version)
        arrays = list(_arrays(cls, self.version))
        self.large = random.choice(arrays) if arrays else None
        self.count = int(self.most ** random.random())
        # What the large array contains. "equal": copies of one element. "new": different elements, whose
        # strings are unknown names. "existing": different elements, whose strings are mostly names of
        # existing topics and groups.
        self.names = random.choice(["equal", "new", "existing"])
        return self.version, self._struct(cls, "")

    def _struct(self, cls: type[Struct], path: str) -> Any:
        fields = [field for field in cls.__fields__ if self.version in field.versions]
        return cls(**{field.name: self._value(field, f"{path}.{field.name}") for field in fields})

    def _value(self, field: Field, path: str) -> Any:
        is_parent = self.large is not None and self.large.startswith(path)
        if self.version in field.nullable and not is_parent and self.random.random() < 0.2:
            return None
        return self._kind(field.kind, path, field.name)

    def _kind(self, kind: Primitive | Array | type[Struct], path: str, name: str) -> Any:
        if isinstance(kind, Primitive):
            return self._primitive(kind.name, name)
        if isinstance(kind, type):
            return self._struct(kind, path)
        if path != self.large:
            is_parent = self.large is not None and self.large.startswith(path + ".")
            return [
                self._kind(kind.element, path, name)
                for _ in range(1 if is_parent else self.random.randrange(3))
            ]
        if self.names == "equal":
            return [self._kind(kind.element, path, name)] * self.count
        return [self._kind(kind.element, path, name) for _ in range(self.count)]

    def _primitive(self, kind: str, name: str) -> Any:
        random = self.random
        match kind:
            case "string":
                if random.random() < 0.01:
                    return random.choice("xé") * random.choice([200, 10_000])
                return f"new-{random.randrange(10**6)}" if self.names == "new" else random.choice(NAMES)
            case "bool":
                return random.random() < 0.5
            case "float64":
                return random.choice([0.0, 1e9])
            case "uuid":
                return random.choice(self.ids)
            case "bytes":
                return bytes(random.choice([0, 3, 100]))
            case "records":
                return batch_of(*[b"v"] * random.choice([1, 100])) if random.random() < 0.9 else b"\0" * 61
            case _:
                limit = {"int8": 2**7, "int16": 2**15, "uint16": 2**16}.get(kind, 2**31)
                return max(-limit if kind[0] == "i" else 0, min(random.choice(NUMBERS), limit - 1))


def _arrays(cls: type[Struct], version: int, path: str = "") -> Any:
    """Yield the path of each array of a message, at any depth."""
    for field in cls.__fields__:
        if version in field.versions:
            kind: Any = field.kind
            here = f"{path}.{field.name}"
            if isinstance(kind, Array):
                yield here
                kind = kind.element
            if isinstance(kind, type):
                yield from _arrays(kind, version, here)
