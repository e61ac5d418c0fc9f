"""One member of a classic group, without I/O: a table with a handler for each event and state.

    member = Member(MemberConfig(group_id="g"))
    actions = step(member, SubscriptionChanged(frozenset({"t"})), now)

`step` applies one event and returns the actions to perform, in order. `next_deadline` returns the time of the
next `Tick` that the caller must send.

`kproto.group.protocol` defines the events and actions.

The member follows Java's AbstractCoordinator and ConsumerCoordinator. Its next state and its actions depend
only on its state, the event and the time (M70).

* M21, M77, M78: JoinGroup is sent after the application has released the partitions that the member cannot
  keep. An eager member keeps none. A cooperative member keeps its partitions of subscribed topics.

* M84: after SyncGroup a cooperative member revokes the partitions that are no longer assigned to it, and
  adopts the assignment. If it has revoked any partitions, it joins again.

* M3: an error code counts only if the member still has the generation and member id of the request.

* M13, M76: after UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION or FENCED_INSTANCE_ID, all partitions are lost
  immediately. The next JoinGroup carries a reason (KIP-800, M116).

* M81: only the leader watches the metadata of the group's topics, and rejoins when the metadata changes. With
  `Policy.every_member_watches`, followers watch the metadata of their own topics, too.

The member differs from Java where Java's members can lose records, or fence each other endlessly:

* Unless `Policy.fenced_join_again` is set, a fenced member never joins again. Java's member joins again at
  the next poll, and fences the process that has replaced it.

* After an error that the application has to resolve, the member returns `Fatal` and `Lose`, because the group
  assigns this member's partitions to other members. Java raises an exception and keeps the assignment, but
  sends no heartbeats.

* Partitions are lost as soon as max.poll.interval.ms has passed. In Java they are lost at the next poll.

* max.poll.interval.ms runs while the application is outside poll or in a callback (librdkafka, M112). In Java
  it starts with each poll.

* A member that keeps partitions while it joins sends heartbeats on another connection, because the JoinGroup
  response may take minutes. So it notices early if the group has removed it.

* A restarted static leader checks with DescribeGroups that the group's assignment covers every partition, and
  otherwise rejoins. Java's leader ignores partitions that were created after the assignment was made.

* A leader rejoins if the assignment in its SyncGroup response differs from the one that it computed for
  itself. Java's leader adopts the assignment in the response.

* A follower without partitions checks once with DescribeGroups whether its empty assignment is right. Java's
  member trusts the SyncGroup response, and may read nothing until the next rebalance.

* A member backs off if it has to rejoin immediately more than five times in a row.

* With `Policy.retry_loading`, a member rejoins after COORDINATOR_LOAD_IN_PROGRESS in a SyncGroup response,
  after the same backoff as for JoinGroup.

* With `Policy.replaces_unreadable_assignment`, a member rejoins after an assignment that cannot be decoded.
  Java's member raises the error from each poll until the coordinator removes the member.

* A leader computes its own assignment from the subscription that it sent. Java's leader uses its subscription
  in the JoinGroup response, and owns nothing if the response contains a wrong one.

* A dynamic leader always assigns, even if its JoinGroup response has skipAssignment set.

* A leader that is missing from the member list of its JoinGroup response reports an error. Java's leader
  assigns all partitions to the listed members, and owns nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, get_args

from ....machine import Cell, Table
from ....messages.describe_groups import DescribeGroupsRequest
from ....messages.heartbeat import HeartbeatRequest
from ....messages.join_group import JoinGroupRequest
from ....messages.leave_group import LeaveGroupRequest
from ....messages.sync_group import SyncGroupRequest
from ....wire.message import Message
from ...protocol import (
    CloseRequested,
    CommitAnswered,
    CoordinatorFound,
    CoordinatorLost,
    MemberAction,
    MemberEvent,
    MetadataUpdated,
    PollEntered,
    PollLeft,
    Received,
    RejoinRequested,
    Released,
    SendFailed,
    SendRefused,
    SubscriptionChanged,
    Tick,
    Unsubscribed,
)
from . import assignment, coordinator_lookup, heartbeat, join, leave, revocation, subscription, timers
from .state import EDGES, Actions, Member, MemberState, S


class MemberEventKind(Enum):
    """The kinds of events: the rows of the table, whose columns are the states of a member."""

    SUBSCRIBE = "the application subscribes"
    UNSUBSCRIBE = "the application unsubscribes"
    REQUEST_REJOIN = "the application requests a rebalance"
    POLL_BEGAN = "the application enters poll"
    POLL_ENDED = "the application leaves poll, or enters a callback"
    RELEASED = "the application has released partitions"
    COORDINATOR_FOUND = "the coordinator was found"
    COORDINATOR_LOST = "the lookup failed, or the connection was lost"
    FAILED = "a request got no response"
    REFUSED = "a request cannot be sent"
    JOIN_RESPONSE = "JoinGroup was answered"
    SYNC_RESPONSE = "SyncGroup was answered"
    HEARTBEAT_RESPONSE = "Heartbeat was answered"
    LEAVE_RESPONSE = "LeaveGroup was answered"
    DESCRIBE_RESPONSE = "DescribeGroups was answered"
    COMMIT_ANSWERED = "OffsetCommit was answered"
    METADATA = "metadata arrived"
    CLOSE = "the application closes the member"
    TICK = "a deadline has been reached"
    # The row PROCEED runs after every event: the member takes the next step that its state allows.
    PROCEED = "what the event has made possible"

    # This is faster than Enum's own __hash__, which is written in Python.
    __hash__ = object.__hash__


K = MemberEventKind
PROCEED: Final = K.PROCEED

KINDS: Final[dict[type[MemberEvent], MemberEventKind]] = {
    SubscriptionChanged: K.SUBSCRIBE,
    Unsubscribed: K.UNSUBSCRIBE,
    RejoinRequested: K.REQUEST_REJOIN,
    PollEntered: K.POLL_BEGAN,
    PollLeft: K.POLL_ENDED,
    Released: K.RELEASED,
    CoordinatorFound: K.COORDINATOR_FOUND,
    CoordinatorLost: K.COORDINATOR_LOST,
    SendFailed: K.FAILED,
    SendRefused: K.REFUSED,
    CommitAnswered: K.COMMIT_ANSWERED,
    MetadataUpdated: K.METADATA,
    CloseRequested: K.CLOSE,
    Tick: K.TICK,
}
RESPONSE_KINDS: Final[dict[type[Message], MemberEventKind]] = {
    JoinGroupRequest: K.JOIN_RESPONSE,
    SyncGroupRequest: K.SYNC_RESPONSE,
    HeartbeatRequest: K.HEARTBEAT_RESPONSE,
    LeaveGroupRequest: K.LEAVE_RESPONSE,
    DescribeGroupsRequest: K.DESCRIBE_RESPONSE,
}


def step(member: Member, event: MemberEvent, now: int) -> list[MemberAction]:
    """Apply `event` at time `now` (ms) and return the actions to perform, in order.

    After the event's handler, the row PROCEED is applied in the state that the member has by then.

    Raises TypeError for an object that is not an event.
    """
    out: Actions = []
    TABLE[kind_of(event), member.state].act(member, event, now, out)
    TABLE[PROCEED, member.state].act(member, event, now, out)
    return out


def kind_of(event: MemberEvent) -> MemberEventKind:
    """Return the kind of an event. A subscription with neither topics nor a pattern unsubscribes (M100).

    Raises TypeError for an object that is not an event, and for a subscription whose topics are a string.
    """
    kind = KINDS.get(type(event))
    if kind is None and isinstance(event, Received):
        kind = RESPONSE_KINDS.get(type(event.request))
    if kind is None:
        kinds = ", ".join(kind.__name__ for kind in get_args(MemberEvent))
        raise TypeError(f"event={event!r} is not an event of a member; the events are {kinds}")
    if isinstance(event, SubscriptionChanged):
        topics: object = event.topics
        # If a string were accepted, each of its characters would count as a topic.
        if isinstance(topics, str):
            raise TypeError(f"topics={topics!r} is not a set of topics; use frozenset({{{topics!r}}})")
        if not event.topics and event.pattern is None:
            return K.UNSUBSCRIBE
    return kind


def ignore(member: Member, event: MemberEvent, now: int, out: Actions) -> None:
    """Change nothing."""


IGNORED: Final[Cell] = Cell(ignore)


def row(everywhere: Cell, cells: Mapping[MemberState, Cell], *, closed: Cell = IGNORED) -> list[Cell]:
    """Return a row of the table: `cells` for the states that it names, `everywhere` for all other states.

    In state CLOSED the cell is `closed`, unless `cells` names CLOSED.
    """
    return [{S.CLOSED: closed, **cells}.get(state, everywhere) for state in MemberState]


# A key is a state. A value lists the states that may follow it after an error code about the member's
# generation or member id.
RESET_TO: Final[dict[MemberState, tuple[MemberState, ...]]] = {
    S.UNJOINED: (S.RELEASING, S.FENCED, S.FAILED),
    S.RELEASING: (S.FENCED, S.FAILED),
    S.JOINING: (S.UNJOINED, S.RELEASING, S.FENCED, S.FAILED),
    S.ASSIGNING: (S.UNJOINED, S.RELEASING, S.FENCED, S.FAILED),
    S.SYNCING: (S.UNJOINED, S.RELEASING, S.FENCED, S.FAILED),
    S.ADOPTING: (S.RELEASING, S.FENCED, S.FAILED),
    S.STABLE: (S.UNJOINED, S.RELEASING, S.FENCED, S.FAILED),
    S.UNSUBSCRIBING: (S.FENCED,),
    S.CLOSING: (),
}
ACTIVE: Final = tuple(state for state in RESET_TO if state not in (S.UNSUBSCRIBING, S.CLOSING))
REBALANCING: Final = (S.JOINING, S.ASSIGNING, S.SYNCING)

_SUBSCRIBE = Cell(subscription.on_subscribe, rules=("M92", "M100"))
_UNSUBSCRIBE = Cell(leave.on_unsubscribe, (S.UNSUBSCRIBING, S.IDLE), rules=("M17", "M97", "M99"))
_REQUEST_REJOIN = Cell(subscription.on_request_rejoin, rules=("M92",))
_POLL_AGAIN = Cell(timers.on_poll_began_again, (S.UNJOINED, S.RELEASING), rules=("M110",))
_RELEASED = Cell(revocation.on_released, rules=("M79",))
_COORDINATOR_LOST = Cell(coordinator_lookup.on_coordinator_lost, rules=("M26", "M28"))
_COORDINATOR_LOST_REBALANCING = Cell(
    coordinator_lookup.on_coordinator_lost, (S.UNJOINED,), rules=("M22", "M26", "M28")
)
_FAILED = Cell(coordinator_lookup.on_failed, rules=("M26",))
_FAILED_REBALANCING = Cell(coordinator_lookup.on_failed, (S.UNJOINED,), rules=("M22", "M26"))
_REFUSED = Cell(coordinator_lookup.on_refused, (S.FAILED,), rules=("M25",))
_REFUSED_LEAVING = Cell(leave.on_refused)
_JOINED_LEAVING = Cell(leave.on_join_response, rules=("M8", "M60"))
_SYNCED_LEAVING = Cell(leave.on_sync_response, rules=("M10",))
_CLOSE_AGAIN = Cell(leave.on_close_again, rules=("M98",))
_FIND_COORDINATOR = Cell(coordinator_lookup.find_coordinator, rules=("M28",))
_JOIN_RULES = (
    "M3",
    "M5",
    "M7",
    "M8",
    "M22",
    "M35",
    "M36",
    "M37",
    "M38",
    "M39",
    "M40",
    "M41",
    "M42",
    "M43",
    "M44",
    "M45",
    "M46",
    "M55",
    "M80",
    "M81",
    "M117",
)
_SYNC_RULES = (
    "M3",
    "M9",
    "M10",
    "M22",
    "M47",
    "M48",
    "M49",
    "M50",
    "M51",
    "M52",
    "M53",
    "M54",
    "M83",
    "M84",
    "M85",
    "M89",
    "M91",
)
_HEARTBEAT_RULES = ("M3", "M13", "M14", "M15", "M56", "M57", "M58", "M59", "M76", "M118")
_TICK_RULES = ("M16", "M20", "M105", "M107", "M110", "M111")

TABLE: Final[Table[MemberEventKind, MemberState]] = Table(
    MemberState,
    EDGES,
    {
        K.SUBSCRIBE: row(
            IGNORED,
            {
                S.IDLE: Cell(subscription.on_subscribe, (S.UNJOINED,)),
                **dict.fromkeys((*ACTIVE, S.EXPIRED, S.FAILED, S.UNSUBSCRIBING), _SUBSCRIBE),
            },
        ),
        K.UNSUBSCRIBE: row(
            IGNORED,
            {
                S.IDLE: Cell(leave.on_unsubscribe_idle, rules=("M116",)),
                **dict.fromkeys((*ACTIVE, S.EXPIRED, S.FAILED), _UNSUBSCRIBE),
                S.UNSUBSCRIBING: Cell(leave.on_unsubscribe_again),
            },
        ),
        K.REQUEST_REJOIN: row(IGNORED, {S.STABLE: _REQUEST_REJOIN, S.ADOPTING: _REQUEST_REJOIN}),
        K.POLL_BEGAN: row(
            Cell(timers.on_poll_began, rules=("M108", "M112")),
            {S.EXPIRED: _POLL_AGAIN, S.FAILED: _POLL_AGAIN},
        ),
        K.POLL_ENDED: row(Cell(timers.on_poll_ended, rules=("M108", "M112")), {}),
        K.RELEASED: row(
            IGNORED,
            {
                S.RELEASING: Cell(revocation.on_released_before_join, (S.UNJOINED,), rules=("M21", "M79")),
                S.ADOPTING: Cell(
                    assignment.on_released_adopting, (S.STABLE,), rules=("M79", "M84", "M89", "M91", "M94")
                ),
                S.UNSUBSCRIBING: Cell(leave.on_released, (S.IDLE, S.UNJOINED), rules=("M60", "M79", "M99")),
                S.CLOSING: Cell(leave.on_released, (S.LEAVING, S.CLOSED), rules=("M60", "M79", "M98")),
                **dict.fromkeys((S.EXPIRED, S.FAILED, S.FENCED), _RELEASED),
            },
        ),
        K.COORDINATOR_FOUND: row(Cell(coordinator_lookup.on_coordinator_found, rules=("M30",)), {}),
        K.COORDINATOR_LOST: row(
            _COORDINATOR_LOST,
            {
                **dict.fromkeys(REBALANCING, _COORDINATOR_LOST_REBALANCING),
                S.LEAVING: Cell(coordinator_lookup.on_coordinator_lost_leaving, (S.CLOSED,), rules=("M98",)),
            },
        ),
        K.FAILED: row(
            _FAILED,
            {
                **dict.fromkeys(REBALANCING, _FAILED_REBALANCING),
                S.LEAVING: Cell(leave.on_leave_failed, (S.CLOSED,), rules=("M60",)),
            },
        ),
        K.REFUSED: row(
            IGNORED,
            {
                S.JOINING: _REFUSED,
                S.SYNCING: _REFUSED,
                S.STABLE: Cell(coordinator_lookup.on_describe_refused),
                S.UNSUBSCRIBING: _REFUSED_LEAVING,
                S.CLOSING: _REFUSED_LEAVING,
                S.LEAVING: Cell(leave.on_leave_refused, (S.CLOSED,), rules=("M60",)),
            },
        ),
        K.JOIN_RESPONSE: row(
            IGNORED,
            {
                S.JOINING: Cell(
                    join.on_join_response,
                    (S.ASSIGNING, S.SYNCING, S.UNJOINED, S.RELEASING, S.FENCED, S.FAILED),
                    rules=_JOIN_RULES,
                ),
                S.UNSUBSCRIBING: _JOINED_LEAVING,
                S.CLOSING: _JOINED_LEAVING,
            },
        ),
        K.SYNC_RESPONSE: row(
            IGNORED,
            {
                S.SYNCING: Cell(
                    assignment.on_sync_response,
                    (S.STABLE, S.ADOPTING, S.UNJOINED, S.RELEASING, S.FENCED, S.FAILED),
                    rules=_SYNC_RULES,
                ),
                S.UNSUBSCRIBING: _SYNCED_LEAVING,
                S.CLOSING: _SYNCED_LEAVING,
            },
        ),
        K.HEARTBEAT_RESPONSE: row(
            IGNORED,
            {
                state: Cell(heartbeat.on_heartbeat_response, next_states, rules=_HEARTBEAT_RULES)
                for state, next_states in RESET_TO.items()
            },
        ),
        K.LEAVE_RESPONSE: row(
            IGNORED, {S.LEAVING: Cell(leave.on_leave_response, (S.CLOSED,), rules=("M60", "M98"))}
        ),
        K.DESCRIBE_RESPONSE: row(IGNORED, {S.STABLE: Cell(heartbeat.on_describe_response)}),
        K.COMMIT_ANSWERED: row(
            IGNORED,
            {
                state: Cell(heartbeat.on_commit_answered, next_states, rules=("M3", "M13", "M61"))
                for state, next_states in RESET_TO.items()
            },
        ),
        K.METADATA: row(
            Cell(assignment.on_metadata),
            {
                S.ASSIGNING: Cell(
                    assignment.on_metadata_assigning, (S.SYNCING, S.FAILED), rules=("M55", "M80")
                )
            },
        ),
        K.CLOSE: row(
            Cell(leave.on_close, (S.CLOSING, S.LEAVING, S.CLOSED), rules=("M17", "M97", "M98")),
            {S.CLOSING: _CLOSE_AGAIN, S.LEAVING: _CLOSE_AGAIN},
        ),
        K.TICK: row(
            Cell(timers.on_tick),
            {
                S.IDLE: IGNORED,
                S.UNJOINED: Cell(timers.on_tick, (S.EXPIRED, S.RELEASING), rules=_TICK_RULES),
                S.RELEASING: Cell(timers.on_tick, (S.EXPIRED,), rules=_TICK_RULES),
                **dict.fromkeys(
                    (*REBALANCING, S.STABLE),
                    Cell(timers.on_tick, (S.EXPIRED, S.UNJOINED, S.RELEASING), rules=_TICK_RULES),
                ),
                S.ADOPTING: Cell(timers.on_tick, (S.EXPIRED, S.RELEASING), rules=_TICK_RULES),
                S.CLOSING: Cell(timers.on_tick, (S.CLOSED,), rules=("M98",)),
                S.LEAVING: Cell(timers.on_tick, (S.CLOSED,), rules=("M98",)),
            },
        ),
        K.PROCEED: row(
            IGNORED,
            {
                S.UNJOINED: Cell(
                    join.join_if_due,
                    (S.RELEASING, S.JOINING, S.FAILED),
                    rules=("M6", "M21", "M24", "M28", "M55", "M74", "M77", "M78"),
                ),
                S.STABLE: Cell(
                    join.rejoin_if_needed,
                    (S.RELEASING, S.JOINING, S.FAILED),
                    rules=("M6", "M19", "M21", "M24", "M28", "M55", "M74", "M77", "M78", "M92", "M94"),
                ),
                **dict.fromkeys((S.RELEASING, *REBALANCING, S.ADOPTING), _FIND_COORDINATOR),
            },
        ),
    },
)
