"""A session and its goroutines (sarama v1.61.1: consumer_group_session.go, consumer_group.go).

* The session ends with the first of these causes: a rebalance, an error, a claim that returned, or the
  application's cancellation of Consume. The cause is the reason in the next JoinGroup (M116).

* A rebalance does not end the session of a cooperative member: the member only joins again. Further
  rebalances that are signalled before this join are ignored.

* Heartbeats start with the session, before offsets are fetched and Setup is called. They continue until
  Cleanup and the last commit are done (M113), even during a rebalance. Further REBALANCE_IN_PROGRESS
  responses have no effect (M58).

* After NOT_COORDINATOR or COORDINATOR_NOT_AVAILABLE, the heartbeat loop looks the coordinator up, waits, and
  continues in the same generation. It does so up to Metadata.Retry.Max consecutive times (M57).

* Every other error code, such as UNKNOWN_MEMBER_ID or COORDINATOR_LOAD_IN_PROGRESS, stops the heartbeats and
  ends the session (M59).

* A broken connection is closed, and the heartbeat is repeated immediately, up to Metadata.Retry.Max
  consecutive times.

* While a cooperative member joins, no heartbeat is sent. The join waits for a heartbeat in flight.

* The leader compares the partition counts of the group's topics with the counts from which it computed the
  assignment. It does so at the start and then every Metadata.RefreshFrequency (0 disables the later checks).
  A changed count has the same effect as REBALANCE_IN_PROGRESS (M93).

* The leader's check reads the cached metadata, which is refreshed at the same interval. So new partitions are
  noticed after at most two intervals (M204).

* In release 1.38.1 every member checks the topics that it consumes. If a follower notices new partitions,
  only its own session restarts: the coordinator answers its unchanged JoinGroup with the same generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from ...error_codes import ErrorCode
from ...group.subscription import TopicPartition
from ...messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from . import errors
from .application import Application
from .broker import BrokerResponse, SaramaBroker
from .client import SaramaClient
from .consumer_group_claim import GroupClaim
from .errors import GoError
from .offset_manager import OffsetManager
from .routines import Routine, States, Table, Ticker, row

_REASONS = {
    errors.REBALANCE_IN_PROGRESS: "group is rebalancing",
    errors.kafka(ErrorCode.UNKNOWN_MEMBER_ID): "member id is not known by the group coordinator",
    errors.kafka(ErrorCode.ILLEGAL_GENERATION): "generation id is not current",
    errors.FENCED: "group instance id has been fenced",
    errors.PARTITIONS_CHANGED: "partitions were added to a subscribed topic",
    errors.CLAIM_EXITED: "a ConsumeClaim handler has exited",
    errors.HEARTBEAT_FAILED: "the heartbeat goroutine has stopped",
}


def rebalance_reason(cause: GoError) -> str:
    """Return the reason that the next JoinGroup gives for a rejoin with this cause (KIP-800)."""
    return _REASONS.get(cause) or cause.text


class SessionOwner(Routine):
    """The base class of a ConsumerGroup, with the attributes and methods that a session uses."""

    __slots__ = ("application", "client", "closed")

    def __init__(self, state: States, client: SaramaClient, application: Application) -> None:
        super().__init__(state)
        self.client, self.application = client, application
        self.closed = False

    def report(self, error: GoError) -> None:
        raise NotImplementedError


class GroupSession:
    """The session of one member: its claims, offsets and heartbeats."""

    def __init__(self, group: SessionOwner, member_id: str, generation: int) -> None:
        self.group = group
        self.client = group.client
        self.application = group.application
        self.cooperative = group.client.settings.cooperative
        self.member_id, self.generation = member_id, generation
        self.claims: tuple[TopicPartition, ...] = ()
        self.running_claims: dict[TopicPartition, GroupClaim] = {}
        self.ending_claims = 0  # The number of revoked claims that have not returned.
        self.cause: GoError | None = None  # Why the session ended; None while it runs.
        # Why a cooperative member must join again; None once this join starts.
        self.rejoin_cause: GoError | None = None
        self.lock_held = False  # Whether a heartbeat or a join holds sarama's generationMu.
        self.lock_waiters: list[Routine] = []
        self.offsets = OffsetManager(self.client, member_id, generation, self.report, self.cancel)
        self.heartbeat = Heartbeat(self)
        self.partition_checker: PartitionChecker | None = None

    @property
    def closed(self) -> bool:
        """Whether Close was called for the group."""
        return self.group.closed

    def cancel(self, cause: GoError) -> None:
        """End the session, and wake its routines, which then check whether it has ended.

        A later call for the same session has no effect.
        """
        if self.cause is not None:
            return
        self.cause = cause
        for claim in list(self.running_claims.values()):
            claim.cancel(revoked=False)
        if self.partition_checker is not None:
            self.client.wake(self.partition_checker, "check")
        self.client.wake(self.group, "check")

    def rebalance(self, cause: GoError) -> None:
        """End an eager session, or make the member of a cooperative session join again (triggerRebalance)."""
        if not self.cooperative:
            self.cancel(cause)
        elif self.rejoin_cause is None:
            self.rejoin_cause = cause
            self.client.wake(self.group, "check")

    def report(self, error: GoError, partition: TopicPartition | None = None) -> None:
        """Report an error on the group's Errors channel, with `partition` as a ConsumerError."""
        self.group.report(error if partition is None else errors.as_consumer_error(error, partition))

    def run_callback(self, kind: str, partitions: tuple[TopicPartition, ...]) -> None:
        """Run a callback of the application without waiting for its return."""
        self.application.run_callback(kind, partitions, None)

    # -- claims

    def start_claims(self, claims: Iterable[TopicPartition]) -> None:
        """Start a claim for each partition. If the session has already ended, cancel each claim at once."""
        for partition in claims:
            claim = self.running_claims[partition] = GroupClaim(self, partition)
            if self.cause is not None:
                claim.cancel(revoked=False)
            self.client.wake(claim, "start")

    def revoke_claim(self, partition: TopicPartition) -> None:
        """End the claim of this partition if it runs. The session and the other claims continue."""
        claim = self.running_claims.pop(partition, None)
        if claim is not None:
            self.ending_claims += 1
            claim.cancel(revoked=True)

    def on_claim_returned(self, claim: GroupClaim) -> None:
        """Handle the return of a ConsumeClaim whose partition consumer has closed."""
        if self.running_claims.get(claim.partition) is claim:
            del self.running_claims[claim.partition]
        else:
            self.ending_claims -= 1
        if not claim.revoked:
            self.cancel(errors.CLAIM_EXITED)
        self.client.wake(self.group, "check")

    # -- the generation

    def lock_generation(self, routine: Routine) -> None:
        """Lock the generation. `routine` resumes with "generation_locked"."""
        if self.lock_held:
            self.lock_waiters.append(routine)
        else:
            self.lock_held = True
            self.client.resume(routine, "generation_locked")

    def unlock_generation(self) -> None:
        """Pass the lock to the routine that has waited longest, or release it if no routine waits."""
        self.lock_held = bool(self.lock_waiters)
        if self.lock_waiters:
            self.client.wake(self.lock_waiters.pop(0), "generation_locked")

    def watch_partitions(self, counts: Mapping[str, int] | None) -> None:
        """Replace the partition checker with one for `counts`. If `counts` is None, only stop the checker."""
        if self.partition_checker is not None:
            self.partition_checker.is_replaced = True
            self.client.wake(self.partition_checker, "check")
            self.partition_checker = None
        if counts is not None and self.client.settings.metadata_refresh_frequency:
            self.partition_checker = PartitionChecker(self, counts)
            self.client.wake(self.partition_checker, "start")


# -- heartbeats


class HeartbeatState(States):
    FINDING_COORDINATOR = "finding_coordinator"
    LOCKING = "locking"  # The heartbeat loop waits until no join holds the lock.
    SENDING = "sending"
    REDISCOVERING = "rediscovering"
    BACKING_OFF = "backing_off"
    WAITING = "waiting"
    STOPPED = "stopped"


H = HeartbeatState


class Heartbeat(Routine):
    """The goroutine heartbeatLoop."""

    __slots__ = ("broker", "dying", "retries", "session", "ticker")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        H.FINDING_COORDINATOR: {H.LOCKING, H.BACKING_OFF, H.STOPPED},
        H.LOCKING: {H.SENDING},
        H.SENDING: {H.FINDING_COORDINATOR, H.REDISCOVERING, H.WAITING, H.STOPPED},
        H.REDISCOVERING: {H.BACKING_OFF, H.STOPPED},
        H.BACKING_OFF: {H.FINDING_COORDINATOR, H.STOPPED},
        H.WAITING: {H.FINDING_COORDINATOR, H.STOPPED},
        H.STOPPED: set(),
    }

    def __init__(self, session: GroupSession) -> None:
        super().__init__(H.FINDING_COORDINATOR)
        self.session = session
        self.broker: SaramaBroker | None = None
        self.retries = session.client.settings.metadata_retry_max
        self.dying = False
        self.ticker = Ticker(session.client.now, session.client.settings.group_heartbeat_interval)

    def stop(self) -> None:
        """End the heartbeat loop of a released session. At the loop's end, the group receives "stopped"."""
        self.dying = True
        self.session.client.wake(self, "check")


def _find_coordinator(heartbeat: Heartbeat, payload: object) -> None:
    client = heartbeat.session.client
    heartbeat.broker = client.coordinator.cached()
    if heartbeat.broker is None:
        client.coordinator.look_up(heartbeat)
        return
    heartbeat.move(H.LOCKING)
    heartbeat.session.lock_generation(heartbeat)


def _on_coordinator_found(heartbeat: Heartbeat, error: GoError | None) -> None:
    client = heartbeat.session.client
    heartbeat.broker = client.coordinator.cached()
    if error is None and heartbeat.broker is not None:
        heartbeat.move(H.LOCKING)
        heartbeat.session.lock_generation(heartbeat)
    elif heartbeat.retries <= 0:
        _fail(heartbeat, error or errors.COORDINATOR_NOT_AVAILABLE)
    else:
        _back_off(heartbeat)


def _send_heartbeat(heartbeat: Heartbeat, payload: object) -> None:
    session = heartbeat.session
    heartbeat.move(H.SENDING)
    assert heartbeat.broker is not None
    request = HeartbeatRequest(
        group_id=session.client.settings.group_id,
        generation_id=session.generation,
        member_id=session.member_id,
        group_instance_id=session.client.settings.instance_id,
    )
    heartbeat.broker.call(heartbeat, request)


def _on_response(heartbeat: Heartbeat, broker_response: BrokerResponse) -> None:
    session, response = heartbeat.session, broker_response.response
    if not isinstance(response, HeartbeatResponse):
        _on_request_failed(heartbeat, broker_response)
        return
    code = response.error_code
    if code == ErrorCode.REBALANCE_IN_PROGRESS:
        session.rebalance(errors.REBALANCE_IN_PROGRESS)
    session.unlock_generation()
    if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
        heartbeat.retries = session.client.settings.metadata_retry_max
        _wait(heartbeat)
    elif code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        if heartbeat.retries <= 0:
            _fail(heartbeat, errors.kafka(code))
        else:
            heartbeat.move(H.REDISCOVERING)
            session.client.coordinator.look_up(heartbeat)
    elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        session.cancel(errors.kafka(code))
        _stop(heartbeat)
    else:
        _fail(heartbeat, errors.kafka(code))


def _on_request_failed(heartbeat: Heartbeat, broker_response: BrokerResponse) -> None:
    heartbeat.session.unlock_generation()
    broker_response.broker.close()
    if heartbeat.retries <= 0:
        _fail(heartbeat, broker_response.error or errors.INCOMPLETE)
        return
    heartbeat.retries -= 1
    heartbeat.move(H.FINDING_COORDINATOR)
    _find_coordinator(heartbeat, None)


def _on_rediscovered(heartbeat: Heartbeat, error: GoError | None) -> None:
    _back_off(heartbeat)


def _back_off(heartbeat: Heartbeat) -> None:
    client = heartbeat.session.client
    heartbeat.move(H.BACKING_OFF)
    client.sleep(heartbeat, client.now + client.settings.metadata_retry_backoff)
    _check_dying(heartbeat, None)


def _on_backoff_elapsed(heartbeat: Heartbeat, payload: object) -> None:
    heartbeat.retries -= 1
    heartbeat.move(H.FINDING_COORDINATOR)
    _find_coordinator(heartbeat, None)


def _wait(heartbeat: Heartbeat) -> None:
    heartbeat.move(H.WAITING)
    heartbeat.session.client.sleep(heartbeat, heartbeat.ticker.at)
    _check_dying(heartbeat, None)


def _on_tick(heartbeat: Heartbeat, payload: object) -> None:
    heartbeat.ticker.take_tick(heartbeat.session.client.now)
    heartbeat.move(H.FINDING_COORDINATOR)
    _find_coordinator(heartbeat, None)


def _check_dying(heartbeat: Heartbeat, payload: object) -> None:
    if heartbeat.dying:
        _stop(heartbeat)


def _fail(heartbeat: Heartbeat, error: GoError) -> None:
    heartbeat.session.report(error)
    heartbeat.session.cancel(error)
    _stop(heartbeat)


def _stop(heartbeat: Heartbeat) -> None:
    """Stop the heartbeat loop, end the session if it still runs, and wake the group."""
    session = heartbeat.session
    heartbeat.move(H.STOPPED)
    session.cancel(errors.HEARTBEAT_FAILED)
    session.client.wake(session.group, "stopped", session)


Heartbeat.TABLE = {
    "start": row(H, FINDING_COORDINATOR=_find_coordinator),
    "coordinator_found": row(H, FINDING_COORDINATOR=_on_coordinator_found, REDISCOVERING=_on_rediscovered),
    "generation_locked": row(H, LOCKING=_send_heartbeat),
    "response": row(H, SENDING=_on_response),
    "timer_elapsed": row(H, BACKING_OFF=_on_backoff_elapsed, WAITING=_on_tick),
    "check": row(H, BACKING_OFF=_check_dying, WAITING=_check_dying),
}


# -- the partition checker


class PartitionCheckerState(States):
    REFRESHING_TOPIC = "refreshing_topic"  # The checker refreshes the metadata of a topic without partitions.
    WAITING = "waiting"
    STOPPED = "stopped"


P = PartitionCheckerState


class PartitionChecker(Routine):
    """The goroutine loopCheckPartitionNumbers."""

    __slots__ = ("counts", "is_replaced", "session", "ticker", "topics_to_check")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        P.REFRESHING_TOPIC: {P.WAITING, P.STOPPED},
        P.WAITING: {P.REFRESHING_TOPIC, P.STOPPED},
        P.STOPPED: set(),
    }

    def __init__(self, session: GroupSession, counts: Mapping[str, int]) -> None:
        super().__init__(P.REFRESHING_TOPIC)
        self.session = session
        self.counts = dict(counts)  # The expected number of partitions of each topic.
        self.topics_to_check: list[str] = []
        # Whether the checker of the next generation has replaced this checker, which then ends.
        self.is_replaced = False
        self.ticker = Ticker(session.client.now, session.client.settings.metadata_refresh_frequency)


def _check_topics(checker: PartitionChecker, payload: object) -> None:
    checker.topics_to_check = list(checker.counts)
    _check_next_topic(checker)


def _check_next_topic(checker: PartitionChecker) -> None:
    """Refresh the next topic without cached partitions; if none is left, compare the partition counts."""
    metadata = checker.session.client.metadata
    while checker.topics_to_check and metadata.partitions(checker.topics_to_check[0]):
        checker.topics_to_check.pop(0)
    if checker.topics_to_check:
        metadata.request_refresh(checker, (checker.topics_to_check[0],))
    else:
        _compare_counts(checker)


def _on_refreshed(checker: PartitionChecker, error: GoError | None) -> None:
    if error is not None or not checker.session.client.metadata.partitions(checker.topics_to_check[0]):
        _on_counts_changed(checker)
    else:
        _check_next_topic(checker)


def _compare_counts(checker: PartitionChecker) -> None:
    session = checker.session
    counts = {topic: len(session.client.metadata.partitions(topic)) for topic in checker.counts}
    if counts != checker.counts:
        _on_counts_changed(checker)
    elif _has_ended(checker):
        checker.move(P.STOPPED)
    else:
        checker.move(P.WAITING)
        session.client.sleep(checker, checker.ticker.at)


def _has_ended(checker: PartitionChecker) -> bool:
    """Return whether this checker's generation, the session, or the group has ended."""
    session = checker.session
    return checker.is_replaced or session.cause is not None or session.closed


def _on_counts_changed(checker: PartitionChecker) -> None:
    checker.move(P.STOPPED)
    checker.session.rebalance(errors.PARTITIONS_CHANGED)


def _on_check_tick(checker: PartitionChecker, payload: object) -> None:
    checker.ticker.take_tick(checker.session.client.now)
    checker.move(P.REFRESHING_TOPIC)
    _check_topics(checker, None)


def _check_ended(checker: PartitionChecker, payload: object) -> None:
    if _has_ended(checker):
        checker.move(P.STOPPED)


PartitionChecker.TABLE = {
    "start": row(P, REFRESHING_TOPIC=_check_topics),
    "metadata_refreshed": row(P, REFRESHING_TOPIC=_on_refreshed),
    "timer_elapsed": row(P, WAITING=_on_check_tick),
    "check": row(P, WAITING=_check_ended),
}
