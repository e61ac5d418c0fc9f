"""One connection to one broker, without the socket.

Rules that hold here:

* A broker answers in the order it was asked. The correlation id is checked all the same: an answer that
  doesn't fit is a broken connection, never a guess.
* The first request is always ApiVersions, at the highest version that we know; a broker that doesn't know it
  answers in version 0 with the range it does know (KIP-511), and is asked again.
* A request waits in `waiting` until the versions are known, because its body may depend on the version, and
  while the connection is to be quiet (`throttling`).
* A request that isn't answered in time closes the connection: nobody could tell its late answer from the next
  one's, and a broker that is silent for that long is better asked through a new connection (as Java does).
* With SASL (`login`) the versions are followed by the exchange, and that by the first request. A session that
  ends is renewed in between (KIP-368): a broker answers in order, so what is under way is not touched.
* Nothing here reads a clock or touches a socket: bytes come in and go out, `now` is in milliseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kproto import __version__
from kproto.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    DecodeError,
    EncodeError,
    KprotoError,
    RequestTimedOut,
    UnsupportedVersion,
)
from kproto.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproto.messages.headers import decode_response, decode_response_views, request_pieces
from kproto.messages.index import API_NAMES, response_class
from kproto.wire.frame import Frames, frame
from kproto.wire.message import Message

from .throttle import asked_ms

if TYPE_CHECKING:
    from ...security import Token
    from .login import Login

# The name and version of this client in the request metrics of brokers (KIP-511).
SOFTWARE_NAME = "kproto"
SOFTWARE_VERSION = __version__

UNSUPPORTED_VERSION = 35
API_VERSIONS = 18
FETCH = 1

# The largest answer of a broker that has shown that it is one: what a size can say, as in Java's clients. A
# fetch brings its first batch whole, however large that is, so fetch.max.bytes bounds nothing. What hasn't
# arrived takes no memory.
MOST = 2**31 - 1


class Prepared(msgspec.Struct):
    """A request whose body is built when the version is known: `build(version)`, called once, when it is
    sent."""

    message: type[Message]
    build: Callable[[int], Message]


class Outcome(Enum):
    """How a call ended; only `silent` is worth another try at once."""

    answered = "answered"
    silent = "silent"  # no answer: the connection broke, or the time was over
    refused = "refused"  # by us: no version that both sides know can say it
    denied = "denied"  # nobody lets us in
    garbled = "garbled"  # the answer can't be read


class Call:
    """One request on its way: what was asked, until when, and what came of it.

    `done` turns true exactly once; then either `response` or `error` is set. `purpose` belongs to whoever
    asked. `request` is the message that was really sent, once it was sent. A `one_way` call (Produce with
    acks=0) gets no answer: it is done when it is written, and `response` is the request itself.
    """

    __slots__ = (
        "address",
        "deadline",
        "error",
        "lane",
        "max_version",
        "message",
        "node",
        "one_way",
        "prepared",
        "purpose",
        "request",
        "response",
        "timeout_ms",
        "tried",
        "version",
    )

    def __init__(
        self,
        request: Message | Prepared,
        *,
        node: int | None,
        lane: int,
        deadline: int,
        timeout_ms: int,
        max_version: int | None = None,
        one_way: bool = False,
        purpose: Any = None,
    ) -> None:
        self.one_way = one_way
        self.prepared = request if isinstance(request, Prepared) else None
        self.request = None if isinstance(request, Prepared) else request
        self.message: type[Message] = request.message if isinstance(request, Prepared) else type(request)
        self.node = node
        self.lane = lane
        self.deadline = deadline
        self.timeout_ms = timeout_ms
        self.max_version = max_version
        self.purpose = purpose
        self.version = -1
        self.address = ""
        # Where it was asked in vain, and why that was in vain.
        self.tried: dict[tuple[str, int], str] = {}
        self.response: Message | None = None
        self.error: KprotoError | None = None

    @property
    def done(self) -> bool:
        return self.response is not None or self.error is not None

    @property
    def how(self) -> Outcome:
        """How the call ended; only to be asked when it is done."""
        if self.error is None:
            return Outcome.answered
        if isinstance(self.error, AuthenticationFailed):
            return Outcome.denied
        if isinstance(self.error, (UnsupportedVersion, EncodeError)):
            return Outcome.refused
        return Outcome.garbled if isinstance(self.error.__cause__, DecodeError) else Outcome.silent

    @property
    def name(self) -> str:
        return api_name(self.message)

    def __repr__(self) -> str:
        state = "answered" if self.response is not None else f"failed: {self.error}" if self.error else "open"
        return f"<Call {self.name} to {self.address or self.node}: {state}>"


def api_name(message: type[Message]) -> str:
    """Kafka's name of the request: `JoinGroup` for JoinGroupRequest."""
    key = message.__api_key__
    return API_NAMES.get(key, message.__name__) if key is not None else message.__name__


LOGIN: Final = object()
"""The `purpose` of a connection's own calls: they are never among the finished ones."""


class Connection:
    """The protocol on one connection. The owner moves the bytes and calls, in this order:

    `opened()` when the socket is connected, `received(data)` for every chunk or `answered(body)` for every
    whole frame, `broken(why)` when it ends.
    `ask(call)` at any time. Each returns the bytes to write; finished calls are appended to `finished`.
    With `wants_token` set, a login waits for `log_in(token)`. AuthenticationFailed is an end, as DecodeError.
    """

    def __init__(
        self, key: int, host: str, port: int, client_id: str, *, deadline: int, login: Login | None = None
    ) -> None:
        self.key = key
        self.host = host
        self.port = port
        self.client_id = client_id
        self.deadline = deadline  # until when it must be open and negotiated
        self.patience = 0  # how many ms that was
        self.began: int | None = None  # when the broker's part of that did; None when it is over
        self.ready = False
        self.closed = False
        self.is_open = False
        self.shaking = False  # there is a connection, and TLS has begun on it
        self.heard = False  # something was answered since it is ready
        # The broker reads nothing before that moment; nothing is sent until `speak`.
        self.quiet = False
        self.quiet_until = 0
        # Which API's answer asked for that, and for how many ms; until `hush`.
        self.asked = ("", 0)
        self.wants_token = False
        self.login = login
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}  # what the cluster has turned on (KIP-584)
        self.caps: Mapping[int, int] = {}
        self.waiting: deque[Call] = deque()
        self.in_flight: deque[tuple[int, Call]] = deque()
        self.finished: list[Call] = []
        self._frames = Frames()
        self._next_correlation = 0
        self._negotiating = -1

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def opened(self) -> bytes:
        self.is_open = True
        return self._ask_versions(ApiVersionsRequest.__versions__.max)

    def _ask_versions(self, version: int) -> bytes:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )
        if version < 3:
            request = ApiVersionsRequest()
        self._negotiating = version
        self._next_correlation += 1
        return frame(*request_pieces(request, version, self._next_correlation, self.client_id))

    def ask(self, call: Call) -> bytes:
        call.address = self.address
        if not self.ready or self.quiet:
            self.waiting.append(call)
            return b""
        return self._send(call)

    def hush(self, now: int) -> tuple[str, int]:
        """An answer asked for quiet: nothing is sent until `speak`, and what is under way has longer.
        Returns which API, and for how long."""
        api, wait = self.asked
        self.asked = "", 0
        until = max(now + wait, self.quiet_until)
        longer = until - max(now, self.quiet_until)
        self.quiet, self.quiet_until = True, until
        for _, call in self.in_flight:
            call.deadline += longer
        return api, wait

    def speak(self) -> bytes:
        """The time is over: what waited is sent."""
        self.quiet = False
        return self._send_waiting() if self.ready else b""

    def _look_at_quota(self, response: Message | None, version: int, api: str) -> None:
        wait = 0 if response is None else asked_ms(response, version)
        if wait > self.asked[1]:
            self.quiet, self.asked = True, (api, wait)

    def version_for(self, message: type[Message], most: int | None = None) -> int:
        """The highest version both sides know. Raises UnsupportedVersion when there is none."""
        key = message.__api_key__
        ours = message.__versions__
        if key is None or key not in self.versions:
            raise UnsupportedVersion(
                api_name(message), -1, f"the broker at {self.address} doesn't know this request"
            )
        lowest, highest = self.versions[key]
        highest = min(highest, self.caps.get(key, highest))
        version = min(highest, ours.max if most is None else min(most, ours.max))
        if version < max(lowest, ours.min):
            detail = (
                f"{lowest}-{highest} by the broker at {self.address}, {ours.min}-{ours.max} by this client"
            )
            raise UnsupportedVersion(api_name(message), version, detail)
        return version

    def _send(self, call: Call) -> bytes:
        try:
            version = self.version_for(call.message, call.max_version)
            if call.prepared is not None:
                call.request = call.prepared.build(version)
            assert call.request is not None
            pieces = request_pieces(call.request, version, self._next_correlation + 1, self.client_id)
            data = frame(*pieces)
        except (UnsupportedVersion, EncodeError) as error:
            call.error = error
            if call.purpose is not LOGIN:
                self.finished.append(call)
            return b""
        call.version = version
        self._next_correlation += 1
        if call.one_way:
            call.response = call.request
            self.finished.append(call)
        else:
            self.in_flight.append((self._next_correlation, call))
        return data

    def received(self, data: bytes) -> bytes:
        """Feeds bytes. Raises DecodeError when they can't be an answer: then call `broken` and close."""
        out: list[bytes] = []
        for body in self._frames.feed(data):
            out.append(self.answered(body))
            if self.ready:
                self._frames.max_size = MOST
        return b"".join(out)

    def answered(self, body: bytes | bytearray) -> bytes:
        """Takes a whole answer in; the records of a fetch point into it. Raises as `received` does."""
        if self._negotiating >= 0:
            return self._negotiated(bytes(body))
        login = self.login
        if login is not None and login.raw and not self.ready and not self.in_flight and not login.done:
            return self._logged_in(login.answered_raw(bytes(body)))
        call = self._answered(body)
        if call.purpose is LOGIN:
            assert login is not None
            assert call.response is not None
            return self._logged_in(login.answered(call.response))
        self._look_at_quota(call.response, call.version, call.name)
        self.finished.append(call)
        self.heard = True
        return b""

    def _negotiated(self, body: bytes) -> bytes:
        version = self._negotiating
        # The error code is the first field in every version, and a broker that doesn't know ours answers
        # in v0.
        if len(body) >= 6 and int.from_bytes(body[4:6], "big") == UNSUPPORTED_VERSION:
            if version == 0:
                raise DecodeError("ApiVersions", 0, "error_code", 4, "the broker refuses even version 0")
            return self._ask_versions(_lower(body, version))
        _, response = decode_response(body, ApiVersionsResponse, version)
        assert isinstance(response, ApiVersionsResponse)
        if response.error_code:
            detail = f"the broker answers error {response.error_code}"
            raise DecodeError("ApiVersions", version, "error_code", 4, detail)
        self.versions = _versions(response, version)
        if not self.versions:
            detail = "the broker answers that it knows no request"
            raise DecodeError("ApiVersions", version, "api_keys", 6, detail)
        self.features = {entry.name: entry.max_version_level for entry in response.finalized_features}
        self._negotiating = -1
        self._look_at_quota(response, version, "ApiVersions")
        if self.login is None:
            return self._be_ready()
        if self.login.needs_token:
            self.wants_token = True
            return b""
        return self.log_in(None)

    def _be_ready(self) -> bytes:
        self.ready = True
        return b"" if self.quiet else self._send_waiting()

    def _send_waiting(self) -> bytes:
        waiting, self.waiting = self.waiting, deque()
        return b"".join([self._send(call) for call in waiting])

    # ---- logging in

    def renew(self, deadline: int) -> bytes:
        """The session ends soon: log in again, until `deadline` or later. New calls wait meanwhile."""
        assert self.login is not None
        # What was asked before is answered before: a JoinGroup may take its time.
        under_way = (call.deadline + self.patience for _, call in self.in_flight)
        self.deadline = max(deadline, *under_way, self.quiet_until + self.patience)
        self.ready = False
        if self.login.needs_token:
            self.wants_token = True
            return b""
        return self.log_in(None)

    def log_in(self, token: Token | None) -> bytes:
        assert self.login is not None
        self.wants_token = False
        request = self.login.begin(self.versions, token)
        return self._ask_login(request, self.login.most(request))

    def _ask_login(self, request: Message, most: int | None = None) -> bytes:
        call = Call(
            request,
            node=None,
            lane=0,
            deadline=self.deadline,
            timeout_ms=self.patience,
            max_version=most,
            purpose=LOGIN,
        )
        call.address = self.address
        sent = self._send(call)
        if call.error is not None:
            raise AuthenticationFailed(self.address, str(call.error))
        return sent

    def _logged_in(self, after: bytes | None) -> bytes:
        assert self.login is not None
        if after is None:
            return self._be_ready()
        if self.login.raw:
            return frame(after)
        return self._ask_login(self.login.message(after))

    def _answered(self, body: bytes | bytearray) -> Call:
        if not self.in_flight:
            raise DecodeError("ResponseHeader", -1, "correlation_id", 0, "an answer that nobody asked for")
        expected, call = self.in_flight[0]
        if int.from_bytes(body[:4], "big", signed=True) != expected:
            detail = f"expected {expected}: answers must come in the order of the requests"
            raise DecodeError("ResponseHeader", -1, "correlation_id", 0, detail)
        key = call.message.__api_key__
        assert key is not None
        decode = decode_response_views if key == FETCH else decode_response
        _, call.response = decode(body, response_class(key), call.version)
        self.in_flight.popleft()
        return call

    def late(self) -> str:
        """What took longer than it may, before this was ready."""
        limit = f"within {self.patience} ms"
        if self.wants_token:
            return f"the token provider has returned nothing {limit}"
        if self.is_open and self.login is not None and self.login.begun:
            return f"the broker doesn't answer the login of {self.login.who} {limit}"
        if self.is_open:
            return f"the broker doesn't answer {limit}"
        if self.shaking:
            return f"the TLS handshake doesn't come to its end {limit}; does this port speak TLS?"
        return f"the connection can't be made {limit}"

    def forget(self, call: Call) -> None:
        """Takes back a call that was not sent yet."""
        self.waiting.remove(call)

    def broken(
        self, why: str, garbled: DecodeError | None = None, denied: AuthenticationFailed | None = None
    ) -> None:
        """The connection is gone: every open call fails. `garbled`: the oldest one's answer can't be read.
        `denied`: nobody lets us in."""
        self.closed = True
        self.ready = False
        if garbled is not None and self.in_flight:
            _, call = self.in_flight.popleft()
            if call.purpose is not LOGIN:
                call.error = ConnectionFailed(self.address, why)
                call.error.__cause__ = garbled
                self.finished.append(call)
        for call in (*(call for _, call in self.in_flight), *self.waiting):
            if call.purpose is not LOGIN:
                call.error = denied or ConnectionFailed(self.address, why)
                self.finished.append(call)
        self.in_flight.clear()
        self.waiting.clear()

    def overdue(self, now: int) -> bool:
        """True when a call that was sent is not answered in time: the owner must close this connection."""
        late = False
        for _, call in self.in_flight:
            if call.deadline <= now and not call.done:
                silent = {self.address: "it was asked, and doesn't answer"}
                call.error = RequestTimedOut(call.name, call.timeout_ms, f"asked {self.address}", silent)
                late = True
        if late:
            self.finished.extend(
                call for _, call in self.in_flight if call.error is not None and call.purpose is not LOGIN
            )
            self.in_flight = deque(entry for entry in self.in_flight if entry[1].error is None)
        expired = [call for call in self.waiting if call.deadline <= now]
        for call in expired:
            self.waiting.remove(call)
            why, reason = f"no connection to {self.address} yet", "no connection yet"
            if self.quiet:
                reason = f"asks for {self.quiet_until - now} ms more without requests (a quota)"
                why = f"{self.address} {reason}"
            call.error = RequestTimedOut(call.name, call.timeout_ms, why, {self.address: reason})
            self.finished.append(call)
        return late

    def add_deadlines(self, times: list[int]) -> None:
        for _, call in self.in_flight:
            times.append(call.deadline)
        for call in self.waiting:
            times.append(call.deadline)
        if not self.ready and not self.closed:
            times.append(self.deadline)
        if self.quiet and self.waiting:
            times.append(self.quiet_until)


def _versions(response: ApiVersionsResponse, version: int) -> dict[int, tuple[int, int]]:
    """API key -> the versions that a broker says it knows. Raises DecodeError for what no broker can mean: it
    would be believed for as long as the connection lasts."""
    versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    mad = [one for one in response.api_keys if not 0 <= one.min_version <= one.max_version]
    detail = f"these versions can't be: {mad[0]}" if mad else ""
    if len(versions) < len(response.api_keys):
        detail = "the broker names a request twice"
    if detail:
        raise DecodeError("ApiVersions", version, "api_keys", 6, detail)
    return versions


def _lower(body: bytes, version: int) -> int:
    """The version of ApiVersions that a broker says it knows, 0 when it says nothing that can be read."""
    try:
        _, response = decode_response(body, ApiVersionsResponse, 0)
    except DecodeError:
        return 0  # librdkafka's mock cluster answers in the format of the version it refuses
    assert isinstance(response, ApiVersionsResponse)
    _, highest = _versions(response, 0).get(API_VERSIONS, (0, 0))
    return min(highest, version - 1)
