"""Models of other clients in a world. A model is a module that follows `kproto.models.contract`."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import DecodeError
from ...group.subscription import TopicPartition
from ...messages.headers import decode_response, encode_request
from ...messages.index import response_class
from ...messages.join_group import JoinGroupResponse
from ...models import contract
from ...models.index import Model
from ...validation import OFFSETS, PARTITION, TEXT, WHOLE_NUMBER, ZERO_OR_MORE, checked
from ...wire.frame import Frames, frame
from .clients import Client, ClientWorld, Wire
from .consumers import CALLBACK_BEGIN_KINDS, Listener
from .journal import journaled, knob
from .user_code import reject_awaitable


@dataclass(slots=True, eq=False)
class _ModelConnection:
    """One connection of the model, with its requests in the order in which they were sent."""

    address: contract.Address
    key: int
    wire: Wire | None = None
    # Requests that wait until the connection is established, with their deadlines (ms).
    unsent: list[tuple[contract.SendRequest, int]] = field(
        default_factory=list[tuple[contract.SendRequest, int]]
    )
    # Sent requests without a response: correlation id, request, deadline (ms).
    in_flight: deque[tuple[int, contract.SendRequest, int]] = field(
        default_factory=deque[tuple[int, contract.SendRequest, int]]
    )
    frames: Frames = field(default_factory=Frames)

    def earliest_deadline(self) -> int | None:
        """Return the earliest deadline of an open request, or None if no request is open."""
        earliest = None
        for _, _, deadline in self.in_flight:
            if earliest is None or deadline < earliest:
                earliest = deadline
        for _, deadline in self.unsent:
            if earliest is None or deadline < earliest:
                earliest = deadline
        return earliest


class ModelClient(Client):
    """A model of another client. `options` are those of `kproto.models.contract.ModelConfig`.

    Results so far: `records`, `calls` (callbacks), `reports`, `errors` (raised by poll).

    `committed` maps the token of each completed commit to the commit's error, or to None if the commit
    succeeded.
    """

    works_ms = knob(0)
    listener: Listener = knob(lambda kind, partitions: None)
    poll_timeout_ms = knob(50)
    limit = knob(500)

    def __init__(self, world: ClientWorld, name: str, model: Model, **options: Any) -> None:
        super().__init__(world, name)
        self.model = model
        self.config = contract.make_config({"client_id": name, "random": self.random.random, **options})
        self.group = self.config.group_id
        self.state = model.start(self.config)
        self.records: list[contract.ModelRecord] = []
        self.calls: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.reports: list[contract.Notify] = []
        self.errors: list[tuple[str, str]] = []
        self.requested_commits: dict[object, dict[TopicPartition, int]] = {}
        self.committed: dict[object, tuple[str, str] | None] = {}
        self.positions: dict[TopicPartition, int] = {}
        self.closed = False
        self._keeps_polling = False
        self._polling = False
        self._connections: dict[contract.Address, _ModelConnection] = {}
        self._connections_by_key: dict[int, _ModelConnection] = {}
        self._last_number = 0
        self._started = False
        # The member id and generation of the last successful JoinGroup. Each model stores them in its own
        # way.
        self._membership = ("", -1)

    @property
    def member_id(self) -> str:
        return self._membership[0]

    @property
    def generation(self) -> int:
        return self._membership[1]

    @property
    def leaving(self) -> frozenset[TopicPartition]:
        """The owned partitions that the model has stopped processing without a callback.

        They still count as owned. A sarama-cluster member has such partitions after a failed cycle, and a
        static librdkafka member after a fatal error. In the other models the set is empty.
        """
        works_on: frozenset[TopicPartition] | None = getattr(self.state, "works_on", None)
        return frozenset() if works_on is None else frozenset(self.owned - works_on)

    @property
    def sees_growth(self) -> bool:
        """Whether the model notices new partitions of its topics while it is the leader of its group."""
        return getattr(self.model, "SEES_GROWTH", True) is True

    @property
    def is_silent_when_fenced(self) -> bool:
        """Whether the model returns no records between being fenced and its next assignment."""
        return getattr(self.model, "SILENT_WHEN_FENCED", True) is True

    @property
    def is_polling(self) -> bool:
        return self._keeps_polling and self.frozen_until is None

    # ---- the model

    def due(self) -> int | None:
        earliest = self.model.next_deadline(self.state)
        for connection in self._connections.values():
            deadline = connection.earliest_deadline()
            if deadline is not None and (earliest is None or deadline < earliest):
                earliest = deadline
        return earliest

    def tick(self) -> None:
        """Fail the requests that have timed out and close their connections, then notify the model."""
        now = self.world.now
        for connection in list(self._connections.values()):
            earliest = connection.earliest_deadline()
            if earliest is None or earliest > now:
                continue
            timed_out = [send for _, send, deadline in connection.in_flight if deadline <= now]
            timed_out += [send for send, deadline in connection.unsent if deadline <= now]
            connection.unsent = [(send, deadline) for send, deadline in connection.unsent if deadline > now]
            connection.in_flight = deque(entry for entry in connection.in_flight if entry[2] > now)
            for send in timed_out:
                self.do(contract.RequestFailed(send.request, "not answered in time", late=True))
            # The model may have closed the connection when it received RequestFailed.
            if timed_out and self._connections.get(connection.address) is connection:
                self._close_connection(connection, "a request was not answered in time")
        self.do(contract.DeadlineReached())

    def do(self, event: contract.ModelEvent) -> None:
        """Pass an event to the model and perform its actions. The first event is preceded by `Started`."""
        if not self.alive:
            return
        if not self._started:
            self._started = True
            broker_versions = {
                key: (api.min_version, api.max_version) for key, api in self.world.apis.items()
            }
            self.do(contract.Started(tuple(self.world.addresses), broker_versions))
        if not isinstance(event, contract.ResponseReceived):
            self.world.add_entry(self.name, "event", event)
        for action in self.model.step(self.state, event, self.world.now):
            self._perform(action)
        self.plan()

    def _perform(self, action: contract.ModelAction) -> None:
        match action:
            case contract.SendRequest():
                self._send(action)
            case contract.CloseConnection(address=address):
                if address in self._connections:
                    self._close_connection(self._connections[address], "closed by the client")
            case contract.FinishPoll(records=records, error=error):
                self._on_poll_finished(records, error)
            case contract.RunCallback(kind=kind, partitions=partitions, wait=wait, assignment=assignment):
                self._run_callback(kind, partitions, wait, assignment)
            case contract.FinishCommit(token=token, error=error):
                self.committed[token] = error
                self.observe("committed", detail=(token, self.requested_commits.get(token, {}), error))
            case contract.Notify():
                self.reports.append(action)
                self.world.add_entry(self.name, "report", action)
            case contract.FinishClose():
                self.closed = True
                self.kill()

    # ---- connections

    def _send(self, send: contract.SendRequest) -> None:
        """Send a request to its address, or queue the request until the connection is established."""
        connection = self._connections.get(send.to)
        if connection is None:
            self._last_number += 1
            connection = self._connections[send.to] = self._connections_by_key[self._last_number] = (
                _ModelConnection(send.to, self._last_number)
            )
            self.world.open(self, connection.key, send.to.host, send.to.port)
        deadline = self.world.now + send.timeout_ms
        if connection.wire is None:
            connection.unsent.append((send, deadline))
        else:
            self._write_request(connection, send, deadline)

    def _write_request(self, connection: _ModelConnection, send: contract.SendRequest, deadline: int) -> None:
        self._last_number += 1
        connection.in_flight.append((self._last_number, send, deadline))
        body = encode_request(send.request, send.version, self._last_number, self.name)
        self.world.write_to(self, connection.key, frame(body))

    def on_opened(self, wire: Wire) -> None:
        connection = self._connections_by_key.get(wire.key)
        if connection is None:
            self.world.shut(self, wire.key)
            return
        connection.wire = wire
        unsent, connection.unsent = connection.unsent, []
        for send, deadline in unsent:
            self._write_request(connection, send, deadline)

    def on_received(self, wire: Wire, data: bytes) -> None:
        connection = self._connections_by_key.get(wire.key)
        if connection is None:
            return
        for body in connection.frames.feed(data):
            correlation_id, send, _ = connection.in_flight.popleft()
            api_key = type(send.request).__api_key__
            assert api_key is not None
            if int.from_bytes(body[:4], "big") != correlation_id:
                raise AssertionError(f"{self.name}: the response does not answer the oldest request")
            try:
                _, response = decode_response(body, response_class(api_key), send.version)
            except DecodeError as error:
                self._close_connection(connection, str(error))
                return
            if isinstance(response, JoinGroupResponse) and not response.error_code:
                self._membership = (response.member_id, response.generation_id)
            self.do(contract.ResponseReceived(send.request, response, send.version))

    def on_refused(self, key: int, why: str) -> None:
        connection = self._connections_by_key.get(key)
        if connection is not None:
            self._close_connection(connection, why)

    def on_broken(self, wire: Wire, why: str) -> None:
        connection = self._connections_by_key.get(wire.key)
        self.on_refused(wire.key, why)
        if connection is not None and getattr(self.model, "HEARS_DISCONNECTS", False) is True:
            self.do(contract.ConnectionLost(connection.address))

    def _close_connection(self, connection: _ModelConnection, why: str) -> None:
        """Close a connection, and fail its requests in flight and its unsent requests with `why`."""
        self._connections.pop(connection.address, None)
        self._connections_by_key.pop(connection.key, None)
        self.world.shut(self, connection.key)
        in_flight = [send for _, send, _ in connection.in_flight]
        unsent = [send for send, _ in connection.unsent]
        for send in in_flight + unsent:
            self.do(contract.RequestFailed(send.request, why))

    # ---- the application

    def _on_poll_finished(
        self, records: tuple[contract.ModelRecord, ...], error: tuple[str, str] | None
    ) -> None:
        """Record the result of a poll, and schedule the next poll if the application keeps polling."""
        self._polling = False
        self.records += records
        offsets_by_partition: dict[TopicPartition, list[int]] = {}
        for record in records:
            offsets_by_partition.setdefault(record.partition, []).append(record.offset)
        for partition, offsets in offsets_by_partition.items():
            self.positions[partition] = offsets[-1] + 1
            self.observe("delivered", (partition,), tuple(offsets))
        if error is not None:
            self.errors.append(error)
            self.observe("raised", detail=error)
        if self._keeps_polling:
            # After an error the next poll is 1 ms later, so that virtual time passes between repeated errors.
            processing_ms = self.works_ms if records else 1 if error is not None else 0
            self.world.push(self.world.now + processing_ms, self.run_when_awake, self._start_poll)

    def _start_poll(self) -> None:
        if self._keeps_polling and not self._polling and not self.closed:
            self._polling = True
            self.do(contract.PollCalled(self.poll_timeout_ms, self.limit))

    def _run_callback(
        self,
        kind: str,
        partitions: tuple[TopicPartition, ...],
        wait: bool,
        assignment: tuple[TopicPartition, ...] | None,
    ) -> None:
        """Begin a callback. It ends after `callback_ms`, or at once if the model does not wait for it."""
        self.calls.append((kind, partitions))
        self.observe(CALLBACK_BEGIN_KINDS.get(kind, kind), partitions, assignment)
        if kind == "assigned":
            self.owned.update(partitions)
        if wait and self.callback_ms:
            self.world.call_later(
                self.callback_ms, lambda: self.run_when_awake(self._finish_callback, kind, partitions, wait)
            )
        else:
            self.world.push(
                self.world.now, self.run_when_awake, self._finish_callback, kind, partitions, wait
            )

    def _finish_callback(self, kind: str, partitions: tuple[TopicPartition, ...], wait: bool) -> None:
        """Call the listener at the end of the callback's duration, and remove revoked or lost partitions.

        If the model waits, it receives `CallbackReturned`, which contains the exception that the listener
        raised, if any.
        """
        error: tuple[str, str] | None = None
        try:
            result = self.listener(kind, partitions)
        except Exception as raised:
            error = (type(raised).__name__, str(raised))
        else:
            reject_awaitable("listener", self.listener, result)
        if kind in ("revoked", "lost"):
            self.owned.difference_update(partitions)
            self.observe(kind, partitions)
        if wait:
            self.do(contract.CallbackReturned(error))

    # ---- calls of the application

    @checked(topics=TEXT, pattern=TEXT)
    @journaled
    def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        """Subscribe to topics, or to all topics that match `pattern`, and start polling."""
        self.do(contract.SubscribeCalled(topics, pattern))
        self.observe("subscribed")
        self.resume_polling()

    @journaled
    def unsubscribe(self) -> None:
        """Unsubscribe."""
        self.do(contract.UnsubscribeCalled())
        self.observe("unsubscribed")

    @checked(partitions=OFFSETS)
    @journaled
    def assign(self, partitions: Mapping[TopicPartition, int | None]) -> None:
        """Assign partitions manually, each with its first offset (None: the client's default), and start
        polling.
        """
        self.do(contract.AssignCalled(partitions))
        self.owned = set(partitions)
        self.resume_polling()

    @checked(timeout_ms=ZERO_OR_MORE, limit=WHOLE_NUMBER)
    @journaled
    def poll_once(self, timeout_ms: int, limit: int = 1, *, patient: bool = False) -> None:
        """Poll once, for an application that does not poll continuously.

        The attribute `polling` is true until the poll ends.
        """
        self._keeps_polling, self._polling = False, True
        self.do(contract.PollCalled(timeout_ms, limit, patient))

    @property
    def polling(self) -> bool:
        """Whether a poll is in progress."""
        return self._polling

    @journaled
    def pause_polling(self) -> None:
        """Stop polling after the current poll."""
        self._keeps_polling = False

    @journaled
    def resume_polling(self) -> None:
        """Start polling again."""
        self._keeps_polling = True
        self.world.push(self.world.now, self.run_when_awake, self._start_poll)

    @checked(partition=PARTITION, offset=WHOLE_NUMBER)
    @journaled
    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Seek to an offset of a partition."""
        self.do(contract.SeekCalled(partition, offset))
        self.observe("sought", (partition,), offset)

    @checked(partitions=PARTITION)
    @journaled
    def pause(self, *partitions: TopicPartition) -> None:
        """Pause these partitions until `resume`."""
        self.do(contract.PauseCalled(partitions))
        self.observe("paused", partitions)

    @checked(partitions=PARTITION)
    @journaled
    def resume(self, *partitions: TopicPartition) -> None:
        """Resume these paused partitions."""
        self.do(contract.ResumeCalled(partitions))
        self.observe("resumed", partitions)

    @checked(offsets=OFFSETS)
    @journaled
    def commit(self, offsets: Mapping[TopicPartition, int] | None = None, *, wait: bool = True) -> object:
        """Commit these offsets, by default the positions of all partitions.

        Return a token. When the commit has ended, `committed[token]` is its error, or None if it succeeded.
        """
        token = self.world.next_token()
        self.requested_commits[token] = dict(self.positions if offsets is None else offsets)
        self.observe(
            "committing", tuple(self.requested_commits[token]), (token, self.requested_commits[token])
        )
        self.do(contract.CommitCalled(token, offsets, wait))
        return token

    @journaled
    def wakeup(self) -> None:
        """Interrupt the blocked call, or else the next blocking call, as Java's `wakeup` does."""
        self.do(contract.WakeupCalled())

    @checked(reason=TEXT)
    @journaled
    def rejoin(self, reason: str = "") -> None:
        """Start a rebalance, as `enforceRebalance` of Java's consumer does."""
        self.do(contract.RebalanceCalled(reason))

    @journaled
    def close(self, *, stay: bool = False) -> None:
        """Close the client; with `stay` it does not leave the group."""
        self._keeps_polling = False
        self.observe("closing")
        self.do(contract.CloseCalled(stay))

    # ---- queries

    def owns(self) -> set[TopicPartition]:
        """Return the partitions that the application works on: a copy of `owned`."""
        return set(self.owned)

    def values(self, topic: str | None = None, partition: int | None = None) -> list[str]:
        """Return the values of the received records as text, by default of all partitions."""
        return [
            (record.value or b"").decode()
            for record in self.records
            if topic in (None, record.partition.topic) and partition in (None, record.partition.partition)
        ]

    def is_stable(self) -> bool:
        """Return whether the group is in the state Stable."""
        return self.alive and self.world.is_stable(self.group or "")
