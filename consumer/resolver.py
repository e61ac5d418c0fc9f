"""Names of hosts -> addresses, off the thread that must not wait: heartbeats don't wait for name servers.

Rules that hold here:

* Numbers are answered at once; a name is looked up in a daemon thread, one for each name, however many ask.
* A host's addresses are tried in turn, each for `PATIENCE` seconds where there are others. IPv4 comes first:
  brokers that listen on one family nearly always listen on that one. An address that failed last goes to the
  end, so the next try of the same host begins with another one.
* One that takes the connection and ends before it answered anything has failed as well: a proxy without a
  broker behind it does so, and a broker that stands still, whose system goes on.
* What is wrong with a name (an empty label, a port beyond 65535) is a reason in words, never an exception.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

PATIENCE = 2.0
"""Seconds that an address has to answer while its host has others: a firewall may be silent."""

Place = tuple[socket.AddressFamily, Any]
"""A family, and the address to connect to."""


class Found(msgspec.Struct, frozen=True):
    """What became of a look-up: places, or why there are none."""

    key: int
    places: tuple[Place, ...]
    why: str = ""


def in_order(answer: Sequence[tuple[Any, ...]]) -> tuple[Place, ...]:
    """The places of an answer of getaddrinfo, each once, IPv4 first."""
    places = dict.fromkeys((family, address) for family, _, _, _, address in answer)
    return tuple(sorted(places, key=lambda place: place[0] != socket.AF_INET))


class Failures:
    """Which addresses of which hosts failed lately, so that the others are tried first."""

    def __init__(self) -> None:
        self._bad: dict[tuple[str, int], list[Place]] = {}

    def last(self, host: tuple[str, int], places: Sequence[Place]) -> list[Place]:
        """The places with those that failed at the end, the latest failure last."""
        bad = self._bad.get(host, [])
        bad[:] = [place for place in bad if place in places]  # the others are no addresses of it any more
        return sorted(places, key=lambda place: bad.index(place) if place in bad else -1)

    def failed(self, host: tuple[str, int], place: Place) -> None:
        bad = self._bad.setdefault(host, [])
        if place in bad:
            bad.remove(place)
        bad.append(place)


def reason(error: BaseException) -> str:
    """Why a name has no address, or a socket no connection."""
    if isinstance(error, socket.gaierror):
        return f"the name can't be resolved ({error.strerror or error})"
    if isinstance(error, OSError):
        text = error.strerror or str(error) or type(error).__name__
        if error.errno is not None and text.startswith("Connect call failed"):
            text = os.strerror(error.errno)  # asyncio has put the address there, which stands before it
        return text.lower()
    return f"the name can't be resolved ({error})"


class Resolver:
    """Looks names up; `done` is called from another thread when `take` has something."""

    def __init__(self, done: Callable[[], object]) -> None:
        self._done = done
        self._found: deque[Found] = deque()
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, int], list[int]] = {}

    def ask(self, key: int, host: str, port: int) -> Found | None:
        """What is known at once; None when `take` will have it."""
        try:
            answer = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
            return Found(key, in_order(answer))
        except socket.gaierror:
            pass  # a name
        except (OSError, ValueError, OverflowError) as error:
            return Found(key, (), reason(error))
        with self._lock:
            waiting = self._waiting.setdefault((host, port), [])
            waiting.append(key)
            if len(waiting) > 1:
                return None
        try:
            name = f"kproto-resolver-{host}"
            threading.Thread(target=self._look_up, args=(host, port), name=name, daemon=True).start()
        except RuntimeError as error:  # no more threads
            with self._lock:
                del self._waiting[(host, port)]
            return Found(key, (), reason(error))
        return None

    def take(self) -> list[Found]:
        """What was found since the last call."""
        found: list[Found] = []
        while self._found:
            found.append(self._found.popleft())
        return found

    def _look_up(self, host: str, port: int) -> None:
        places: tuple[Place, ...] = ()
        why = ""
        try:
            places = in_order(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, ValueError, OverflowError) as error:
            why = reason(error)
        with self._lock:
            keys = self._waiting.pop((host, port))
        self._found.extend(Found(key, places, why) for key in keys)
        self._done()
