"""A request on its way to the handler of its API, and what a handler gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Literal, NamedTuple, Protocol
from uuid import UUID

from ..error_codes import ErrorCode
from ..messages.headers import Envelope
from ..wire.message import Message
from .fetch_sessions import FetchSession
from .topics import Partition


@dataclass(frozen=True, slots=True)
class Node:
    """One broker of the cluster, as clients find it: at `places`, by listener, else at `host`:`port`."""

    id: int
    host: str
    port: int
    places: Mapping[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])

    def at(self, listener: str) -> tuple[str, int]:
        """Where a client finds it who came by this listener."""
        return self.places.get(listener, (self.host, self.port))


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `random_id` is random and its own; `now` is when its turn came."""

    conn: int
    host: str
    envelope: Envelope
    random_id: UUID
    now: int
    principal: str = "User:ANONYMOUS"
    listener: str = "PLAINTEXT"
    # What is done to the answer before it goes out.
    amend_response: Callable[[Message], Message] | None = None
    # The operator wants it to fail: nothing of it is done, and this is what it hears.
    injected_error: ErrorCode | None = None

    @property
    def version(self) -> int:
        return self.envelope.version


class CloseConnection(NamedTuple):
    """The answer is a closed connection; `reason` is for the log."""

    reason: str


class RespondThenClose(NamedTuple):
    """The answer at `at` (ms), and then a closed connection; `reason` is for the log."""

    response: Message
    reason: str
    at: int


class _Later(Enum):
    PARKED = "parked"


PARKED: Final = _Later.PARKED
"""The answer comes later, by `Broker.answer`."""

# A response; one that is the last; a closed connection; an answer that comes later; or None, when the request
# wants no answer.
Result = Message | RespondThenClose | CloseConnection | Literal[_Later.PARKED] | None


class DelayedRequest(Protocol):
    """A request that waits: answered when a change in what it waits for allows it, or at `deadline` (ms)."""

    call: Call
    deadline: int
    waits_for: set[Partition | FetchSession]

    def try_complete(self, *, force: bool = False) -> Message | None:
        """The answer, if there is one now, or if it has to go out `force` is set."""
        ...
