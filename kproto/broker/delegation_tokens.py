"""Delegation tokens (KIP-48): credentials that an authenticated client creates, for itself or another owner.

Rules, as in Kafka's DelegationTokenControlManager and DelegationTokenCache:

* Without `delegation.token.secret.key`, every request fails with DELEGATION_TOKEN_AUTH_DISABLED.

* The HMAC of a token is derived from the token's id with the secret key, and identifies the token in
  requests. For a login with SCRAM, the token's id is the user name, and the HMAC in base64 is the password.
  The client also sends the SCRAM extension tokenauth=true.

* A token expires `delegation.token.expiry.time.ms` after its creation or last renewal, and at the latest
  `delegation.token.max.lifetime.ms` after its creation. A create request may set a shorter lifetime, and a
  renew request an earlier expiration.

* The owner and the renewers of a token may renew, expire and describe it. The requester may only describe it.

* When a request arrives, expired tokens are removed, at most once per
  `delegation.token.expiry.check.interval.ms`.

* Until its removal, an expired token can still be described, but its renewal fails with
  DELEGATION_TOKEN_EXPIRED. A login with an expired token always fails.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from ..error_codes import ErrorCode
from ..security.scram import LEAST_ITERATIONS, TokenCredential, credential, salted
from .settings import Settings


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token (Kafka's TokenInformation). Principals have the form TYPE:NAME, and times are ms since 1970."""

    token_id: str
    hmac: bytes = field(repr=False)
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued_at: int
    expires_at: int  # Renew and expire requests change this time, at most to `ends_at`.
    ends_at: int

    def is_expired(self, now: int) -> bool:
        """Return whether the token has expired."""
        return self.ends_at < now or self.expires_at < now

    def has_right(self, principal: str) -> bool:
        """Return whether a principal may describe the token (as its owner, requester or renewer)."""
        return principal in (self.owner, self.requester, *self.renewers)


class DelegationTokens:
    """The tokens of a cluster. `now` is always the wall-clock time in ms since 1970."""

    def __init__(self, settings: Settings) -> None:
        self._secret = settings.delegation_token_secret_key.encode()
        self._max_lifetime_ms = settings.delegation_token_max_lifetime_ms
        self._renewal_ms = settings.delegation_token_expiry_time_ms
        self._check_interval_ms = settings.delegation_token_expiry_check_interval_ms
        self._tokens: dict[str, DelegationToken] = {}
        self._next_check_at = 0

    @property
    def is_enabled(self) -> bool:
        """Whether token requests are accepted, that is, whether `delegation.token.secret.key` is set."""
        return bool(self._secret)

    def create(
        self, token_id: str, owner: str, requester: str, renewers: Collection[str], lifetime_ms: int, now: int
    ) -> DelegationToken:
        """Create a token. A `lifetime_ms` of 0 or less means the maximum."""
        self._remove_expired(now)
        ends_at = now + (
            min(self._max_lifetime_ms, lifetime_ms) if lifetime_ms > 0 else self._max_lifetime_ms
        )
        token = DelegationToken(
            token_id=token_id,
            hmac=hmac.digest(self._secret, token_id.encode(), "sha512"),
            owner=owner,
            requester=requester,
            renewers=tuple(renewers),
            issued_at=now,
            expires_at=min(ends_at, now + self._renewal_ms),
            ends_at=ends_at,
        )
        self._tokens[token_id] = token
        return token

    def renew(self, token_hmac: bytes, principal: str, period_ms: int, now: int) -> tuple[ErrorCode, int]:
        """Set the expiration of a token to `period_ms` from now. Return the error code and the expiration.

        A `period_ms` of 0 or less means `delegation.token.expiry.time.ms`.

        The expiration is 0 if the request fails.
        """
        token = self._find_token(token_hmac, now)
        if token is None:
            return ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0
        if token.is_expired(now):
            return ErrorCode.DELEGATION_TOKEN_EXPIRED, 0
        if principal not in (token.owner, *token.renewers):
            return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0
        period_ms = min(self._renewal_ms, period_ms) if period_ms > 0 else self._renewal_ms
        return self._set_expiration(token, now + period_ms)

    def expire(self, token_hmac: bytes, principal: str, period_ms: int, now: int) -> tuple[ErrorCode, int]:
        """Set the expiration of a token to `period_ms` from now. Return the error code and the expiration.

        A negative period removes the token. The expiration is 0 if the request fails.
        """
        token = self._find_token(token_hmac, now)
        if token is None:
            return ErrorCode.DELEGATION_TOKEN_NOT_FOUND, 0
        if principal not in (token.owner, *token.renewers):
            return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, 0
        if period_ms < 0:
            del self._tokens[token.token_id]
            return ErrorCode.NONE, now
        if token.is_expired(now):
            return ErrorCode.DELEGATION_TOKEN_EXPIRED, 0
        return self._set_expiration(token, now + period_ms)

    def described(self, may_describe: Callable[[DelegationToken], bool], now: int) -> list[DelegationToken]:
        """Return the tokens that a caller may describe."""
        self._remove_expired(now)
        return [token for token in self._tokens.values() if may_describe(token)]

    def login(self, mechanism: str, token_id: str, now: int) -> TokenCredential | None:
        """Return the SCRAM credential of a valid token; None for an unknown or an expired token."""
        token = self._tokens.get(token_id)
        if token is None or token.is_expired(now):
            return None
        salt = hmac.digest(self._secret, f"{mechanism}\0{token_id}".encode(), "sha256")[:20]
        password = b64encode(token.hmac).decode()
        salted_password = salted(mechanism, password, salt, LEAST_ITERATIONS)
        scram = credential(mechanism, salted_password, salt, LEAST_ITERATIONS)
        return TokenCredential(token.owner.partition(":")[2], scram, token.expires_at)

    def _find_token(self, token_hmac: bytes, now: int) -> DelegationToken | None:
        """Return the token with this HMAC, or None if it does not exist.

        If the next check for expired tokens is due, expired tokens are removed first.
        """
        self._remove_expired(now)
        return next((token for token in self._tokens.values() if token.hmac == token_hmac), None)

    def _set_expiration(self, token: DelegationToken, expires_at: int) -> tuple[ErrorCode, int]:
        """Store the token with a new expiration, at most `ends_at`. Return NONE and the expiration."""
        updated = replace(token, expires_at=min(token.ends_at, expires_at))
        self._tokens[token.token_id] = updated
        return ErrorCode.NONE, updated.expires_at

    def _remove_expired(self, now: int) -> None:
        """Remove expired tokens, if the check interval has passed since the last removal."""
        if now >= self._next_check_at:
            self._next_check_at = now + self._check_interval_ms
            self._tokens = {name: token for name, token in self._tokens.items() if not token.is_expired(now)}
