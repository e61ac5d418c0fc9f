"""Ends the open clients of a process when it exits, and disables them in the child of a fork.

* Fork: the child process has the parent's sockets, but not its threads. With a shared connection, each
  process would read responses to the other's requests. So every call in the child raises IllegalState, and
  the child neither reads, sends nor closes anything.

* Exit of the interpreter without `close`: a warning is logged for each client that loses records, commits or
  a transaction.

* Copy and pickle: a client can be neither copied nor sent to another process (`BoundToProcess`).

Each runtime calls `register` and `unregister`. This module holds only weak references to runtimes.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import NoReturn, Protocol, SupportsIndex

from .logs import log


class OpenClient(Protocol):
    """An open client, with the methods that this module calls."""

    def on_fork(self) -> None:
        """Handle a fork in the child process, where the client cannot be used. Take no lock."""

    def on_exit(self) -> str:
        """Stop without a request to a broker. Return a log message that says what is lost."""
        ...


class BoundToProcess:
    """The base class of the clients, which can be neither copied nor pickled."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} can't be copied or pickled: its connections belong to this process;"
            " create one where it is used (for Spark: in the function that the workers run)"
        )


_open_clients: weakref.WeakSet[OpenClient] = weakref.WeakSet()


def register(client: OpenClient) -> None:
    """Register a client, so that its `on_fork` and `on_exit` are called."""
    _open_clients.add(client)


def unregister(client: OpenClient) -> None:
    """Unregister a client that has ended."""
    _open_clients.discard(client)


def _on_fork() -> None:
    for client in list(_open_clients):
        client.on_fork()
    _open_clients.clear()


def _on_exit() -> None:
    for client in list(_open_clients):
        try:
            if loss := client.on_exit():
                log.warning("%s", loss)
        except Exception:  # An error of one client must not prevent the other clients from stopping.
            log.exception("a client could not be ended")
    _open_clients.clear()


atexit.register(_on_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_on_fork)
