"""Requests OAUTHBEARER tokens in a thread, one at a time, for all connections that need a token.

With Kerberos, a login belongs to one connection, so one thread is started for each connection instead.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Container
from typing import TYPE_CHECKING

from ..engine.network.transport import Broken, GotToken, NetworkEvent
from ..security.failures import NoToken

if TYPE_CHECKING:
    from ..security.kerberos import KerberosLogin, KerberosSource
    from ..security.tokens import Token, TokenSource


class TokenRequests:
    """The token requests of one engine. `on_token` is called in another thread when `take` has a result."""

    def __init__(self, on_token: Callable[[], object]) -> None:
        self._on_token = on_token
        # Pairs that the threads add: the key of a connection (None: all waiting connections), and its token
        # or error. `take` turns the pairs into events.
        self._results: deque[tuple[int | None, Token | KerberosLogin | NoToken]] = deque()
        self._keys: list[int] = []  # Connections that wait for a token.
        self._is_requesting = False

    def request(
        self, key: int, source: TokenSource | KerberosSource, open_keys: Container[int]
    ) -> list[NetworkEvent]:
        """Request a token for the connection `key`. If no thread can start, return `Broken` events.

        `open_keys` are the keys of the connections that are still open. The other connections no longer need
        a token, so they are removed from the waiting connections.
        """
        only_key = None if source.shared else key
        if source.shared:
            self._keys = [*(waiting for waiting in self._keys if waiting in open_keys), key]
            if self._is_requesting:
                return []

        def request() -> None:
            try:
                self._results.append((only_key, source.blocking()))
            except NoToken as error:
                self._results.append((only_key, error))
            self._on_token()

        try:
            threading.Thread(target=request, name="kproto-token", daemon=True).start()
        except RuntimeError as error:  # The system cannot start another thread.
            return self._events(only_key, NoToken(f"no token: {error}", final=False))
        self._is_requesting = self._is_requesting or source.shared
        return []

    def take(self) -> list[NetworkEvent]:
        """Return the events for the tokens and errors that have arrived since the last call."""
        events: list[NetworkEvent] = []
        while self._results:
            events += self._events(*self._results.popleft())
        return events

    def _events(self, only_key: int | None, token: Token | KerberosLogin | NoToken) -> list[NetworkEvent]:
        """Return one event for each connection that waits for this token."""
        keys = [] if only_key is None else [only_key]
        if only_key is None:
            keys, self._keys, self._is_requesting = self._keys, [], False
        if isinstance(token, NoToken):
            return [Broken(key, str(token), token.final) for key in keys]
        return [GotToken(key, token) for key in keys]
