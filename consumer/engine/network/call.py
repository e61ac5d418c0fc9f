"""One request of a client: its target, deadline and outcome (Java's ClientRequest)."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final

import msgspec

from kproto.errors import AuthenticationFailed, DecodeError, EncodeError, KprotoError, UnsupportedVersion
from kproto.messages.index import API_NAMES
from kproto.wire.message import Message


class Prepared(msgspec.Struct):
    """A request whose version is not known yet. `build(version)` builds its message before it is sent."""

    message: type[Message]
    build: Callable[[int], Message]


class Outcome(Enum):
    """The outcome of a call. An immediate retry can succeed only after `NO_RESPONSE`."""

    ANSWERED = "answered"
    NO_RESPONSE = "no response"  # The connection broke, or the request timed out.

    # The request was not sent: no API version that both client and broker know can express it.
    NOT_SENT = "not sent"
    UNAUTHENTICATED = "unauthenticated"  # Authentication failed.
    UNREADABLE = "unreadable"  # The response cannot be decoded.


class Call:
    """One request: its target, its deadline and its outcome.

    `done` becomes true exactly once, when either `response` or `error` is set.

    `request` is the message that was sent. `purpose` is an object for the caller's use.

    A `one_way` call (Produce with acks=0) gets no response. It is done when its request is written, and its
    `response` is the request.
    """

    __slots__ = (
        "address",
        "awaits_versions",
        "created_at",
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
        created_at: int = 0,
    ) -> None:
        self.created_at = created_at  # When the call was requested (ms).
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
        # Whether the call waits for a second ApiVersions response, because the first one lists no usable
        # version for the call.
        self.awaits_versions = False
        # Address -> the error of the last attempt to send the request to this address.
        self.tried: dict[tuple[str, int], str] = {}
        self.response: Message | None = None
        self.error: KprotoError | None = None

    @property
    def done(self) -> bool:
        """Whether the call has ended, with a response or an error."""
        return self.response is not None or self.error is not None

    @property
    def outcome(self) -> Outcome:
        """How the call ended. Only valid if `done` is true."""
        if self.error is None:
            return Outcome.ANSWERED
        if isinstance(self.error, AuthenticationFailed):
            return Outcome.UNAUTHENTICATED
        if isinstance(self.error, (UnsupportedVersion, EncodeError)):
            return Outcome.NOT_SENT
        return Outcome.UNREADABLE if isinstance(self.error.__cause__, DecodeError) else Outcome.NO_RESPONSE

    @property
    def name(self) -> str:
        return api_name(self.message)

    def __repr__(self) -> str:
        state = "answered" if self.response is not None else f"failed: {self.error}" if self.error else "open"
        return f"<Call {self.name} to {self.address or self.node}: {state}>"


def api_name(message: type[Message]) -> str:
    """Return Kafka's name for the request: `JoinGroup` for JoinGroupRequest."""
    key = message.__api_key__
    return API_NAMES.get(key, message.__name__) if key is not None else message.__name__


# The `purpose` of a connection's own calls: ApiVersions and the SASL requests. The connection does not add
# them to its finished calls.
INTERNAL: Final = object()
