"""A network client whose sent bytes and actions are kept in lists."""

from __future__ import annotations

from typing import Any

from consumer.engine.metadata.cluster import BrokerAddress
from consumer.engine.network.call import Call
from consumer.engine.network.client import FETCH, NetworkClient
from consumer.engine.network.transport import Data, Open, Opened, Shut, Write
from kproto.messages.api_versions import ApiVersion, ApiVersionsResponse
from kproto.messages.fetch import FetchRequest
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.headers import decode_request, encode_response
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.join_group import JoinGroupRequest
from kproto.wire.frame import Frames, frame

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class Stage:
    """A network client under test.

    `ask`, `question` and `fetch` send requests. `opened`, `shut` and `requests` list the actions that the
    client has returned.
    """

    def __init__(self, *bootstrap: tuple[str, int], **options: Any) -> None:
        self.network = NetworkClient(bootstrap or [("a", 1)], **options)
        self.now = 0
        self.opened: list[Open] = []
        self.shut: list[int] = []
        self.written: dict[int, Frames] = {}
        self.requests: list[tuple[int, int, int, Any]] = []
        self.bytes_written = self.bytes_received = 0

    def knows(self, *brokers: BrokerAddress) -> Stage:
        self.network.view.brokers = {broker.id: broker for broker in brokers}
        return self

    def ask(self, **where: Any) -> Call:
        call = self.network.send(HEARTBEAT, self.now, **where)
        self.take()
        return call

    def take(self) -> None:
        actions, self.network.actions = self.network.actions, []
        for action in actions:
            match action:
                case Open():
                    self.opened.append(action)
                case Shut(key=key):
                    self.shut.append(key)
                case Write(key=key, data=data):
                    self.bytes_written += len(data)
                    for body in self.written.setdefault(key, Frames()).feed(data):
                        envelope = decode_request(body)
                        ids = (key, envelope.header.correlation_id, envelope.version)
                        self.requests.append((*ids, envelope.request))

    def happened(self, event: Any) -> None:
        if isinstance(event, Data):
            self.bytes_received += len(event.data)
        self.network.handle(event, self.now)
        self.take()

    def connect(self, key: int) -> None:
        """Open a connection's socket, and answer its ApiVersions request."""
        self.happened(Opened(key))
        _, correlation, version, _ = self.requests.pop()
        keys = [ApiVersion(api_key=key, min_version=0, max_version=4) for key in (0, 1, 8, 10, 11, 12)]
        answer = ApiVersionsResponse(error_code=0, api_keys=keys)
        self.happened(Data(key, frame(encode_response(answer, version, correlation))))

    def answer(self) -> None:
        key, correlation, version, _ = self.requests.pop(0)
        answer = HeartbeatResponse(throttle_time_ms=0, error_code=0)
        self.happened(Data(key, frame(encode_response(answer, version, correlation))))

    def tick(self, now: int) -> None:
        self.now = now
        self.network.tick(now)
        self.take()


def question(stage: Stage, **where: Any) -> Call:
    """Send a request that every broker answers immediately."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
    call = stage.network.send(request, stage.now, **where)
    stage.take()
    return call


def joining(stage: Stage, **where: Any) -> Call:
    """Send a JoinGroup, whose response may take minutes, because it waits for all members."""
    request = JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="m", protocol_type="consumer", protocols=[]
    )
    call = stage.network.send(request, stage.now, **where)
    stage.take()
    return call


def fetch(stage: Stage, **where: Any) -> Call:
    """Send a Fetch request that the broker may hold for 500 ms."""
    request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[])
    call = stage.network.send(request, stage.now, lane=FETCH, **where)
    stage.take()
    return call
