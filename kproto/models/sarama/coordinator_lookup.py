"""Who coordinates the group (sarama client.go, findCoordinator, v1.61.1).

* COORDINATOR_NOT_AVAILABLE and GROUP_AUTHORIZATION_FAILED are asked again Metadata.Retry.Max times, after a
  backoff each (M31, M32). With the first, the client looks whether __consumer_offsets has a leader, and waits
  another two seconds if it has none.
* Any other error is returned at once (M33, M34).
* A broker that gives no answer is forgotten, and the next one asked.
* There is no single flight: two routines that look at the same time send two requests.
"""

from __future__ import annotations

from typing import ClassVar

from ...error_codes import ErrorCode
from ...messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from . import errors
from .broker import Answer, Broker
from .errors import Trouble
from .metadata import Metadata
from .routines import Routine, States, Table, only

OFFSETS_TOPIC = "__consumer_offsets"
NO_OFFSETS_TOPIC_MS = 2_000


class Coordinator:
    """The group's coordinator, remembered for the whole client."""

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self.node_id: int | None = None

    def cached(self) -> Broker | None:
        """The coordinator, opened, where it is known."""
        known = None if self.node_id is None else self.metadata.brokers.get(self.node_id)
        return None if known is None else known.open()

    def look_up(self, caller: Routine) -> None:
        """RefreshCoordinator: `caller` is woken with "found" and the trouble, or None."""
        Lookup(self, caller).start()

    def found(self, answer: FindCoordinatorResponse) -> None:
        self.metadata.register(answer.node_id, answer.host, answer.port)
        self.node_id = answer.node_id


class LookupState(States):
    choosing = "choosing"  # takes one lock after the other, to find the least loaded broker
    asking = "asking"
    refreshing = "refreshing"  # whether __consumer_offsets has a leader
    absent = "absent"  # it has none: two seconds
    waiting = "waiting"  # between two attempts
    done = "done"


S = LookupState


class Lookup(Routine):
    """One RefreshCoordinator: `caller` is woken with "found" and the trouble, or None."""

    __slots__ = ("attempts", "brokers", "caller", "coordinator", "metadata")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        S.choosing: {S.asking, S.waiting, S.done},
        S.asking: {S.choosing, S.refreshing, S.waiting, S.done},
        S.refreshing: {S.absent, S.waiting, S.done},
        S.absent: {S.waiting, S.done},
        S.waiting: {S.choosing},
        S.done: set(),
    }

    def __init__(self, coordinator: Coordinator, caller: Routine) -> None:
        super().__init__(S.choosing)
        self.coordinator = coordinator
        self.metadata = coordinator.metadata
        self.caller = caller
        self.attempts = self.metadata.client.settings.metadata_retry_max
        self.brokers: list[Broker] = []

    def start(self) -> None:
        """The caller goes on into the lookup without waiting."""
        _choose(self, None)


def _choose(lookup: Lookup, what: object) -> None:
    lookup.brokers = lookup.metadata.candidates()
    if not lookup.brokers:
        lookup.metadata.resurrect()
        _retry(lookup, errors.OUT_OF_BROKERS)
    else:
        _count(lookup, None)


def _count(lookup: Lookup, what: object) -> None:
    if len(lookup.brokers) == 1:
        _ask(lookup)
    else:
        lookup.brokers.pop(0).pass_by(lookup)


def _ask(lookup: Lookup) -> None:
    lookup.move(S.asking)
    lookup.brokers[0].call(lookup, FindCoordinatorRequest(key=lookup.metadata.client.settings.group_id))


def _answered(lookup: Lookup, answer: Answer) -> None:
    response = answer.response
    if not isinstance(response, FindCoordinatorResponse):
        lookup.metadata.deregister(answer.broker)
        lookup.move(S.choosing)
        _choose(lookup, None)
        return
    code = response.error_code
    if code == ErrorCode.NONE:
        lookup.coordinator.found(response)
        _finish(lookup, None)
    elif code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
        _not_available(lookup)
    elif code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        _retry(lookup, errors.kafka(code))
    else:
        _finish(lookup, errors.kafka(code))


def _not_available(lookup: Lookup) -> None:
    if isinstance(lookup.metadata.leader(OFFSETS_TOPIC, 0), Trouble):
        lookup.move(S.refreshing)
        lookup.metadata.want(lookup, (OFFSETS_TOPIC,))
    else:
        _retry(lookup, errors.COORDINATOR_NOT_AVAILABLE)


def _refreshed(lookup: Lookup, trouble: Trouble | None) -> None:
    client = lookup.metadata.client
    if trouble is None and not isinstance(lookup.metadata.leader(OFFSETS_TOPIC, 0), Trouble):
        _retry(lookup, errors.COORDINATOR_NOT_AVAILABLE)
        return
    lookup.move(S.absent)
    client.sleep(lookup, client.now + NO_OFFSETS_TOPIC_MS)


def _looked(lookup: Lookup, what: object) -> None:
    _retry(lookup, errors.COORDINATOR_NOT_AVAILABLE)


def _retry(lookup: Lookup, trouble: Trouble) -> None:
    if lookup.attempts <= 0:
        _finish(lookup, trouble)
        return
    lookup.attempts -= 1
    lookup.move(S.waiting)
    client = lookup.metadata.client
    client.sleep(lookup, client.now + client.settings.metadata_retry_backoff)


def _retried(lookup: Lookup, what: object) -> None:
    lookup.move(S.choosing)
    _choose(lookup, None)


def _finish(lookup: Lookup, trouble: Trouble | None) -> None:
    lookup.move(S.done)
    lookup.metadata.client.resume(lookup.caller, "found", trouble)


Lookup.TABLE = {
    "passed": only(S, choosing=_count),
    "answered": only(S, asking=_answered),
    "refreshed": only(S, refreshing=_refreshed),
    "elapsed": only(S, absent=_looked, waiting=_retried),
}
