"""Scripts of raw requests, run against a coordinator, the embedded broker or a real Kafka.

The head of `raw_requests.txt` explains the format. A `ScriptRunner` sends a script's requests to a `Scene`: a
broker, or a coordinator without a broker. Member ids are replaced by names, so the responses are the same in
every run.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

from kproto.error_codes import ErrorCode
from kproto.messages.consumer_protocol import ConsumerProtocolSubscription
from kproto.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kproto.messages.delete_groups import DeleteGroupsRequest
from kproto.messages.describe_groups import DescribeGroupsRequest
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.headers import decode_response, encode_request
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.index import response_class
from kproto.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kproto.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kproto.messages.list_groups import ListGroupsRequest
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kproto.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kproto.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from kproto.wire.frame import frame
from kproto.wire.message import Message
from tests.group.classic.coordinator import stage as virtual

Seen = tuple[str, ...]

# Times in seconds. A script line that expects "waits" fails if a response arrives within A_WHILE. Any other
# line fails if no response arrives within FOREVER.
A_WHILE, FOREVER = 0.15, 10.0

NEWEST = {"join": 9, "sync": 5, "heartbeat": 4, "leave": 5, "commit": 9, "fetch": 9, "describe": 6, "list": 5}
NOBODY = UUID(int=0xDEAD)
NOT_READY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
TOPICS = {"flights": 2, "old": 1}


# Parser.


@dataclass(frozen=True)
class Line:
    """One line of a script: the member, its request, and the expected response."""

    number: int
    text: str
    who: tuple[str, ...]
    verb: str
    options: Mapping[str, str]
    expected: Seen
    on_kafka: Seen | None


@dataclass
class Script:
    title: str
    broker: str = "usual"
    lines: list[Line] = field(default_factory=list[Line])


def read(written: str) -> list[Script]:
    """Parse all scripts, in order."""
    scripts: list[Script] = []
    for number, raw in enumerate(written.splitlines(), 1):
        text = raw.strip()
        if text.startswith("== "):
            scripts.append(Script(text[3:]))
        elif text.startswith("[broker "):
            scripts[-1].broker = text[8:-1]
        elif text and not text.startswith("#"):
            scripts[-1].lines.append(_line(number, text))
    return scripts


def _line(number: int, text: str) -> Line:
    request, _, expected = text.partition(" -> ")
    expected, _, on_kafka = expected.partition(" | kafka: ")
    words = request.split()
    if words[0] in ("stable", "gathered", "wait"):
        verb, who, words_left = words[0], tuple(words[1:]), []
    else:
        verb, who, words_left = words[1], (words[0],), words[2:]
    options = {
        "what" if "=" not in word else word.split("=")[0]: word.split("=", 1)[-1] for word in words_left
    }
    return Line(
        number,
        text,
        who,
        verb,
        options,
        tuple(expected.split()),
        tuple(on_kafka.split()) if on_kafka else None,
    )


# The tested brokers and coordinators.


class Connection(Protocol):
    """A connection that carries one request at a time. `receive` returns None if no response has arrived."""

    def send(self, request: Message, version: int) -> None: ...
    def receive(self, seconds: float) -> Any: ...
    def close(self) -> None: ...


class Scene(Protocol):
    """A broker or coordinator to which a `ScriptRunner` sends the requests of scripts."""

    def connect(self) -> Connection: ...
    def wait(self, ms: int) -> None: ...
    def topic(self, name: str) -> tuple[str, UUID]: ...
    def prepare(self, group: str) -> None: ...


class CoordinatorScene:
    """kproto's coordinator without a broker, in virtual time."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.stage = virtual.Stage(
            self, **{name.replace(".", "_"): int(text) for name, text in settings.items()}
        )
        self.ids = {name: UUID(int=index) for index, name in enumerate(TOPICS, 1)}

    def connect(self) -> Connection:
        return _VirtualConnection(self.stage)

    def wait(self, ms: int) -> None:
        self.stage.wait(ms)

    def topic(self, name: str) -> tuple[str, UUID]:
        return name, self.ids.get(name, NOBODY)

    def prepare(self, group: str) -> None:
        """Do nothing: a coordinator without a broker is ready immediately."""

    # The topic names and ids that the coordinator knows.

    def partitions(self, name: str) -> int | None:
        return TOPICS.get(name)

    def id(self, name: str) -> UUID | None:
        return self.ids.get(name)

    def name(self, topic_id: UUID) -> str | None:
        return next((name for name, id_ in self.ids.items() if id_ == topic_id), None)


class _VirtualConnection:
    def __init__(self, stage: virtual.Stage) -> None:
        self.stage = stage
        self.answer: virtual.PendingResponse | None = None

    def close(self) -> None:
        pass

    def send(self, request: Message, version: int) -> None:
        self.answer = self.stage.send(type(request).decode(request.encode(version), version), version)

    def receive(self, seconds: float) -> Any:
        assert self.answer is not None
        # A line that expects a response advances virtual time until the response arrives. A line that expects
        # "waits" does not advance it.
        until = self.stage.now + (int(seconds * 1000) if seconds == FOREVER else 0)
        self.stage.wait(0)
        while self.answer.waits and self.stage.now < until:
            self.stage.wait(10)
        if self.answer.waits:
            return None
        version = self.answer.version
        return type(self.answer.response).decode(self.answer.response.encode(version), version)


class BrokerScene:
    """A broker with a socket: the embedded one, or a real Kafka."""

    def __init__(self, bootstrap: str, run: str) -> None:
        self.address = bootstrap
        self.run = run
        self.ids: dict[str, UUID] = {}
        self._make_topics()

    def connect(self) -> Connection:
        return _Socket(self.address)

    def wait(self, ms: int) -> None:
        time.sleep(ms / 1000)

    def topic(self, name: str) -> tuple[str, UUID]:
        return f"{name}-{self.run}", self.ids.get(name, NOBODY)

    def prepare(self, group: str) -> None:
        """Wait until the broker coordinates the group: a new Kafka first creates its offsets topic."""
        with contextlib.closing(self.connect()) as connection:
            self._await_coordinator(connection, group)

    def _await_coordinator(self, connection: Connection, group: str) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            connection.send(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 6)
            code = connection.receive(FOREVER).coordinators[0].error_code
            if code == ErrorCode.NONE:
                connection.send(OffsetDeleteRequest(group_id=group, topics=[self._some_partition()]), 0)
                code = connection.receive(FOREVER).error_code
                if code not in NOT_READY:
                    return
            time.sleep(0.1)
        raise AssertionError(f"{self.address} did not coordinate {group} within 60 s: {ErrorCode(code).name}")

    def _some_partition(self) -> OffsetDeleteRequestTopic:
        partitions = [OffsetDeleteRequestPartition(partition_index=0)]
        return OffsetDeleteRequestTopic(name=self.topic("flights")[0], partitions=partitions)

    def _make_topics(self) -> None:
        topics = [
            CreatableTopic(
                name=self.topic(name)[0],
                num_partitions=count,
                replication_factor=1,
                assignments=[],
                configs=[],
            )
            for name, count in TOPICS.items()
        ]
        with contextlib.closing(self.connect()) as connection:
            connection.send(CreateTopicsRequest(topics=topics), 7)
            response: CreateTopicsResponse = connection.receive(FOREVER)
        for name, topic in zip(TOPICS, response.topics, strict=True):
            assert topic.error_code == 0, topic
            self.ids[name] = topic.topic_id


class _Socket:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), FOREVER)
        self.sent: tuple[type[Message], int] | None = None
        self.received = b""

    def send(self, request: Message, version: int) -> None:
        assert self.sent is None, "a connection answers one request at a time"
        key = type(request).__api_key__
        assert key is not None
        self.sent = (response_class(key), version)
        self.socket.settimeout(FOREVER)
        self.socket.sendall(frame(encode_request(request, version, 1, "app")))

    def close(self) -> None:
        self.socket.close()

    def receive(self, seconds: float) -> Any:
        assert self.sent is not None
        end = time.monotonic() + seconds
        while True:
            size = int.from_bytes(self.received[:4], "big") + 4 if len(self.received) >= 4 else 4
            if len(self.received) >= size > 4:
                break
            remaining = end - time.monotonic()
            if remaining <= 0:
                return None
            self.socket.settimeout(remaining)
            try:
                data = self.socket.recv(65536)
            except TimeoutError:
                return None
            assert data, "the broker closed the connection"
            self.received += data
        (response, version), self.sent = self.sent, None
        body, self.received = self.received[4:size], self.received[size:]
        return decode_response(body, response, version)[1]


# Members.


@dataclass
class Actor:
    """The state of one member in a script."""

    name: str
    main: Connection  # The connection for JoinGroup and SyncGroup, whose responses may be delayed.
    aside: Connection
    member_id: str = ""
    generation: int = -1
    options: dict[str, str] = field(default_factory=dict[str, str])
    # The verb of the script line whose request has no response yet.
    waits_for: str = ""
    # The response to the request of `waits_for`, if this response arrived before the script reached the line
    # that expects it.
    early_response: Any = None
    protocol: str = "range"


class ScriptRunner:
    """Sends the requests of scripts to a coordinator or a broker."""

    def __init__(self, scene: Scene, group: str) -> None:
        scene.prepare(group)
        scene.prepare("")
        self.scene = scene
        self.group = group
        self.actors: dict[str, Actor] = {}
        self.names: dict[str, str] = {"": "none"}  # Names by member id.

    def run(self, script: Script) -> Iterator[tuple[Line, Seen]]:
        """Yield each line of a script with its response."""
        with contextlib.ExitStack() as stack:
            self.stack = stack
            yield from self._run(script)

    def _run(self, script: Script) -> Iterator[tuple[Line, Seen]]:
        for line in script.lines:
            match line.verb:
                case "wait":
                    self.scene.wait(int(line.who[0]))
                case "stable" | "gathered":
                    self.gather([self.actor(name) for name in line.who], sync=line.verb == "stable")
                case "is":
                    self.actor(line.who[0]).options.update(line.options)
                case "restart":
                    self.restart(line.who[0])
                case _:
                    patience = A_WHILE if line.expected[0] == "waits" else FOREVER
                    yield line, self.act(self.actor(line.who[0]), line.verb, line.options, patience)

    def actor(self, name: str) -> Actor:
        if name not in self.actors:
            main, aside = (
                self.stack.enter_context(contextlib.closing(self.scene.connect())) for _ in range(2)
            )
            self.actors[name] = Actor(name, main, aside)
        return self.actors[name]

    def restart(self, name: str) -> None:
        old = self.actors.pop(name)
        old.name = f"{name}.old"
        self.actors[old.name] = old
        self.names[old.member_id] = old.name
        self.actor(name).options.update(old.options)

    def gather(self, actors: list[Actor], sync: bool) -> None:
        """Let the members join one by one. Each newcomer makes the earlier members rejoin, which starts a new
        generation.
        """
        for count, newcomer in enumerate(actors, 1):
            self.act(newcomer, "enter", {}, A_WHILE if count > 1 else FOREVER)
            for member in actors[: count - 1]:
                self.act(member, "join", {}, A_WHILE if member is not actors[count - 2] else FOREVER)
            for member in actors[:count]:
                if member.waits_for:
                    self.act(member, "answered", {}, FOREVER)
            if sync or count < len(actors):
                plan = ",".join(f"{member.name}:{member.name}" for member in actors[:count])
                for member in actors[:count]:
                    response = self.act(member, "sync", {"plan": plan}, FOREVER)
                    assert response[0] == "NONE", (member.name, response)

    def act(self, actor: Actor, verb: str, options: Mapping[str, str], patience: float) -> Seen:
        if verb == "enter":
            if "instance" not in actor.options:
                assert self.act(actor, "join", options, FOREVER)[0] == "MEMBER_ID_REQUIRED"
            verb = "join"
        connection, response = actor.main, actor.early_response
        if verb == "answered":
            verb, actor.early_response = actor.waits_for, None
        else:
            # While the JoinGroup or SyncGroup on the main connection waits, other requests use the second
            # connection.
            connection = actor.main if verb in ("join", "sync") and not actor.waits_for else actor.aside
            response = None
            self._send(connection, actor, verb, options)
        if response is None:
            response = connection.receive(patience)
        if connection is actor.main:
            actor.waits_for = verb if response is None else ""
        if response is None:
            return ("waits",)
        if verb == "join":
            self._receive_other_member_ids(response)
        show: Callable[[Actor, Any], Iterator[str]] = getattr(self, f"_show_{verb.replace('-', '_')}")
        return tuple(show(actor, response))

    def _send(self, connection: Connection, actor: Actor, verb: str, options: Mapping[str, str]) -> None:
        merged = {**actor.options, **options}
        version = int(merged.get("v", NEWEST.get(verb, 2 if verb == "delete" else 0)))
        make: Callable[[Actor, dict[str, str], int], Message] = getattr(self, f"_{verb.replace('-', '_')}")
        connection.send(make(actor, merged, version), version)

    def _receive_other_member_ids(self, response: Any) -> None:
        """Receive other members' JoinGroup responses before the script reaches the lines that expect them.

        The method returns as soon as `names` contains each member id in `response`.
        """
        named = {response.leader, *(member.member_id for member in response.members)}
        for actor in self.actors.values():
            if named <= {response.member_id, *self.names}:
                return
            if actor.waits_for == "join" and actor.early_response is None:
                actor.early_response = actor.main.receive(A_WHILE)
                if actor.early_response is not None:
                    self.names[actor.early_response.member_id] = actor.name

    # Requests.

    def _who(self, actor: Actor, options: dict[str, str], since: int, version: int) -> dict[str, Any]:
        member_id = {"none": ""}.get(options["id"], options["id"]) if "id" in options else actor.member_id
        instance = None if options.get("instance") == "null" else options.get("instance")
        named = {} if version < since else {"group_instance_id": instance}
        return {"group_id": self._group(options), "member_id": member_id, **named}

    def _group(self, options: dict[str, str]) -> str:
        return "" if options.get("group") == "none" else self.group

    def _generation(self, actor: Actor, options: dict[str, str]) -> int:
        return int(options.get("generation", actor.generation))

    def _join(self, actor: Actor, options: dict[str, str], version: int) -> Message:
        subscription = ConsumerProtocolSubscription(
            topics=[self.scene.topic("flights")[0]], user_data=options.get("says", "").encode()
        )
        protocols = [] if options.get("protocols") == "none" else options.get("protocols", "range").split(",")
        return JoinGroupRequest(
            **self._who(actor, options, 5, version),
            session_timeout_ms=int(options.get("session", 30_000)),
            rebalance_timeout_ms=int(options.get("rebalance", 60_000)),
            protocol_type={"none": ""}.get(options.get("type", ""), options.get("type", "consumer")),
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=b"\0\0" + subscription.encode(0))
                for name in protocols
            ],
        )

    def _sync(self, actor: Actor, options: dict[str, str], version: int) -> Message:
        pairs = [pair.split(":") for pair in options.get("plan", "").split(",") if pair]
        type_, name = options.get("type", "consumer"), options.get("name", actor.protocol)
        return SyncGroupRequest(
            **self._who(actor, options, 3, version),
            generation_id=self._generation(actor, options),
            protocol_type=None if type_ == "null" else type_,
            protocol_name=None if name == "null" else name,
            assignments=[
                SyncGroupRequestAssignment(member_id=self._id(who), assignment=plan.encode())
                for who, plan in pairs
            ],
        )

    def _id(self, name: str) -> str:
        """Return the member id of the script's actor `name`.

        If no actor has this name, return the empty id for "none", and `name` itself for any other name.
        """
        return self.actors[name].member_id if name in self.actors else {"none": ""}.get(name, name)

    def _heartbeat(self, actor: Actor, options: dict[str, str], version: int) -> Message:
        who = self._who(actor, options, 3, version)
        return HeartbeatRequest(**who, generation_id=self._generation(actor, options))

    def _leave(self, actor: Actor, options: dict[str, str], version: int) -> Message:
        who = self._who(actor, options, 3, version)
        if version < 3:
            return LeaveGroupRequest(group_id=who["group_id"], member_id=who["member_id"])
        if "members" not in options:
            group_id = who.pop("group_id")
            return LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(**who)])
        pairs = [pair.partition("/") for pair in options["members"].split(",")]
        identities = [
            MemberIdentity(member_id=self._id(name), group_instance_id=instance or None)
            for name, _, instance in pairs
        ]
        return LeaveGroupRequest(group_id=who["group_id"], members=identities)

    def _commit(self, actor: Actor, options: dict[str, str], version: int) -> Message:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for entry in options.get("offsets", "flights-0:42").split(","):
            partition, offset = entry.split(":")
            name, index = partition.split("-")
            topics.setdefault(name, []).append(
                OffsetCommitRequestPartition(
                    partition_index=int(index),
                    committed_offset=int(offset),
                    committed_metadata=options.get("metadata"),
                )
            )
        return OffsetCommitRequest(
            **self._who(actor, options, 7, version),
            generation_id_or_member_epoch=self._generation(actor, options),
            topics=[
                OffsetCommitRequestTopic(**self._topic(name), partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

    def _topic(self, name: str) -> dict[str, Any]:
        return dict(zip(("name", "topic_id"), self.scene.topic(name), strict=True))

    def _named(self, options: dict[str, str]) -> dict[str, list[int]]:
        topics: dict[str, list[int]] = {}
        for partition in options["what"].split(","):
            name, index = partition.split("-")
            topics.setdefault(name, []).append(int(index))
        return topics

    def _fetch(self, actor: Actor, options: dict[str, str], version: int) -> Message:
        named = None if options["what"] == "all" else self._named(options)
        if version < 8:
            topics = [
                OffsetFetchRequestTopic(name=self.scene.topic(name)[0], partition_indexes=indexes)
                for name, indexes in (named or {}).items()
            ]
            return OffsetFetchRequest(group_id=self._group(options), topics=None if named is None else topics)
        requested_topics = [
            OffsetFetchRequestTopics(**self._topic(name), partition_indexes=indexes)
            for name, indexes in (named or {}).items()
        ]
        wanted = OffsetFetchRequestGroup(
            group_id=self._group(options), topics=None if named is None else requested_topics
        )
        return OffsetFetchRequest(groups=[wanted])

    def _delete_offsets(self, actor: Actor, options: dict[str, str], version: int) -> Message:
        return OffsetDeleteRequest(
            group_id=self._group(options),
            topics=[
                OffsetDeleteRequestTopic(
                    name=self.scene.topic(name)[0],
                    partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes],
                )
                for name, indexes in self._named(options).items()
            ],
        )

    def _delete(self, actor: Actor, options: dict[str, str], version: int) -> Message:
        return DeleteGroupsRequest(groups_names=[self._group(options)])

    def _describe(self, actor: Actor, options: dict[str, str], version: int) -> Message:
        include_operations = options.get("operations") == "yes"
        return DescribeGroupsRequest(
            groups=[self._group(options)], include_authorized_operations=include_operations
        )

    def _list(self, actor: Actor, options: dict[str, str], version: int) -> Message:
        states = [word.replace("_", " ") for word in options.get("states", "").split(",") if word]
        return ListGroupsRequest(
            states_filter=states, types_filter=[word for word in options.get("types", "").split(",") if word]
        )

    # Responses in words.

    def _name(self, member_id: str) -> str:
        return self.names.get(member_id, member_id)

    def _names(self, member_ids: list[str]) -> str:
        return ",".join(sorted(self._name(member_id) for member_id in member_ids)) or "none"

    def _show_join(self, actor: Actor, response: Any) -> Iterator[str]:
        code = ErrorCode(response.error_code)
        if code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            actor.member_id = response.member_id
            self.names[response.member_id] = actor.name
        if code is ErrorCode.NONE:
            actor.generation = response.generation_id
            actor.protocol = response.protocol_name
        named = [
            p for p in ("app", actor.options.get("instance", "app")) if response.member_id.startswith(f"{p}-")
        ]
        yield code.name
        yield f"generation={response.generation_id}"
        yield f"leader={self._name(response.leader)}"
        yield f"members={self._names([member.member_id for member in response.members])}"
        yield f"protocol={'empty' if response.protocol_name == '' else response.protocol_name or 'none'}"
        yield f"type={response.protocol_type or 'none'}"
        yield f"skip={'yes' if response.skip_assignment else 'no'}"
        yield f"id={self._name(response.member_id)}"
        yield f"named={named[-1] if named else 'none'}"

    def _show_sync(self, actor: Actor, response: Any) -> Iterator[str]:
        yield ErrorCode(response.error_code).name
        yield f"assignment={response.assignment.decode() or 'none'}"
        yield f"type={response.protocol_type or 'none'}"
        yield f"name={response.protocol_name or 'none'}"

    def _show_heartbeat(self, actor: Actor, response: Any) -> Iterator[str]:
        yield ErrorCode(response.error_code).name

    def _show_leave(self, actor: Actor, response: Any) -> Iterator[str]:
        yield ErrorCode(response.error_code).name
        yield f"members={','.join(ErrorCode(m.error_code).name for m in response.members) or 'none'}"
        yield f"echo={','.join(f'{self._name(m.member_id)}/{m.group_instance_id}' for m in response.members)}"

    def _show_commit(self, actor: Actor, response: Any) -> Iterator[str]:
        results = sorted(self._partitions(response.topics, lambda p: ErrorCode(p.error_code).name))
        codes = sorted({result.split("=")[1] for result in results})
        yield from codes if len(codes) == 1 else results
        yield from results if len(codes) == 1 else ()

    def _show_fetch(self, actor: Actor, response: Any) -> Iterator[str]:
        group = response.groups[0] if response.groups else response
        yield ErrorCode(group.error_code).name
        offsets = sorted(
            self._partitions(
                group.topics,
                lambda p: ErrorCode(p.error_code).name if p.error_code else str(p.committed_offset),
            )
        )
        yield from offsets or ["nothing"]

    def _show_delete_offsets(self, actor: Actor, response: Any) -> Iterator[str]:
        yield ErrorCode(response.error_code).name
        yield from sorted(self._partitions(response.topics, lambda p: ErrorCode(p.error_code).name))

    def _partitions(self, topics: Any, tell: Callable[[Any], str]) -> Iterator[str]:
        names = {self.scene.topic(name): name for name in (*TOPICS, "ghost")}
        known = {key: name for (text, topic_id), name in names.items() for key in (text, topic_id)}
        for topic in topics:
            name = known[topic.name or topic.topic_id]
            yield from (f"{name}-{p.partition_index}={tell(p)}" for p in topic.partitions)

    def _show_delete(self, actor: Actor, response: Any) -> Iterator[str]:
        yield ErrorCode(response.results[0].error_code).name

    def _show_describe(self, actor: Actor, response: Any) -> Iterator[str]:
        (group,) = response.groups
        members = sorted(group.members, key=lambda member: self._name(member.member_id))
        assignments = [f"{self._name(m.member_id)}:{m.member_assignment.decode() or 'none'}" for m in members]
        yield ErrorCode(group.error_code).name
        yield group.group_state
        yield f"members={self._names([m.member_id for m in members])}"
        yield f"protocol={group.protocol_data or 'none'}"
        yield f"type={group.protocol_type or 'none'}"
        yield f"assignments={','.join(assignments) or 'none'}"
        yield f"metadata={'yes' if any(m.member_metadata for m in members) else 'none'}"
        yield f"instances={','.join(m.group_instance_id for m in members if m.group_instance_id) or 'none'}"
        yield f"clients={','.join(sorted({f'{m.client_id}@{m.client_host}' for m in members}))}"
        yield f"operations={group.authorized_operations}"
        yield f"message={'yes' if group.error_message is not None else 'no'}"

    def _show_list(self, actor: Actor, response: Any) -> Iterator[str]:
        yield ErrorCode(response.error_code).name
        groups = [group for group in response.groups if group.group_id == self.group]
        for group in groups:
            yield group.group_state or "listed"
            yield f"type={group.protocol_type or 'none'}"
            yield f"kind={group.group_type or 'none'}"
        if not groups:
            yield "absent"


def fits(expected: Seen, response: Seen) -> bool:
    """Return whether `response` has the error code and all other elements of `expected`.

    If `expected` begins not with an error code but, for example, with "generation=1", any error code fits.
    """
    return (
        bool(response)
        and (expected[0] == response[0] or "=" in expected[0])
        and set(expected) <= set(response)
    )


_RUNS = itertools.count(1)


def new_group(script: Script) -> str:
    """Return a group id that no other run uses."""
    return f"script-{next(_RUNS)}-{time.monotonic_ns()}"


def exchange_frames(line: socket.socket, data: bytes | None) -> bytes | None:
    """Send a frame and return the response, or None if the connection was closed."""
    try:
        if data is not None:
            line.sendall(frame(data))
        size = line.recv(4, socket.MSG_WAITALL)
        return line.recv(*struct.unpack(">i", size), socket.MSG_WAITALL) if size else None
    except ConnectionError:
        return None
