"""Looks up the group's coordinator for all parts of the engine. At most one lookup is in flight.

* The coordinator is looked up only when a part of the engine needs it. A consumer without a group never looks
  it up.

* The backoff between two lookups grows with every failure (M28).

* A lookup counts as a failure until the returned node has responded as the coordinator. So the backoff also
  grows if two brokers name each other.

* A broker remains the coordinator until it cannot be reached, or responds that it is not the coordinator.

* When the coordinator is lost, requests in flight on the group's connection to it fail immediately (M26).

* With `policy="java"` the coordinator is also looked up when the group's connection to it breaks, even if no
  request was in flight.

* If a coordinator cannot write offsets, the client sends FindCoordinator to another broker. Requests in
  flight fail only if the response names another node. Until the response, heartbeats continue.
"""

from __future__ import annotations

from collections.abc import Callable

from kproto.error_codes import describe
from kproto.errors import KprotoError
from kproto.messages.find_coordinator import FindCoordinatorResponse

from ...consumer_options import ConsumerOptions
from ...errors import broker_error
from ..core import ClientCore
from ..error_actions import FIND_COORDINATOR, ErrorAction, action_for
from ..metadata.cluster import BrokerAddress
from ..network.call import Call, Outcome, Prepared
from ..network.client import GROUP
from ..network.nodes import Address
from ..requests import coordinator_of, coordinator_request


class CoordinatorLookup:
    """The lookup of the group's coordinator. `node` is its node id, or None while it is unknown.

    `on_found(node)` is called when the coordinator becomes known, and `on_lost(why)` when it is lost.
    `on_unreachable()` is called when no broker responds to a lookup.
    """

    def __init__(
        self,
        core: ClientCore[ConsumerOptions],
        on_found: Callable[[int], None],
        on_lost: Callable[[str], None],
        on_unreachable: Callable[[], None],
    ) -> None:
        self._core = core
        self._on_found = on_found
        self._on_lost = on_lost
        self._on_unreachable = on_unreachable
        self.node: int | None = None
        # Why the last lookup failed, for error messages; "" if it succeeded.
        self.lookup_error = ""
        self._is_needed = False
        self._call: Call | None = None
        self._last_lookup_at = 0
        self._next_lookup_at = 0
        self._failures = 0
        if core.options.as_java:
            core.network.on_broken = self._on_broken

    def _on_broken(self, address: Address, lane: int, why: str) -> None:
        """Look the coordinator up again if the group's connection to it has broken."""
        broker = None if self.node is None else self._core.view.brokers.get(self.node)
        if lane == GROUP and broker is not None and (broker.host, broker.port) == address:
            self.report_lost(self.node, why)

    def require(self) -> int | None:
        """Return the coordinator's node. If the node is unknown, request a lookup and return None."""
        if self.node is None:
            self._is_needed = True
        return self.node

    def look_up_again(self, why: str) -> None:
        """Look the coordinator up again at the member's request. `on_lost` is not called."""
        self._is_needed = True
        self._forget_node(why)

    def report_lost(self, node: int | None, why: str) -> None:
        """Look the coordinator up again, because `node` is not the coordinator or does not respond."""
        if node is None or node != self.node:
            return  # The client has already replaced or forgotten `node`.
        self._is_needed = True
        self._forget_node(why)
        self._on_lost(why)

    def verify(self, node: int | None, why: str) -> None:
        """After `node` failed to write a commit, ask another broker whether `node` is still the coordinator.

        No request is sent while a lookup is in flight, or during the backoff after the last lookup.
        """
        core = self._core
        if node is None or node != self.node or self._call is not None or self._next_lookup_at > core.now:
            return
        self._last_lookup_at = core.now
        self._next_lookup_at = core.now + core.backoff.after(self._failures)
        self._failures += 1

        def on_verified(call: Call) -> None:
            # If the coordinator was lost while this lookup was in flight, the response is handled like that
            # of any other lookup.
            if self.node is None:
                self._on_response(call)
                return
            self._call = None
            if isinstance(call.response, FindCoordinatorResponse):
                coordinator = coordinator_of(call.response, call.version)
                if isinstance(coordinator, BrokerAddress) and coordinator.id != self.node:
                    core.view.set_address(coordinator.id, coordinator.host, coordinator.port)
                    self.report_lost(self.node, why)
                    self._set_node(coordinator.id)

        self._call = core.send(self._lookup_request(), on_verified)

    def _lookup_request(self) -> Prepared:
        group = self._core.options.group_id
        assert group is not None
        return coordinator_request(group)

    def _forget_node(self, why: str) -> None:
        """Mark the coordinator as unknown, and fail the requests in flight to it.

        The backoff between lookups increases.
        """
        core, node = self._core, self.node
        if node is None:
            return
        self.node = None
        # The backoff starts at the last lookup. If the coordinator was known for longer than the backoff, the
        # next lookup is due immediately.
        self._next_lookup_at = max(core.now, self._last_lookup_at + core.backoff.after(self._failures))
        self._failures += 1
        core.network.disconnect(node, GROUP, why, core.now)

    def learn(self, node: int) -> None:
        """Use this node as the coordinator if none is known and no lookup is in flight.

        The node was found by a FindCoordinator request of another part of the client.
        """
        if self.node is None and self._call is None:
            self._set_node(node)

    def confirm(self) -> None:
        """Reset the backoff between lookups, because the node has responded as the coordinator."""
        self._failures = 0

    def due(self) -> int | None:
        """Return when the next lookup is due (ms), or None if no lookup is scheduled."""
        has_next_lookup = self._is_needed and self._call is None and self.node is None
        return self._next_lookup_at if has_next_lookup else None

    def pump(self) -> None:
        """Send FindCoordinator if it is due."""
        core = self._core
        if not self._is_needed or self.node is not None or self._call is not None:
            return
        if self._next_lookup_at > core.now:
            return
        self._last_lookup_at = core.now
        self._call = core.send(self._lookup_request(), self._on_response)

    def _on_response(self, call: Call) -> None:
        """Set the coordinator that the response contains (M30).

        After an error, look up the coordinator again after a backoff (M31, M33). If the error is not
        retriable, also raise it to the application (M32, M34).
        """
        core = self._core
        self._call = None
        error: KprotoError | None = call.error
        is_raised = call.outcome is not Outcome.NO_RESPONSE
        why = ""
        if isinstance(call.response, FindCoordinatorResponse):
            address_or_error = coordinator_of(call.response, call.version)
            if isinstance(address_or_error, BrokerAddress):
                address = address_or_error
                # The metadata may still lack this broker, or have an old address of the broker.
                core.view.set_address(address.id, address.host, address.port)
                self._set_node(address.id)
                return
            code, message = address_or_error
            detail = f"group {core.options.group_id!r}"
            error = broker_error(code, "FindCoordinator", f"{detail}: {message}" if message else detail)
            is_raised = action_for(FIND_COORDINATOR, code) is ErrorAction.RAISE
            why = describe(code)
        self.lookup_error = str(error)
        if call.outcome is Outcome.NO_RESPONSE:
            self._on_unreachable()
        elif not is_raised:
            core.report_failure("FindCoordinator", why, repeated=self._failures > 0)
        self._next_lookup_at = core.now + core.backoff.after(self._failures)
        self._failures += 1
        if is_raised and error is not None:
            self._next_lookup_at = core.now + core.options.retry_backoff_max_ms
            core.queue_error(error)

    def _set_node(self, node: int) -> None:
        self.node, self._is_needed, self.lookup_error = node, False, ""
        self._core.report("coordinator", reason=f"node {node} coordinates the group")
        self._on_found(node)
