"""The Kafka protocol on one connection, without the socket. A *call* is a request with its outcome.

Rules:

* A broker responds in the order of the requests. The client also checks the correlation id, and closes the
  connection after a mismatch.

* The first request is always ApiVersions, in the client's highest version.

* If a broker does not know the version of ApiVersions, it responds in version 0 with the versions that it
  knows (KIP-511). The client then uses the highest common version.

* If the versions that the broker has listed do not allow a call, the client sends ApiVersions once more,
  because one response may be wrong. If the second response does not allow the call either, the call fails.

* A request waits while the connection is throttled (`throttle`). It also waits until the broker's versions
  are known, because the body of a request may depend on the request's version.

* If a request gets no response in time, the connection is closed, as in Java. Otherwise a late response would
  arrive where the response to the next request is expected.

* With SASL (`login`), the authentication takes place between ApiVersions and the first request.

* A SASL session that expires is renewed between requests (KIP-368). The broker responds to requests in flight
  before it handles the renewal.

* The owner of a connection has the clock and the socket. It passes received bytes and the time (ms) to the
  connection, and writes the returned bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING

from kproto.addresses import address_text
from kproto.errors import (
    AuthenticationFailed,
    ConnectionFailed,
    DecodeError,
    EncodeError,
    RequestTimedOut,
    UnsupportedVersion,
)
from kproto.machine import Edges, move
from kproto.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproto.messages.headers import decode_response, decode_response_views, request_pieces
from kproto.messages.index import response_class
from kproto.wire.frame import Frames, frame
from kproto.wire.message import Message

from .api_versions import ExpectedBroker, check_route, listed_versions, lower_version, versions_request
from .call import INTERNAL, Call, api_name
from .throttle import throttle_ms

if TYPE_CHECKING:
    from ...security.kerberos import KerberosLogin
    from ...security.tokens import Token
    from .login import Login

UNSUPPORTED_VERSION = 35  # The error code.
FETCH_KEY = 1
SASL_HANDSHAKE_KEY = 17

# The length (bytes) of the size field before each frame.
SIZE_BYTES = 4
# The maximum size (bytes) of a response once the API versions are known: the largest int32, as in Java. A
# fetch may exceed fetch.max.bytes, because the broker returns the first batch whole.
MAX_RESPONSE_SIZE = 2**31 - 1


class ConnectionState(Enum):
    """The phase of a connection (Java's ConnectionState, plus a state for the TLS handshake)."""

    CONNECTING = "connecting"
    TLS_HANDSHAKE = "TLS handshake"
    CHECKING_API_VERSIONS = "checking API versions"
    AUTHENTICATING = "authenticating"
    READY = "ready"
    CLOSED = "closed"


S = ConnectionState
# Aliases of the states that are checked on every event, because Enum attribute access is slow before Python
# 3.12.
READY, CLOSED = S.READY, S.CLOSED

EDGES: Edges[ConnectionState] = {
    S.CONNECTING: frozenset({S.TLS_HANDSHAKE, S.CHECKING_API_VERSIONS, S.CLOSED}),
    S.TLS_HANDSHAKE: frozenset({S.TLS_HANDSHAKE, S.CHECKING_API_VERSIONS, S.CLOSED}),
    # If the connection breaks before the first response, the setup starts again at the next address of the
    # host.
    S.CHECKING_API_VERSIONS: frozenset(
        {S.TLS_HANDSHAKE, S.CHECKING_API_VERSIONS, S.AUTHENTICATING, S.READY, S.CLOSED}
    ),
    S.AUTHENTICATING: frozenset({S.READY, S.CLOSED}),
    # A READY connection returns to AUTHENTICATING when its SASL session is renewed (KIP-368).
    S.READY: frozenset({S.AUTHENTICATING, S.CLOSED}),
    S.CLOSED: frozenset(),
}


class Connection:
    """One connection to a broker: encodes the requests, and matches the responses to the calls.

    The owner calls `opened()` when the socket is connected, and `fail_calls(why)` when the connection has
    ended. In between, it calls `received(data)` for each chunk, or `answered(body)` for each whole frame.

    The owner may call `ask(call)` at any time.

    Each method returns the bytes to write, and adds to `finished` the calls that have ended.

    While `wants_token` is set, the login waits for `log_in(token)`.

    If a method raises AuthenticationFailed or DecodeError, the owner must close the connection.
    """

    def __init__(
        self, key: int, host: str, port: int, client_id: str, *, deadline: int, login: Login | None = None
    ) -> None:
        self.key = key
        self.host = host
        self.port = port
        self.client_id = client_id
        # Deadline (ms) of the connection setup, which includes ApiVersions and the login.
        self.deadline = deadline
        self.setup_timeout_ms = 0  # Timeout (ms) of the connection setup.
        # Time (ms) at which the setup began; None after the setup has ended.
        self.setup_began_at: int | None = None
        self.dialer = ""  # The name of the dialer, if the application opens the connection.
        self.state = ConnectionState.CONNECTING
        self.has_responded = False  # Whether a request was answered, except setup and login.

        # While `is_throttled` is set, no request is sent; `end_throttle` clears it. The broker reads no
        # request before `throttled_until` (ms).
        self.is_throttled = False
        self.throttled_until = 0
        self.is_throttle_capped = False  # Whether a requested throttle time exceeded the maximum.

        # The API and the throttle time (ms) of a response that requested throttling. `throttle` clears them.
        self.requested_throttle = ("", 0)
        self.wants_token = False
        self.login = login
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}  # The finalized features of the cluster (KIP-584).
        self.caps: Mapping[int, int] = {}
        # The broker that the address belongs to; None if it is unknown, as for most bootstrap addresses.
        self.expected_broker: ExpectedBroker | None = None
        self.waiting: deque[Call] = deque()
        self.in_flight: deque[tuple[int, Call]] = deque()
        self.finished: list[Call] = []
        # The sizes (bytes) of the requests and responses that the owner has not counted yet.
        self.request_sizes: list[int] = []
        self.response_sizes: list[int] = []
        # When the renewal of the SASL session began (ms); None if no renewal is in progress.
        self.renewal_began_at: int | None = None
        self._frames = Frames()
        self._last_correlation_id = 0
        # The version of the ApiVersions request of the setup while it is in flight, else -1.
        self._negotiation_version = -1
        self._listing_version = (
            0  # The version of the ApiVersions response that listed the broker's versions.
        )

        # Whether the versions were requested again, because the first response did not list SaslHandshake.
        self._has_asked_again = False

    @property
    def address(self) -> str:
        return address_text(self.host, self.port)

    @property
    def ready(self) -> bool:
        """Whether calls can be sent: the versions are known, and the login is complete."""
        return self.state is READY

    @property
    def is_open(self) -> bool:
        """Whether the socket is connected and the TLS handshake, if any, is complete."""
        return self.state not in (ConnectionState.CONNECTING, ConnectionState.TLS_HANDSHAKE)

    def opened(self) -> bytes:
        """Return the first bytes to write, after the socket has been connected."""
        move(self, ConnectionState.CHECKING_API_VERSIONS, EDGES)
        return self._ask_versions(ApiVersionsRequest.__versions__.max)

    def _ask_versions(self, version: int) -> bytes:
        self._negotiation_version = version
        self._last_correlation_id += 1
        request = versions_request(version, self.expected_broker)
        data = frame(*request_pieces(request, version, self._last_correlation_id, self.client_id))
        self.request_sizes.append(len(data))
        return data

    def ask(self, call: Call) -> bytes:
        """Send a call now, or as soon as the connection is ready and not throttled."""
        call.address, call.awaits_versions = self.address, False
        if not self.ready or self.is_throttled:
            self.waiting.append(call)
            return b""
        return self._send(call)

    def throttle(self, now: int, max_ms: int) -> tuple[str, int]:
        """Start throttling: send no request until `end_throttle`, and postpone deadlines of calls in flight.

        The throttling lasts for at most `max_ms`. Returns (API, time): the API whose response requested the
        throttling, and the requested time in ms.
        """
        api, requested_ms = self.requested_throttle
        self.requested_throttle = "", 0
        self.is_throttle_capped = self.is_throttle_capped or requested_ms > max_ms
        throttled_until = max(now + min(requested_ms, max_ms), self.throttled_until)
        extension_ms = throttled_until - max(now, self.throttled_until)
        self.is_throttled, self.throttled_until = True, throttled_until
        for _, call in self.in_flight:
            call.deadline += extension_ms
        return api, requested_ms

    def end_throttle(self) -> bytes:
        """End throttling: send the calls that waited."""
        self.is_throttled = False
        return self._send_waiting() if self.ready else b""

    def _note_throttle(self, response: Message | None, version: int, api: str) -> None:
        """Record the throttle time that a response demands, if it is longer than the recorded one."""
        requested_ms = 0 if response is None else throttle_ms(response, version)
        if requested_ms > self.requested_throttle[1]:
            self.is_throttled, self.requested_throttle = True, (api, requested_ms)

    def version_for(self, message: type[Message], max_version: int | None = None) -> int:
        """Return the highest common version up to `max_version`. Raises UnsupportedVersion if none exists."""
        key = message.__api_key__
        client_versions = message.__versions__
        if key is None or key not in self.versions:
            raise UnsupportedVersion(
                api_name(message), -1, f"the broker at {self.address} does not support this request"
            )
        lowest, highest = self.versions[key]
        highest = min(highest, self.caps.get(key, highest))
        client_max = client_versions.max if max_version is None else min(max_version, client_versions.max)
        version = min(highest, client_max)
        if version < max(lowest, client_versions.min):
            by_client = f"{client_versions.min}-{client_versions.max} by this client"
            detail = f"{lowest}-{highest} by the broker at {self.address}, {by_client}"
            raise UnsupportedVersion(api_name(message), version, detail)
        return version

    def _send(self, call: Call) -> bytes:
        try:
            version = self.version_for(call.message, call.max_version)
            if call.prepared is not None:
                call.request = call.prepared.build(version)
            assert call.request is not None
            pieces = request_pieces(call.request, version, self._last_correlation_id + 1, self.client_id)
            data = frame(*pieces)
        except (UnsupportedVersion, EncodeError) as error:
            if call.purpose is not INTERNAL and not call.awaits_versions:
                return self._ask_versions_again(call)
            call.error = error
            if call.purpose is not INTERNAL:
                self.finished.append(call)
            return b""
        return self._write(call, version, data)

    def _write(self, call: Call, version: int, data: bytes) -> bytes:
        """Record a call as sent, and return `data`, its encoded request."""
        call.version = version
        self.request_sizes.append(len(data))
        self._last_correlation_id += 1
        if call.one_way:
            call.response = call.request
            self.finished.append(call)
        else:
            self.in_flight.append((self._last_correlation_id, call))
        return data

    def _ask_versions_again(self, call: Call) -> bytes:
        """Keep a call for which the broker lists no common version, and request the versions again."""
        call.awaits_versions = True
        self.waiting.append(call)
        if any(isinstance(pending.request, ApiVersionsRequest) for _, pending in self.in_flight):
            return b""
        version, request = self._listing_version, versions_request(self._listing_version)
        check = Call(
            request, node=None, lane=0, deadline=call.deadline, timeout_ms=call.timeout_ms, purpose=INTERNAL
        )
        check.address = self.address
        pieces = request_pieces(request, version, self._last_correlation_id + 1, self.client_id)
        return self._write(check, version, frame(*pieces))

    def received(self, data: bytes) -> bytes:
        """Handle received bytes, and return the bytes to write.

        Raises DecodeError if the bytes are not a valid response. The owner then calls `fail_calls` and closes
        the socket.
        """
        pieces: list[bytes] = []
        for body in self._frames.feed(data):
            pieces.append(self.answered(body))
            if self.ready:
                self._frames.max_size = MAX_RESPONSE_SIZE
        return b"".join(pieces)

    def answered(self, body: bytes | bytearray) -> bytes:
        """Handle a whole response frame, and return the bytes to write.

        Raises DecodeError if the frame is not a valid response.

        The records of a Fetch response are views of `body`.
        """
        self.response_sizes.append(len(body) + SIZE_BYTES)
        if self._negotiation_version >= 0:
            return self._on_versions_response(bytes(body))
        login = self.login
        # A broker before Kafka 1.0 sends the messages of a login without a header.
        if (
            login is not None
            and login.uses_raw_frames
            and not (self.ready or self.in_flight or login.is_complete)
        ):
            return self._continue_login(login.on_raw_frame(bytes(body)))
        call = self._match_response(body)
        if isinstance(call.response, ApiVersionsResponse) and call.purpose is INTERNAL:
            self._learn_versions(call.response, call.version)
            return b"" if self.is_throttled or not self.ready else self._send_waiting()
        if call.purpose is INTERNAL:
            assert login is not None
            assert call.response is not None
            return self._continue_login(login.on_response(call.response))
        self._note_throttle(call.response, call.version, call.name)
        self.finished.append(call)
        self.has_responded = True
        return b""

    def _on_versions_response(self, body: bytes) -> bytes:
        """Store the versions and begin the login, or request them again after UNSUPPORTED_VERSION."""
        version = self._negotiation_version
        # The error code is the first field of ApiVersions in every version. If a broker does not know the
        # requested version, it responds in version 0.
        if len(body) >= 6 and int.from_bytes(body[4:6], "big") == UNSUPPORTED_VERSION:
            if version == 0:
                raise DecodeError(
                    "ApiVersions", 0, "error_code", 4, "the broker rejects every version, even version 0"
                )
            return self._ask_versions(lower_version(body, version))
        _, response = decode_response(body, ApiVersionsResponse, version)
        assert isinstance(response, ApiVersionsResponse)
        check_route(response, self.address, self.expected_broker)
        self._learn_versions(response, version)
        if self.login is not None and SASL_HANDSHAKE_KEY not in self.versions and not self._has_asked_again:
            self._has_asked_again = True
            return self._ask_versions(version)
        self._negotiation_version = -1
        if self.login is None:
            return self._on_ready()
        move(self, ConnectionState.AUTHENTICATING, EDGES)
        if self.login.needs_token:
            self.wants_token = True
            return b""
        return self.log_in(None)

    def _learn_versions(self, response: ApiVersionsResponse, version: int) -> None:
        """Store the versions and features that a response lists. Raises DecodeError if it lists no API."""
        self.versions, self._listing_version = listed_versions(response, version), version
        self.features = {entry.name: entry.max_version_level for entry in response.finalized_features}
        self._note_throttle(response, version, "ApiVersions")

    def _on_ready(self) -> bytes:
        move(self, ConnectionState.READY, EDGES)
        return b"" if self.is_throttled else self._send_waiting()

    def _send_waiting(self) -> bytes:
        waiting, self.waiting = self.waiting, deque()
        return b"".join([self._send(call) for call in waiting])

    def renew_session(self, deadline: int) -> bytes:
        """Renew the SASL session.

        The renewal must be complete by `deadline`. Calls in flight and throttling extend the deadline: it is
        at least `setup_timeout_ms` after the deadline of each call, and after the end of the throttling.

        Calls that are added during the renewal wait until it is complete.
        """
        assert self.login is not None
        # The broker responds to the calls in flight before it handles the renewal, and a JoinGroup may take
        # minutes.
        deadlines = (call.deadline + self.setup_timeout_ms for _, call in self.in_flight)
        self.deadline = max(deadline, *deadlines, self.throttled_until + self.setup_timeout_ms)
        move(self, ConnectionState.AUTHENTICATING, EDGES)
        if self.login.needs_token:
            self.wants_token = True
            return b""
        return self.log_in(None)

    def log_in(self, token: Token | KerberosLogin | None) -> bytes:
        """Start the SASL exchange."""
        assert self.login is not None
        self.wants_token = False
        request = self.login.begin(self.versions, token)
        return self._send_login_request(request, self.login.max_version(request))

    def _send_login_request(self, request: Message, max_version: int | None = None) -> bytes:
        call = Call(
            request,
            node=None,
            lane=0,
            deadline=self.deadline,
            timeout_ms=self.setup_timeout_ms,
            max_version=max_version,
            purpose=INTERNAL,
        )
        call.address = self.address
        data = self._send(call)
        if call.error is not None:
            raise AuthenticationFailed(self.address, str(call.error))
        return data

    def _continue_login(self, message: bytes | None) -> bytes:
        """Send the next `message` of the SASL mechanism. If `message` is None, the login is complete."""
        assert self.login is not None
        if message is None:
            return self._on_ready()
        if self.login.uses_raw_frames:
            return frame(message)
        return self._send_login_request(self.login.wrap_message(message))

    def _match_response(self, body: bytes | bytearray) -> Call:
        """Decode a response, and return its call, the oldest one in flight."""
        if not self.in_flight:
            raise DecodeError(
                "ResponseHeader",
                -1,
                "correlation_id",
                0,
                "the broker sent a response, but no request is in flight",
            )
        expected, call = self.in_flight[0]
        if int.from_bytes(body[:4], "big", signed=True) != expected:
            detail = f"expected {expected}: responses must come in the order of the requests"
            raise DecodeError("ResponseHeader", -1, "correlation_id", 0, detail)
        key = call.message.__api_key__
        assert key is not None
        decode = decode_response_views if key == FETCH_KEY else decode_response
        _, call.response = decode(body, response_class(key), call.version)
        self.in_flight.popleft()
        return call

    def setup_failure(self) -> str:
        """Return the error message for a connection setup that timed out."""
        limit = f"within {self.setup_timeout_ms} ms"
        if self.wants_token:
            return f"the token provider has returned nothing {limit}"
        if self.is_open and self.login is not None and self.login.is_in_progress:
            return f"the broker did not answer the login of {self.login.user} {limit}"
        if self.is_open:
            return f"the broker did not respond {limit}"
        if self.state is ConnectionState.TLS_HANDSHAKE:
            return f"the TLS handshake did not complete {limit}; does this port speak TLS?"
        if self.dialer:
            return f"{self.dialer} has returned no connection {limit}"
        return f"the connection was not established {limit}"

    def remove_waiting(self, call: Call) -> None:
        """Remove a call that has not been sent yet."""
        self.waiting.remove(call)

    def fail_calls(
        self,
        why: str,
        decode_error: DecodeError | None = None,
        authentication_error: AuthenticationFailed | None = None,
    ) -> None:
        """Fail every call, because the connection has ended.

        `decode_error` is set if the response to the oldest call could not be decoded.
        """
        move(self, ConnectionState.CLOSED, EDGES)
        if decode_error is not None and self.in_flight:
            _, call = self.in_flight.popleft()
            if call.purpose is not INTERNAL:
                call.error = ConnectionFailed(self.address, why)
                call.error.__cause__ = decode_error
                self.finished.append(call)
        for call in (*(call for _, call in self.in_flight), *self.waiting):
            if call.purpose is not INTERNAL:
                call.error = authentication_error or ConnectionFailed(self.address, why)
                self.finished.append(call)
        self.in_flight.clear()
        self.waiting.clear()

    def expire_calls(self, now: int) -> bool:
        """Fail the calls that have timed out. Return True if the connection is now unusable.

        If one of the failed calls was sent, the connection is unusable, because the late response would
        arrive where the response to the next request is expected.
        """
        is_unusable = False
        for _, call in self.in_flight:
            if call.deadline <= now and not call.done:
                reasons = {self.address: "it did not respond"}
                call.error = RequestTimedOut(call.name, call.timeout_ms, f"asked {self.address}", reasons)
                is_unusable = True
        if is_unusable:
            self.finished.extend(
                call for _, call in self.in_flight if call.error is not None and call.purpose is not INTERNAL
            )
            self.in_flight = deque((number, call) for number, call in self.in_flight if call.error is None)
        expired = [call for call in self.waiting if call.deadline <= now]
        for call in expired:
            self.waiting.remove(call)
            detail, reason = f"no connection to {self.address} yet", "no connection yet"
            if self.is_throttled:
                reason = f"asks for {self.throttled_until - now} ms more (a quota)"
                detail = f"{self.address} {reason}"
            call.error = RequestTimedOut(call.name, call.timeout_ms, detail, {self.address: reason})
            self.finished.append(call)
        return is_unusable

    def add_deadlines(self, times: list[int]) -> None:
        """Add the deadlines of the calls, of the setup and of the throttling to `times`."""
        for _, call in self.in_flight:
            times.append(call.deadline)
        if self.waiting:
            times.extend(call.deadline for call in self.waiting)
            if self.is_throttled:
                times.append(self.throttled_until)
        if self.state is not READY and self.state is not CLOSED:
            times.append(self.deadline)
