"""SASL on one connection: which messages go out before the first request, and again before the session ends.

Rules that hold here:

* The broker says which mechanisms it has (SaslHandshake), then the mechanism's own messages travel in
  SaslAuthenticate; before Kafka 1.0 they were frames without a header, and to such a broker they are.
* A refusal is final, and is told by name with what helps; whether a broker is down is another question.
* A session that ends (KIP-368) is renewed on the same connection when 85 to 95 % of it are over, as in Java:
  what was asked before is answered before, what is asked meanwhile waits. A broker renews none twice within a
  second, and isn't asked to. One that finds it too soon all the same refuses nobody: another connection
  begins another session.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from random import Random
from typing import TYPE_CHECKING

from kproto.error_codes import ErrorCode, describe
from kproto.errors import AuthenticationFailed, ConnectionFailed
from kproto.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kproto.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kproto.security.exchange import SaslClient, SaslFailed
from kproto.wire.message import Message

if TYPE_CHECKING:
    from ...security import Security, Token

HANDSHAKE, AUTHENTICATE = 17, 36

# Characters of what a broker says that are told.
_MOST_SAID = 300

# What Kafka says of SCRAM is no news; and of a renewal it says it in other words, which would be told again.
_NOTHING_NEW = re.compile("Authentication failed during (re-)?authentication due to invalid credentials ")

# Sessions that are shorter, in ms, are nobody's wish; a broker renews none twice within that time either.
_SHORT = 1_000

# ReauthenticationLatency: between these parts of the session Java renews it.
RENEW_FROM, RENEW_SPREAD = 0.85, 0.10


class _At(Enum):
    nowhere = "nowhere"
    handshake = "handshake"
    exchange = "exchange"
    done = "done"


class Login:
    """One connection's login: `begin` and `answered` return the next request, None when it is over."""

    def __init__(self, security: Security, address: str) -> None:
        self._security = security
        self._address = address
        self._at = _At.nowhere
        self._exchange: SaslClient | None = None
        self._last: bytes | None = None  # what we have to say when the broker's next answer is there
        # Frames instead of SaslAuthenticate, to a broker that doesn't know it.
        self.raw = False
        self.session_ms = 0
        self._let_in = False

    @property
    def done(self) -> bool:
        return self._at is _At.done

    @property
    def begun(self) -> bool:
        """It is under way."""
        return self._at in (_At.handshake, _At.exchange)

    @property
    def who(self) -> str:
        """Whom errors name."""
        return self._security.user

    @property
    def needs_token(self) -> bool:
        return self._security.tokens is not None

    def begin(self, versions: Mapping[int, tuple[int, int]], token: Token | None) -> Message:
        """The handshake; raises AuthenticationFailed where the broker knows no SASL at all."""
        if HANDSHAKE not in versions:
            raise self._refused("this listener knows no SASL; is security_protocol right?")
        self.raw = AUTHENTICATE not in versions or versions[HANDSHAKE][1] < 1
        self._exchange = self._security.exchange(token)
        self._at = _At.handshake
        return SaslHandshakeRequest(mechanism=self._exchange.mechanism)

    def most(self, message: Message) -> int | None:
        """The highest version to use: raw frames belong to version 0 of the handshake."""
        return 0 if self.raw and isinstance(message, SaslHandshakeRequest) else None

    def message(self, data: bytes) -> Message:
        """A message of the mechanism as a request."""
        return SaslAuthenticateRequest(auth_bytes=data)

    def answered(self, response: Message) -> bytes | None:
        """Takes an answer in; returns what to send on, None when the broker has accepted us.

        Raises AuthenticationFailed, and ConnectionFailed where only another connection helps.
        """
        if isinstance(response, SaslHandshakeResponse):
            return self._shaken(response)
        assert isinstance(response, SaslAuthenticateResponse)
        if response.error_code:
            raise self._refused(self._why(response))
        after = self._next(bytes(response.auth_bytes))
        if after is None:
            self.session_ms = response.session_lifetime_ms
        return after

    def answered_raw(self, body: bytes) -> bytes | None:
        """Takes a frame without a header in."""
        return self._next(body)

    def renew_after(self, random: Random) -> int:
        """In how many ms the session is to be renewed; 0 for one that doesn't end."""
        if self.session_ms <= 0:
            return 0
        return max(_SHORT, int(self.session_ms * (RENEW_FROM + RENEW_SPREAD * random.random())))

    def broken(self, heard: bool) -> str:
        """Why a broker may have closed the connection here; `heard`: after it answered something else."""
        who, token = self._security.user, self.needs_token
        if self._let_in and 0 < self.session_ms < _SHORT:
            cure = "does it run out by the broker's clock?" if token else "see connections.max.reauth.ms"
            return f"the broker let {who} in for {self.session_ms} ms only, and closed the connection: {cure}"
        if heard or self._at is _At.nowhere:
            return ""
        if self._at is _At.done:
            cure = "has it run out by the broker's clock?" if token else "its log says why"
            return f"the broker let {who} in, and closed the connection on the first request: {cure}"
        cure = "wrong password?" if self.raw else "its log says why"
        return f"the broker closed the connection on the login of {who}: {cure}"

    def _shaken(self, response: SaslHandshakeResponse) -> bytes:
        assert self._exchange is not None
        if response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            there = _one_line(", ".join(sorted(response.mechanisms))) or "none"
            mechanism = self._exchange.mechanism
            raise self._refused(f"sasl_mechanism {mechanism} is not offered here; there are: {there}")
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE and self._let_in:
            raise ConnectionFailed(self._address, "the broker renews no session twice within a second")
        if response.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise self._refused(
                "this listener wants no SASL: security_protocol must be PLAINTEXT (or SSL where it has TLS)"
            )
        if response.error_code:
            raise self._refused(f"the handshake was answered with {describe(response.error_code)}")
        self._at = _At.exchange
        return self._exchange.begin()

    def _next(self, challenge: bytes) -> bytes | None:
        assert self._exchange is not None
        try:
            after = self._exchange.answer(challenge)
        except SaslFailed as error:
            raise self._refused(_one_line(self._security.without_secrets(str(error)))) from None
        if after is None:
            self._at = _At.done
            self._let_in = True
            self._exchange = None
        return after

    def _why(self, response: SaslAuthenticateResponse) -> str:
        who = f"{self._security.user} with {self._security.mechanism}"
        said = response.error_message or describe(response.error_code)
        words = _one_line(self._security.without_secrets(said))
        if response.error_code != ErrorCode.SASL_AUTHENTICATION_FAILED:
            return f"{who}: {words}"
        said = "" if _NOTHING_NEW.match(words) else f" ({words})"
        return f"the broker refuses {who}{said}: {self._security.doubt()}"

    def _refused(self, why: str) -> AuthenticationFailed:
        return AuthenticationFailed(self._address, why)


def _one_line(words: str) -> str:
    """What a broker says, as long as an error may be: who isn't one may say anything."""
    line = " ".join("".join(one if one.isprintable() else " " for one in words[: 4 * _MOST_SAID]).split())
    return line if len(line) <= _MOST_SAID else f"{line[:_MOST_SAID]}..."
