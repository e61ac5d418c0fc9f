"""What becomes of open clients when the process forks, and when it ends.

* Fork: the child has the parent's sockets, but not its thread; two processes on one connection would read
  each other's answers. So in the child every call raises IllegalState, and nothing is read, sent or closed.
* The end without `close()`: one warning for each client that loses something, which says what, and the
  process ends.
* A copy, or a pickle for another process: there is none (`OfThisProcess`).

A client says `opened(self)` and `ended(self)`; nothing here keeps one alive.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import NoReturn, Protocol, SupportsIndex

from .logs import log
from .other_clients import Elsewhere


class Client(Protocol):
    """What has to be known of a client here."""

    def _in_the_child(self) -> None:
        """This is the child; the client belongs to the parent. No lock may be taken in here."""

    def _at_the_end(self) -> str:
        """The process ends: stop at once, without a word to the broker. Says what is lost, for the log."""
        ...


class OfThisProcess(Elsewhere):
    """What stands on connections and threads, and so can be neither copied nor pickled."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} can't be copied or pickled: it stands on connections of this process;"
            " make one where it is used (for Spark's workers: within the function)"
        )


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def opened(client: Client) -> None:
    _clients.add(client)


def ended(client: Client) -> None:
    _clients.discard(client)


def _forked() -> None:
    for client in list(_clients):
        client._in_the_child()  # pyright: ignore[reportPrivateUsage]
    _clients.clear()


def _exiting() -> None:
    for client in list(_clients):
        try:
            if said := client._at_the_end():  # pyright: ignore[reportPrivateUsage]
                log.warning("%s", said)
        except Exception:  # the others want to be heard, too
            log.exception("a client could not be ended")
    _clients.clear()


atexit.register(_exiting)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
