"""consumergroup.go: ConsumerGroup.run and nextGeneration, the routines of a generation, and `step`.

Rules that hold here:

* Each generation looks the coordinator up anew, on a connection that is closed after it, and has a
  connection to it that is closed when the last routine has ended. LeaveGroup does the same once more.
* The member id is kept over generations. It is lost when JoinGroup fails in any way; any other error of the
  start leaves the group first. REBALANCE_IN_PROGRESS is tried again at once, everything else after
  JoinGroupBackoff.
* Closing waits: an open JoinGroup, SyncGroup or OffsetFetch is waited for, and only then the group is left.
  In the backoff after an error it isn't left at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ...error_codes import ErrorCode
from ...errors import DecodeError
from ...group.subscription import TopicPartition
from ...messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from ...messages.find_coordinator import FindCoordinatorResponse
from ...messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ...messages.leave_group import LeaveGroupRequest
from ...messages.metadata import MetadataResponse
from ...messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse
from ...messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ...wire.message import Message, decode_from
from ..common import fetched_offsets, find_coordinator, found_coordinator
from ..contract import (
    AssignCalled,
    CallbackReturned,
    CloseCalled,
    CommitCalled,
    DeadlineReached,
    FinishClose,
    FinishPoll,
    ModelAction,
    ModelEvent,
    Notify,
    PauseCalled,
    PollCalled,
    RebalanceCalled,
    RequestFailed,
    ResponseReceived,
    ResumeCalled,
    SeekCalled,
    Started,
    SubscribeCalled,
    UnsubscribeCalled,
)
from . import generation, partition_reader, reader
from .groupbalancer import assign
from .state import (
    RUNNING,
    TIMEOUT_MS,
    Error,
    Out,
    Phase,
    State,
    hang_up,
    kafka_error,
    lane,
    move,
    network_error,
    send,
    tell_error,
)

P = Phase


def step(state: State, event: ModelEvent, now: int) -> list[ModelAction]:
    """Let `event` happen at `now` (milliseconds) and return what to do, in order."""
    out: list[ModelAction] = []
    if isinstance(event, ResponseReceived):
        _answered(state, event.request, event.response, "", now, out)
    elif isinstance(event, RequestFailed):
        if event.late and _is_the_groups(state, event.request):
            hang_up(out, state.coordinator)  # conn.go closes a connection that is late
        _answered(state, event.request, None, event.why, now, out)
    else:
        TABLE[type(event)](state, event, now, out)
    _go_on(state, now, out)
    return out


def next_deadline(state: State) -> int | None:
    """When to send the next `Tick`, in the same milliseconds as `now`."""
    found: list[int] = []
    if state.poll is not None:
        found.append(state.poll[0])
    if state.retry_at is not None and state.phase is P.waiting:
        found.append(state.retry_at)
    reader.due(state, found)
    made = state.generation
    if made is not None:
        if made.soonest is not None:
            found.append(made.soonest)
        if state.phase is RUNNING:
            generation.due(made, found)
    return min(found) if found else None


# -- the application --------------------------------------------------------------------------------------


def _started(state: State, event: Started, now: int, out: Out) -> None:
    state.bootstrap, state.offered = event.bootstrap, event.offered
    if state.topics:
        _next_generation(state, now, out)


def _subscribe(state: State, event: SubscribeCalled, now: int, out: Out) -> None:
    """NewReader. A Reader has one set of topics for its life, and no patterns."""
    if state.topics or not event.topics:
        why = "it has its topics for life" if state.topics else "it takes no pattern"
        out.append(Notify("error", "Unsupported", f"kafka-go's Reader can't subscribe so: {why}"))
        return
    state.topics = event.topics
    if state.bootstrap:
        _next_generation(state, now, out)


def _poll(state: State, event: PollCalled, now: int, out: Out) -> None:
    state.poll = (now + event.timeout_ms, event.limit)


def _commit(state: State, event: CommitCalled, now: int, out: Out) -> None:
    reader.commit_messages(state, event, now, out)


def _close(state: State, event: CloseCalled, now: int, out: Out) -> None:
    if state.closing:
        return
    state.closing = True
    if state.phase is P.running:
        _end(state, out)
    elif state.phase in (P.idle, P.waiting):
        _closed(state, out)


def _unsupported(state: State, event: ModelEvent, now: int, out: Out) -> None:
    name = type(event).__name__.removesuffix("Called")
    out.append(Notify("error", "Unsupported", f"a Reader with a GroupID has nothing like {name}"))


def _nothing(state: State, event: ModelEvent, now: int, out: Out) -> None:
    """It changes nothing by itself: what time made possible comes after every event."""


TABLE: Final[dict[type[Any], Callable[[State, Any, int, Out], None]]] = {
    Started: _started,
    SubscribeCalled: _subscribe,
    UnsubscribeCalled: _unsupported,
    AssignCalled: _unsupported,
    SeekCalled: _unsupported,
    PauseCalled: _unsupported,
    ResumeCalled: _unsupported,
    RebalanceCalled: _unsupported,
    PollCalled: _poll,
    CallbackReturned: _nothing,
    CommitCalled: _commit,
    CloseCalled: _close,
    DeadlineReached: _nothing,
}
"""What the application and time do; answers are in ANSWERS."""


# -- nextGeneration ---------------------------------------------------------------------------------------


def _next_generation(state: State, now: int, out: Out) -> None:
    state.tried = 0
    _find(state, P.finding, out)


def _find(state: State, phase: Phase, out: Out) -> None:
    """ConsumerGroup.coordinator: the first broker that can be reached is asked."""
    move(state, phase)
    host, port = state.bootstrap[state.tried]
    state.coordinator = lane(state, host, port, "find")
    state.open = send(out, state.coordinator, find_coordinator(state.config.group_id, 0), 0)


def _found(state: State, answer: Message | None, why: str, now: int, out: Out) -> None:
    hang_up(out, state.coordinator)
    if not isinstance(answer, FindCoordinatorResponse):
        state.tried += 1
        if state.tried < len(state.bootstrap):
            _find(state, state.phase, out)
        elif state.phase is P.finding:
            _fail(state, network_error(why), now, out)
        else:
            _left(state, None, why, now, out)
        return
    found = found_coordinator(answer)
    if found.error and state.phase is P.finding:
        _fail(state, kafka_error(found.error), now, out)
    elif found.error:
        _left(state, None, why, now, out)
    elif state.phase is P.finding:
        state.coordinator = lane(state, found.host, found.port, "group")
        _join(state, out)
    else:
        state.coordinator = lane(state, found.host, found.port, "leave")
        move(state, P.leaving)
        request = LeaveGroupRequest(group_id=state.config.group_id, member_id=state.member_id)
        state.open = send(out, state.coordinator, request, 0)


def _join(state: State, out: Out) -> None:
    """makeJoinGroupRequest: the subscription says version 1 and stops where version 0 does."""
    assert state.coordinator is not None
    body = ConsumerProtocolSubscription(topics=list(state.topics)).encode(0)
    metadata = (1).to_bytes(2, "big") + body
    request = JoinGroupRequest(
        group_id=state.config.group_id,
        session_timeout_ms=state.session_ms,
        rebalance_timeout_ms=state.rebalance_ms,
        member_id=state.member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name in state.balancers],
    )
    move(state, P.joining)
    state.open = send(out, state.coordinator, request, 2, TIMEOUT_MS + state.rebalance_ms)


def _joined(state: State, answer: Message | None, why: str, now: int, out: Out) -> None:
    if not isinstance(answer, JoinGroupResponse) or answer.error_code:
        state.member_id = ""
        code = answer.error_code if isinstance(answer, JoinGroupResponse) else 0
        _fail(state, kafka_error(code) if code else network_error(why), now, out, code)
        return
    state.member_id, state.generation_id = answer.member_id, answer.generation_id
    state.protocol, state.plan = answer.protocol_name or "", {}
    if answer.leader != answer.member_id:
        _sync(state, out)
        return
    try:
        state.members = {one.member_id: _topics_of(one.metadata) for one in answer.members}
    except DecodeError as error:
        text = f"unable to read metadata for member: {error}"
        _fail(state, ("fmt.wrapError", text), now, out)
        return
    move(state, P.planning)
    assert state.coordinator is not None
    topics = sorted({topic for found in state.members.values() for topic in found})
    state.open = generation.read_partitions(state, topics, out)


def _topics_of(metadata: bytes) -> tuple[str, ...]:
    """groupMetadata.readFrom: it knows version 0 only, and a byte more is an error."""
    view = memoryview(metadata)[2:]
    body, stop = decode_from(ConsumerProtocolSubscription, view, 0, 0)
    if stop != len(view):
        raise DecodeError("groupMetadata", 0, "", stop + 2, f"{len(view) - stop} bytes behind its end")
    return tuple(body.topics)


def _planned(state: State, answer: Message | None, why: str, now: int, out: Out) -> None:
    if not isinstance(answer, MetadataResponse):
        _fail(state, network_error(why), now, out)
        return
    code, partitions = generation.partitions(answer)
    if code and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        _fail(state, kafka_error(code), now, out)
        return
    plan = assign(state.protocol, state.members, partitions)
    state.plan = {member: _written(found) for member, found in plan.items()}
    _sync(state, out)


def _written(found: dict[str, list[int]]) -> bytes:
    body = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=indexes)
            for topic, indexes in found.items()
        ]
    )
    return (1).to_bytes(2, "big") + body.encode(1)


def _sync(state: State, out: Out) -> None:
    assert state.coordinator is not None
    request = SyncGroupRequest(
        group_id=state.config.group_id,
        generation_id=state.generation_id,
        member_id=state.member_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=member, assignment=data)
            for member, data in state.plan.items()
        ],
    )
    move(state, P.syncing)
    state.open = send(out, state.coordinator, request, 0, TIMEOUT_MS + state.session_ms)


def _synced(state: State, answer: Message | None, why: str, now: int, out: Out) -> None:
    if not isinstance(answer, SyncGroupResponse) or answer.error_code:
        code = answer.error_code if isinstance(answer, SyncGroupResponse) else 0
        _fail(state, kafka_error(code) if code else network_error(why), now, out, code)
        return
    state.assigned = {}
    if answer.assignment:
        body, _ = decode_from(ConsumerProtocolAssignment, memoryview(answer.assignment)[2:], 0, 0)
        state.assigned = {one.topic: list(one.partitions) for one in body.assigned_partitions}
    assert state.coordinator is not None
    request = OffsetFetchRequest(
        group_id=state.config.group_id,
        topics=[
            OffsetFetchRequestTopic(name=topic, partition_indexes=state.assigned.get(topic, []))
            for topic in state.topics
        ],
    )
    move(state, P.fetching)
    state.open = send(out, state.coordinator, request, 1)


def _offsets(state: State, answer: Message | None, why: str, now: int, out: Out) -> None:
    if not isinstance(answer, OffsetFetchResponse):
        _fail(state, network_error(why), now, out)
        return
    _, committed = fetched_offsets(answer)
    code = next((one.error for one in committed.values() if one.error), 0)
    if code:
        _fail(state, kafka_error(code), now, out)
        return
    start = {tp: one.offset if one.offset >= 0 else state.start_offset for tp, one in committed.items()}
    _begin(state, start, now, out)


# -- a generation -----------------------------------------------------------------------------------------


def _begin(state: State, start: dict[TopicPartition, int], now: int, out: Out) -> None:
    move(state, P.running)
    state.errors = 0
    generation.begin(state, start, now, out)
    if state.closing:
        _end(state, out)


def _end(state: State, out: Out) -> None:
    """Generation.done is closed: the routines end, each as soon as it can."""
    assert state.generation is not None
    move(state, P.ending)
    for one in state.generation.readers:
        partition_reader.cancel(state, one, out)


def _ended(state: State, now: int, out: Out) -> None:
    """Generation.close returns when all routines have: then comes the next generation, or the end."""
    if state.generation is None or not generation.ended(state.generation):
        return
    state.generation = None
    hang_up(out, state.coordinator)
    if state.closing:
        _leave(state, None, now, out)
    else:
        _next_generation(state, now, out)


# -- what goes wrong, and leaving -------------------------------------------------------------------------


def _fail(state: State, error: Error, now: int, out: Out, code: int = 0) -> None:
    """ConsumerGroup.run's switch over what nextGeneration returned."""
    hang_up(out, state.coordinator)
    if code == ErrorCode.REBALANCE_IN_PROGRESS:
        if state.closing:
            _closed(state, out)
            return
        tell_error(state, error, out)
        _next_generation(state, now, out)
    else:
        _leave(state, error, now, out)


def _leave(state: State, error: Error | None, now: int, out: Out) -> None:
    state.failed = error
    if state.member_id:
        state.tried = 0
        _find(state, P.leave_finding, out)
    else:
        _left(state, None, "", now, out)


def _left(state: State, answer: Message | None, why: str, now: int, out: Out) -> None:
    """Whatever LeaveGroup answered, the member id is forgotten."""
    if state.phase is P.leaving:
        hang_up(out, state.coordinator)
    state.member_id = ""
    if state.closing or state.failed is None:
        _closed(state, out)
        return
    move(state, P.waiting)
    state.retry_at = now + state.backoff_ms
    tell_error(state, state.failed, out)


def _closed(state: State, out: Out) -> None:
    if state.poll is not None:
        state.poll = None
        out.append(FinishPoll())
    for wanted in (*state.blocked, *state.commits):
        if wanted.token is not None:
            out.append(reader.refused(wanted))
    state.blocked.clear()
    state.commits.clear()
    move(state, P.closed)
    out.append(FinishClose())


# -- answers, and time ------------------------------------------------------------------------------------

Step = Callable[[State, "Message | None", str, int, Out], None]

ANSWERS: Final[dict[Phase, Step]] = {
    P.finding: _found,
    P.joining: _joined,
    P.planning: _planned,
    P.syncing: _synced,
    P.fetching: _offsets,
    P.leave_finding: _found,
    P.leaving: _left,
}
"""What the answer to the loop's own request means, by phase. The answer is None where there was none."""


def _answered(state: State, request: Message, answer: Message | None, why: str, now: int, out: Out) -> None:
    if request is state.open:
        state.open = None
        ANSWERS[state.phase](state, answer, why, now, out)
        return
    if state.generation is None:
        return
    for one in state.generation.readers:
        if request is one.open:
            partition_reader.answered(state, one, answer, why, now, out)
            return
    if request is state.generation.commits.open:
        reader.answered(state, answer, why, now, out)
    elif generation.answered(state.generation, request, answer) and state.phase is P.running:
        _end(state, out)


def _is_the_groups(state: State, request: Message) -> bool:
    return state.generation is None or all(one.open is not request for one in state.generation.readers)


def _go_on(state: State, now: int, out: Out) -> None:
    """What every event may have made possible."""
    if state.retry_at is not None and now >= state.retry_at and state.phase is P.waiting:
        state.retry_at = None
        _next_generation(state, now, out)
    made = state.generation
    if made is not None:
        if state.phase is RUNNING:
            generation.beat(state, made, now, out)
            generation.watch(state, made, now, out)
        if made.soonest is not None and now >= made.soonest:
            partition_reader.tick(state, made, now, out)
        reader.refill(state, now, out)
    reader.deliver(state, now, out)
    if state.blocked:
        reader.unblock(state, out)
    reader.run(state, now, out)
    if state.blocked:
        reader.unblock(state, out)
    reader.give_up(state, now, out)
    if made is not None and state.phase is P.ending:
        _ended(state, now, out)
