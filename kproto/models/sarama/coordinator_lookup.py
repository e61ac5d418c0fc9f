"""Lookup of the group coordinator (sarama client.go, findCoordinator, v1.61.1).

* After COORDINATOR_NOT_AVAILABLE or GROUP_AUTHORIZATION_FAILED, the request is repeated after a backoff, up
  to Metadata.Retry.Max times (M31, M32).

* After COORDINATOR_NOT_AVAILABLE, the client also checks whether __consumer_offsets has a leader. Without a
  leader the client waits two seconds before the backoff begins.

* Any other error is returned immediately (M33, M34).

* A broker that does not respond is removed, and the request goes to the next broker.

* Lookups are not shared: two routines that look the coordinator up at the same time send two requests.
"""

from __future__ import annotations

from typing import ClassVar

from ...error_codes import ErrorCode
from ...messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from . import errors
from .broker import BrokerResponse, SaramaBroker
from .errors import GoError
from .metadata import Metadata
from .routines import Routine, States, Table, row

OFFSETS_TOPIC = "__consumer_offsets"
OFFSETS_TOPIC_ABSENT_MS = 2_000


class CachedCoordinator:
    """The cached group coordinator of the client."""

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self.node_id: int | None = None

    def cached(self) -> SaramaBroker | None:
        """Return the cached coordinator; None if none is cached. Open its connection if needed."""
        broker = None if self.node_id is None else self.metadata.brokers.get(self.node_id)
        return None if broker is None else broker.open()

    def look_up(self, caller: Routine) -> None:
        """Look the coordinator up (RefreshCoordinator).

        `caller` then resumes with "coordinator_found" and either the error or None.
        """
        Lookup(self, caller).start()

    def register(self, response: FindCoordinatorResponse) -> None:
        """Register the broker of the response, and cache it as the coordinator."""
        self.metadata.register(response.node_id, response.host, response.port)
        self.node_id = response.node_id


class LookupState(States):
    # To find the least loaded broker, the lookup takes the lock of one broker after another, and counts the
    # broker's requests in flight.
    CHOOSING_BROKER = "choosing_broker"
    REQUESTING = "requesting"
    # The lookup refreshes metadata to check whether __consumer_offsets has a leader.
    REFRESHING = "refreshing"
    # __consumer_offsets has no leader. The lookup waits two seconds.
    OFFSETS_TOPIC_ABSENT = "offsets_topic_absent"
    WAITING = "waiting"  # The lookup waits for the backoff between two attempts.
    DONE = "done"


S = LookupState


class Lookup(Routine):
    """One call of RefreshCoordinator. `caller` resumes with "coordinator_found" and an error or None."""

    __slots__ = ("attempts", "brokers", "caller", "coordinator", "failures", "metadata")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        S.CHOOSING_BROKER: {S.REQUESTING, S.WAITING, S.DONE},
        S.REQUESTING: {S.CHOOSING_BROKER, S.REFRESHING, S.WAITING, S.DONE},
        S.REFRESHING: {S.OFFSETS_TOPIC_ABSENT, S.WAITING, S.DONE},
        S.OFFSETS_TOPIC_ABSENT: {S.WAITING, S.DONE},
        S.WAITING: {S.CHOOSING_BROKER},
        S.DONE: set(),
    }

    def __init__(self, coordinator: CachedCoordinator, caller: Routine) -> None:
        super().__init__(S.CHOOSING_BROKER)
        self.coordinator = coordinator
        self.metadata = coordinator.metadata
        self.caller = caller
        self.attempts = self.metadata.client.settings.metadata_retry_max
        # The brokers whose locks are still to be taken. The request goes to the last one.
        self.brokers: list[SaramaBroker] = []
        # The errors of the brokers that this attempt has tried.
        self.failures: list[GoError] = []

    def start(self) -> None:
        """Start the lookup, which runs in the caller's goroutine."""
        _choose_broker(self, None)


def _choose_broker(lookup: Lookup, payload: object) -> None:
    """Begin to choose the least loaded broker; retry later if no broker is left (LeastLoadedBroker)."""
    lookup.brokers = lookup.metadata.candidates()
    if not lookup.brokers:
        lookup.metadata.resurrect()
        failures, lookup.failures = lookup.failures, []
        _retry(lookup, errors.out_of_brokers(failures))
    else:
        _touch_next_lock(lookup, None)


def _touch_next_lock(lookup: Lookup, payload: object) -> None:
    """Take and release the next broker's lock. To the last broker, send the request instead."""
    if len(lookup.brokers) == 1:
        _send(lookup)
    else:
        lookup.brokers.pop(0).touch_lock(lookup)


def _send(lookup: Lookup) -> None:
    lookup.move(S.REQUESTING)
    lookup.brokers[0].call(lookup, FindCoordinatorRequest(key=lookup.metadata.client.settings.group_id))


def _on_response(lookup: Lookup, broker_response: BrokerResponse) -> None:
    response = broker_response.response
    if not isinstance(response, FindCoordinatorResponse):
        lookup.failures += [broker_response.error] if broker_response.error is not None else []
        lookup.metadata.deregister(broker_response.broker)
        lookup.move(S.CHOOSING_BROKER)
        _choose_broker(lookup, None)
        return
    code = response.error_code
    if code == ErrorCode.NONE:
        lookup.coordinator.register(response)
        _finish(lookup, None)
    elif code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
        _on_not_available(lookup)
    elif code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        _retry(lookup, errors.kafka(code))
    else:
        _finish(lookup, errors.kafka(code))


def _on_not_available(lookup: Lookup) -> None:
    if isinstance(lookup.metadata.leader(OFFSETS_TOPIC, 0), GoError):
        lookup.move(S.REFRESHING)
        lookup.metadata.request_refresh(lookup, (OFFSETS_TOPIC,))
    else:
        _retry(lookup, errors.COORDINATOR_NOT_AVAILABLE)


def _on_refreshed(lookup: Lookup, error: GoError | None) -> None:
    """Retry if __consumer_offsets has a leader. Otherwise wait OFFSETS_TOPIC_ABSENT_MS before the retry."""
    client = lookup.metadata.client
    if error is None and not isinstance(lookup.metadata.leader(OFFSETS_TOPIC, 0), GoError):
        _retry(lookup, errors.COORDINATOR_NOT_AVAILABLE)
        return
    lookup.move(S.OFFSETS_TOPIC_ABSENT)
    client.sleep(lookup, client.now + OFFSETS_TOPIC_ABSENT_MS)


def _on_absent_wait_elapsed(lookup: Lookup, payload: object) -> None:
    _retry(lookup, errors.COORDINATOR_NOT_AVAILABLE)


def _retry(lookup: Lookup, error: GoError) -> None:
    if lookup.attempts <= 0:
        _finish(lookup, error)
        return
    lookup.attempts -= 1
    lookup.move(S.WAITING)
    client = lookup.metadata.client
    client.sleep(lookup, client.now + client.settings.metadata_retry_backoff)


def _on_backoff_elapsed(lookup: Lookup, payload: object) -> None:
    lookup.move(S.CHOOSING_BROKER)
    _choose_broker(lookup, None)


def _finish(lookup: Lookup, error: GoError | None) -> None:
    lookup.move(S.DONE)
    lookup.metadata.client.resume(lookup.caller, "coordinator_found", error)


Lookup.TABLE = {
    "lock_touched": row(S, CHOOSING_BROKER=_touch_next_lock),
    "response": row(S, REQUESTING=_on_response),
    "metadata_refreshed": row(S, REFRESHING=_on_refreshed),
    "timer_elapsed": row(S, OFFSETS_TOPIC_ABSENT=_on_absent_wait_elapsed, WAITING=_on_backoff_elapsed),
}
