"""Run models with the embedded broker in virtual time, and show their requests as lines of text.

    stage = Stage({"t": 2})
    a = stage.add_member("A", librdkafka, reset="earliest")
    a.run_command("subscribe t")
    assert stage.run(until=lambda: a.has_printed("assigned"))
    a.requests                            # as "Join v5 id=- sess=45000 ... -> 79"

A driver is a program that executes commands with an original client, and prints what happens. A member of the
stage executes the same commands with a model, and prints the same text.

Requests are printed in the format of the recording proxy of tests/conformance, with names instead of member
ids.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from typing import Any
from uuid import UUID

from kproto.broker import machine
from kproto.broker.apis.table import served_versions
from kproto.broker.broker import Broker, Disconnect, SendFrame
from kproto.broker.call import Node
from kproto.broker.settings import Settings
from kproto.errors import DecodeError
from kproto.group.subscription import Assignment, Subscription, TopicPartition, read_subscription
from kproto.messages.headers import decode_response, encode_request
from kproto.messages.index import response_class
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kproto.models import contract as c
from kproto.records import BatchBuilder
from kproto.wire.message import Message

START = 1_000_000
LATENCY = 1
POLL_MS = 50
HUNG_UP = "hung up"


class Stage:
    """One embedded broker, its members and one virtual clock."""

    def __init__(self, topics: Mapping[str, int] | None = None, **properties: str) -> None:
        self.now = START
        self.order, self.ids = count(), count(1)
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        settings = {
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1",
            **properties,
        }
        self.broker = Broker(Settings.from_properties(settings), Node(1, "broker", 9092), served_versions())
        self.conns: dict[int, Wire] = {}
        self.members: list[StageMember] = []
        self.names: dict[str, str] = {}
        self.topic_ids: dict[UUID, str] = {}
        for name, partitions in (topics or {}).items():
            self.topic(name, partitions)

    # ---- the broker

    def topic(self, name: str, partitions: int) -> None:
        topic_id = UUID(int=next(self.ids))
        self.topic_ids[topic_id] = name
        self._broker(machine.CreateTopic(name, partitions, topic_id))

    def grow(self, name: str, partitions: int) -> None:
        self._broker(machine.GrowTopic(name, partitions))

    def produce(self, topic: str, partitions: Iterable[int], records: int) -> None:
        for partition in partitions:
            builder = BatchBuilder(max_bytes=2**30)
            for number in range(records):
                builder.append(self.now, None, b"x%d" % number)
            data = PartitionProduceData(index=partition, records=builder.build())
            self._operate(
                ProduceRequest(
                    acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
                )
            )

    def _operate(self, request: Message) -> None:
        conn = next(self.ids)
        self._broker(machine.ClientConnected(conn, "operator"))
        self._broker(
            machine.FrameReceived(conn, encode_request(request, 9, 1, "operator"), UUID(int=next(self.ids)))
        )

    # ---- members and time

    def add_member(self, name: str, client: Any, group: str = "g", **conf: Any) -> StageMember:
        member = StageMember(self, name, client, group, conf)
        self.members.append(member)
        return member

    def call_later(self, ms: int, callback: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (self.now + ms, next(self.order), callback))

    def run(self, ms: int = 60_000, until: Callable[[], bool] | None = None) -> bool:
        """Advance the time by `ms`, or until `until` returns True. Return False if `until` stays false."""
        end, turns = self.now + ms, 0
        while until is None or not until():
            due = self._next()
            if due is None or due > end:
                self.now = end
                return until is None or until()
            turns = turns + 1 if due <= self.now else 0
            assert turns < 2_000, "the members act without end, and no time passes"
            self.now = max(self.now, due)
            self._turn()
        return True

    def _next(self) -> int | None:
        times = [self.queue[0][0]] if self.queue else []
        times += [member.due for member in self.members if member.due is not None]
        if (deadline := machine.next_deadline(self.broker)) is not None:
            times.append(deadline)
        return min(times, default=None)

    def _turn(self) -> None:
        while self.queue and self.queue[0][0] <= self.now:
            heapq.heappop(self.queue)[2]()
        deadline = machine.next_deadline(self.broker)
        if deadline is not None and deadline <= self.now:
            self._broker(machine.Tick())
        for member in self.members:
            member.turn()

    # ---- connections

    def _broker(self, event: machine.Event) -> None:
        for action in list(machine.step(self.broker, event, self.now)):
            if isinstance(action, SendFrame):
                wire = self.conns.get(action.conn)
                self._broker(machine.ResponseSent(action.conn))
                if wire is not None:
                    wire.reply(action.frame)
            elif isinstance(action, Disconnect) and (wire := self.conns.pop(action.conn, None)) is not None:
                wire.break_connection("the broker closed the connection")

    def name(self, text: str) -> str:
        for key, value in self.names.items():
            text = text.replace(key, value)
        return text


class Wire:
    """One connection of a member. Responses arrive in the order of the requests."""

    def __init__(self, member: StageMember, address: c.Address) -> None:
        self.member, self.address = member, address
        self.stage = member.stage
        self.conn = next(self.stage.ids)
        self.open: dict[int, tuple[c.SendRequest, Line]] = {}
        self.free_at = 0
        self.group = False
        self.stage.conns[self.conn] = self
        self.stage._broker(machine.ClientConnected(self.conn, "member"))

    def send(self, action: c.SendRequest) -> None:
        number = next(self.stage.ids)
        line = Line(self.member, self.conn, action.request, action.version, self.stage.now)
        self.open[number] = (action, line)
        self.group = self.group or line.api not in ("Fetch", "ListOffsets", "Metadata", "EpochEnd")
        self.member.lines.append(line)
        frame = encode_request(action.request, action.version, number, self.member.config.client_id)
        self.stage.call_later(LATENCY, lambda: self._arrive(frame))

    def _arrive(self, frame: bytes) -> None:
        if self.conn in self.stage.conns:
            self.stage._broker(machine.FrameReceived(self.conn, frame, UUID(int=next(self.stage.ids))))

    def reply(self, frame: bytes) -> None:
        number = int.from_bytes(frame[:4], "big")
        action, line = self.open[number]
        api_key = type(action.request).__api_key__
        assert api_key is not None
        _, response = decode_response(frame, response_class(api_key), action.version)
        codes = self.member.injected.get(line.api)
        if codes and (code := codes.pop(0)):
            response, line.injected = with_error(line.api, response, code), True
        wait = LATENCY + self.member.held.pop(line.api, 0)
        self.free_at = max(self.free_at, self.stage.now + wait)
        line.complete(response)
        self.stage.call_later(self.free_at - self.stage.now, lambda: self._deliver(number, response))

    def _deliver(self, number: int, response: Message) -> None:
        if number in self.open and self.conn in self.stage.conns and self.member.alive:
            action, _ = self.open.pop(number)
            self.member.do(c.ResponseReceived(action.request, response, action.version))

    def break_connection(self, why: str) -> None:
        self.stage.conns.pop(self.conn, None)
        self.member.wires.pop(self.address, None)
        failed, self.open = self.open, {}
        for action, _ in failed.values():
            self.member.do(c.RequestFailed(action.request, why))
        if why != HUNG_UP and getattr(self.member.client, "HEARS_DISCONNECTS", False):
            self.member.do(c.ConnectionLost(self.address))


class StageMember:
    """A model and its application. Without a command to run, the application polls for 50 ms."""

    def __init__(self, stage: Stage, name: str, client: Any, group: str, conf: Mapping[str, Any]) -> None:
        self.stage, self.name, self.client, self.conf = stage, name, client, dict(conf)
        # 100 ms is also the fetch wait in the drivers of the original clients.
        own: dict[str, Any] = {"fetch_wait_ms": 100}
        own |= {key: conf[key] for key in conf if key in _MODEL_OPTIONS and conf[key] is not None}
        if "assignors" in own:
            own["assignors"] = tuple(own["assignors"])
        extra = {
            key: value
            for key, value in conf.items()
            if key not in _MODEL_OPTIONS and key not in _STAGE_OPTIONS
        }
        self.config = c.ModelConfig(client_id=name, group_id=group, extra=extra, **own)
        self.state = client.start(self.config)
        self.lines: list[Line] = []
        self.printed: list[tuple[int, int, str]] = []
        self.logged: list[tuple[int, int, str]] = []
        self.records: list[c.ModelRecord] = []
        self.committed: dict[object, tuple[str, str] | None] = {}
        self.injected: dict[str, list[int]] = {}
        self.held: dict[str, int] = {}
        self.wires: dict[c.Address, Wire] = {}
        self.polling = self.waiting = self.in_callback = False
        self.busy_until = 0
        self.busy_with: object = None
        self.callbacks: list[c.RunCallback] = []
        self.commands: list[str] = []
        self.alive, self.closed = True, False
        self.print_line("ready")
        offered = {key: (api.min_version, api.max_version) for key, api in served_versions().items()}
        self.do(c.Started((("broker", 9092),), offered))

    # ---- methods that tests call

    @property
    def requests(self) -> list[str]:
        """Return the member's group requests with their responses, one line each.

        The lines have the format of the recording proxy of tests/conformance.
        """
        return [str(line) for line in self.lines if line.is_shown]

    def has_printed(self, prefix: str, times: int = 1) -> bool:
        return sum(1 for *_, line in self.printed if line.startswith(prefix)) >= times

    def run_command(self, command: str) -> None:
        self.commands.append(command)
        self.stage.call_later(0, lambda: None)

    def poll(self, ms: int, limit: int = 1) -> tuple[c.ModelRecord, ...]:
        """Call poll once, run its callbacks, and return its records."""
        before, self.waiting = len(self.records), True
        self.do(c.PollCalled(ms, limit))
        self.stage.run(until=lambda: not self.waiting)
        return tuple(self.records[before:])

    def inject(self, api: str, *codes: int) -> None:
        """Put these error codes into the next responses of this API. 0 keeps the response unchanged."""
        self.injected.setdefault(api, []).extend(codes)

    def hold(self, api: str, ms: int) -> None:
        """Delay the next response of this API by `ms`."""
        self.held[api] = ms

    def drop_connections(self) -> None:
        """Break the connections that carry group requests."""
        for wire in [wire for wire in self.wires.values() if wire.group]:
            self.stage._broker(machine.ClientDisconnected(wire.conn))
            wire.break_connection("connection reset by peer")

    def kill(self) -> None:
        self.alive = False
        for wire in list(self.wires.values()):
            self.stage.conns.pop(wire.conn, None)
            self.stage._broker(machine.ClientDisconnected(wire.conn))

    # ---- the model

    @property
    def due(self) -> int | None:
        if not self.alive or self.closed:
            return None
        deadline = self.client.next_deadline(self.state)
        if self.busy_until > self.stage.now:
            return self.busy_until if deadline is None else min(deadline, self.busy_until)
        return self.stage.now if self._can_continue() else deadline

    def do(self, event: c.ModelEvent) -> None:
        if self.closed or not self.alive:
            return
        for action in self.client.step(self.state, event, self.stage.now):
            self._perform(action)

    def _perform(self, action: c.ModelAction) -> None:
        match action:
            case c.SendRequest(to=to):
                if to not in self.wires:
                    self.wires[to] = Wire(self, to)
                self.wires[to].send(action)
            case c.CloseConnection(address=address):
                if (wire := self.wires.get(address)) is not None:
                    self.stage._broker(machine.ClientDisconnected(wire.conn))
                    wire.break_connection(HUNG_UP)
            case c.FinishPoll(records=records, error=error):
                self.waiting = False
                self.records += records
                if error is not None:
                    self.print_line("error", *error)
                    self.busy_until = self.stage.now + 300
            case c.RunCallback():
                self.callbacks.append(action)
            case c.FinishCommit(token=token, error=error):
                self.committed[token] = error
                self.print_line("commit", *(error or ("ok",)))
            case c.Notify(kind=kind, name=name, text=text):
                if kind == "log":
                    self.logged.append((self.stage.now, next(self.stage.order), f"log {name}"))
                else:
                    self.print_line("error", name, text)
            case c.FinishClose():
                self.closed = True
                self.print_line("closed")

    # ---- the application

    def print_line(self, *words: str) -> None:
        self.printed.append((self.stage.now, next(self.stage.order), " ".join(words)))

    def turn(self) -> None:
        if not self.alive or self.closed:
            return
        deadline = self.client.next_deadline(self.state)
        if deadline is not None and deadline <= self.stage.now:
            self.do(c.DeadlineReached())
        while self.alive and not self.closed and self.busy_until <= self.stage.now and self._can_continue():
            self._continue()

    def _can_continue(self) -> bool:
        if self.in_callback or (self.busy_with is not None and self.busy_with not in self.committed):
            return self.in_callback and self.busy_with is None
        return bool(self.callbacks) or (not self.waiting and (bool(self.commands) or self.polling))

    def _continue(self) -> None:
        if self.in_callback:
            self.in_callback = False
            self.do(c.CallbackReturned())
        elif self.callbacks:
            self._call(self.callbacks.pop(0))
        elif self.commands:
            self.busy_with = None
            self._run_command(self.commands.pop(0))
        else:
            self.waiting = True
            self.do(c.PollCalled(POLL_MS))

    def _call(self, tell: c.RunCallback) -> None:
        self.print_line(tell.kind, " ".join(sorted(f"{tp.topic}:{tp.partition}" for tp in tell.partitions)))
        if tell.kind == "revoked" and self.conf.get("commit_in_revoke"):
            self.do(c.CommitCalled(object()))
        if tell.kind == "revoked" and self.conf.get("revoke_ms"):
            self.busy_until = self.stage.now + self.conf["revoke_ms"]
            self.in_callback = True
        elif tell.wait:
            self.do(c.CallbackReturned())

    def _run_command(self, line: str) -> None:
        word, *arguments = line.split()
        match word:
            case "subscribe":
                self.polling = True
                self.do(c.SubscribeCalled(tuple(arguments)))
            case "pattern":
                self.polling = True
                self.do(c.SubscribeCalled(pattern=arguments[0]))
            case "unsubscribe":
                self.do(c.UnsubscribeCalled())
            case "assign":
                self.polling = True
                self.do(c.AssignCalled(dict(_parse_partition(text) for text in arguments)))
            case "seek":
                where, offset = _parse_partition(arguments[0])
                self.do(c.SeekCalled(where, offset or 0))
            case "poll":
                self.polling = arguments[0] == "on"
            case "sleep":
                self.busy_until = self.stage.now + int(arguments[0])
                self.stage.call_later(int(arguments[0]), lambda: self.print_line("slept"))
            case "commit" | "commit-async":
                token = object()
                if word == "commit":
                    self.busy_with = token
                self.do(c.CommitCalled(token, wait=word == "commit"))
            case "rebalance":
                self.do(c.RebalanceCalled(" ".join(arguments)))
            case "close":
                self.polling = False
                self.do(c.CloseCalled(stay="stay" in arguments))
            case _:
                raise AssertionError(line)


_MODEL_OPTIONS = {
    "assignors",
    "instance",
    "session_ms",
    "heartbeat_ms",
    "max_poll_ms",
    "auto_commit",
    "auto_commit_ms",
    "reset",
    "metadata_ms",
    "rack",
    "isolation",
    "watch",
    "fetch_wait_ms",
}
_STAGE_OPTIONS = {"commit_in_revoke", "revoke_ms"}


def _parse_partition(text: str) -> tuple[TopicPartition, int | None]:
    topic, number, *offset = text.split(":")
    return TopicPartition(topic, int(number)), int(offset[0]) if offset else None


# ---- requests and responses in the format of the recording proxy

_NAMES = {1: "Fetch", 2: "ListOffsets", 3: "Metadata", 8: "Commit", 9: "OffsetFetch", 10: "Find", 11: "Join"}
_NAMES |= {12: "Heartbeat", 13: "Leave", 14: "Sync", 23: "EpochEnd"}


class Line:
    """A request and its response, which `str` formats as one line."""

    def __init__(self, member: StageMember, conn: int, request: Any, version: int, now: int) -> None:
        self.member, self.conn, self.request, self.version, self.now = member, conn, request, version, now
        self.api = _NAMES[type(request).__api_key__ or 0]
        self.answer: Any = None
        self.number = next(member.stage.order)
        self.injected = False
        closes = self.api == "Fetch" and request.session_epoch < 0 and request.session_id
        self.is_shown = bool(self.api != "Fetch" or closes)

    def complete(self, answer: Any) -> None:
        self.answer = answer
        if self.api == "Join" and answer.member_id:
            names, stage = self.member.stage.names, self.member.stage
            if answer.member_id not in names:
                known_ids = sum(1 for name in names.values() if name.startswith(self.member.name))
                stage.names[answer.member_id] = f"{self.member.name}{known_ids + 1}"

    def __str__(self) -> str:
        text = f"{self.api} v{self.version}"
        if self.api == "Fetch":
            return f"{text} closes its session"
        body = _REQUESTS[self.api](self)
        if self.api == "Metadata":
            return self.member.stage.name(f"{text} {body}")
        return self.member.stage.name(f"{text} {body}" if body else text) + self._end()

    def _end(self) -> str:
        if self.answer is None:
            return " -> silence"
        code = _error(self.api, self.answer)
        return self.member.stage.name(
            f" -> {code}{'!' if self.injected else ''}{_RESPONSES[self.api](self, code)}"
        )


def _comma_separated(values: Iterable[Any]) -> str:
    return ",".join(map(str, values)) or "none"


def _error(api: str, answer: Any) -> int:
    if api == "Find" and answer.coordinators:
        return int(answer.coordinators[0].error_code)
    if api in ("Commit", "ListOffsets", "EpochEnd"):
        return max([partition.error_code for topic in answer.topics for partition in topic.partitions] or [0])
    if api == "OffsetFetch":
        body = answer.groups[0] if answer.groups else answer
        inner = max([partition.error_code for topic in body.topics for partition in topic.partitions] or [0])
        return int(body.error_code or inner)
    if api == "Leave":
        return int(answer.error_code or next((m.error_code for m in answer.members if m.error_code), 0))
    return int(answer.error_code)


def _describe_find(line: Line) -> str:
    return _comma_separated(line.request.coordinator_keys or [line.request.key])


def _describe_join(line: Line) -> str:
    x = line.request
    protocols = []
    for protocol in x.protocols:
        version = int.from_bytes(protocol.metadata[:2], "big")
        text = f"{protocol.name}(v{version}"
        try:
            sub = Subscription.decode(protocol.metadata)
        # Old releases of sarama declare version 1 of the subscription, but send only the fields of version 0.
        # So only these fields are described.
        except DecodeError:
            sub, version = read_subscription(protocol.metadata), 0
        text += f" topics={_comma_separated(sub.topics)}"
        if version >= 1:
            text += f" own={_comma_separated(sorted(f'{tp.topic}:{tp.partition}' for tp in sub.owned))}"
        if version >= 2:
            text += f" gen={-1 if sub.generation is None else sub.generation}"
        if sub.user_data is not None:
            size = len(sub.user_data)
            number = f":{int.from_bytes(sub.user_data, 'big', signed=True)}" if size == 4 else ""
            text += f" ud={size}b{number}"
        protocols.append(text + ")")
    instance = f" inst={x.group_instance_id}" if x.group_instance_id else ""
    reason = json.dumps(x.reason if line.version >= 8 else None)
    times = f"sess={x.session_timeout_ms} reb={x.rebalance_timeout_ms}"
    return f"id={x.member_id or '-'}{instance} {times} reason={reason} {' '.join(protocols)}"


def _describe_joined(line: Line, code: int) -> str:
    a = line.answer
    if code:
        return f" id={a.member_id}" if a.member_id and a.member_id != line.request.member_id else ""
    role = f"leader of {len(a.members)}" if a.leader == a.member_id else "follower"
    return f" gen={a.generation_id} id={a.member_id} {role} proto={a.protocol_name}" + (
        " skip" if a.skip_assignment else ""
    )


def _describe_member(x: Any) -> str:
    instance = f" inst={x.group_instance_id}" if x.group_instance_id else ""
    return f"gen={getattr(x, 'generation_id', None)} id={x.member_id or '-'}{instance}"


def _decode_partitions(assignment: bytes) -> list[str]:
    return sorted(f"{tp.topic}:{tp.partition}" for tp in Assignment.decode(assignment).partitions)


def _describe_sync(line: Line) -> str:
    assignments = {
        member.member_id: _decode_partitions(member.assignment) for member in line.request.assignments
    }
    text = " ".join(
        f"{k}={_comma_separated(p)}" for k, p in sorted(assignments.items(), key=lambda x: str(x[1]))
    )
    return f"{_describe_member(line.request)} {'assign ' + text if assignments else 'empty'}"


def _describe_leave(line: Line) -> str:
    x = line.request
    if line.version < 3:
        return f"{x.member_id or '-'} reason=null"
    return " ".join(
        (m.member_id or "-")
        + (f" inst={m.group_instance_id}" if m.group_instance_id else "")
        + f" reason={json.dumps(m.reason if line.version >= 5 else None)}"
        for m in x.members
    )


def _describe_commit(line: Line) -> str:
    x = line.request
    instance = f" inst={x.group_instance_id}" if x.group_instance_id else ""
    offsets = {
        f"{topic.name}:{partition.partition_index}": partition
        for topic in x.topics
        for partition in topic.partitions
    }
    text = ",".join(
        f"{key}@{offset.committed_offset}/e{offset.committed_leader_epoch if line.version >= 6 else -1}"
        + (
            ""
            if offset.committed_metadata == ""
            else "/null"
            if offset.committed_metadata is None
            else f"/{offset.committed_metadata!r}"
        )
        for key, offset in sorted(offsets.items())
    )
    return f"gen={x.generation_id_or_member_epoch} id={x.member_id or '-'}{instance} {text or 'none'}"


def _describe_offset_fetch(line: Line) -> str:
    x = line.request
    body = x.groups[0] if x.groups else x
    partitions = (
        "all"
        if body.topics is None
        else _comma_separated(
            sorted(f"{topic.name}:{p}" for topic in body.topics for p in topic.partition_indexes)
        )
    )
    stable = x.require_stable if line.version >= 7 else None
    return f"stable={stable} {partitions}"


def _describe_fetched_offsets(line: Line, code: int) -> str:
    body = line.answer.groups[0] if line.answer.groups else line.answer
    offsets = {
        f"{t.name}:{partition.partition_index}": partition.committed_offset
        for t in body.topics
        for partition in t.partitions
    }
    return " " + _comma_separated(f"{key}@{offset}" for key, offset in sorted(offsets.items()))


def _describe_list_offsets(line: Line) -> str:
    x = line.request
    partitions = sorted(
        f"{t.name}:{partition.partition_index}@{partition.timestamp}"
        for t in x.topics
        for partition in t.partitions
    )
    return f"iso={x.isolation_level if line.version >= 2 else 0} {_comma_separated(partitions)}"


def _describe_listed_offsets(line: Line, code: int) -> str:
    offsets = {
        f"{t.name}:{partition.partition_index}": partition.offset
        for t in line.answer.topics
        for partition in t.partitions
    }
    return " " + _comma_separated(f"{key}@{offset}" for key, offset in sorted(offsets.items()))


def _describe_epoch_end(line: Line) -> str:
    return _comma_separated(
        sorted(
            f"{t.topic}:{partition.partition}@e{partition.leader_epoch}"
            for t in line.request.topics
            for partition in t.partitions
        )
    )


def _describe_metadata(line: Line) -> str:
    topics = line.request.topics
    return "all" if topics is None else _comma_separated(sorted(str(topic.name) for topic in topics))


_REQUESTS: dict[str, Callable[[Line], str]] = {
    "Find": _describe_find,
    "Join": _describe_join,
    "Sync": _describe_sync,
    "Heartbeat": lambda line: _describe_member(line.request),
    "Leave": _describe_leave,
    "Commit": _describe_commit,
    "OffsetFetch": _describe_offset_fetch,
    "ListOffsets": _describe_list_offsets,
    "EpochEnd": _describe_epoch_end,
    "Metadata": _describe_metadata,
}
_RESPONSES: dict[str, Callable[[Line, int], str]] = {
    "Join": _describe_joined,
    "Sync": lambda line, code: (
        "" if code else f" got={_comma_separated(_decode_partitions(line.answer.assignment))}"
    ),
    "OffsetFetch": _describe_fetched_offsets,
    "ListOffsets": _describe_listed_offsets,
    **dict.fromkeys(("Find", "Heartbeat", "Leave", "Commit", "EpochEnd"), lambda line, code: ""),
}


_FETCH_SESSION_ERRORS = {70, 71}


def with_error(api: str, answer: Any, code: int) -> Any:
    """Put an error code into a response, as the recording proxy does."""
    if api == "Find" and answer.coordinators:
        answer.coordinators[0].error_code = code
    elif api == "OffsetFetch" and answer.groups:
        answer.groups[0].error_code = code
    elif api == "Metadata":
        for topic in answer.topics:
            topic.error_code = code
    elif api == "Fetch" and code not in _FETCH_SESSION_ERRORS:
        for topic in answer.responses:
            for partition in topic.partitions:
                partition.error_code, partition.records = code, b""
    elif api in ("Commit", "ListOffsets", "EpochEnd") or (
        api == "OffsetFetch" and not hasattr(answer, "error_code")
    ):
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.error_code = code
    else:
        answer.error_code = code
    return answer
