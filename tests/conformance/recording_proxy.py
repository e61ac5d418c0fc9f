"""A proxy in front of a real broker. It records the requests of consumers, and can change responses.

    with RecordingProxy(port, 9092) as proxy:       # the broker's advertised.listeners contain proxy.port
        proxy.inject("A", "Heartbeat", 27)
        ...
        request_lines(proxy.requests("A"))           # normalized lines, by which two clients are compared

The proxy decodes requests with kproto's codecs, which test_java_bytes checks against Kafka's classes.
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
    RequestHeader,
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
class RecordedRequest:
    """One request and its response. `answer` is None if no response arrived."""

    client: str
    api: str
    envelope: Envelope
    answer: Any = None
    injected: bool = False
    at: float = field(default_factory=time.monotonic)
    answered_at: float = 0  # The time at which the broker responded.

    @property
    def request(self) -> Any:
        return self.envelope.request


@dataclass(slots=True)
class RecordingProxy:
    """A proxy that forwards all requests and responses unchanged, except those that a test selects.

    The methods `inject`, `hold`, `refuse` and `cut` select the requests and responses to change.

    `also` names the APIs that are recorded in addition to the group APIs.
    """

    port: int
    broker: int
    also: frozenset[str] = frozenset()
    all: list[RecordedRequest] = field(default_factory=list[RecordedRequest])
    errors: dict[tuple[str, str], list[int]] = field(default_factory=dict[tuple[str, str], list[int]])
    holds: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    refusals: dict[tuple[str, str], list[Message]] = field(
        default_factory=dict[tuple[str, str], list[Message]]
    )
    cuts: dict[tuple[str, str], int] = field(default_factory=dict[tuple[str, str], int])
    # (Client, API) -> the connection of the client's last request of this API.
    connections: dict[tuple[str, str], asyncio.StreamWriter] = field(
        default_factory=dict[tuple[str, str], asyncio.StreamWriter]
    )
    # The headers of requests that kproto's codecs cannot read, because their versions are too old.
    unsupported: list[RequestHeader] = field(default_factory=list[RequestHeader])
    _loop: asyncio.AbstractEventLoop | None = None
    _server: asyncio.Server | None = None

    def __enter__(self) -> RecordingProxy:
        up = threading.Event()
        threading.Thread(target=self._run, args=(up,), daemon=True).start()
        up.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._loop.stop)

    def inject(self, client: str, api: str, *codes: int) -> None:
        """Set these error codes in the next responses, one code per response."""
        self.errors.setdefault((client, api), []).extend(codes)

    def hold(self, client: str, api: str, seconds: float) -> None:
        """Delay the next response."""
        self.holds[client, api] = seconds

    def refuse(self, client: str, api: str, *answers: Message) -> None:
        """Answer the client's next requests of an API with `answers`. The broker does not receive these
        requests.
        """
        self.refusals.setdefault((client, api), []).extend(answers)

    def cut(self, client: str, api: str, after: int = 0) -> None:
        """Close the connection instead of forwarding a response to a request of this API.

        The next `after` responses of this API are still forwarded, and the following response is not.
        """
        self.cuts[client, api] = after

    def close_connection(self, client: str, api: str) -> None:
        """Close the connection that carried the client's last request of this API."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.connections[client, api].close)

    def requests(self, client: str) -> list[RecordedRequest]:
        return [request for request in list(self.all) if request.client == client]

    def versions(self, client: str) -> dict[str, int]:
        """Map each API to the version that the client last used, even if kproto cannot read this version."""
        headers = [header for header in list(self.unsupported) if header.client_id == client]
        old = {API_NAMES[header.request_api_key]: header.request_api_version for header in headers}
        return old | {request.api: request.envelope.version for request in self.requests(client)}

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
        waiting: dict[int, RecordedRequest] = {}
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
        waiting: dict[int, RecordedRequest],
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                body = await _frame(source)
                with contextlib.suppress(DecodeError):
                    try:
                        envelope = decode_request(body)
                    except UnsupportedRequest as error:
                        self.unsupported.append(error.header)
                        sink.write(struct.pack(">i", len(body)) + body)
                        continue
                    api = API_NAMES[envelope.header.request_api_key]
                    self.connections[envelope.header.client_id or "", api] = back
                    refusal = self._record(envelope, waiting)
                    if refusal is not None:
                        back.write(struct.pack(">i", len(refusal)) + refusal)
                        continue
                sink.write(struct.pack(">i", len(body)) + body)
                await sink.drain()
        sink.close()

    def _record(self, envelope: Envelope, waiting: dict[int, RecordedRequest]) -> bytes | None:
        """Record a request, and decide whether to forward it.

        If the broker must not receive the request, return the proxy's own response. Otherwise return None.
        """
        api, correlation = API_NAMES[envelope.header.request_api_key], envelope.header.correlation_id
        recorded = RecordedRequest(envelope.header.client_id or "", api, envelope)
        if api in GROUP or api in _LOOK_UP or api in self.also:
            self.all.append(recorded)
            refusals = self.refusals.get((recorded.client, api))
            if refusals:
                recorded.answer, recorded.injected = refusals.pop(0), True
                return encode_response(recorded.answer, envelope.version, correlation)
            waiting[correlation] = recorded
        return None

    async def _answers(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, waiting: dict[int, RecordedRequest]
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                body = await _frame(source)
                recorded = waiting.pop(int.from_bytes(body[:4], "big", signed=True), None)
                if recorded is not None:
                    if self._cuts(recorded.client, recorded.api):
                        break
                    body = self._record_response(recorded, body)
                    await asyncio.sleep(self.holds.pop((recorded.client, recorded.api), 0))
                sink.write(struct.pack(">i", len(body)) + body)
                await sink.drain()
        sink.close()

    def _cuts(self, client: str, api: str) -> bool:
        skipped = self.cuts.pop((client, api), None)
        if skipped:
            self.cuts[client, api] = skipped - 1
        return skipped == 0

    def _record_response(self, recorded: RecordedRequest, body: bytes) -> bytes:
        key, version = recorded.envelope.header.request_api_key, recorded.envelope.version
        correlation, recorded.answer = decode_response(body, response_class(key), version)
        recorded.answered_at = time.monotonic()
        codes = self.errors.get((recorded.client, recorded.api))
        if codes:
            _set_error(recorded.answer, codes.pop(0))
            recorded.injected = True
            return encode_response(recorded.answer, version, correlation)
        return body


async def _frame(source: asyncio.StreamReader) -> bytes:
    return await source.readexactly(int.from_bytes(await source.readexactly(4), "big"))


def _set_error(answer: Any, code: int) -> None:
    """Set the error code of a response. The field that holds it depends on the API."""
    for part in getattr(answer, "coordinators", None) or getattr(answer, "groups", None) or ():
        part.error_code = code
        return
    if hasattr(answer, "topics"):
        for topic in answer.topics:
            for partition in topic.partitions:
                partition.error_code = code
    if hasattr(answer, "error_code"):
        answer.error_code = code


# -- normalized lines ------------------------------------------------------------------------------------


def request_lines(requests: Iterable[RecordedRequest], leave_out: Iterable[str] = ()) -> list[str]:
    """Return the requests as lines, with numbered member ids. Two runs of a scenario have equal lines.

    Requests that depend on timing are left out: metadata, offset lookups, and heartbeats without an error.
    Equal consecutive requests become one line, and so do consecutive successful commits of a member, with the
    last offset of each partition.

    Requests of the APIs in `leave_out` are left out, too, unless the proxy injected their response.
    """
    names: dict[str, str] = {"": "-"}
    lines: list[str] = []
    for request in requests:
        answer = request.answer
        if request.api in leave_out and not request.injected:
            continue
        new_id = getattr(answer, "member_id", None) if request.api == "JoinGroup" else None
        if new_id and new_id not in names:
            names[new_id] = f"id{len(names)}"
        line = _line(request, names)
        if line is None:
            continue
        for member_id, name in names.items():
            line = line.replace(member_id, name) if member_id else line
        if lines and lines[-1] == line:
            continue
        if lines and request.api == "OffsetCommit" and not request.injected:
            lines[-1:] = _merged(lines[-1], line)
        else:
            lines.append(line)
    return lines


def lookup_lines(requests: Iterable[RecordedRequest]) -> dict[str, set[str]]:
    """Map each lookup API to its distinct requests: their partitions, offsets, epochs and topics.

    The number of lookups depends on timing and is left out.
    """
    lookups: dict[str, set[str]] = {}
    for request in requests:
        if request.api in _LOOK_UP:
            lookups.setdefault(request.api, set()).add(
                f"v{request.envelope.version} {_LOOK_UP[request.api](request.request)}"
            )
    return lookups


def _list(request: Any) -> str:
    partitions = [
        f"{topic.name}:{partition.partition_index}@{partition.timestamp}/e{partition.current_leader_epoch}"
        for topic in request.topics
        for partition in topic.partitions
    ]
    return f"isolation={request.isolation_level} {' '.join(sorted(partitions))}"


def _epochs(request: Any) -> str:
    partitions = [
        f"{topic.topic}:{partition.partition}/e{partition.leader_epoch} of e{partition.current_leader_epoch}"
        for topic in request.topics
        for partition in topic.partitions
    ]
    return " ".join(sorted(partitions))


def _metadata(request: Any) -> str:
    return (
        "all" if request.topics is None else " ".join(sorted(topic.name or "?" for topic in request.topics))
    )


_LOOK_UP = {"Metadata": _metadata, "ListOffsets": _list, "OffsetForLeaderEpoch": _epochs}


def _merged(before: str, line: str) -> list[str]:
    """Merge two consecutive commits of a member into one line.

    The number of commits is random, because each poll returns a random number of records.
    """
    head, _, more = line.partition(" t-")
    if not before.startswith(f"{head} t-") or not before.endswith(" -> 0") or not line.endswith(" -> 0"):
        return [before, line]
    merged: dict[str, str] = {}
    for offsets in (before.removeprefix(f"{head} "), f"t-{more}"):
        merged |= {
            partition.partition("@")[0]: partition for partition in offsets.removesuffix(" -> 0").split()
        }
    return [f"{head} {' '.join(merged[name] for name in sorted(merged))} -> 0"]


def _line(recorded: RecordedRequest, names: dict[str, str]) -> str | None:
    if recorded.api in _LOOK_UP:
        return None
    code = _error(recorded.answer)
    if recorded.api == "Heartbeat" and (code == 0 or recorded.answer is None):
        return None
    description = _DESCRIBE[recorded.api](recorded.request, names)
    line = f"{recorded.api} v{recorded.envelope.version} {description}".rstrip()
    if recorded.answer is None:
        return f"{line} -> silence"
    more = _response_part(recorded, names) if code == 0 else ""
    return f"{line} -> {code}{'!' if recorded.injected else ''}{more}"


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
        subscription = Subscription.decode(data)
    except DecodeError:
        subscription, whole = Subscription.decode(b"\0\0" + data[2:]), False
    owned = f" owned={_partitions(subscription.owned)}" if version >= 1 and whole else ""
    generation = f" generation={subscription.generation}" if version >= 2 else ""
    user_data = "" if subscription.user_data is None else f" user_data={len(subscription.user_data)}b"
    return f"v{version} topics={','.join(sorted(subscription.topics))}{owned}{generation}{user_data}"


def _partitions(partitions: Iterable[TopicPartition]) -> str:
    return ",".join(f"{partition.topic}:{partition.partition}" for partition in sorted(partitions)) or "none"


def _sync(request: Any, names: dict[str, str]) -> str:
    plan = " ".join(
        sorted(_partitions(_assigned(assignment.assignment)) for assignment in request.assignments)
    )
    return f"{_who(request, names)} plan: {plan}" if plan else f"{_who(request, names)} no plan"


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    return tuple(Assignment.decode(data).partitions) if data else ()


def _heartbeat(request: Any, names: dict[str, str]) -> str:
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
    partitions = [f"{topic.name}:{index}" for topic in body.topics or () for index in topic.partition_indexes]
    return f"stable={request.require_stable} {' '.join(sorted(partitions)) or 'nothing'}"


_DESCRIBE = {
    "FindCoordinator": _find,
    "JoinGroup": _join,
    "SyncGroup": _sync,
    "Heartbeat": _heartbeat,
    "LeaveGroup": _leave,
    "OffsetCommit": _commit,
    "OffsetFetch": _fetch_offsets,
}


def _response_part(recorded: RecordedRequest, names: dict[str, str]) -> str:
    answer: Any = recorded.answer
    if recorded.api == "JoinGroup":
        role = f"leader of {len(answer.members)}" if answer.leader == answer.member_id else "follower"
        return f" {names[answer.member_id]} {role} {answer.protocol_name}"
    if recorded.api == "SyncGroup":
        try:
            return f" got {_partitions(_assigned(answer.assignment))}"
        except DecodeError:
            return " got an unreadable assignment"
    return ""
