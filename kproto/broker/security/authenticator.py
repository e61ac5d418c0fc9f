"""SASL on one of a broker's connections, as Kafka's SaslServerAuthenticator.

Rules that hold here:

* Before somebody is let in, only ApiVersions, SaslHandshake and, behind that, SaslAuthenticate are served;
  anything else closes the connection, and so does who asks for the versions again. ApiVersions and
  SaslHandshake in the middle of a login are told ILLEGAL_SASL_STATE before.
* SaslHandshake v0 is followed by frames without a header (before KIP-152).
* Who is refused is told so after `connection.failed.authentication.delay.ms`, and the connection is closed: a
  guess costs time, and no timer of ours grows with the guesses, as one connection has one.
* With `connections.max.reauth.ms` a session ends (KIP-368), and with the token whatever that says: another
  handshake begins a new one, of the same mechanism and for the same principal; anything else closes: at once
  for a mechanism that there is not, behind an answer without an error for one that is not the session's.
  Nobody renews twice within a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from ...security.exchange import Accepted, Challenge, Rejected, SaslServer
from ...security.oauthbearer import OAuthBearerServer
from ...security.plain import PlainServer
from ...security.scram import HASHES, ScramServer
from .users import Users

API_VERSIONS: Final = 18
HANDSHAKE: Final = 17
AUTHENTICATE: Final = 36
ANONYMOUS: Final = "User:ANONYMOUS"
# sasl.server.max.receive.size: the largest message of a client that nobody knows yet.
MOST_OUTSIDE: Final = 524_288
# KafkaChannel's MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS: from one renewal's handshake to the next one's.
RENEWAL_INTERVAL_MS: Final = 1_000


class SaslState(Enum):
    """State of one login (SaslServerAuthenticator.SaslState)."""

    INITIAL = "initial"  # no handshake yet
    AUTHENTICATE = "authenticate"  # the mechanism is agreed, its messages follow
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(slots=True)
class SaslAuthenticator:
    """One connection's login, on a listener that wants SASL."""

    users: Users
    mechanisms: Sequence[str]
    max_reauth_ms: int
    state: SaslState = SaslState.INITIAL
    raw: bool = False
    principal: str = ANONYMOUS
    mechanism: str = ""
    expires_at: int | None = None  # when the session ends
    reauthenticated_at: int | None = None  # when it was last begun anew
    server: SaslServer | None = None
    versions_requested: bool = False
    refusal: str = ""  # why nothing more is served

    def rejection_reason(self, api_key: int, now: int) -> str | None:
        """Why a request closes the connection; None when it is served."""
        if self.state is SaslState.COMPLETE:
            ended = self.expires_at is not None and now >= self.expires_at
            if ended and not (api_key == HANDSHAKE and self.is_handshake_allowed(now)):
                return f"the session of {self.principal} has ended, and was not renewed"
            return None
        if self.state is SaslState.INITIAL and api_key == API_VERSIONS and self.versions_requested:
            return "a client that asks for the versions twice before it logs in"
        if self.state is SaslState.INITIAL and api_key in (API_VERSIONS, HANDSHAKE):
            return None
        if self.state is SaslState.AUTHENTICATE and api_key in (API_VERSIONS, HANDSHAKE, AUTHENTICATE):
            return None
        return self.refusal or "a request before the client was authenticated"

    def is_handshake_allowed(self, now: int) -> bool:
        """May a handshake begin now? Inside only where sessions end, and not at once again."""
        if self.state is not SaslState.COMPLETE:
            return self.state is SaslState.INITIAL
        if self.expires_at is None:
            return False
        return self.reauthenticated_at is None or now - self.reauthenticated_at >= RENEWAL_INTERVAL_MS

    def select_mechanism(self, mechanism: str, nonce: str, now: int, *, raw: bool) -> bool:
        """The client wants this mechanism; False where there is none such."""
        if self.state is SaslState.COMPLETE:
            self.reauthenticated_at = now
        if mechanism not in self.mechanisms:
            self.state = SaslState.FAILED
            return False
        if self.mechanism not in ("", mechanism):
            self.state = SaslState.FAILED
            self.refusal = f"{mechanism} for a session that {self.mechanism} began"
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
            )
        elif mechanism == "PLAIN":
            self.server = PlainServer(self.users.password)
        else:
            assert self.users.tokens is not None
            self.server = OAuthBearerServer(self.users.tokens)
        return True

    def authenticate(self, response: bytes, now: int, ahead: int) -> Challenge | Accepted | Rejected:
        """What becomes of a message of the mechanism. `ahead`: the time of day, which tokens speak of, is so
        far ahead of `now`.
        """
        assert self.server is not None
        step = self.server.evaluate_response(response)
        if isinstance(step, Accepted):
            return self._complete(step, now, ahead)
        if isinstance(step, Rejected):
            self.state = SaslState.FAILED
        return step

    def session_lifetime_ms(self, now: int) -> int:
        """How long the session lasts from now on; 0 for ever."""
        return 0 if self.expires_at is None else max(0, self.expires_at - now)

    def _complete(self, step: Accepted, now: int, ahead: int) -> Accepted | Rejected:
        principal = f"User:{step.principal}"
        if self.principal not in (ANONYMOUS, principal):
            self.state = SaslState.FAILED
            names = f"{self.principal}: {principal}".replace("User:", "User.")
            told = f"Cannot change principals during re-authentication from {names}"
            return Rejected(told, told)
        self.principal = principal
        ends = [] if step.until_ms is None else [step.until_ms - ahead]
        if self.max_reauth_ms > 0:
            ends.append(now + self.max_reauth_ms)
        self.expires_at = min(ends, default=None)
        self.state = SaslState.COMPLETE
        self.server = None
        self.raw = False
        return step
