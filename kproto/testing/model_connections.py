"""The connections of one client's machine over real sockets: `Send` in, `Answered` and `Failed` out.

A connection is an address and a lane, opened by the first request for it. It asks ApiVersions before anything
else, as every client of today does, and it answers in the order of its requests. When it breaks, all that is
open on it fails; when a request is late, it is closed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import count

from consumer.blocking.sockets import Sockets
from consumer.engine.network.transport import Answer, Broken, NetworkEvent, Open, Opened, Shut, Write

from ..errors import KprotoError
from ..messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ..messages.headers import decode_response, encode_request
from ..messages.index import response_class
from ..models.contract import (
    Address,
    CloseConnection,
    ConnectionLost,
    RequestFailed,
    ResponseReceived,
    SendRequest,
)
from ..wire.frame import frame
from ..wire.message import Message

API_VERSIONS = 18
BOOTSTRAP = "bootstrap"  # The lane on which the broker is asked what it offers, before the machine starts.


@dataclass(slots=True, eq=False)
class _Open:
    """A request that waits for its answer; `due` is when it is late. ApiVersions has none: nobody waits."""

    request: Message
    version: int
    correlation: int
    due: int | None


@dataclass(slots=True)
class _Wire:
    key: int
    address: Address
    ready: bool = False
    # What came before the broker had said its versions, with the time at which it will be late.
    waiting: list[tuple[SendRequest, int]] = field(default_factory=list[tuple[SendRequest, int]])
    open: deque[_Open] = field(default_factory=deque[_Open])
    correlation: int = 0


class Wires:
    """All connections of one machine. Times are milliseconds of `Sockets.now()`."""

    def __init__(self, client_id: str, sockets: Sockets) -> None:
        self._client_id = client_id
        self._sockets = sockets
        self._keys = count(1)
        self._by_address: dict[Address, _Wire] = {}
        self._by_key: dict[int, _Wire] = {}
        self._heard: list[ResponseReceived | RequestFailed | ConnectionLost] = []
        # API key -> (lowest, highest), as the last broker that was asked said it.
        self.offered: dict[int, tuple[int, int]] | None = None
        # Why there is no connection any more.
        self.broke: dict[Address, str] = {}

    def ask(self, host: str, port: int) -> None:
        """Ask a broker what it offers; `offered` has it when the answer is there."""
        self._wire(Address(host, port, BOOTSTRAP))

    def send(self, action: SendRequest) -> None:
        due = Sockets.now() + action.timeout_ms
        wire = self._wire(action.to)
        if wire.ready:
            self._write(wire, action.request, action.version, due)
        else:
            wire.waiting.append((action, due))

    def hangup(self, action: CloseConnection) -> None:
        wire = self._by_address.get(action.address)
        if wire is not None:
            self._sockets.perform(Shut(wire.key))
            self._lost(wire, "closed by the client")

    def due(self) -> int | None:
        """When the next request is late."""
        times = [one.due for wire in self._by_key.values() for one in wire.open if one.due is not None]
        times += [due for wire in self._by_key.values() for _, due in wire.waiting]
        return min(times, default=None)

    def wait(self, seconds: float | None) -> list[ResponseReceived | RequestFailed | ConnectionLost]:
        """What came within `seconds` (None: until something does, or `wake` is called)."""
        due = self.due()
        if due is not None:
            left = max(0.0, (due - Sockets.now()) / 1000)
            seconds = left if seconds is None else min(seconds, left)
        for event in self._sockets.wait(0 if self._heard else seconds):
            self._happened(event)
        self._give_up()
        heard, self._heard = self._heard, []
        return heard

    def wake(self) -> None:
        """Makes `wait` return; from any thread."""
        self._sockets.wake()

    def close(self) -> None:
        self._sockets.close()

    # ---- inside

    def _wire(self, address: Address) -> _Wire:
        wire = self._by_address.get(address)
        if wire is None:
            wire = self._by_address[address] = _Wire(next(self._keys), address)
            self._by_key[wire.key] = wire
            self._sockets.perform(Open(wire.key, address.host, address.port))
        return wire

    def _happened(self, event: NetworkEvent) -> None:
        wire = self._by_key.get(event.key)
        if wire is None:
            return
        match event:
            case Opened():
                self._write(wire, ApiVersionsRequest(), 0, None)
            case Answer(body=body):
                try:
                    self._answer(wire, body)
                except KprotoError as error:
                    self._sockets.perform(Shut(wire.key))
                    self._lost(wire, str(error))
            case Broken(why=why):
                self._lost(wire, why)
                if wire.ready:
                    self._heard.append(ConnectionLost(wire.address))
            case _:
                pass  # part of a long answer has come

    def _answer(self, wire: _Wire, body: bytes | bytearray) -> None:
        if not wire.open:
            raise KprotoError("an answer, where nothing was asked")
        asked = wire.open.popleft()
        key = asked.request.__api_key__
        assert key is not None
        correlation, response = decode_response(body, response_class(key), asked.version)
        if correlation != asked.correlation:
            raise KprotoError(f"an answer to request {correlation}, where {asked.correlation} was next")
        if isinstance(response, ApiVersionsResponse):
            self.offered = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
            wire.ready = True
            waiting, wire.waiting = wire.waiting, []
            for action, due in waiting:
                self._write(wire, action.request, action.version, due)
        elif asked.due is not None:
            self._heard.append(ResponseReceived(asked.request, response, asked.version))

    def _write(self, wire: _Wire, request: Message, version: int, due: int | None) -> None:
        wire.correlation += 1
        wire.open.append(_Open(request, version, wire.correlation, due))
        body = encode_request(request, version, wire.correlation, self._client_id)
        self._sockets.perform(Write(wire.key, frame(body)))

    def _lost(self, wire: _Wire, why: str) -> None:
        self._by_key.pop(wire.key, None)
        self.broke[wire.address] = why
        if self._by_address.get(wire.address) is wire:
            del self._by_address[wire.address]
        self._heard += [RequestFailed(one.request, why) for one in wire.open if one.due is not None]
        self._heard += [RequestFailed(action.request, why) for action, _ in wire.waiting]

    def _give_up(self) -> None:
        """Requests that are late fail, and the connection is closed: what else is open on it fails, too."""
        now = Sockets.now()
        for wire in list(self._by_key.values()):
            late = [one for one in wire.open if one.due is not None and one.due <= now]
            behind = [action for action, due in wire.waiting if due <= now]
            if late or behind:
                found = [one.request for one in late] + [action.request for action in behind]
                self._heard += [RequestFailed(one, "not answered in its time", late=True) for one in found]
                wire.open = deque(one for one in wire.open if one not in late)
                wire.waiting = [one for one in wire.waiting if one[1] > now]
                self._sockets.perform(Shut(wire.key))
                self._lost(wire, "a request was not answered in its time")
