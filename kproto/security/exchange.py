"""The interface of SASL mechanisms: the client side, the broker side, and what the broker side returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

# Kafka's message for a client that requests an authorization id other than its username.
OTHER_AUTHZID: Final = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


class SaslFailed(Exception):
    """The client aborts the authentication. The message explains the reason to the user of the client.

    kproto's clients convert it to an `AuthenticationFailed`.
    """


class SaslClient(Protocol):
    """The client side of one authentication exchange."""

    mechanism: str

    def begin(self) -> bytes:
        """Return the first message to send."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """Return the response to a challenge, or None if the exchange is complete for the client.

        Raises SaslFailed if the challenge is invalid, or reports that the broker has rejected the login.
        """
        ...


@dataclass(frozen=True, slots=True)
class Challenge:
    """The exchange continues: the broker sends `data` and waits for the client's response."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Accepted:
    """The client is authenticated as `principal`.

    `data` is sent to the client. `until_ms` is when the credentials expire, in ms since 1970, or None for
    never. With `by_token`, the credentials are a delegation token.
    """

    principal: str
    data: bytes = b""
    until_ms: int | None = None
    by_token: bool = False


@dataclass(frozen=True, slots=True)
class Rejected:
    """The client is rejected. `message` is sent to the client, and `reason` is for the broker's log."""

    message: str
    reason: str


class SaslServer(Protocol):
    """The broker side of one authentication exchange."""

    mechanism: str

    def evaluate_response(self, response: bytes) -> Challenge | Accepted | Rejected:
        """Process a message of the client and return the result."""
        ...
