"""A request that a handler executes, and the results that a handler returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar, cast
from uuid import UUID

import msgspec

from ..error_codes import ErrorCode
from ..messages.headers import Envelope
from ..wire.message import Message, Struct
from .fetch_sessions import FetchSession
from .topics import Partition

M = TypeVar("M", bound=Struct)
# Builds the response that rejects a whole request, from the request, the error and the version.
Refuse = Callable[[Any, ErrorCode, int], Message]


@dataclass(frozen=True, slots=True)
class Node:
    """One broker of the cluster: its default address, its addresses per listener, and its `broker.rack`."""

    id: int
    host: str
    port: int
    listener_addresses: Mapping[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    rack: str | None = None

    def address(self, listener: str) -> tuple[str, int]:
        """Return the address of this node for clients that are connected to `listener`."""
        return self.listener_addresses.get(listener, (self.host, self.port))


def replace_fields(message: M, **fields: Any) -> M:
    """Return a shallow copy of a message or struct, with the fields in `fields` replaced."""
    return cast("M", msgspec.structs.replace(cast("Any", message), **fields))


class Call(msgspec.Struct, frozen=True):
    """One request that is being served.

    `conn` and `host` are the number of the client's connection and the client's address. `random_id` is
    unique per request. `now` is the time in ms at which execution of the request began.
    """

    conn: int
    host: str
    envelope: Envelope
    random_id: UUID
    now: int
    refuse_request: Refuse
    principal: str = "User:ANONYMOUS"
    listener: str = "PLAINTEXT"
    # Whether the caller has authenticated with a delegation token.
    by_token: bool = False
    # A function that changes the response to this request before it is encoded.
    amend_response: Callable[[Message], Message] | None = None
    # The error that `Server.fail` injects: the request is rejected with it and not executed.
    injected_error: ErrorCode | None = None

    @property
    def request(self) -> Message:
        """The decoded request."""
        return self.envelope.request

    @property
    def version(self) -> int:
        """The API version of the request and of its response."""
        return self.envelope.version

    @property
    def api_key(self) -> int:
        """The API key of the request."""
        return self.envelope.header.request_api_key

    def refuse(self, error: ErrorCode) -> Message:
        """Return the response that rejects the whole request with `error`."""
        return self.refuse_request(self.request, error, self.version)

    def with_fields(self, **fields: Any) -> Call:
        """Return a copy of this call, with the given fields of its request replaced."""
        request = replace_fields(self.request, **fields)
        envelope = Envelope(self.envelope.header, self.envelope.header_version, request, self.version)
        return msgspec.structs.replace(self, envelope=envelope)


class CloseWithoutResponse(NamedTuple):
    """Close the connection without a response; `reason` is for the log."""

    reason: str


class RespondThenClose(NamedTuple):
    """Send the response at time `at` (ms), then close the connection; `reason` is for the log."""

    response: Message
    reason: str
    at: int


class _DelayedResult(Enum):
    PARKED = "parked"


# The handler responds later, with `Broker.respond`.
PARKED: Final = _DelayedResult.PARKED

# None means that the request has no response (Produce with acks=0).
Result = Message | RespondThenClose | CloseWithoutResponse | Literal[_DelayedResult.PARKED] | None


class DelayedRequest(Protocol):
    """A request that waits in the purgatory for a change of a partition, at most until `deadline` (ms)."""

    call: Call
    deadline: int
    waits_for: set[Partition | FetchSession]

    def try_complete(self, *, force: bool = False) -> Message | None:
        """Return the response if the request can be completed now or `force` is set, else None.

        `try_complete` may replace the elements of `waits_for`.
        """
        ...
