"""What all mechanisms have in common: the two halves' faces, and how an exchange ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

# What a broker tells who names one and proves to be another.
OTHER_ID: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


class SaslFailed(Exception):
    """The client gives the exchange up; the text is for its user. Never leaves the clients as it is."""


class SaslClient(Protocol):
    """A client's half of one exchange."""

    mechanism: str

    def begin(self) -> bytes:
        """The first message."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """What to say to a challenge; None when the exchange is over, for us. Raises SaslFailed."""
        ...


@dataclass(frozen=True, slots=True)
class Challenge:
    """Go on: send these bytes and wait for the client's answer."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Accepted:
    """The client is who it says. `data` goes to it; `until_ms` (since 1970) is when its credentials end."""

    principal: str
    data: bytes = b""
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """The client is refused: `told` is what it hears, `why` is for the broker's log."""

    told: str
    why: str


class SaslServer(Protocol):
    """A broker's half of one exchange."""

    mechanism: str

    def take(self, response: bytes) -> Challenge | Accepted | Refused:
        """What to do about a client's message."""
        ...
