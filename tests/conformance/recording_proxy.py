"""A proxy before a real broker that writes down what consumers say about groups, and can change an answer.

    with Tap(port, 9092) as tap:       # the broker's advertised.listeners name tap.port
        tap.inject("A", "Heartbeat", 27)
        ...
        told(tap.heard("A"))           # the readable, normalised lines: what two clients are compared by

Bytes are read by kproto's codecs, whose own judges are in test_java_bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kproto.errors import DecodeError
from kproto.group.subscription import Assignment, Subscription, TopicPartition
from kproto.messages.headers import (
    Envelope,
    UnsupportedRequest,
    decode_request,
    decode_response,
    encode_response,
)
from kproto.messages.index import API_NAMES, response_class
from kproto.wire.message import Message

GROUP = {
    "FindCoordinator",
    "JoinGroup",
    "SyncGroup",
    "Heartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "OffsetFetch",
}


@dataclass(slots=True)
class Heard:
    """One request and its answer (None: none came)."""

    client: str
    api: str
    envelope: Envelope
    answer: Any = None
    injected: bool = False
    at: float = field(default_factory=time.monotonic)
    answered_at: float = 0  # When the broker has answered.

    @property
    def request(self) -> Any:
        return self.envelope.request


@dataclass(slots=True)
class Tap:
    """`inject`, `hold`, `refuse` and `cut` are for the next answers to a client; everything else goes through
    as it is. `also` names APIs that are written down beside those of groups.
    """

    port: int
    broker: int
    also: frozenset[str] = frozenset()
    all: list[Heard] = field(default_factory=list[Heard])
    errors: dict[tuple[str, str], list[int]] = field(default_factory=dict[tuple[str, str], list[int]])
    holds: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    refusals: dict[tuple[str, str], list[Message]] = field(
        default_factory=dict[tuple[str, str], list[Message]]
    )
    cuts: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    _loop: asyncio.AbstractEventLoop | None = None
    _server: asyncio.Server | None = None

    def __enter__(self) -> Tap:
        up = threading.Event()
        threading.Thread(target=self._run, args=(up,), daemon=True).start()
        up.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._loop.stop)

    def inject(self, client: str, api: str, *codes: int) -> None:
        """Put these codes into the next answers, one each."""
        self.errors.setdefault((client, api), []).extend(codes)

    def hold(self, client: str, api: str, seconds: float) -> None:
        """Keep the next answer back."""
        self.holds[client, api] = seconds

    def refuse(self, client: str, api: str, *answers: Message) -> None:
        """Give these answers in the broker's place, which doesn't hear of the requests."""
        self.refusals.setdefault((client, api), []).extend(answers)

    def cut(self, client: str, api: str, after: int = 0) -> None:
        """The broker hears the next request, or one later, and instead of its answer the connection ends."""
        self.cuts[client, api] = after

    def heard(self, client: str) -> list[Heard]:
        return [one for one in list(self.all) if one.client == client]

    def _run(self, up: threading.Event) -> None:
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)
        serving = asyncio.start_server(self._client, "127.0.0.1", self.port, limit=2**24)
        self._server = self._loop.run_until_complete(serving)
        up.set()
        self._loop.run_forever()
        open_still = asyncio.all_tasks(self._loop)
        for task in open_still:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*open_still, return_exceptions=True))
        self._loop.close()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            source, sink = await asyncio.open_connection("127.0.0.1", self.broker, limit=2**24)
        except OSError:
            writer.close()
            return
        waiting: dict[int, Heard] = {}
        await asyncio.gather(
            self._requests(reader, sink, writer, waiting),
            self._answers(source, writer, waiting),
            return_exceptions=True,
        )

    async def _requests(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
        waiting: dict[int, Heard],
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                body = await _frame(source)
                with contextlib.suppress(DecodeError, UnsupportedRequest):
                    refusal = self._said(decode_request(body), waiting)
                    if refusal is not None:
                        back.write(struct.pack(">i", len(refusal)) + refusal)
                        continue
                sink.write(struct.pack(">i", len(body)) + body)
                await sink.drain()
        sink.close()

    def _said(self, envelope: Envelope, waiting: dict[int, Heard]) -> bytes | None:
        """Write a request down; the bytes of its answer, if the broker isn't asked."""
        api, correlation = API_NAMES[envelope.header.request_api_key], envelope.header.correlation_id
        heard = Heard(envelope.header.client_id or "", api, envelope)
        if api in GROUP or api in _LOOK_UP or api in self.also:
            self.all.append(heard)
            refusals = self.refusals.get((heard.client, api))
            if refusals:
                heard.answer, heard.injected = refusals.pop(0), True
                return encode_response(heard.answer, envelope.version, correlation)
            waiting[correlation] = heard
        return None

    async def _answers(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, waiting: dict[int, Heard]
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                body = await _frame(source)
                heard = waiting.pop(int.from_bytes(body[:4], "big", signed=True), None)
                if heard is not None:
                    if self._cuts(heard.client, heard.api):
                        break
                    body = self._answered(heard, body)
                    await asyncio.sleep(self.holds.pop((heard.client, heard.api), 0))
                sink.write(struct.pack(">i", len(body)) + body)
                await sink.drain()
        sink.close()

    def _cuts(self, client: str, api: str) -> bool:
        left = self.cuts.pop((client, api), None)
        if left:
            self.cuts[client, api] = left - 1
        return left == 0

    def _answered(self, heard: Heard, body: bytes) -> bytes:
        key, version = heard.envelope.header.request_api_key, heard.envelope.version
        correlation, heard.answer = decode_response(body, response_class(key), version)
        heard.answered_at = time.monotonic()
        codes = self.errors.get((heard.client, heard.api))
        if codes:
            _spoil(heard.answer, codes.pop(0))
            heard.injected = True
            return encode_response(heard.answer, version, correlation)
        return body


async def _frame(source: asyncio.StreamReader) -> bytes:
    return await source.readexactly(int.from_bytes(await source.readexactly(4), "big"))


def _spoil(answer: Any, code: int) -> None:
    """Put an error code where an answer of this kind has it."""
    for part in getattr(answer, "coordinators", None) or getattr(answer, "groups", None) or ():
        part.error_code = code
        return
    if hasattr(answer, "topics"):
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.error_code = code
    if hasattr(answer, "error_code"):
        answer.error_code = code


# -- the normal form --------------------------------------------------------------------------------------


def told(heard: Iterable[Heard], leave_out: Iterable[str] = ()) -> list[str]:
    """Lines in which two runs of one play are equal: member ids become 1, 2, .. in the order in which they
    came.

    Left out is what depends on the moment: heartbeats that are OK, metadata, lookups of offsets, the
    number of equal commits in a row. What is committed is there, when it is not the same as before.
    `leave_out` names APIs of which only spoilt answers are told.
    """
    names: dict[str, str] = {"": "-"}
    lines: list[str] = []
    for one in heard:
        answer = one.answer
        if one.api in leave_out and not one.injected:
            continue
        found = getattr(answer, "member_id", None) if one.api == "JoinGroup" else None
        if found and found not in names:
            names[found] = f"id{len(names)}"
        line = _line(one, names)
        if line is None:
            continue
        for member_id, name in names.items():
            line = line.replace(member_id, name) if member_id else line
        if lines and lines[-1] == line:
            continue
        if lines and one.api == "OffsetCommit" and not one.injected:
            lines[-1:] = _merged(lines[-1], line)
        else:
            lines.append(line)
    return lines


def looked_up(heard: Iterable[Heard]) -> dict[str, set[str]]:
    """By its API, what was asked of leaders and of any broker: which partitions together, at which offsets
    and epochs, and which topics. How often depends on the moment.
    """
    found: dict[str, set[str]] = {}
    for one in heard:
        if one.api in _LOOK_UP:
            found.setdefault(one.api, set()).add(f"v{one.envelope.version} {_LOOK_UP[one.api](one.request)}")
    return found


def _list(request: Any) -> str:
    asked = [
        f"{topic.name}:{partition.partition_index}@{partition.timestamp}/e{partition.current_leader_epoch}"
        for topic in request.topics
        for partition in topic.partitions
    ]
    return f"isolation={request.isolation_level} {' '.join(sorted(asked))}"


def _epochs(request: Any) -> str:
    asked = [
        f"{topic.topic}:{partition.partition}/e{partition.leader_epoch} of e{partition.current_leader_epoch}"
        for topic in request.topics
        for partition in topic.partitions
    ]
    return " ".join(sorted(asked))


def _metadata(request: Any) -> str:
    return (
        "all" if request.topics is None else " ".join(sorted(topic.name or "?" for topic in request.topics))
    )


_LOOK_UP = {"Metadata": _metadata, "ListOffsets": _list, "OffsetForLeaderEpoch": _epochs}


def _merged(before: str, line: str) -> list[str]:
    """Two commits of one member in a row are one: how records spread over polls and ticks is chance."""
    head, _, more = line.partition(" t-")
    if not before.startswith(f"{head} t-") or not before.endswith(" -> 0") or not line.endswith(" -> 0"):
        return [before, line]
    found: dict[str, str] = {}
    for offsets in (before.removeprefix(f"{head} "), f"t-{more}"):
        found |= {one.partition("@")[0]: one for one in offsets.removesuffix(" -> 0").split()}
    return [f"{head} {' '.join(found[name] for name in sorted(found))} -> 0"]


def _line(one: Heard, names: dict[str, str]) -> str | None:
    if one.api in _LOOK_UP:
        return None
    code = _error(one.answer)
    if one.api == "Heartbeat" and (code == 0 or one.answer is None):
        return None
    said = f"{one.api} v{one.envelope.version} {_SAY[one.api](one.request, names)}".rstrip()
    if one.answer is None:
        return f"{said} -> silence"
    more = _heard(one, names) if code == 0 else ""
    return f"{said} -> {code}{'!' if one.injected else ''}{more}"


def _error(answer: Any) -> int:
    if answer is None:
        return -1
    for part in getattr(answer, "coordinators", None) or getattr(answer, "groups", None) or ():
        return int(part.error_code)
    if getattr(answer, "error_code", 0):
        return int(answer.error_code)
    parts = [partition for topic in getattr(answer, "topics", ()) for partition in topic.partitions]
    parts += list(getattr(answer, "members", ())) if hasattr(answer, "throttle_time_ms") else []
    return max((int(getattr(part, "error_code", 0)) for part in parts), default=0)


def _who(request: Any, names: dict[str, str]) -> str:
    instance = getattr(request, "group_instance_id", None)
    return names.get(request.member_id, "id?") + (f" instance={instance}" if instance else "")


def _find(request: Any, names: dict[str, str]) -> str:
    return ""


def _join(request: Any, names: dict[str, str]) -> str:
    protocols = " ".join(
        f"{protocol.name}({_subscription(protocol.metadata)})" for protocol in request.protocols
    )
    times = f"session={request.session_timeout_ms} rebalance={request.rebalance_timeout_ms}"
    return f"{_who(request, names)} {times} reason={json.dumps(request.reason)} {protocols}"


def _subscription(data: bytes) -> str:
    version = int.from_bytes(data[:2], "big")
    whole = True
    try:
        found = Subscription.decode(data)
    except DecodeError:
        found, whole = Subscription.decode(b"\0\0" + data[2:]), False
    owned = f" owned={_partitions(found.owned)}" if version >= 1 and whole else ""
    generation = f" generation={found.generation}" if version >= 2 else ""
    user_data = "" if found.user_data is None else f" user_data={len(found.user_data)}b"
    return f"v{version} topics={','.join(sorted(found.topics))}{owned}{generation}{user_data}"


def _partitions(found: Iterable[TopicPartition]) -> str:
    return ",".join(f"{one.topic}:{one.partition}" for one in sorted(found)) or "none"


def _sync(request: Any, names: dict[str, str]) -> str:
    plan = " ".join(
        sorted(_partitions(_assigned(assignment.assignment)) for assignment in request.assignments)
    )
    return f"{_who(request, names)} plan: {plan}" if plan else f"{_who(request, names)} no plan"


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    return tuple(Assignment.decode(data).partitions) if data else ()


def _beat(request: Any, names: dict[str, str]) -> str:
    return _who(request, names)


def _leave(request: Any, names: dict[str, str]) -> str:
    reasons = [member.reason for member in request.members]
    ids = [member.member_id for member in request.members] or [request.member_id]
    return f"{' '.join(names.get(id_, 'id?') for id_ in ids)} reason={json.dumps(reasons[:1])}"


def _commit(request: Any, names: dict[str, str]) -> str:
    offsets = [
        f"{topic.name}:{partition.partition_index}@{partition.committed_offset}/e{partition.committed_leader_epoch}"
        f"/{partition.committed_metadata!r}"
        for topic in request.topics
        for partition in topic.partitions
    ]
    return f"{_who(request, names)} {' '.join(sorted(offsets)) or 'nothing'}"


def _fetch_offsets(request: Any, names: dict[str, str]) -> str:
    body = request.groups[0] if request.groups else request
    asked = [f"{topic.name}:{index}" for topic in body.topics or () for index in topic.partition_indexes]
    return f"stable={request.require_stable} {' '.join(sorted(asked)) or 'nothing'}"


_SAY = {
    "FindCoordinator": _find,
    "JoinGroup": _join,
    "SyncGroup": _sync,
    "Heartbeat": _beat,
    "LeaveGroup": _leave,
    "OffsetCommit": _commit,
    "OffsetFetch": _fetch_offsets,
}


def _heard(one: Heard, names: dict[str, str]) -> str:
    answer: Any = one.answer
    if one.api == "JoinGroup":
        role = f"leader of {len(answer.members)}" if answer.leader == answer.member_id else "follower"
        return f" {names[answer.member_id]} {role} {answer.protocol_name}"
    if one.api == "SyncGroup":
        return f" got {_partitions(_assigned(answer.assignment))}"
    return ""
