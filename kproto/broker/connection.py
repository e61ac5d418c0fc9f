"""The state of one client connection in the broker's machine."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from uuid import UUID

from .call import Call
from .security.authenticator import ANONYMOUS, SaslAuthenticator


@dataclass(slots=True)
class Connection:
    """One client connection, with the requests that it has sent and that are not served yet."""

    conn: int
    host: str
    # Each request with the random id that came with it.
    request_queue: deque[tuple[bytes, UUID]] = field(default_factory=deque[tuple[bytes, UUID]])
    queued_bytes: int = 0
    # The request that is being served.
    current_call: Call | None = None
    # Its response was returned as an action, and `ResponseSent` has not arrived yet.
    response_in_flight: bool = False
    unsent_bytes: int = 0
    # A call whose response could not be encoded; it is refused next.
    oversized_call: Call | None = None
    listener: str = "PLAINTEXT"
    certificate_principal: str = ANONYMOUS
    # None on a listener without SASL.
    authenticator: SaslAuthenticator | None = None

    @property
    def principal(self) -> str:
        """The principal of the client: by SASL, or else by its certificate."""
        return self.certificate_principal if self.authenticator is None else self.authenticator.principal
