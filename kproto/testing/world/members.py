"""Other clients' machines in a world: whatever keeps the contract of `kproto.models.contract`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ...errors import DecodeError
from ...group.subscription import TopicPartition
from ...messages.headers import decode_response, encode_request
from ...messages.index import response_class
from ...messages.join_group import JoinGroupResponse
from ...models import contract
from ...wire.frame import Frames, frame
from .clients import Client
from .consumers import BEGINS, Listener
from .journal import kept, knob
from .network import Wire
from .user_code import reject_awaitable

if TYPE_CHECKING:
    from .world import World


class Machine(Protocol):
    """What a module of `kproto.models` has."""

    VERSIONS: dict[int, int]

    def start(self, config: contract.ModelConfig) -> Any: ...
    def step(self, state: Any, event: contract.ModelEvent, now: int) -> list[contract.ModelAction]: ...
    def next_deadline(self, state: Any) -> int | None: ...


@dataclass(slots=True, eq=False)
class _Line:
    """One connection of the machine: what is open on it, in the order in which it was asked."""

    address: contract.Address
    key: int
    wire: Wire | None = None
    # What waits for the connection, and until when (ms).
    unsent: list[tuple[contract.SendRequest, int]] = field(
        default_factory=list[tuple[contract.SendRequest, int]]
    )
    # What waits for its answer: correlation id, request, until when.
    open: deque[tuple[int, contract.SendRequest, int]] = field(
        default_factory=deque[tuple[int, contract.SendRequest, int]]
    )
    frames: Frames = field(default_factory=Frames)

    def due(self) -> int | None:
        """When the first of its requests has waited too long."""
        soonest = None
        for _, _, at in self.open:
            if soonest is None or at < soonest:
                soonest = at
        for _, at in self.unsent:
            if soonest is None or at < soonest:
                soonest = at
        return soonest


class Member(Client):
    """A machine of another client. `options` are those of `contract.Config`.

    `records`, `calls`, `reports`, `errors` are what its application saw; `committed` what became of commits.
    """

    works_ms = knob(0)
    listener: Listener = knob(lambda kind, partitions: None)
    poll_timeout_ms = knob(50)
    limit = knob(500)

    def __init__(self, world: World, name: str, machine: Machine, **options: Any) -> None:
        super().__init__(world, name)
        self.machine = machine
        self.config = contract.make_config({"client_id": name, "random": self.random.random, **options})
        self.group = self.config.group_id
        self.state = machine.start(self.config)
        self.records: list[contract.ModelRecord] = []
        self.calls: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.reports: list[contract.Notify] = []
        self.errors: list[tuple[str, str]] = []
        self.requested_commits: dict[object, dict[TopicPartition, int]] = {}
        self.committed: dict[object, tuple[str, str] | None] = {}
        self.positions: dict[TopicPartition, int] = {}
        self.closed = False
        self._wanted = False
        self._polling = False
        self._lines: dict[contract.Address, _Line] = {}
        self._keys: dict[int, _Line] = {}
        self._last = 0
        self._started = False
        # As the last JoinGroup said it: each machine keeps that in its own way.
        self._joined = ("", -1)

    @property
    def member_id(self) -> str:
        return self._joined[0]

    @property
    def generation(self) -> int:
        return self._joined[1]

    @property
    def leaving(self) -> frozenset[TopicPartition]:
        """What the machine let go without telling its application, as sarama-cluster does after errors."""
        works_on: frozenset[TopicPartition] | None = getattr(self.state, "works_on", None)
        return frozenset() if works_on is None else frozenset(self.owned - works_on)

    @property
    def sees_growth(self) -> bool:
        """Whether it looks for new partitions of its topics, when it leads."""
        return getattr(self.machine, "SEES_GROWTH", True) is True

    @property
    def is_silent_when_fenced(self) -> bool:
        """Whether it hands out nothing between hearing that it is no member and its next assignment."""
        return getattr(self.machine, "SILENT_WHEN_FENCED", True) is True

    @property
    def is_polling(self) -> bool:
        return self._wanted and self.frozen_until is None

    # ---- the machine

    def due(self) -> int | None:
        soonest = self.machine.next_deadline(self.state)
        for line in self._lines.values():
            at = line.due()
            if at is not None and (soonest is None or at < soonest):
                soonest = at
        return soonest

    def tick(self) -> None:
        now = self.world.now
        for line in list(self._lines.values()):
            at = line.due()
            if at is None or at > now:
                continue
            late = [send for _, send, at in line.open if at <= now]
            late += [send for send, at in line.unsent if at <= now]
            line.unsent = [(send, at) for send, at in line.unsent if at > now]
            line.open = deque(one for one in line.open if one[2] > now)
            for send in late:
                self.do(contract.RequestFailed(send.request, "not answered in time", late=True))
            if late and self._lines.get(line.address) is line:
                self._drop(line, "a request was not answered in time")
        self.do(contract.DeadlineReached())

    def do(self, event: contract.ModelEvent) -> None:
        """Tell the machine, and do what it says."""
        if not self.alive:
            return
        if not self._started:
            self._started = True
            offered = {key: (api.min_version, api.max_version) for key, api in self.world.apis.items()}
            self.do(contract.Started(tuple(self.world.addresses), offered))
        if not isinstance(event, contract.ResponseReceived):
            self.world.add_entry(self.name, "event", event)
        for action in self.machine.step(self.state, event, self.world.now):
            self._act(action)
        self.plan()

    def _act(self, action: contract.ModelAction) -> None:
        match action:
            case contract.SendRequest():
                self._send(action)
            case contract.CloseConnection(address=address):
                if address in self._lines:
                    self._drop(self._lines[address], "closed by the client")
            case contract.FinishPoll(records=records, error=error):
                self._polled(records, error)
            case contract.RunCallback(kind=kind, partitions=partitions, wait=wait):
                self._tell(kind, partitions, wait)
            case contract.FinishCommit(token=token, error=error):
                self.committed[token] = error
                self.observe("committed", detail=(token, self.requested_commits.get(token, {}), error))
            case contract.Notify():
                self.reports.append(action)
                self.world.add_entry(self.name, "report", action)
            case contract.FinishClose():
                self.closed = True
                self.kill()

    # ---- its connections

    def _send(self, send: contract.SendRequest) -> None:
        line = self._lines.get(send.to)
        if line is None:
            self._last += 1
            line = self._lines[send.to] = self._keys[self._last] = _Line(send.to, self._last)
            self.world.open(self, line.key, send.to.host, send.to.port)
        until = self.world.now + send.timeout_ms
        if line.wire is None:
            line.unsent.append((send, until))
        else:
            self._write(line, send, until)

    def _write(self, line: _Line, send: contract.SendRequest, until: int) -> None:
        self._last += 1
        line.open.append((self._last, send, until))
        body = encode_request(send.request, send.version, self._last, self.name)
        self.world.write_to(self, line.key, frame(body))

    def on_opened(self, wire: Wire) -> None:
        line = self._keys.get(wire.key)
        if line is None:
            self.world.shut(self, wire.key)
            return
        line.wire = wire
        unsent, line.unsent = line.unsent, []
        for send, until in unsent:
            self._write(line, send, until)

    def on_received(self, wire: Wire, data: bytes) -> None:
        line = self._keys.get(wire.key)
        if line is None:
            return
        for body in line.frames.feed(data):
            correlation, send, _ = line.open.popleft()
            key = type(send.request).__api_key__
            assert key is not None
            if int.from_bytes(body[:4], "big") != correlation:
                raise AssertionError(f"{self.name}: an answer out of turn")
            try:
                _, response = decode_response(body, response_class(key), send.version)
            except DecodeError as error:
                self._drop(line, str(error))
                return
            if isinstance(response, JoinGroupResponse) and not response.error_code:
                self._joined = (response.member_id, response.generation_id)
            self.do(contract.ResponseReceived(send.request, response, send.version))

    def on_refused(self, key: int, why: str) -> None:
        line = self._keys.get(key)
        if line is not None:
            self._drop(line, why)

    def on_broken(self, wire: Wire, why: str) -> None:
        line = self._keys.get(wire.key)
        self.on_refused(wire.key, why)
        if line is not None and getattr(self.machine, "HEARS_DISCONNECTS", False) is True:
            self.do(contract.ConnectionLost(line.address))

    def _drop(self, line: _Line, why: str) -> None:
        self._lines.pop(line.address, None)
        self._keys.pop(line.key, None)
        self.world.shut(self, line.key)
        for send in [*(send for _, send, _ in line.open), *(send for send, _ in line.unsent)]:
            self.do(contract.RequestFailed(send.request, why))

    # ---- its application

    def _polled(self, records: tuple[contract.ModelRecord, ...], error: tuple[str, str] | None) -> None:
        self._polling = False
        self.records += records
        found: dict[TopicPartition, list[int]] = {}
        for record in records:
            found.setdefault(record.partition, []).append(record.offset)
        for partition, offsets in found.items():
            self.positions[partition] = offsets[-1] + 1
            self.observe("delivered", (partition,), tuple(offsets))
        if error is not None:
            self.errors.append(error)
            self.observe("raised", detail=error)
        if self._wanted:
            away = self.works_ms if records else 1 if error is not None else 0
            self.world.push(self.world.now + away, self.run_when_awake, self._loop)

    def _loop(self) -> None:
        if self._wanted and not self._polling and not self.closed:
            self._polling = True
            self.do(contract.PollCalled(self.poll_timeout_ms, self.limit))

    def _tell(self, kind: str, partitions: tuple[TopicPartition, ...], wait: bool) -> None:
        self.calls.append((kind, partitions))
        self.observe(BEGINS.get(kind, kind), partitions)
        if kind == "assigned":
            self.owned.update(partitions)
        if wait and self.callback_ms:
            self.world.call_later(
                self.callback_ms, lambda: self.run_when_awake(self._told, kind, partitions, wait)
            )
        else:
            self.world.push(self.world.now, self.run_when_awake, self._told, kind, partitions, wait)

    def _told(self, kind: str, partitions: tuple[TopicPartition, ...], wait: bool) -> None:
        """The listener is called when its time is over; what it raises is its answer."""
        error: tuple[str, str] | None = None
        try:
            answer = self.listener(kind, partitions)
        except Exception as raised:
            error = (type(raised).__name__, str(raised))
        else:
            reject_awaitable("listener", self.listener, answer)
        if kind in ("revoked", "lost"):
            self.owned.difference_update(partitions)
            self.observe(kind, partitions)
        if wait:
            self.do(contract.CallbackReturned(error))

    # ---- what an application says

    @kept
    def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        self.do(contract.SubscribeCalled(topics, pattern))
        self.observe("subscribed")
        self.resume_polling()

    @kept
    def unsubscribe(self) -> None:
        self.do(contract.UnsubscribeCalled())
        self.observe("unsubscribed")

    @kept
    def assign(self, partitions: Mapping[TopicPartition, int | None]) -> None:
        self.do(contract.AssignCalled(partitions))
        self.owned = set(partitions)
        self.resume_polling()

    @kept
    def poll_once(self, timeout_ms: int, limit: int = 1, *, patient: bool = False) -> None:
        """One poll of an application that polls by hand; `polling` until it is over."""
        self._wanted, self._polling = False, True
        self.do(contract.PollCalled(timeout_ms, limit, patient))

    @property
    def polling(self) -> bool:
        """A poll is open."""
        return self._polling

    @kept
    def pause_polling(self) -> None:
        self._wanted = False

    @kept
    def resume_polling(self) -> None:
        self._wanted = True
        self.world.push(self.world.now, self.run_when_awake, self._loop)

    @kept
    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.do(contract.SeekCalled(partition, offset))
        self.observe("sought", (partition,), offset)

    @kept
    def pause(self, *partitions: TopicPartition) -> None:
        self.do(contract.PauseCalled(partitions))
        self.observe("paused", partitions)

    @kept
    def resume(self, *partitions: TopicPartition) -> None:
        self.do(contract.ResumeCalled(partitions))
        self.observe("resumed", partitions)

    @kept
    def commit(self, offsets: Mapping[TopicPartition, int] | None = None, *, wait: bool = True) -> object:
        token = self.world.next_token()
        self.requested_commits[token] = dict(self.positions if offsets is None else offsets)
        self.observe(
            "committing", tuple(self.requested_commits[token]), (token, self.requested_commits[token])
        )
        self.do(contract.CommitCalled(token, offsets, wait))
        return token

    @kept
    def wakeup(self) -> None:
        """Java: another thread wakes the call that waits, or the next one."""
        self.do(contract.WakeupCalled())

    @kept
    def rejoin(self, reason: str = "") -> None:
        self.do(contract.RebalanceCalled(reason))

    @kept
    def close(self, *, stay: bool = False) -> None:
        self._wanted = False
        self.observe("closing")
        self.do(contract.CloseCalled(stay))

    # ---- to look at

    def owns(self) -> set[TopicPartition]:
        return set(self.owned)

    def values(self, topic: str | None = None, partition: int | None = None) -> list[str]:
        return [
            (record.value or b"").decode()
            for record in self.records
            if topic in (None, record.partition.topic) and partition in (None, record.partition.partition)
        ]

    def is_stable(self) -> bool:
        """In a stable group, as its coordinator sees it."""
        return self.alive and self.world.is_stable(self.group or "")
