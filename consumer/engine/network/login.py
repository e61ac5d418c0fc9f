"""The SASL login of one connection, before the first request and again before the session expires.

Rules:

* The broker first lists its mechanisms (SaslHandshake). The messages of the chosen mechanism are then sent in
  SaslAuthenticate.

* Brokers before Kafka 1.0 expect each message as a frame without a header.

* A rejected login is not retried. It raises AuthenticationFailed, whose message says what to change.

* A session with a limited lifetime (KIP-368) is renewed on the same connection after 85 to 95 % of this
  lifetime, as in Java.

* Other requests (calls) wait while the session is renewed.

* The client waits at least one second between renewals, because brokers reject earlier renewals.

* If the broker rejects a renewal as too early nevertheless, the client starts a new session on a new
  connection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from kproto.error_codes import ErrorCode, describe
from kproto.errors import AuthenticationFailed, ConnectionFailed
from kproto.machine import Edges, move
from kproto.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kproto.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kproto.security.exchange import SaslClient, SaslFailed
from kproto.wire.message import Message

if TYPE_CHECKING:
    from ...security.kerberos import KerberosLogin
    from ...security.options import Security
    from ...security.tokens import Token

# API keys.
HANDSHAKE, AUTHENTICATE = 17, 36

# Maximum number of characters of a broker's error message that this client's error repeats.
_MAX_MESSAGE_CHARS = 300

# Kafka's message for wrong credentials. It is omitted, because the client's error already says the same.
_INVALID_CREDENTIALS = re.compile(
    "Authentication failed during (re-)?authentication due to invalid credentials "
)

# Minimum time (ms) between two renewals of a session. A broker rejects an earlier renewal.
_MIN_RENEWAL_MS = 1_000

# A session is renewed after a random fraction of its lifetime: RENEW_FROM, plus at most RENEW_SPREAD (Java's
# ReauthenticationLatency).
RENEW_FROM, RENEW_SPREAD = 0.85, 0.10


class LoginState(Enum):
    """The phase of a connection's login (Java's SaslClientAuthenticator.SaslState)."""

    NOT_STARTED = "not started"
    HANDSHAKE = "handshake"
    EXCHANGE = "exchange"
    DONE = "done"


EDGES: Edges[LoginState] = {
    LoginState.NOT_STARTED: frozenset({LoginState.HANDSHAKE}),
    # If the connection breaks before the first response, the login starts again at the host's next address.
    LoginState.HANDSHAKE: frozenset({LoginState.HANDSHAKE, LoginState.EXCHANGE}),
    LoginState.EXCHANGE: frozenset({LoginState.HANDSHAKE, LoginState.DONE}),
    # The session is renewed.
    LoginState.DONE: frozenset({LoginState.HANDSHAKE}),
}


class Login:
    """The SASL login of one connection.

    `begin` and `on_response` return the next request or message to send; None means that the login is
    complete.
    """

    def __init__(self, security: Security, address: str) -> None:
        self._security = security
        self._address = address
        self.state = LoginState.NOT_STARTED
        self._exchange: SaslClient | None = None
        # Whether the broker expects frames without a header instead of SaslAuthenticate (before Kafka 1.0).
        self.uses_raw_frames = False
        self.session_ms = 0
        self._authenticated = False

    @property
    def is_complete(self) -> bool:
        """Whether the broker has accepted the login."""
        return self.state is LoginState.DONE

    @property
    def is_in_progress(self) -> bool:
        """Whether the login has begun and is not complete."""
        return self.state in (LoginState.HANDSHAKE, LoginState.EXCHANGE)

    @property
    def user(self) -> str:
        """The user name for error messages."""
        return self._security.user

    @property
    def needs_token(self) -> bool:
        return self._security.needs_token

    def begin(self, versions: Mapping[int, tuple[int, int]], token: Token | KerberosLogin | None) -> Message:
        """Return the SaslHandshake request. Raises AuthenticationFailed if the listener does not use SASL."""
        if HANDSHAKE not in versions:
            raise self._rejection("this listener does not use SASL; check security_protocol")
        self.uses_raw_frames = AUTHENTICATE not in versions or versions[HANDSHAKE][1] < 1
        self._exchange = self._security.exchange(token)
        move(self, LoginState.HANDSHAKE, EDGES)
        return SaslHandshakeRequest(mechanism=self._exchange.mechanism)

    def max_version(self, message: Message) -> int | None:
        """Return the highest allowed version of a login request; None for no limit.

        If the SASL messages are sent as frames without a request header, SaslHandshake must have version 0.
        """
        return 0 if self.uses_raw_frames and isinstance(message, SaslHandshakeRequest) else None

    def wrap_message(self, data: bytes) -> Message:
        """Wrap a message of the SASL mechanism in a SaslAuthenticate request."""
        return SaslAuthenticateRequest(auth_bytes=data)

    def on_response(self, response: Message) -> bytes | None:
        """Handle a response. Return the next message, or None if the broker has accepted the login.

        Raises AuthenticationFailed if the broker rejected the login, or ConnectionFailed if a login on a new
        connection may succeed.
        """
        if isinstance(response, SaslHandshakeResponse):
            return self._on_handshake(response)
        assert isinstance(response, SaslAuthenticateResponse)
        if response.error_code:
            raise self._rejection(self._rejection_reason(response))
        next_message = self._on_message(bytes(response.auth_bytes))
        if next_message is None:
            self.session_ms = response.session_lifetime_ms
        return next_message

    def on_raw_frame(self, body: bytes) -> bytes | None:
        """Handle a frame without a header, as sent by brokers before Kafka 1.0.

        Return the next message, or None if the exchange is complete.
        """
        return self._on_message(body)

    def renew_after(self, random: Random) -> int:
        """Return how long (ms) to wait before the session is renewed; 0 if the session does not expire."""
        if self.session_ms <= 0:
            return 0
        return max(_MIN_RENEWAL_MS, int(self.session_ms * (RENEW_FROM + RENEW_SPREAD * random.random())))

    def close_reason(self, has_responded: bool) -> str:
        """Return why the broker may have closed the connection during the login, or "" if that is unknown.

        `has_responded` says whether the broker has responded to a call after the login.
        """
        user, uses_token = self._security.user, self.needs_token
        if self._authenticated and 0 < self.session_ms < _MIN_RENEWAL_MS:
            hint = "does it run out by the broker's clock?" if uses_token else "see connections.max.reauth.ms"
            accepted = f"the broker accepted the login of {user} for {self.session_ms} ms only"
            return f"{accepted}, and closed the connection: {hint}"
        if has_responded or self.state is LoginState.NOT_STARTED:
            return ""
        if self.state is LoginState.DONE:
            hint = "has it run out by the broker's clock?" if uses_token else "its log says why"
            accepted = f"the broker accepted the login of {user}"
            return f"{accepted}, and closed the connection on the first request: {hint}"
        hint = "wrong password?" if self.uses_raw_frames else "its log says why"
        return f"the broker closed the connection on the login of {user}: {hint}"

    def _on_handshake(self, response: SaslHandshakeResponse) -> bytes:
        """Handle the SaslHandshake response, and return the mechanism's first message."""
        assert self._exchange is not None
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            enabled = _printable_line(", ".join(sorted(response.mechanisms))) or "none"
            mechanism = self._exchange.mechanism
            raise self._rejection(
                f"sasl_mechanism {mechanism} is not enabled on this listener; enabled: {enabled}"
            )
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE and self._authenticated:
            raise ConnectionFailed(
                self._address,
                "the broker rejected the renewal of the SASL session: it allows only one renewal per second",
            )
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise self._rejection(
                "this listener does not use SASL: set security_protocol to PLAINTEXT (or SSL if it has TLS)"
            )
        if response.error_code:
            raise self._rejection(f"the broker answered SaslHandshake with {describe(response.error_code)}")
        move(self, LoginState.EXCHANGE, EDGES)
        return self._exchange.begin()

    def _on_message(self, challenge: bytes) -> bytes | None:
        """Return the mechanism's reply to a broker's message, or None if the exchange is complete.

        Raises AuthenticationFailed if the mechanism rejects the broker's message.
        """
        assert self._exchange is not None
        try:
            next_message = self._exchange.answer(challenge)
        except SaslFailed as error:
            raise self._rejection(_printable_line(self._security.without_secrets(str(error)))) from None
        if next_message is None:
            move(self, LoginState.DONE, EDGES)
            self._authenticated = True
            self._exchange = None
        return next_message

    def _rejection_reason(self, response: SaslAuthenticateResponse) -> str:
        """Return the error message for a SaslAuthenticate response with an error code."""
        login = f"{self._security.user} with {self._security.mechanism}"
        broker_text = response.error_message or describe(response.error_code)
        message = _printable_line(self._security.without_secrets(broker_text))
        if response.error_code != ErrorCode.SASL_AUTHENTICATION_FAILED:
            return f"{login}: {message}"
        detail = "" if _INVALID_CREDENTIALS.match(message) else f" ({message})"
        return f"the broker rejects {login}{detail}: {self._security.likely_cause()}"

    def _rejection(self, why: str) -> AuthenticationFailed:
        return AuthenticationFailed(self._address, why)


def _printable_line(text: str) -> str:
    """Return a broker's text as one printable line of limited length.

    The text is not trusted, because the broker may not be authenticated yet.
    """
    start = text[: 4 * _MAX_MESSAGE_CHARS]
    printable = "".join(char if char.isprintable() else " " for char in start)
    line = " ".join(printable.split())
    return line if len(line) <= _MAX_MESSAGE_CHARS else f"{line[:_MAX_MESSAGE_CHARS]}..."
