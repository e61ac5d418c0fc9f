"""Who coordinates the group: looked up in one place, with one backoff.

Rules that hold here:

* It is looked up when somebody wants it, and not otherwise: a consumer without a group never does.
* A broker is the coordinator until it says that it isn't, or can't be reached; calls that were open on the
  group's connection to it fail at once then (M26).
* One that answers that it can't do it now is doubted: others are asked who it is, and only if it is somebody
  else by now, calls that are open on it fail. So one that can't write offsets hears heartbeats all the while.
* The wait between two look-ups grows with every failure, and a coordinator that was found counts as one until
  it answers something: brokers that send a client round in circles are not asked faster and faster.
"""

from __future__ import annotations

from collections.abc import Callable

from kproto.error_codes import describe
from kproto.errors import KprotoError
from kproto.messages.find_coordinator import FindCoordinatorResponse

from ...errors import broker_error
from ...options import ConsumerOptions
from ..core import ClientCore
from ..error_actions import FIND_COORDINATOR, ErrorAction, action_for
from ..metadata.cluster import BrokerAddress
from ..network.client import GROUP
from ..network.connection import Call, Outcome, Prepared
from ..requests import coordinator_of, coordinator_request


class Coordinator:
    """The node that coordinates this consumer's group, None while it isn't known.

    `found(node)` and `lost(why)` are called when that changes, `nobody()` when no broker answers.
    """

    def __init__(
        self,
        core: ClientCore[ConsumerOptions],
        found: Callable[[int], None],
        lost: Callable[[str], None],
        nobody: Callable[[], None],
    ) -> None:
        self._core = core
        self._found = found
        self._lost = lost
        self._nobody = nobody
        self.node: int | None = None
        self._wanted = False
        self.trouble = ""  # why the last look-up was in vain
        self._call: Call | None = None
        self._asked_at = 0
        self._not_before = 0
        self._failures = 0

    def want(self) -> int | None:
        """The coordinator's node; looks for it when it isn't known."""
        if self.node is None:
            self._wanted = True
        return self.node

    def again(self, why: str) -> None:
        """Looks it up again, whoever it is: the member says so, and need not be told."""
        self._wanted = True
        self._forget(why)

    def lost(self, node: int | None, why: str) -> None:
        """Somebody who talked to `node` says that it isn't the coordinator any more, or doesn't answer."""
        if node is None or node != self.node:
            return  # that is known already
        self._wanted = True
        self._forget(why)
        self._lost(why)

    def doubted(self, node: int | None, why: str) -> None:
        """`node` says that it can't do this now: perhaps somebody else can."""
        core = self._core
        if node is None or node != self.node or self._call is not None or self._not_before > core.now:
            return
        self._asked_at = core.now
        self._not_before = core.now + core.backoff.after(self._failures)
        self._failures += 1

        def answered(call: Call) -> None:
            if self.node is None:
                self._answered(call)
                return
            self._call = None
            if isinstance(call.response, FindCoordinatorResponse):
                found = coordinator_of(call.response, call.version)
                if isinstance(found, BrokerAddress) and found.id != self.node:
                    core.view.placed(found.id, found.host, found.port)
                    self.lost(self.node, why)
                    self._found_at(found.id)

        self._call = core.send(self._request(), answered)

    def _request(self) -> Prepared:
        group = self._core.options.group_id
        assert group is not None
        return coordinator_request(group)

    def _forget(self, why: str) -> None:
        core, node = self._core, self.node
        if node is None:
            return
        self.node = None
        # A coordinator that is lost after it worked is looked up at once.
        self._not_before = max(core.now, self._asked_at + core.backoff.after(self._failures))
        self._failures += 1
        core.network.disconnect(node, GROUP, why, core.now)

    def learn(self, node: int) -> None:
        """Somebody else who asked was told that it is this one."""
        if self.node is None and self._call is None:
            self._found_at(node)

    def heard(self) -> None:
        """It answered as a coordinator does."""
        self._failures = 0

    def due(self) -> int | None:
        waits = self._wanted and self._call is None and self.node is None
        return self._not_before if waits else None

    def pump(self) -> None:
        core = self._core
        if not self._wanted or self.node is not None or self._call is not None:
            return
        if self._not_before > core.now:
            return
        self._asked_at = core.now
        self._call = core.send(self._request(), self._answered)

    def _answered(self, call: Call) -> None:
        core = self._core
        self._call = None
        error: KprotoError | None = call.error
        told = call.outcome is not Outcome.NO_RESPONSE
        why = ""
        if isinstance(call.response, FindCoordinatorResponse):
            found = coordinator_of(call.response, call.version)
            if isinstance(found, BrokerAddress):
                # Metadata may not list this broker yet, or may have an old address.
                core.view.placed(found.id, found.host, found.port)
                self._found_at(found.id)
                return
            code, words = found
            detail = f"group {core.options.group_id!r}"
            error = broker_error(code, "FindCoordinator", f"{detail}: {words}" if words else detail)
            told, why = action_for(FIND_COORDINATOR, code) is ErrorAction.RAISE, describe(code)
        self.trouble = str(error)
        if call.outcome is Outcome.NO_RESPONSE:
            self._nobody()
        elif not told:
            core.report_failure("FindCoordinator", why, again=self._failures > 0)
        self._not_before = core.now + core.backoff.after(self._failures)
        self._failures += 1
        if told and error is not None:
            self._not_before = core.now + core.options.retry_backoff_max_ms
            core.queue_error(error)

    def _found_at(self, node: int) -> None:
        self.node, self._wanted, self.trouble = node, False, ""
        self._core.report("coordinator", reason=f"node {node} coordinates the group")
        self._found(node)
