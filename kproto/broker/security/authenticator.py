"""SASL authentication of one connection, as in Kafka's SaslServerAuthenticator.

Rules:

* Before the login is complete, a client may send one ApiVersions request, one SaslHandshake request, and then
  SaslAuthenticate requests. Any other request closes the connection.

* Between the handshake and the end of the login, an ApiVersions or SaslHandshake request is answered with
  ILLEGAL_SASL_STATE, and then the connection is closed.

* After SaslHandshake v0 (before KIP-152), the SASL messages have no request headers.

* The response to a failed login is sent after `connection.failed.authentication.delay.ms`, and the connection
  is closed. The delay limits how many passwords a client can try.

* A session expires after `connections.max.reauth.ms` or when its token expires, whichever comes first
  (KIP-368).

* To re-authenticate, a client sends another handshake. The handshake fails with ILLEGAL_SASL_STATE if the
  session cannot expire, or if the previous re-authentication began less than one second ago. The mechanism
  and the principal must stay the same.

* A re-authentication with a mechanism that is not enabled closes the connection immediately. With an enabled
  mechanism other than the session's, the handshake succeeds, but the next request closes the connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ...security.exchange import Accepted, Challenge, Rejected, SaslServer
from ...security.oauthbearer import OAuthBearerServer
from ...security.plain import PlainServer
from ...security.scram import HASHES, ScramServer, TokenCredential
from ..delegation_tokens import DelegationTokens
from .users import Users

API_VERSIONS: Final = 18
HANDSHAKE: Final = 17
AUTHENTICATE: Final = 36
ANONYMOUS: Final = "User:ANONYMOUS"
# The maximum size of a request before the login is complete: 512 KiB, Kafka's default of
# sasl.server.max.receive.size.
MAX_UNAUTHENTICATED_SIZE: Final = 524_288
# The minimum time between the handshakes of two re-authentications: KafkaChannel's
# MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS.
MIN_REAUTH_INTERVAL_MS: Final = 1_000


class SaslState(Enum):
    """The state of one login (Kafka's SaslServerAuthenticator.SaslState)."""

    # Before SaslHandshake.
    INITIAL = "initial"
    # SaslHandshake has selected the mechanism, and the broker expects the mechanism's messages.
    AUTHENTICATE = "authenticate"
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(slots=True)
class SaslAuthenticator:
    """The login of one connection on a listener with SASL, and the session that follows."""

    users: Users
    mechanisms: Sequence[str]
    max_reauth_ms: int
    delegation_tokens: DelegationTokens | None = None
    state: SaslState = SaslState.INITIAL
    # Whether the next frame is a SASL message without a request header.
    raw: bool = False
    principal: str = ANONYMOUS
    # Whether the client has authenticated with a delegation token.
    by_token: bool = False
    mechanism: str = ""
    # The time in ms at which the session expires; None without a limit.
    expires_at: int | None = None
    # The time in ms of the last handshake for a re-authentication; None if there was none.
    reauthenticated_at: int | None = None
    # The broker's half of the SASL exchange in progress.
    server: SaslServer | None = None
    versions_requested: bool = False
    # If the client began to re-authenticate with another mechanism: why its next request closes the
    # connection. Otherwise "".
    failure: str = ""
    # The wall-clock time in ms of the last SASL message.
    wall_clock: int = 0

    def rejection_reason(self, api_key: int, now: int) -> str | None:
        """Return the reason to close the connection instead of serving a request, or None to serve it."""
        if self.state is SaslState.COMPLETE:
            expired = self.expires_at is not None and now >= self.expires_at
            if expired and not (api_key == HANDSHAKE and self.is_handshake_allowed(now)):
                return f"the session of {self.principal} has expired without re-authentication"
            return None
        if self.state is SaslState.INITIAL and api_key == API_VERSIONS and self.versions_requested:
            return "a second ApiVersions request before the login"
        if self.state is SaslState.INITIAL and api_key in (API_VERSIONS, HANDSHAKE):
            return None
        if self.state is SaslState.AUTHENTICATE and api_key in (API_VERSIONS, HANDSHAKE, AUTHENTICATE):
            return None
        return self.failure or "a request before the client was authenticated"

    def is_handshake_allowed(self, now: int) -> bool:
        """Return whether the client may send a handshake: for its first login, or to re-authenticate."""
        if self.state is not SaslState.COMPLETE:
            return self.state is SaslState.INITIAL
        if self.expires_at is None:
            return False
        return self.reauthenticated_at is None or now - self.reauthenticated_at >= MIN_REAUTH_INTERVAL_MS

    def select_mechanism(self, mechanism: str, nonce: str, now: int, *, raw: bool) -> bool:
        """Start a login with this mechanism; return False if the mechanism is not enabled.

        A re-authentication must use the mechanism of the first login. For another enabled mechanism the
        result is also True, but the broker closes the connection at the next request. `raw` is true if the
        SASL messages have no request headers. `nonce` is the broker's part of the nonce of SCRAM.
        """
        if self.state is SaslState.COMPLETE:
            self.reauthenticated_at = now
        if mechanism not in self.mechanisms:
            self.state = SaslState.FAILED
            return False
        if self.mechanism not in ("", mechanism):
            self.state = SaslState.FAILED
            self.failure = f"re-authentication with {mechanism} of a session that began with {self.mechanism}"
            return True
        self.mechanism = mechanism
        self.raw = raw
        self.state = SaslState.AUTHENTICATE
        if mechanism in HASHES:
            self.server = ScramServer(
                mechanism,
                lambda name: self.users.credential(mechanism, name),
                nonce,
                lambda name: self.users.decoy(mechanism, name),
                renews=self.principal != ANONYMOUS,
                look_up_token=lambda token_id: self._token_credential(mechanism, token_id),
            )
        elif mechanism == "PLAIN":
            self.server = PlainServer(self.users.password)
        else:
            assert self.users.tokens is not None
            self.server = OAuthBearerServer(self.users.tokens)
        return True

    def authenticate(
        self, message: bytes, now: int, wall_clock_offset: int
    ) -> Challenge | Accepted | Rejected:
        """Pass a SASL message of the client to the mechanism, and return the mechanism's result.

        `wall_clock_offset` is the wall-clock time minus `now` in ms. It is needed to check whether a token
        has expired.
        """
        assert self.server is not None
        self.wall_clock = now + wall_clock_offset
        step = self.server.evaluate_response(message)
        if isinstance(step, Accepted):
            return self._complete_login(step, now, wall_clock_offset)
        if isinstance(step, Rejected):
            self.state = SaslState.FAILED
        return step

    def _token_credential(self, mechanism: str, token_id: str) -> TokenCredential | None:
        """Return the SCRAM credential of a delegation token; None if no valid token has this id."""
        tokens = self.delegation_tokens
        return None if tokens is None else tokens.login(mechanism, token_id, self.wall_clock)

    def session_lifetime_ms(self, now: int) -> int:
        """Return the remaining time of the session in ms; 0 means no limit."""
        return 0 if self.expires_at is None else max(0, self.expires_at - now)

    def _complete_login(self, step: Accepted, now: int, wall_clock_offset: int) -> Accepted | Rejected:
        """Start the session of the principal, or reject a re-authentication of another principal."""
        principal = f"User:{step.principal}"
        if self.principal not in (ANONYMOUS, principal):
            self.state = SaslState.FAILED
            # As in Kafka's message, a dot separates the type and the name of a principal.
            names = f"{self.principal}: {principal}".replace("User:", "User.")
            message = f"Cannot change principals during re-authentication from {names}"
            return Rejected(message, message)
        self.principal = principal
        self.by_token = step.by_token
        expirations = [] if step.until_ms is None else [step.until_ms - wall_clock_offset]
        if self.max_reauth_ms > 0:
            expirations.append(now + self.max_reauth_ms)
        self.expires_at = min(expirations, default=None)
        self.state = SaslState.COMPLETE
        self.server = None
        self.raw = False
        return step
