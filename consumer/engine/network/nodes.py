"""The state of each broker address (backoff, timeouts), and the selection of an address for a request.

A *call* is a request with its deadline and its outcome.

Rules:

* The reason for the last failure of an address is kept until a connection to the address is ready.

* After a failure the client backs off from the address for `reconnect_backoff_ms`. Each further failure
  doubles the backoff up to its maximum, with jitter.

* If a request times out, the next request of the same API to the same address gets twice the timeout.

* The timeout of a connection setup is at least twice the time that the last completed setup to the same
  address took, up to the maximum. A setup may be slow, for example, because of an LDAP lookup.

* A call that any broker can serve goes to the ready address with the fewest requests in flight (Kafka's
  leastLoadedNode).

* If no address is ready, such a call waits for a connection that is being opened. If no connection is being
  opened, the call goes to the next address (round-robin) at which it has not been tried yet.

* The brokers' addresses are tried before the bootstrap addresses.

* With `recovers`, a client whose brokers have all moved finds the cluster again through the bootstrap
  addresses (KIP-899).

* A call that any broker can serve does not wait for a slow connection setup if another address is available.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..metadata.cluster import ClusterView
from ..timeouts import SLOW_CONNECT_MS, Backoff
from .call import Call
from .connection import Connection

Address = tuple[str, int]

SETUP = -1  # Used in place of an API key for the timeouts of connection setups.


class NodeStates:
    """The state of every address to which the client has tried to connect."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        # Address -> (consecutive failures, end of the backoff (ms), why the last connection failed).
        self._failures: dict[Address, tuple[int, int, str]] = {}
        # (Address, API key or SETUP) -> number of consecutive timeouts.
        self._timeouts: dict[tuple[Address, int], int] = {}
        # Address -> how long the last connection setup took, in ms. The next setup may take twice as long.
        self._setup_ms: dict[Address, int] = {}

    def retry_at(self, address: Address) -> int:
        """Return the time (ms) at which the address's backoff ends."""
        return self._failures.get(address, (0, 0, ""))[1]

    def last_failure(self, address: Address) -> str:
        """Return why the last connection to the address failed; "" if it did not fail."""
        return self._failures.get(address, (0, 0, ""))[2]

    def back_off(self, address: Address, now: int, why: str) -> None:
        """Back off from an address after a failure, and record the reason for the failure."""
        failures, _, _ = self._failures.get(address, (0, 0, ""))
        self._failures[address] = (failures + 1, now + self._backoff.after(failures), why)

    def on_ready(self, address: Address, setup_ms: int | None) -> None:
        """Clear the failures of an address whose connection is ready.

        `setup_ms` is the duration of the connection setup. It is None if the connection only renewed its
        session.
        """
        self._failures.pop(address, None)
        self._timeouts.pop((address, SETUP), None)
        if setup_ms is not None:
            self._setup_ms[address] = setup_ms

    def timeout_ms(self, address: Address, api_key: int, first_ms: int, max_ms: int) -> int:
        """Return the timeout (ms) of a request: `first_ms`, doubled for each consecutive timeout."""
        timeouts = self._timeouts.get((address, api_key), 0) if self._timeouts else 0
        return min(max_ms, first_ms << min(timeouts, 8))

    def setup_timeout_ms(self, address: Address, first_ms: int, max_ms: int) -> int:
        """Return a setup's timeout (ms): `first_ms`, or more if earlier setups were slow or timed out."""
        timeout_ms = self.timeout_ms(address, SETUP, first_ms, max_ms)
        return min(max_ms, max(timeout_ms, 2 * self._setup_ms.get(address, 0)))

    def count_timeout(self, address: Address, api_key: int) -> bool:
        """Count a timeout. Return whether the API's previous request to `address` had timed out, too."""
        earlier_timeouts = self._timeouts.get((address, api_key), 0)
        self._timeouts[address, api_key] = earlier_timeouts + 1
        return earlier_timeouts > 0

    def clear_timeouts(self, address: Address, api_key: int) -> None:
        """Reset an API's timeout at an address, because the broker has responded to a request of this API."""
        self._timeouts.pop((address, api_key), None)


class NodeSelector:
    """Selects the address for a call that any broker can serve.

    `view` has the addresses of the brokers. `lanes` maps (host, port, lane) to the existing connections.
    """

    def __init__(
        self,
        view: ClusterView,
        bootstrap: Sequence[Address],
        *,
        recovers: bool,
        nodes: NodeStates,
        lanes: Mapping[tuple[str, int, int], Connection],
    ) -> None:
        self._view, self._bootstrap, self._recovers = view, bootstrap, recovers
        self._nodes, self._lanes = nodes, lanes
        self._round_robin_count = 0

    def _broker_addresses(self) -> list[Address]:
        """Return the brokers' addresses."""
        return [(broker.host, broker.port) for broker in self._view.brokers.values()]

    def addresses(self) -> list[Address]:
        """Return the addresses that may be used: the addresses of the known brokers first.

        The bootstrap addresses follow if `recovers` is true, or if no broker is known.
        """
        broker_addresses = self._broker_addresses()
        uses_bootstrap = self._recovers or not broker_addresses
        return list(dict.fromkeys([*broker_addresses, *(self._bootstrap if uses_bootstrap else ())]))

    def untried(self, call: Call) -> list[Address]:
        """Return the addresses at which the call has not been tried yet."""
        return [address for address in self.addresses() if address not in call.tried]

    def select(self, call: Call, now: int) -> Address:
        """Return the address to use for the call. The module's docstring states the order of preference."""
        broker_addresses, addresses = self._broker_addresses(), self.untried(call)
        if not addresses:
            addresses = list(self._bootstrap) if self._recovers else self.addresses()
        ready = [
            (len(connection.in_flight), address)
            for address in addresses
            if (connection := self._lanes.get((*address, call.lane))) is not None
            and connection.ready
            and connection.throttled_until <= now
        ]
        if ready:
            return min(ready)[1]
        for address in addresses:
            opening = self._lanes.get((*address, call.lane))
            if opening is not None and not opening.ready and _slow_from(opening) > now:
                return address
        self._round_robin_count += 1
        first = 0
        if broker_addresses and addresses[: len(broker_addresses)] == broker_addresses:
            # The call has not been tried at any broker, so the rotation may begin at any of the brokers.
            first = self._round_robin_count % len(broker_addresses)
        rotated = addresses[first:] + addresses[:first]
        available = [address for address in rotated if self._nodes.retry_at(address) <= now]
        unconnected = [address for address in available if (*address, call.lane) not in self._lanes]
        return (unconnected or available or rotated)[0]

    def leaves_slow_setup_at(self, connection: Connection) -> int | None:
        """Return the time (ms) at which a waiting call moves to another address; None if no call can move.

        Only a call that is for no particular broker can move. It moves when the setup of its connection
        counts as slow, and another address is available.
        """
        if connection.ready:
            return None
        times = [at for call in connection.waiting if (at := self._available_elsewhere_at(call)) is not None]
        return max(_slow_from(connection), min(times)) if times else None

    def leaves_slow_setup(self, connection: Connection, call: Call, now: int) -> bool:
        """Return whether to move the call to another address now, instead of waiting for a slow setup."""
        if connection.ready or _slow_from(connection) > now:
            return False
        available_at = self._available_elsewhere_at(call)
        return available_at is not None and available_at <= now

    def _available_elsewhere_at(self, call: Call) -> int | None:
        """Return the time (ms) from which another address can serve the call; None if none can."""
        if call.node is not None:
            return None
        times: list[int] = []
        for address in self.untried(call):
            connection = self._lanes.get((*address, call.lane))
            if connection is not None and connection.ready:
                times.append(connection.throttled_until)
            elif connection is None:
                times.append(self._nodes.retry_at(address))
        return min(times, default=None)


def _slow_from(connection: Connection) -> int:
    """Return the time (ms) at which the setup of this connection begins to count as slow."""
    return connection.deadline - connection.setup_timeout_ms + SLOW_CONNECT_MS
