"""A request on its way to the handler of its API, and what a handler gives back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, NamedTuple, Protocol
from uuid import UUID

from ..messages.headers import Envelope
from ..wire.message import Message
from .topics import Partition


@dataclass(frozen=True, slots=True)
class Node:
    """The one broker of the cluster, as clients find it."""

    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Call:
    """One request. `random_id` is random and its own; `now` is when its turn came."""

    conn: int
    host: str
    envelope: Envelope
    random_id: UUID
    now: int

    @property
    def version(self) -> int:
        return self.envelope.version


class Closing(NamedTuple):
    """The answer is a closed connection; `reason` is for the log."""

    reason: str


class _Later(Enum):
    PARKED = "parked"


PARKED: Final = _Later.PARKED
"""The answer comes later, by `Broker.answer`."""

# A response; a closed connection; an answer that comes later; or None, when the request wants no answer.
Result = Message | Closing | Literal[_Later.PARKED] | None


class Parked(Protocol):
    """A request that waits: answered when a change in its `partitions` allows it, or at `deadline` (ms)."""

    call: Call
    deadline: int
    partitions: set[Partition]

    def answer(self, *, at_once: bool = False) -> Message | None:
        """The answer, if there is one now, or if it has to go out `at_once`."""
        ...
