"""The ConsumerGroup: the loop around Consume, and Consume itself (sarama consumer_group.go and
consumer_group_cooperative.go, v1.61.1).

* The application calls Consume in a loop, as sarama wants it. An error is told, and the next call comes
  300 ms later. With the option "Once" it is called once, and its return is all (S1-3).
* Consume refreshes the metadata of its topics, joins, fetches every claim's offset, calls Setup, and starts
  the claims; then it waits for the end of the session (M64). If an offset can't be fetched the session is
  released without Cleanup.
* Release: the session's context ends, all claims return, Cleanup is called, the offsets are flushed for the
  last time, and only then do the heartbeats stop (M113, M103).
* The member id lives as long as the group: only JoinGroup and SyncGroup make it forget it (M59). A new
  subscription ends the present Consume and nothing else: the member does not leave (M99).
* Cooperative (all strategies are cooperative-sticky): one Consume and one session for all generations. A
  rebalance is joined with what is owned; claims that are kept run on; revoked ones are ended and waited for
  (at most Rebalance.Timeout), then committed with the *new* generation, then new ones are started; who
  revoked anything joins again, without a reason (M64, M103).
* Close waits for Consume to return, then leaves, if the member has an id and no instance id (M60).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from ...error_codes import ErrorCode
from ...group.subscription import TopicPartition
from ...messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ..contract import Closed, Hangup, Report
from . import errors
from .broker import Answer, Broker
from .errors import Trouble
from .joining import Held, Join, Joined
from .offsets import LastFlush, Managed
from .routines import Routine, States, Table, ignored, only
from .session import Session
from .settings import key
from .starting import CommittedOffset

if TYPE_CHECKING:
    from .application import Application
    from .client import Client

AFTER_ERROR_MS = 300  # how long the loop around Consume waits after an error
_MEMBERS_SINCE = 3  # LeaveGroup's members
_CLIENT_STARTS = {
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
_LEFT = {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID}


class GroupState(States):
    new = "new"
    connecting = "connecting"  # NewClient: the first metadata
    idle = "idle"  # nobody calls Consume
    refreshing = "refreshing"
    joining = "joining"
    managing = "managing"  # fetches the offsets of its claims
    setting_up = "setting_up"
    running = "running"
    locking = "locking"  # cooperative: waits for the heartbeat and the commits that are under way
    rejoining = "rejoining"
    revoking = "revoking"  # waits for the revoked claims
    removing = "removing"  # commits them
    learning = "learning"  # refreshes the metadata of added topics
    adding = "adding"  # fetches the offsets of added claims
    releasing = "releasing"  # waits for all claims
    cleaning_up = "cleaning_up"
    letting_go = "letting_go"  # the last commit
    stopping = "stopping"  # waits for the heartbeat
    pausing = "pausing"  # the application, after an error
    looking = "looking"  # for the coordinator, to leave
    leaving = "leaving"
    closed = "closed"


S = GroupState
_END = {S.releasing, S.looking, S.leaving, S.closed}


class Group(Routine):
    """The goroutine that calls Consume, and Close."""

    __slots__ = (
        "application",
        "canceled",
        "client",
        "closed",
        "error",
        "join",
        "joined",
        "last_cause",
        "last_generation",
        "latest",
        "member_id",
        "pending",
        "session",
        "topics",
        "unlearned",
        "user_data",
        "wanted",
    )
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        S.new: {S.connecting, S.closed},
        S.connecting: {S.idle, S.closed},
        S.idle: {S.refreshing, S.pausing, *_END},
        S.refreshing: {S.joining, S.idle, S.pausing, *_END},
        S.joining: {S.managing, S.idle, S.pausing, *_END},
        S.managing: {S.setting_up, S.releasing},
        S.setting_up: {S.running},
        S.running: {S.releasing, S.locking},
        S.locking: {S.rejoining},
        S.rejoining: {S.revoking, S.removing, S.learning, S.adding, S.running, S.releasing},
        S.revoking: {S.removing, S.releasing},
        S.removing: {S.learning},
        S.learning: {S.adding, S.running, S.releasing},
        S.adding: {S.running, S.locking, S.releasing},
        S.releasing: {S.cleaning_up, S.letting_go},
        S.cleaning_up: {S.letting_go},
        S.letting_go: {S.stopping},
        S.stopping: {S.idle, S.pausing, *_END},
        S.pausing: {S.idle, *_END},
        S.looking: {S.leaving, S.closed},
        S.leaving: {S.closed},
        S.closed: set(),
    }

    def __init__(self, client: Client, application: Application) -> None:
        super().__init__(S.new)
        self.client, self.application = client, application
        self.wanted: tuple[str, ...] | None = None  # what the application wants to consume; None: nothing
        self.topics: tuple[str, ...] = ()  # what the present Consume is about
        self.canceled = False  # the context of the present Consume
        self.closed = False
        self.member_id = ""
        self.user_data: bytes | None = None
        self.last_cause: Trouble | None = None
        self.last_generation = -1  # cooperative-sticky's memory
        self.session: Session | None = None
        self.latest: Session | None = None  # the last one whose Setup was called: what the application knows
        self.join: Join | None = None
        self.joined: Joined | None = None
        self.pending: list[TopicPartition] = []
        self.unlearned: list[str] = []
        self.error: Trouble | None = None

    def connect(self) -> None:
        """NewConsumerGroup: the first metadata, of everything."""
        self.move(S.connecting)
        self.client.metadata.want(self, ())

    def subscribe(self, topics: tuple[str, ...] | None) -> None:
        """Let Consume be called with these topics from now on (None: not at all)."""
        self.wanted = topics
        if self.state is S.idle:
            _consume(self)
        else:
            self.cancel()

    def cancel(self) -> None:
        """The context of the present Consume is done."""
        self.canceled = True
        if self.session is not None:
            self.session.cancel(errors.CANCELED)
        self.look()

    def close(self) -> None:
        """Close: the context is done, and the group closed."""
        self.closed, self.wanted = True, None
        self.cancel()
        if self.session is not None:
            self.session.look()

    def look(self) -> None:
        """Whoever waits looks at what has changed."""
        self.client.wake(self, "look")
        if self.join is not None:
            self.client.wake(self.join, "look")

    def report(self, error: Trouble) -> None:
        """handleError: what happens after Close is not told."""
        if not self.closed:
            self.client.report(error)


# Consume


def _connected(group: Group, trouble: Trouble | None) -> None:
    if trouble is not None and trouble.code not in _CLIENT_STARTS:
        group.client.report(trouble)
        _close(group)
        return
    group.client.keep_fresh()
    group.move(S.idle)
    _consume(group)


def _consume(group: Group) -> None:
    """The loop: one more Consume, if the application still wants one."""
    if group.closed:
        _leave(group)
        return
    if group.state is not S.idle:
        group.move(S.idle)
    group.canceled = False
    if group.wanted is None:
        return
    group.topics = group.wanted
    if not group.topics:
        _returned(group, Trouble("errors.errorString", "no topics provided"))
        return
    group.move(S.refreshing)
    group.client.metadata.want(group, group.topics)


def _refreshed(group: Group, trouble: Trouble | None) -> None:
    if trouble is not None:
        _returned(group, trouble)
        return
    group.move(S.joining)
    _start_join(group, None)


def _start_join(group: Group, held: Held | None) -> None:
    group.join = Join(group, group.topics, held)
    group.join.start()


def _joined(group: Group, result: Joined | Trouble) -> None:
    group.join = None
    if isinstance(result, Trouble):
        _returned(group, result)
        return
    session = group.session = Session(group, result.member_id, result.generation)
    session.claims = result.claims
    if group.canceled:
        session.cause = errors.CANCELED
    group.joined = result
    group.client.wake(session.heartbeat, "start")
    group.pending = list(result.claims)
    group.move(S.managing)
    _manage(group)


def _manage(group: Group) -> None:
    session = group.session
    assert session is not None
    if group.pending:
        CommittedOffset(session.offsets, group, group.pending[0]).start()
    elif group.state is S.managing:
        group.move(S.setting_up)
        group.latest = session
        kind = "setup" if session.cooperative else "assigned"
        group.application.tell(kind, session.claims, group)
    else:
        _added(group)


def _managed(group: Group, found: Managed | Trouble) -> None:
    session = group.session
    assert session is not None
    if isinstance(found, Trouble):
        group.error = found
        _release(group)
        return
    session.offsets.managed[group.pending.pop(0)] = found
    _manage(group)


def _set_up(group: Group, what: object) -> None:
    session, joined = group.session, group.joined
    assert session is not None
    assert joined is not None
    session.start(session.claims)
    group.move(S.running)
    session.watch_partitions(joined.counts)
    _look(group, None)


def _look(group: Group, what: object) -> None:
    """Running: is the session over, or is there a rebalance to join?"""
    session = group.session
    assert session is not None
    if group.closed or session.cause is not None:
        _release(group)
    elif session.rejoin is not None:
        group.last_cause = session.rejoin
        _rejoin(group)


# A cooperative rebalance


def _rejoin(group: Group) -> None:
    group.move(S.locking)
    assert group.session is not None
    group.session.lock(group)


def _has_lock(group: Group, what: object) -> None:
    assert group.session is not None
    group.session.rejoin = None  # this join is the answer to all that was told before it
    group.session.offsets.lock_generation(group)


def _locked(group: Group, what: object) -> None:
    session = group.session
    assert session is not None
    group.move(S.rejoining)
    _start_join(group, Held(session.claims, session.generation))


def _rejoined(group: Group, result: Joined | Trouble) -> None:
    session = group.session
    assert session is not None
    group.join = None
    if not isinstance(result, Trouble):
        session.member_id, session.generation = result.member_id, result.generation
    session.offsets.unlock_generation(session.member_id, session.generation)
    session.unlock()
    if isinstance(result, Trouble):
        group.error = result
        _release(group)
        return
    group.joined = result
    revoked = [partition for partition in session.claims if partition not in result.claims]
    if not revoked:
        _learn(group)
        return
    for partition in revoked:
        session.revoke(partition)
    group.move(S.revoking)
    group.client.sleep(group, group.client.now + group.client.settings.group_rebalance_timeout)
    _revoked(group, None)


def _revoked(group: Group, what: object) -> None:
    session, joined = group.session, group.joined
    assert session is not None
    assert joined is not None
    if not session.ending:
        group.move(S.removing)
        revoked = frozenset(session.claims).difference(joined.claims)
        LastFlush(session.offsets, group, revoked).start()


def _revoke_timed_out(group: Group, what: object) -> None:
    session = group.session
    assert session is not None
    session.report(errors.REBALANCE_TIMED_OUT)
    session.cancel(errors.REBALANCE_TIMED_OUT)
    group.error = errors.REBALANCE_TIMED_OUT
    _release(group)


def _removed(group: Group, what: object) -> None:
    _learn(group)


def _learn(group: Group) -> None:
    session, joined = group.session, group.joined
    assert session is not None
    assert joined is not None
    group.pending = [partition for partition in joined.claims if partition not in session.claims]
    group.unlearned = sorted({partition.topic for partition in group.pending})
    group.move(S.learning)
    _learn_next(group)


def _learn_next(group: Group) -> None:
    if group.unlearned:
        group.client.metadata.want(group, (group.unlearned.pop(0),))
        return
    group.move(S.adding)
    _manage(group)


def _learned(group: Group, trouble: Trouble | None) -> None:
    if trouble is not None:
        group.error = trouble
        _release(group)
    else:
        _learn_next(group)


def _added(group: Group) -> None:
    session, joined = group.session, group.joined
    assert session is not None
    assert joined is not None
    before, session.claims = session.claims, joined.claims
    session.start(partition for partition in joined.claims if partition not in before)
    session.watch_partitions(joined.counts)
    if all(partition in joined.claims for partition in before):
        group.move(S.running)
        _look(group, None)
    else:
        _rejoin(group)


# The end of a session


def _release(group: Group) -> None:
    session = group.session
    assert session is not None
    session.cancel(errors.CANCELED)
    cleans_up = group.state is not S.managing
    group.move(S.releasing)
    if cleans_up:
        _released(group, None)
    else:
        _let_go(group)


def _released(group: Group, what: object) -> None:
    session = group.session
    assert session is not None
    if not session.running and not session.ending:
        group.move(S.cleaning_up)
        kind = "cleanup" if session.cooperative else "revoked"
        group.application.tell(kind, session.claims, group)


def _cleaned_up(group: Group, what: object) -> None:
    _let_go(group)


def _let_go(group: Group) -> None:
    assert group.session is not None
    group.move(S.letting_go)
    LastFlush(group.session.offsets, group).start()


def _stop_heartbeat(group: Group, what: object) -> None:
    assert group.session is not None
    group.move(S.stopping)
    heartbeat = group.session.heartbeat
    heartbeat.stop()
    if heartbeat.state.value == "stopped":
        _stopped(group, group.session)


def _stopped(group: Group, session: Session) -> None:
    if session is not group.session:
        return
    group.session = None
    group.last_cause = None if session.cause == errors.CANCELED else session.cause
    error, group.error = group.error, None
    _returned(group, error)


def _returned(group: Group, error: Trouble | None) -> None:
    """Consume has returned to the application."""
    client = group.client
    if error is not None and error != errors.CLOSED_GROUP:
        client.report(error)
    if group.closed:
        _leave(group)
        return
    if client.settings.once:
        client.out.append(Report("returned", "Consume"))
        group.wanted = None
    if error is None:
        _consume(group)
        return
    group.move(S.pausing)
    client.sleep(group, client.now + AFTER_ERROR_MS)


def _paused(group: Group, what: object) -> None:
    _consume(group)


# Close


def _leave_now(group: Group, what: object) -> None:
    """Nobody is in Consume: Close has nothing to wait for."""
    if group.closed:
        _leave(group)


def _leave(group: Group) -> None:
    if not group.member_id:
        _close(group)
        return
    broker = group.client.cached_coordinator()
    group.move(S.looking)
    if broker is None:
        group.client.look_up(group)
    else:
        _send_leave(group, broker)


def _found_to_leave(group: Group, trouble: Trouble | None) -> None:
    broker = group.client.cached_coordinator()
    if trouble is not None or broker is None:
        group.client.report(trouble or errors.COORDINATOR_NOT_AVAILABLE)
        _close(group)
    else:
        _send_leave(group, broker)


def _send_leave(group: Group, broker: Broker) -> None:
    settings = group.client.settings
    if settings.instance_id is not None:
        _close(group)
        return
    group.move(S.leaving)
    if group.client.version(key(LeaveGroupRequest)) < _MEMBERS_SINCE:
        request = LeaveGroupRequest(group_id=settings.group_id, member_id=group.member_id)
    else:
        member = MemberIdentity(member_id=group.member_id, reason="the consumer is being closed")
        request = LeaveGroupRequest(group_id=settings.group_id, members=[member])
    broker.call(group, request)


def _left(group: Group, answer: Answer) -> None:
    response = answer.response
    if not isinstance(response, LeaveGroupResponse):
        answer.broker.close()
        group.client.report(answer.error or errors.INCOMPLETE)
    elif response.error_code not in _LEFT:
        group.client.report(errors.kafka(response.error_code))
    _close(group)


def _close(group: Group) -> None:
    client = group.client
    group.member_id = ""
    group.move(S.closed)
    if client.updater is not None:
        client.wake(client.updater, "stop")
    for broker in (*client.metadata.brokers.values(), *client.metadata.seeds):
        if broker.opened and broker.used:
            client.out.append(Hangup(broker.address))
    client.out.append(Closed())


Group.TABLE = {
    "refreshed": only(S, connecting=_connected, refreshing=_refreshed, learning=_learned),
    "joined": only(S, joining=_joined, rejoining=_rejoined),
    "managed": only(S, managing=_managed, adding=_managed),
    "told": only(S, setting_up=_set_up, cleaning_up=_cleaned_up),
    "look": only(
        S, running=_look, revoking=_revoked, releasing=_released, idle=_leave_now, pausing=_leave_now
    ),
    "has_lock": only(S, locking=_has_lock),
    "locked": only(S, locking=_locked),
    "let_go": only(S, letting_go=_stop_heartbeat, removing=_removed),
    "stopped": only(S, stopping=_stopped, closed=ignored),
    "elapsed": only(S, revoking=_revoke_timed_out, pausing=_paused),
    "found": only(S, looking=_found_to_leave),
    "answered": only(S, leaving=_left),
}
