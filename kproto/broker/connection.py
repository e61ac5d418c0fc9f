"""The state of one client connection in the broker's state machine."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from uuid import UUID

from .call import Call
from .large_request import LargeRequest
from .security.authenticator import ANONYMOUS, SaslAuthenticator


@dataclass(slots=True)
class Connection:
    """One client connection, with its unanswered requests."""

    conn: int
    host: str
    # The received requests, each with the `random_id` of its `FrameReceived`.
    request_queue: deque[tuple[bytes, UUID]] = field(default_factory=deque[tuple[bytes, UUID]])
    queued_bytes: int = 0
    # The request that is being served.
    current_call: Call | None = None
    # Whether a response was returned as a `SendFrame` whose `ResponseSent` has not arrived yet.
    response_in_flight: bool = False
    unsent_bytes: int = 0
    # A call whose response was too long to encode; an error response is sent next.
    oversized_call: Call | None = None
    # The large request that is being served in pieces.
    large_request: LargeRequest | None = None
    listener: str = "PLAINTEXT"
    certificate_principal: str = ANONYMOUS
    port: int = 0
    # The client library, from ApiVersions.
    software_name: str = "unknown"
    software_version: str = "unknown"
    # The SASL state of the connection; None on a listener without SASL.
    authenticator: SaslAuthenticator | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a request is being served."""
        return self.current_call is not None or self.large_request is not None

    @property
    def principal(self) -> str:
        """The client's principal: from SASL, or from the certificate on listeners without SASL."""
        return self.certificate_principal if self.authenticator is None else self.authenticator.principal

    @property
    def by_token(self) -> bool:
        """Whether the client has authenticated with a delegation token."""
        return self.authenticator is not None and self.authenticator.by_token
