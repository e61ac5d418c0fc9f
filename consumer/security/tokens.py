"""Requests tokens for OAUTHBEARER, and keeps each token until it has to be replaced.

Rules:

* One token serves all connections of a client until 80 % of its lifetime has passed (Java's
  sasl.login.refresh.window.factor). A token without an expiry is requested for each connection.

* A token's lifetime is measured with two clocks: the wall clock, which may be changed, and the monotonic
  clock. The token expires when the first of the two clocks reaches the end of the lifetime.

* If no new token is available, the last token is used until it expires, because the token service may recover
  by then. A warning is logged.

* If there is no valid token, the connection fails with the provider's error. The failure is final if the
  provider returns an invalid token, or if the endpoint rejects the client (HTTP 400, 401, 403).

* Every request ends with a token or with NoToken.

* Only one call to the provider is in progress at a time. All connections that need a token wait for this
  call.
"""

from __future__ import annotations

import inspect
import math
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, cast

from kproto.errors import MissingExtra
from kproto.http import HttpFailed, request, shown
from kproto.security.oauthbearer import TokenRejected, is_token, payload, wrong_extension

from ..clock import now
from ..logs import log
from ..thread_calls import call_in_thread
from .failures import NoToken
from .secret import Secret

REFRESH_AT: Final = 0.8
# A number in this range is a time between 2001 and 2286 in milliseconds. It is rejected, because an expiry of
# this many seconds would never be reached.
_MILLISECOND_EXPIRIES: Final = (10**12, 10**13)


@dataclass(frozen=True, slots=True)
class Token:
    """A token that a token provider returns. Its repr does not show the secret.

    `expires_at` is in seconds since 1970, like "exp" in a JWT. `extensions` are the SASL extensions to send
    (KIP-342).
    """

    value: Secret
    expires_at: float | None
    extensions: Mapping[str, str]

    def __init__(
        self, value: str, expires_at: float | None = None, extensions: Mapping[str, str] | None = None
    ) -> None:
        object.__setattr__(self, "value", Secret(value))
        object.__setattr__(self, "expires_at", expires_at)
        object.__setattr__(self, "extensions", dict(extensions or {}))


@dataclass(slots=True)
class TokenSource:
    """The source of one client's tokens.

    `blocking` and `awaited` return a valid token. They raise NoToken if no token is valid.
    """

    provider: Callable[[], Any] = field(repr=False)
    # Whether one token serves all connections.
    shared: ClassVar[bool] = True
    _token: Token | None = field(default=None, repr=False, compare=False)
    # The time at which a new token is needed, by the wall clock (s) and by the monotonic clock (ms).
    _refresh_at: float = field(default=0.0, repr=False, compare=False)
    _refresh_at_ms: float = field(default=0.0, repr=False, compare=False)
    # Length (s) of the last 20 % of the token's lifetime. During this time, the token is used only if no new
    # token is available.
    _grace_s: float = field(default=0.0, repr=False, compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def last(self) -> Secret | None:
        """The last token, or None before the first one."""
        return None if self._token is None else self._token.value

    def blocking(self) -> Token:
        """Return the last token if no refresh is due, otherwise a new one from the provider.

        The provider is called in this thread. If it fails, the last token is returned until the token
        expires. Raises NoToken if there is no valid token.
        """
        try:
            token_or_awaitable = self._request_token()
        except NoToken as error:
            return self._last_token(error)
        if isinstance(token_or_awaitable, Token):
            return token_or_awaitable
        if inspect.iscoroutine(token_or_awaitable):
            token_or_awaitable.close()
        raise NoToken("only asyncio clients accept a coroutine function as the token provider", final=True)

    async def awaited(self) -> Token:
        """Return the last token if no refresh is due, otherwise a new one from the provider.

        A coroutine function is called in this event loop, any other provider in a thread.

        If a provider that runs in a thread returns an awaitable, the calling task awaits it.

        If the provider fails, the last token is returned until it expires. Raises NoToken if there is
        no valid token.
        """
        if (token := self._fresh_token()) is not None:
            return token
        try:
            return await self._request_and_await()
        except NoToken as error:
            return self._last_token(error)

    async def _request_and_await(self) -> Token:
        import asyncio

        in_loop = inspect.iscoroutinefunction(self.provider)
        token_or_awaitable = self._request_token() if in_loop else await self._request_in_thread()
        if isinstance(token_or_awaitable, Token):
            return token_or_awaitable
        try:
            with _convert_to_no_token(asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
                result = await token_or_awaitable
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The provider has raised CancelledError, although this task was not cancelled.
            raise _provider_failure(error) from None
        return self._keep_result(result)

    async def _request_in_thread(self) -> Token | Awaitable[Any]:
        try:
            return await call_in_thread(self._request_token, "kproto-token")
        except RuntimeError as error:  # The system cannot start another thread.
            raise NoToken(f"no token: {error}", final=False) from None

    def _request_token(self) -> Token | Awaitable[Any]:
        """Return the last token. If none exists or its refresh is due, call the provider and keep the result.

        If the provider returns an awaitable, the awaitable is returned; pass its result to `_keep_result`.
        """
        with self._lock:
            if (token := self._fresh_token()) is not None:
                return token
            with _convert_to_no_token():
                result = self.provider()
            if inspect.isawaitable(result):
                return result
            return self._keep_result(result)

    def _fresh_token(self) -> Token | None:
        """Return the last token, or None if none was ever received or the token's refresh is due."""
        return self._token if self._seconds_until_refresh() > 0 else None

    def _seconds_until_refresh(self) -> float:
        """Return the seconds until a new token is needed.

        The time at which a new token is needed is stored for the wall clock and for the monotonic clock. A
        new token is needed as soon as one of the clocks reaches its time.
        """
        return min(self._refresh_at - time.time(), (self._refresh_at_ms - now()) / 1000)

    def _last_token(self, error: NoToken) -> Token:
        """Return the last token, with a warning, if it has not expired; otherwise raise `error`."""
        token, seconds_until_expiry = self._token, self._seconds_until_refresh() + self._grace_s
        if token is None or seconds_until_expiry <= 0:
            raise error
        log.warning("%s: the last token is used, which is valid for %.0f s more", error, seconds_until_expiry)
        return token

    def _keep_result(self, result: object) -> Token:
        """Keep the token that the provider has returned, and return it. Raises NoToken if it is invalid."""
        token = _checked_token(result)
        text, expires_at = token.value.reveal(), token.expires_at
        expiry, today = _to_float(expires_at) if expires_at is not None else _jwt_expiry(text), time.time()
        if expiry is not None and math.isnan(expiry):  # A token with a NaN expiry would never expire.
            raise NoToken("the token provider returned a token whose expires_at is NaN", final=True)
        if expiry is not None and expiry <= today:
            ago = f"{today - expiry:.0f} s ago by this machine's clock"
            raise NoToken(f"the token provider returned a token that expired {ago}", final=True)
        lifetime = 0.0 if expiry is None else expiry - today
        fresh = lifetime * REFRESH_AT
        self._token, self._refresh_at, self._refresh_at_ms = token, today + fresh, now() + fresh * 1000
        self._grace_s = lifetime - fresh if math.isfinite(lifetime) else 0.0
        return token


def _checked_token(result: object) -> Token:
    """Return a provider's result, which is a string or a Token, as a Token.

    Raises NoToken if the result has another type or is not a valid token.
    """
    token = Token(result) if isinstance(result, str) else result
    if not isinstance(token, Token):
        raise NoToken(
            f"the token provider returned {type(token).__name__} instead of a string or a "
            "consumer.security.Token",
            final=True,
        )
    text, expires_at = cast("object", token.value.reveal()), cast("object", token.expires_at)
    if not isinstance(text, str) or not is_token(text):
        has_space_around = isinstance(text, str) and is_token(text.strip())
        why = ": it begins or ends with a space or a line end" if has_space_around else ""
        raise NoToken(f"the token provider returned a string that can't be a bearer token{why}", final=True)
    if isinstance(expires_at, bool) or not isinstance(expires_at, int | float | None):
        raise _invalid_expiry(f"not a {type(expires_at).__name__}")
    if expires_at is not None and _MILLISECOND_EXPIRIES[0] <= expires_at < _MILLISECOND_EXPIRIES[1]:
        raise _invalid_expiry(f"but {expires_at} is in milliseconds")
    for name, value in token.extensions.items():
        if problem := wrong_extension(str(name), str(value)):
            raise NoToken(f"the extension {name!r} of the token: {problem}", final=True)
    return token


@contextmanager
def _convert_to_no_token(*unchanged: type[BaseException]) -> Generator[None]:
    """Convert the exceptions of a provider, even SystemExit, to NoToken, which shows the exception's type.

    NoToken itself, and exceptions of the types in `unchanged`, are not converted.
    """
    try:
        yield
    except NoToken:
        raise
    except unchanged:
        raise
    except BaseException as error:
        raise _provider_failure(error) from None


def _provider_failure(error: BaseException) -> NoToken:
    # The text of a provider's exception may contain a secret, so only its type is shown.
    return NoToken(f"the token provider failed ({type(error).__name__})", final=False)


def _invalid_expiry(why: str) -> NoToken:
    problem = f"expires_at must be a number of seconds since 1970, {why}"
    return NoToken(f"the token provider returned an invalid Token: {problem}", final=True)


def _jwt_expiry(token: str) -> float | None:
    """Return the expiry of a JWT, "exp"; None if the token is not a JWT, or has no valid expiry."""
    try:
        expiry = payload(token).get("exp")
    except TokenRejected:
        return None
    return _to_float(expiry) if isinstance(expiry, int | float) and not isinstance(expiry, bool) else None


def _to_float(number: float) -> float:
    """Convert a number to a float. Numbers beyond the range of a float become infinite."""
    try:
        return float(number)
    except OverflowError:
        return float("inf")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A token provider that requests a token from an OIDC endpoint.

    The request uses the client credentials grant (RFC 6749, 4.4; KIP-768).
    """

    url: str
    client_id: str
    client_secret: Secret
    scope: str | None
    context: ssl.SSLContext | None = None
    # Whether the client id and secret are form-encoded in the header (KIP-1025; RFC 6749, 2.3.1).
    encodes_header: bool = False

    def __call__(self) -> Token:
        from urllib.parse import quote_plus  # Imported here, because few clients need the module.

        form = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        client_id, secret = self.client_id, self.client_secret.reveal()
        if self.encodes_header:
            client_id, secret = quote_plus(client_id), quote_plus(secret)
        authorization = "Basic " + b64encode(f"{client_id}:{secret}".encode()).decode()
        cure = "are client id, secret and scope right?"
        return requested_token(self.url, {"Authorization": authorization}, form, self.context, cure)


def requested_token(
    url: str, headers: Mapping[str, str], form: Mapping[str, str], context: ssl.SSLContext | None, cure: str
) -> Token:
    """Return the token that an OIDC endpoint issues in response to `form`.

    Raises NoToken if the request fails. If the endpoint rejects the client, the error message ends with
    `cure`, a question that suggests the remedy.
    """
    from urllib.parse import urlencode

    headers = {
        "Accept": "application/json",
        "Content-Type": "application/x-www-form-urlencoded",
        **headers,
    }
    try:
        # A redirect is not followed, because no other server may receive the client's secret.
        response = request(
            "POST",
            url,
            feature="sasl_oauthbearer_token_endpoint_url",
            headers=headers,
            body=urlencode(form).encode(),
            context=context,
        )
        if response.status != 200:
            is_rejection = response.status in (400, 401, 403)
            hint = f": {cure}" if is_rejection else ""
            raise NoToken(f"{response.url} responded with HTTP {response.status}{hint}", final=is_rejection)
        fields = response.json_object()
    except HttpFailed as error:
        raise NoToken(
            f"{error.url} can't be reached to request a token ({error.reason})", final=False
        ) from None
    except MissingExtra as error:
        raise NoToken(str(error), final=True) from None
    except ValueError as error:
        reason = f"{shown(url)} responded without an access_token: {error}"
        raise NoToken(reason, final=False) from None
    token = fields.get("access_token")
    if not isinstance(token, str):
        raise NoToken(f"{response.url} responded without an access_token", final=True)
    lifetime_s = fields.get("expires_in")
    if isinstance(lifetime_s, bool) or not isinstance(lifetime_s, int | float):
        return Token(token)
    return Token(token, time.time() + lifetime_s)
