"""Requests tokens for OAUTHBEARER, and keeps each token until it has to be replaced.

Rules:

* One token serves all connections of a client until 80 % of its lifetime has passed (Java's
  sasl.login.refresh.window.factor). A token without an expiry is requested for each connection.

* The lifetime is measured with the wall clock, which may be changed, and with the monotonic clock. The
  earlier end counts.

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
_MILLISECONDS: Final = (10**12, 10**13)


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
    """The source of one client's tokens. `blocking` and `awaited` return a valid token, or raise NoToken."""

    provider: Callable[[], Any] = field(repr=False)
    # Whether one token serves all connections.
    shared: ClassVar[bool] = True
    _token: Token | None = field(default=None, repr=False, compare=False)
    _until: float = field(default=0.0, repr=False, compare=False)
    _until_ms: float = field(default=0.0, repr=False, compare=False)
    # Length (s) of the last 20 % of the token's lifetime. During this time, the token is used only if no new
    # token is available.
    _lasts_s: float = field(default=0.0, repr=False, compare=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    @property
    def last(self) -> Secret | None:
        """The last token, or None."""
        return None if self._token is None else self._token.value

    def blocking(self) -> Token:
        """Return a token. If a new one is needed, call the provider in this thread."""
        try:
            token = self._request()
        except NoToken as error:
            return self._last_token(error)
        if isinstance(token, Token):
            return token
        if inspect.iscoroutine(token):
            token.close()
        raise NoToken("only asyncio clients accept a coroutine function as the token provider", final=True)

    async def awaited(self) -> Token:
        """Return a token. If a new one is needed, call the provider.

        A coroutine function is called in this event loop, any other provider in a thread.

        If a provider that runs in a thread returns an awaitable, the calling task awaits it.
        """
        if (token := self._fresh()) is not None:
            return token
        try:
            return await self._awaited()
        except NoToken as error:
            return self._last_token(error)

    async def _awaited(self) -> Token:
        import asyncio

        in_loop = inspect.iscoroutinefunction(self.provider)
        answer = self._request() if in_loop else await self._request_in_thread()
        if isinstance(answer, Token):
            return answer
        try:
            with _as_no_token(asyncio.CancelledError, GeneratorExit, KeyboardInterrupt):
                token = await answer
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The provider has raised CancelledError, although this task was not cancelled.
            raise _failed(error) from None
        return self._keep(token)

    async def _request_in_thread(self) -> Token | Awaitable[Any]:
        try:
            return await call_in_thread(self._request, "kproto-token")
        except RuntimeError as error:  # The system cannot start another thread.
            raise NoToken(f"no token: {error}", final=False) from None

    def _request(self) -> Token | Awaitable[Any]:
        with self._lock:
            if (token := self._fresh()) is not None:
                return token
            with _as_no_token():
                token_or_awaitable = self.provider()
            if inspect.isawaitable(token_or_awaitable):
                return token_or_awaitable
            return self._keep(token_or_awaitable)

    def _fresh(self) -> Token | None:
        return self._token if self._fresh_seconds() > 0 else None

    def _fresh_seconds(self) -> float:
        """Return the seconds until a new token is needed.

        The time at which a new token is needed is stored for the wall clock and for the monotonic clock. The
        earlier one counts.
        """
        return min(self._until - time.time(), (self._until_ms - now()) / 1000)

    def _last_token(self, error: NoToken) -> Token:
        """Return the last token if it has not expired; otherwise raise `error`."""
        token, seconds = self._token, self._fresh_seconds() + self._lasts_s
        if token is None or seconds <= 0:
            raise error
        log.warning("%s: the last token is used, which is valid for %.0f s more", error, seconds)
        return token

    def _keep(self, answer: object) -> Token:
        if isinstance(answer, str):
            answer = Token(answer)
        if not isinstance(answer, Token):
            kind = type(answer).__name__
            raise NoToken(
                f"the token provider returned {kind} instead of a string or a consumer.security.Token",
                final=True,
            )
        text, ends = answer.value.reveal(), cast("object", answer.expires_at)
        if not isinstance(cast("object", text), str) or not is_token(text):
            around = isinstance(cast("object", text), str) and is_token(text.strip())
            why = ": it begins or ends with a space or a line end" if around else ""
            raise NoToken(
                f"the token provider returned a string that can't be a bearer token{why}", final=True
            )
        if isinstance(ends, bool) or not isinstance(ends, int | float | None):
            raise _invalid_expiry(f"not a {type(ends).__name__}")
        if ends is not None and _MILLISECONDS[0] <= ends < _MILLISECONDS[1]:
            raise _invalid_expiry(f"but {ends} is in milliseconds")
        for name, value in answer.extensions.items():
            if wrong := wrong_extension(str(name), str(value)):
                raise NoToken(f"the extension {name!r} of the token: {wrong}", final=True)
        end, today = _seconds(ends) if ends is not None else _expiry(text), time.time()
        if end is not None and math.isnan(end):  # A token with a NaN expiry would never expire.
            raise NoToken("the token provider returned a token whose expires_at is NaN", final=True)
        if end is not None and end <= today:
            ago = f"{today - end:.0f} s ago by this machine's clock"
            raise NoToken(f"the token provider returned a token that expired {ago}", final=True)
        lasts = 0.0 if end is None else end - today
        fresh = lasts * REFRESH_AT
        self._token, self._until, self._until_ms = answer, today + fresh, now() + fresh * 1000
        self._lasts_s = lasts - fresh if math.isfinite(lasts) else 0.0
        return answer


@contextmanager
def _as_no_token(*passing: type[BaseException]) -> Generator[None]:
    """Convert the exceptions of a provider, even SystemExit, to NoToken, which shows the exception's type.

    Exceptions in `passing` are raised unchanged.
    """
    try:
        yield
    except NoToken:
        raise
    except passing:
        raise
    except BaseException as error:
        raise _failed(error) from None


def _failed(error: BaseException) -> NoToken:
    # The text of a provider's exception may contain a secret, so only its type is shown.
    return NoToken(f"the token provider failed ({type(error).__name__})", final=False)


def _invalid_expiry(why: str) -> NoToken:
    problem = f"expires_at must be a number of seconds since 1970, {why}"
    return NoToken(f"the token provider returned an invalid Token: {problem}", final=True)


def _expiry(token: str) -> float | None:
    try:
        expiry = payload(token).get("exp")
    except TokenRejected:
        return None
    return _seconds(expiry) if isinstance(expiry, int | float) and not isinstance(expiry, bool) else None


def _seconds(number: float) -> float:
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
        name, secret = self.client_id, self.client_secret.reveal()
        if self.encodes_header:
            name, secret = quote_plus(name), quote_plus(secret)
        login = "Basic " + b64encode(f"{name}:{secret}".encode()).decode()
        cure = "are client id, secret and scope right?"
        return requested_token(self.url, {"Authorization": login}, form, self.context, cure)


def requested_token(
    url: str, headers: Mapping[str, str], form: Mapping[str, str], context: ssl.SSLContext | None, cure: str
) -> Token:
    """Return the token that an OIDC endpoint issues in response to `form`. Raises NoToken.

    If the endpoint rejects the client, the error message ends with `cure`, a question that suggests the
    remedy.
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
            refused = response.status in (400, 401, 403)
            hint = f": {cure}" if refused else ""
            raise NoToken(f"{response.url} responded with HTTP {response.status}{hint}", final=refused)
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
    lasts = fields.get("expires_in")
    if isinstance(lasts, bool) or not isinstance(lasts, int | float):
        return Token(token)
    return Token(token, time.time() + lasts)
