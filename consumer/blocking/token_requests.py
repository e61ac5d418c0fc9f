"""Requests OAUTHBEARER tokens in a thread, one at a time, for all connections that need a token.

A Kerberos login, in contrast, belongs to one connection, so one thread is started for each connection.
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
    """The token requests of one engine.

    When a request ends, its thread calls `on_token`, so that the owner of the requests calls `take`.
    """

    def __init__(self, on_token: Callable[[], object]) -> None:
        self._on_token = on_token
        # Pairs that the threads add: the key of a connection (None: all waiting connections), and its token
        # or error. `take` turns the pairs into events.
        self._results: deque[tuple[int | None, Token | KerberosLogin | NoToken]] = deque()
        self._waiting_keys: list[int] = []  # Connections that wait for the token of a shared source.
        self._is_shared_requested = False  # Whether a thread is requesting a token of a shared source.

    def request(
        self, key: int, source: TokenSource | KerberosSource, open_keys: Container[int]
    ) -> list[NetworkEvent]:
        """Request a token for the connection `key`. If no thread can start, return `Broken` events.

        If `source` is shared, all connections use the same token, and at most one thread at a time requests
        it. Otherwise, one thread requests a token for this connection only.

        `open_keys` are the keys of the connections that are still open. The other connections no longer need
        a token, so they are removed from the waiting connections.
        """
        only_key = None if source.shared else key
        if source.shared:
            self._waiting_keys = [*(waiting for waiting in self._waiting_keys if waiting in open_keys), key]
            if self._is_shared_requested:
                return []

        def request_in_thread() -> None:
            try:
                self._results.append((only_key, source.blocking()))
            except NoToken as error:
                self._results.append((only_key, error))
            self._on_token()

        try:
            threading.Thread(target=request_in_thread, name="kproto-token", daemon=True).start()
        except RuntimeError as error:  # The system cannot start another thread.
            return self._end_request(only_key, NoToken(f"no token: {error}", final=False))
        self._is_shared_requested = self._is_shared_requested or source.shared
        return []

    def take(self) -> list[NetworkEvent]:
        """Return the events for the tokens and errors that have arrived since the last call."""
        events: list[NetworkEvent] = []
        while self._results:
            events += self._end_request(*self._results.popleft())
        return events

    def _end_request(
        self, only_key: int | None, token: Token | KerberosLogin | NoToken
    ) -> list[NetworkEvent]:
        """Return one event for each connection that waits for this token.

        `only_key` is the only connection that waits for the token. None means that the source is shared, so
        all connections in `_waiting_keys` receive the token.
        """
        if only_key is None:
            keys, self._waiting_keys = self._waiting_keys, []
            self._is_shared_requested = False
        else:
            keys = [only_key]
        if isinstance(token, NoToken):
            return [Broken(key, str(token), token.final) for key in keys]
        return [GotToken(key, token) for key in keys]
