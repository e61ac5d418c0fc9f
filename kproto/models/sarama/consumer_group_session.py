"""A session and the goroutines that keep it (sarama v1.61.1: consumer_group_session.go, consumer_group.go).

* The session ends with its first cause: a rebalance, an error, a claim that returned, the application. The
  cause is the reason of the next JoinGroup (M116). A cooperative session does not end with a rebalance: the
  cause is then buffered, one at most, and the member joins again.
* Heartbeats begin with the session, before offsets are fetched and Setup is called, and go on until Cleanup
  and the last commit are done (M113); a rebalance doesn't stop them, its 27 is simply answered again (M58).
  14, 22, 25, 82 and unknown errors stop them and end the session (M59); 15 and 16 look the coordinator up,
  wait, and go on in the same generation, Metadata.Retry.Max times in a row (M57).
* A broken connection is closed and the heartbeat sent again at once, as often (M26).
* While a cooperative member joins, no heartbeat is sent; what is under way is waited for.
* The leader compares the partitions of all topics of the group with those it planned for: at once, and every
  Metadata.RefreshFrequency, and not at all where that is 0. More, fewer, and an error are the same (M93). It
  looks at what the client knows, which has its own ticker: a growth is seen after at most two of them (M203).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from ...error_codes import ErrorCode
from ...group.subscription import TopicPartition
from ...messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from . import errors
from .application import Application
from .broker import Answer, Broker
from .client import Client
from .consumer_group_claim import Claim
from .errors import Trouble
from .offset_manager import Offsets
from .routines import Routine, States, Table, Ticker, only

_REASONS = {
    errors.REBALANCE_IN_PROGRESS: "group is rebalancing",
    errors.kafka(ErrorCode.UNKNOWN_MEMBER_ID): "member id is not known by the group coordinator",
    errors.kafka(ErrorCode.ILLEGAL_GENERATION): "generation id is not current",
    errors.FENCED: "group instance id has been fenced",
    errors.PARTITIONS_CHANGED: "partitions were added to a subscribed topic",
    errors.CLAIM_EXITED: "a ConsumeClaim handler has exited",
    errors.HEARTBEAT_FAILED: "the heartbeat goroutine has stopped",
}


def reason(cause: Trouble) -> str:
    """What JoinGroup says about why the last session ended (KIP-800)."""
    return _REASONS.get(cause) or cause.text


class SessionOwner(Routine):
    """What a session uses of its group."""

    __slots__ = ("application", "client", "closed")

    def __init__(self, state: States, client: Client, application: Application) -> None:
        super().__init__(state)
        self.client, self.application = client, application
        self.closed = False

    def report(self, error: Trouble) -> None:
        raise NotImplementedError


class Session:
    """What one member has from Setup to Cleanup: claims, offsets, heartbeats."""

    def __init__(self, group: SessionOwner, member_id: str, generation: int) -> None:
        self.group = group
        self.client = group.client
        self.application = group.application
        self.cooperative = group.client.settings.cooperative
        self.member_id, self.generation = member_id, generation
        self.claims: tuple[TopicPartition, ...] = ()
        self.running: dict[TopicPartition, Claim] = {}
        self.ending = 0  # claims that were revoked and have not returned
        self.cause: Trouble | None = None
        self.rejoin: Trouble | None = None
        self.lock_held = False  # generationMu: by a heartbeat, or by who joins
        self.lock_waiting: list[Routine] = []
        self.offsets = Offsets(self.client, member_id, generation, self.report, self.cancel)
        self.heartbeat = Heartbeat(self)
        self.watch: Watch | None = None

    @property
    def closed(self) -> bool:
        """Whether the group is being closed."""
        return self.group.closed

    def cancel(self, cause: Trouble) -> None:
        """The session is over; only the first cause counts."""
        if self.cause is None:
            self.cause = cause
            self.look()

    def look(self) -> None:
        """Everybody who waits for the end looks whether it has come."""
        for claim in list(self.running.values()):
            if self.cause is not None:
                claim.cancel(False)
            self.client.wake(claim, "look")
        if self.watch is not None:
            self.client.wake(self.watch, "look")
        self.client.wake(self.group, "look")

    def rebalance(self, cause: Trouble) -> None:
        """triggerRebalance: the end of an eager session, and a rejoin of a cooperative one."""
        if not self.cooperative:
            self.cancel(cause)
        elif self.rejoin is None:
            self.rejoin = cause
            self.client.wake(self.group, "look")

    def report(self, error: Trouble, partition: TopicPartition | None = None) -> None:
        """To the group's Errors channel, as a ConsumerError where it is about a partition."""
        self.group.report(error if partition is None else errors.of_partition(error))

    def tell(self, kind: str, partitions: tuple[TopicPartition, ...]) -> None:
        """A callback that nobody waits for."""
        self.application.tell(kind, partitions, None)

    # -- claims

    def start(self, claims: Iterable[TopicPartition]) -> None:
        for partition in claims:
            claim = self.running[partition] = Claim(self, partition)
            if self.cause is not None:
                claim.cancel(False)
            self.client.wake(claim, "start")

    def revoke(self, partition: TopicPartition) -> None:
        """Only this claim ends."""
        claim = self.running.pop(partition, None)
        if claim is not None:
            self.ending += 1
            claim.cancel(True)

    def returned(self, claim: Claim) -> None:
        """A ConsumeClaim is over, and its partition consumer closed."""
        if self.running.get(claim.partition) is claim:
            del self.running[claim.partition]
        else:
            self.ending -= 1
        if not claim.revoked:
            self.cancel(errors.CLAIM_EXITED)
        self.client.wake(self.group, "look")

    # -- the generation

    def lock(self, routine: Routine) -> None:
        """`routine` goes on with "has_lock"."""
        if self.lock_held:
            self.lock_waiting.append(routine)
        else:
            self.lock_held = True
            self.client.resume(routine, "has_lock")

    def unlock(self) -> None:
        self.lock_held = bool(self.lock_waiting)
        if self.lock_waiting:
            self.client.wake(self.lock_waiting.pop(0), "has_lock")

    def watch_partitions(self, counts: Mapping[str, int] | None) -> None:
        """Let the leader (who has counts) watch them from now on, and nobody else."""
        if self.watch is not None:
            self.watch.over = True
            self.client.wake(self.watch, "look")
            self.watch = None
        if counts is not None and self.client.settings.metadata_refresh_frequency:
            self.watch = Watch(self, counts)
            self.client.wake(self.watch, "start")


# -- heartbeats


class HeartbeatState(States):
    finding = "finding"
    locking = "locking"  # until nobody joins
    beating = "beating"
    rediscovering = "rediscovering"
    backing_off = "backing_off"
    waiting = "waiting"
    stopped = "stopped"


H = HeartbeatState


class Heartbeat(Routine):
    """heartbeatLoop."""

    __slots__ = ("broker", "dying", "retries", "session", "ticker")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        H.finding: {H.locking, H.backing_off, H.stopped},
        H.locking: {H.beating},
        H.beating: {H.finding, H.rediscovering, H.waiting, H.stopped},
        H.rediscovering: {H.backing_off, H.stopped},
        H.backing_off: {H.finding, H.stopped},
        H.waiting: {H.finding, H.stopped},
        H.stopped: set(),
    }

    def __init__(self, session: Session) -> None:
        super().__init__(H.finding)
        self.session = session
        self.broker: Broker | None = None
        self.retries = session.client.settings.metadata_retry_max
        self.dying = False
        self.ticker = Ticker(session.client.now, session.client.settings.group_heartbeat_interval)

    def stop(self) -> None:
        """The session is released: "stopped" wakes the group when the loop has ended."""
        self.dying = True
        self.session.client.wake(self, "look")


def _find(heartbeat: Heartbeat, what: object) -> None:
    client = heartbeat.session.client
    heartbeat.broker = client.coordinator.cached()
    if heartbeat.broker is None:
        client.coordinator.look_up(heartbeat)
        return
    heartbeat.move(H.locking)
    heartbeat.session.lock(heartbeat)


def _found(heartbeat: Heartbeat, trouble: Trouble | None) -> None:
    client = heartbeat.session.client
    heartbeat.broker = client.coordinator.cached()
    if trouble is None and heartbeat.broker is not None:
        heartbeat.move(H.locking)
        heartbeat.session.lock(heartbeat)
    elif heartbeat.retries <= 0:
        _fail(heartbeat, trouble or errors.COORDINATOR_NOT_AVAILABLE)
    else:
        _back_off(heartbeat)


def _beat(heartbeat: Heartbeat, what: object) -> None:
    session = heartbeat.session
    heartbeat.move(H.beating)
    assert heartbeat.broker is not None
    request = HeartbeatRequest(
        group_id=session.client.settings.group_id,
        generation_id=session.generation,
        member_id=session.member_id,
        group_instance_id=session.client.settings.instance_id,
    )
    heartbeat.broker.call(heartbeat, request)


def _answered(heartbeat: Heartbeat, answer: Answer) -> None:
    session, response = heartbeat.session, answer.response
    if not isinstance(response, HeartbeatResponse):
        _unanswered(heartbeat, answer)
        return
    code = response.error_code
    if code == ErrorCode.REBALANCE_IN_PROGRESS:
        session.rebalance(errors.REBALANCE_IN_PROGRESS)
    session.unlock()
    if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
        heartbeat.retries = session.client.settings.metadata_retry_max
        _wait(heartbeat)
    elif code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        if heartbeat.retries <= 0:
            _fail(heartbeat, errors.kafka(code))
        else:
            heartbeat.move(H.rediscovering)
            session.client.coordinator.look_up(heartbeat)
    elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        session.cancel(errors.kafka(code))
        _stop(heartbeat)
    else:
        _fail(heartbeat, errors.kafka(code))


def _unanswered(heartbeat: Heartbeat, answer: Answer) -> None:
    heartbeat.session.unlock()
    answer.broker.close()
    if heartbeat.retries <= 0:
        _fail(heartbeat, answer.error or errors.INCOMPLETE)
        return
    heartbeat.retries -= 1
    heartbeat.move(H.finding)
    _find(heartbeat, None)


def _rediscovered(heartbeat: Heartbeat, trouble: Trouble | None) -> None:
    _back_off(heartbeat)


def _back_off(heartbeat: Heartbeat) -> None:
    client = heartbeat.session.client
    heartbeat.move(H.backing_off)
    client.sleep(heartbeat, client.now + client.settings.metadata_retry_backoff)
    _look(heartbeat, None)


def _backed_off(heartbeat: Heartbeat, what: object) -> None:
    heartbeat.retries -= 1
    heartbeat.move(H.finding)
    _find(heartbeat, None)


def _wait(heartbeat: Heartbeat) -> None:
    heartbeat.move(H.waiting)
    heartbeat.session.client.sleep(heartbeat, heartbeat.ticker.at)
    _look(heartbeat, None)


def _tick(heartbeat: Heartbeat, what: object) -> None:
    heartbeat.ticker.take(heartbeat.session.client.now)
    heartbeat.move(H.finding)
    _find(heartbeat, None)


def _look(heartbeat: Heartbeat, what: object) -> None:
    if heartbeat.dying:
        _stop(heartbeat)


def _fail(heartbeat: Heartbeat, trouble: Trouble) -> None:
    heartbeat.session.report(trouble)
    heartbeat.session.cancel(trouble)
    _stop(heartbeat)


def _stop(heartbeat: Heartbeat) -> None:
    session = heartbeat.session
    heartbeat.move(H.stopped)
    session.cancel(errors.HEARTBEAT_FAILED)
    session.client.wake(session.group, "stopped", session)


Heartbeat.TABLE = {
    "start": only(H, finding=_find),
    "found": only(H, finding=_found, rediscovering=_rediscovered),
    "has_lock": only(H, locking=_beat),
    "answered": only(H, beating=_answered),
    "elapsed": only(H, backing_off=_backed_off, waiting=_tick),
    "look": only(H, backing_off=_look, waiting=_look),
}


# -- the leader's partition checker


class WatchState(States):
    counting = "counting"  # the metadata of a topic without partitions is refreshed
    waiting = "waiting"
    stopped = "stopped"


W = WatchState


class Watch(Routine):
    """loopCheckPartitionNumbers."""

    __slots__ = ("counts", "over", "session", "ticker", "unseen")
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        W.counting: {W.waiting, W.stopped},
        W.waiting: {W.counting, W.stopped},
        W.stopped: set(),
    }

    def __init__(self, session: Session, counts: Mapping[str, int]) -> None:
        super().__init__(W.counting)
        self.session = session
        self.counts = dict(counts)
        self.unseen: list[str] = []
        self.over = False  # another generation has another watch
        self.ticker = Ticker(session.client.now, session.client.settings.metadata_refresh_frequency)


def _check(watch: Watch, what: object) -> None:
    watch.unseen = list(watch.counts)
    _count(watch, None)


def _count(watch: Watch, trouble: Trouble | None) -> None:
    metadata = watch.session.client.metadata
    while watch.unseen and metadata.partitions(watch.unseen[0]):
        watch.unseen.pop(0)
    if watch.unseen:
        metadata.want(watch, (watch.unseen[0],))
    else:
        _compare(watch)


def _counted(watch: Watch, trouble: Trouble | None) -> None:
    if trouble is not None or not watch.session.client.metadata.partitions(watch.unseen[0]):
        _changed(watch)
    else:
        _count(watch, None)


def _compare(watch: Watch) -> None:
    session = watch.session
    now = {topic: len(session.client.metadata.partitions(topic)) for topic in watch.counts}
    if now != watch.counts:
        _changed(watch)
    elif watch.over or session.cause is not None or session.closed:
        watch.move(W.stopped)
    else:
        watch.move(W.waiting)
        session.client.sleep(watch, watch.ticker.at)


def _changed(watch: Watch) -> None:
    watch.move(W.stopped)
    watch.session.rebalance(errors.PARTITIONS_CHANGED)


def _check_again(watch: Watch, what: object) -> None:
    watch.ticker.take(watch.session.client.now)
    watch.move(W.counting)
    _check(watch, None)


def _look_watching(watch: Watch, what: object) -> None:
    if watch.over or watch.session.cause is not None or watch.session.closed:
        watch.move(W.stopped)


Watch.TABLE = {
    "start": only(W, counting=_check),
    "refreshed": only(W, counting=_counted),
    "elapsed": only(W, waiting=_check_again),
    "look": only(W, waiting=_look_watching),
}
