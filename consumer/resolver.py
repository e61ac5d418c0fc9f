"""Resolves host names in separate threads, so that heartbeats do not wait for name servers.

Rules:

* Numeric addresses are returned immediately. A name is resolved in a daemon thread. Connections that need the
  same name share a thread.

* A host's addresses are tried in turn, each for at most `PATIENCE_S` seconds, except the last one, which has
  no such limit. The address that failed most recently is tried last.

* IPv4 addresses come first: brokers that listen on only one family nearly always listen on IPv4.

* An address also fails if the connection ends before any response. Examples are a proxy without a broker
  behind it, and a stopped broker process whose kernel still accepts connections.

* An invalid name or port, such as an empty label or a port above 65535, raises no exception. The result is
  then an error message instead of addresses.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

# Time (s) within which an address must accept a connection if its host has further addresses. The limit is
# short, because a firewall may drop packets without a reply.
PATIENCE_S = 2.0

# A socket address: its family, and the arguments of `connect`.
Address = tuple[socket.AddressFamily, Any]


class Resolved(msgspec.Struct, frozen=True):
    """The result of a resolution for the connection `key`: addresses, or the reason why there are none."""

    key: int
    addresses: tuple[Address, ...]
    error: str = ""


def sort_addresses(answer: Sequence[tuple[Any, ...]]) -> tuple[Address, ...]:
    """Return the distinct addresses in a result of getaddrinfo, IPv4 first."""
    addresses = dict.fromkeys((family, address) for family, _, _, _, address in answer)
    return tuple(sorted(addresses, key=lambda address: address[0] != socket.AF_INET))


class AddressFailures:
    """The failed addresses of each host, which are tried after its other addresses."""

    def __init__(self) -> None:
        # (host, port) -> the failed addresses. The one that failed most recently is the last.
        self._failed: dict[tuple[str, int], list[Address]] = {}

    def sort(self, host: tuple[str, int], addresses: Sequence[Address]) -> list[Address]:
        """Sort addresses: first those that have not failed, and last the one that failed most recently."""
        failed = self._failed.get(host, [])
        # The host's addresses may have changed: failures of addresses that it no longer has are dropped.
        failed[:] = [address for address in failed if address in addresses]
        return sorted(addresses, key=lambda address: failed.index(address) if address in failed else -1)

    def add(self, host: tuple[str, int], address: Address) -> None:
        """Record that an address has failed."""
        failed = self._failed.setdefault(host, [])
        if address in failed:
            failed.remove(address)
        failed.append(address)


def describe_error(error: BaseException) -> str:
    """Return the reason why a name has no address, or why a connection failed."""
    if isinstance(error, socket.gaierror):
        return f"the name can't be resolved ({error.strerror or error})"
    if isinstance(error, OSError):
        text = error.strerror or str(error) or type(error).__name__
        if error.errno is not None and text.startswith("Connect call failed"):
            # asyncio's message is replaced, because it repeats the address that the client's message names.
            text = os.strerror(error.errno)
        return text.lower()
    if isinstance(error, MemoryError):
        return "no memory for the response"
    return f"{type(error).__name__}: {error}"


def _lookup_error_text(error: Exception) -> str:
    """Return the reason why a name could not be looked up, or is invalid."""
    return describe_error(error) if isinstance(error, OSError) else f"the name can't be resolved ({error})"


class Resolver:
    """Resolves host names. `on_resolved` is called in another thread when `take` has a result."""

    def __init__(self, on_resolved: Callable[[], object]) -> None:
        self._on_resolved = on_resolved
        self._results: deque[Resolved] = deque()
        self._lock = threading.Lock()
        # (host, port) -> the keys of the connections that wait for the lookup.
        self._pending: dict[tuple[str, int], list[int]] = {}

    def resolve(self, key: int, host: str, port: int) -> Resolved | None:
        """Return the addresses of `host`, or None if a name server is needed.

        If the result is None, a later call of `take` returns the resolved addresses.
        """
        try:
            numeric = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
            return Resolved(key, sort_addresses(numeric))
        except socket.gaierror:
            pass  # `host` is a name.
        except (OSError, ValueError, OverflowError) as error:
            return Resolved(key, (), _lookup_error_text(error))
        with self._lock:
            keys = self._pending.setdefault((host, port), [])
            keys.append(key)
            if len(keys) > 1:  # A thread already resolves this name.
                return None
        try:
            name = f"kproto-resolver-{host}"
            threading.Thread(target=self._run_lookup, args=(host, port), name=name, daemon=True).start()
        except RuntimeError as error:  # The system cannot start another thread.
            with self._lock:
                del self._pending[(host, port)]
            return Resolved(key, (), _lookup_error_text(error))
        return None

    def take(self) -> list[Resolved]:
        """Return the results that have arrived since the last call."""
        results: list[Resolved] = []
        while self._results:
            results.append(self._results.popleft())
        return results

    def _run_lookup(self, host: str, port: int) -> None:
        """Look up a name, and queue the result for each connection that waits for it."""
        addresses: tuple[Address, ...] = ()
        failure = ""
        try:
            addresses = sort_addresses(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, ValueError, OverflowError) as error:
            failure = _lookup_error_text(error)
        with self._lock:
            keys = self._pending.pop((host, port))
        self._results.extend(Resolved(key, addresses, failure) for key in keys)
        self._on_resolved()
