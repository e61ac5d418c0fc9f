"""How a member joins: it lets go, sends JoinGroup, plans if it leads, sends SyncGroup, adopts its part."""

from __future__ import annotations

import re

from ....error_codes import ErrorCode
from ....errors import BrokerError, IllegalState, KprotoError
from ....messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ....messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ...assignors import Assignor
from ...protocol import Assign, Metadata, Purpose, Received, Rejoining, Send, WantMetadata
from ...subscription import Assignment, Subscription
from . import leadership
from .leave import error, fail, fence, join_later, let_go, lose_coordinator, reset
from .reasons import (
    FAILED_WITH,
    GET_MEMBER_ID,
    JAVA_EXCEPTIONS,
    JAVA_OTHER,
    MAX_REASON,
    METADATA_CHANGED,
    NOT_OUR_SUBSCRIPTION,
    REVOKED_SOME,
    SUBSCRIPTION_CHANGED,
    java_name,
)
from .state import (
    Member,
    Out,
    S,
    move,
    not_for_ever_at_once,
    poll_watched,
    want_rejoin,
    wants,
)

PROTOCOL_TYPE = "consumer"
UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
JOIN_GRACE_MS = 5_000  # AbstractCoordinator.JOIN_GROUP_TIMEOUT_LAPSE


def watch(member: Member) -> None:
    """Look for reasons to join again; the first one stands."""
    if member.snapshot is not None and not member.rejoin_needed:
        with_racks = member.config.rack_id is not None
        topics = leadership.topics_of(member.group) if member.leads else member.joined_topics
        if leadership.snapshot(topics, member.metadata, with_racks) != member.snapshot:
            want_rejoin(member, METADATA_CHANGED)
    if member.joined_topics != member.topics and not member.rejoin_needed:
        want_rejoin(member, SUBSCRIPTION_CHANGED)


def prepare(member: Member, out: Out) -> None:
    """Have the application let go of what can't be kept over the join, then join."""
    if not member.prepared:
        member.leads, member.group = False, {}
        going = member.owned
        if member.cooperative:
            unwanted = {topic for topic in {tp.topic for tp in member.owned} if not wants(member, topic)}
            going = tuple(tp for tp in member.owned if tp.topic in unwanted)
        # Java's eager members call the callback with nothing too, but not before the first generation.
        if member.generation is not None and (going or not member.cooperative):
            let_go(member, going, False, member.reason, out, precedes_join_or_close=True)
            move(member, S.releasing)
            return
        member.prepared = True
    join(member, out)


def join(member: Member, out: Out) -> None:
    config = member.config
    protocols: list[JoinGroupRequestProtocol] = []
    for assignor in member.assignors:
        try:
            subscription = Subscription(
                topics=tuple(member.topics),
                user_data=assignor.user_data(member.last_assigned, member.last_generation),
                owned=member.owned,
                generation=member.generation,
                rack_id=config.rack_id,
            )
            offer = JoinGroupRequestProtocol(name=assignor.name, metadata=subscription.encode())
        except Exception as error:
            assignor_failed(member, assignor, error, out)
            return
        protocols.append(offer)
    member.joined_topics = member.topics
    member.joins += 1
    request = JoinGroupRequest(
        group_id=config.group_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.rebalance_timeout_ms,
        member_id=member.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=protocols,
        reason=member.reason[:MAX_REASON],
    )
    member.open, member.retry_at = request, None
    if not member.policy.lose_on_session_timeout:
        member.session_at = member.poll_at = None
    moved_again = member.reason == REVOKED_SOME and member.is_rejoining_repeatedly
    out.append(Rejoining(member.reason, member.reason == NOT_OUR_SUBSCRIPTION or moved_again))
    timeout_ms = config.rebalance_timeout_ms + JOIN_GRACE_MS
    out.append(Send(request, timeout_ms=timeout_ms, purpose=Purpose.JOIN))
    move(member, S.joining)


def join_answered(member: Member, event: Received, now: int, out: Out) -> None:
    if event.request is not member.open:
        return
    answer = event.response
    assert isinstance(answer, JoinGroupResponse)
    member.open = None
    code = answer.error_code
    if code == ErrorCode.NONE:
        joined(member, answer, now, out)
    elif code == ErrorCode.MEMBER_ID_REQUIRED:
        member.generation, member.member_id, member.protocol = None, answer.member_id, None
        want_rejoin(member, GET_MEMBER_ID.format(answer.member_id))
        move(member, S.unjoined)
    elif code == ErrorCode.FENCED_INSTANCE_ID:
        fence(member, "JoinGroup", out)
    elif code == ErrorCode.UNKNOWN_MEMBER_ID:
        reset(member, FAILED_WITH.format(java_name(code)), out, keep_id=False)
    elif code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
        join_later(member, java_name(code), now, member.config.retry_backoff_ms)
        lose_coordinator(member, now)
    elif code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        join_later(member, java_name(code), now, member.config.retry_backoff_ms)
    elif code == ErrorCode.REBALANCE_IN_PROGRESS:
        join_later(member, java_name(code), now, 0)
    else:
        fail(member, error(code, "JoinGroup", member.config), java_name(code), out)
    not_for_ever_at_once(member, now)


def joined(member: Member, answer: JoinGroupResponse, now: int, out: Out) -> None:
    known = {assignor.name for assignor in member.assignors}
    if (answer.protocol_type or PROTOCOL_TYPE) != PROTOCOL_TYPE or answer.protocol_name not in known:
        theirs = f"{answer.protocol_type or PROTOCOL_TYPE} {answer.protocol_name}"
        detail = f"the group uses {theirs}, this member {PROTOCOL_TYPE} {sorted(known)}"
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        fail(member, BrokerError(code, "JoinGroup", detail), JAVA_EXCEPTIONS[code], out)
        return
    untold = _leads_untold(member, answer)
    leads = untold or answer.leader == answer.member_id
    static = member.config.group_instance_id is not None
    skips = untold or (answer.skip_assignment and (static or not member.policy.check_inherited_plan))
    if leads and not skips and all(m.member_id != answer.member_id for m in answer.members):
        detail = f"this member shall lead, and is none of the {len(answer.members)} members in the answer"
        fail(member, BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "JoinGroup", detail), JAVA_OTHER, out)
        return
    member.generation = answer.generation_id
    member.member_id = answer.member_id
    member.protocol = answer.protocol_name
    config = member.config
    member.heartbeats_failed = 0
    member.heartbeat_at = now + config.heartbeat_interval_ms
    member.session_at = now + config.session_timeout_ms
    poll_watched(member, now)
    member.leads = leads
    member.snapshot = None
    if not member.leads:
        member.inherited = False  # another has planned since
        if member.policy.every_member_watches:
            member.snapshot = leadership.snapshot(member.topics, member.metadata, config.rack_id is not None)
        sync(member, [], out)
        return
    member.group = leadership.subscriptions(
        (m.member_id, m.group_instance_id, m.metadata) for m in answer.members
    ) or {member.member_id: Subscription(topics=tuple(member.joined_topics))}
    member.skip_assignment = skips
    topics = leadership.topics_of(member.group)
    move(member, S.planning)
    if topics <= member.metadata.partitions.keys():
        plan(member, out)
    else:
        out.append(WantMetadata(topics))


def _leads_untold(member: Member, answer: JoinGroupResponse) -> bool:
    """Before v9 a static leader that comes back is told its own former member id as the leader's."""
    instance_id = member.config.group_instance_id
    if instance_id is None or not member.policy.check_inherited_plan:
        return False
    former = re.fullmatch(re.escape(instance_id) + "-" + UUID, answer.leader)
    return former is not None and answer.leader != answer.member_id


def plan(member: Member, out: Out) -> None:
    """The leader's work: divide what the group wants, and remember by what knowledge."""
    topics = leadership.topics_of(member.group)
    first = member.generation == 1
    member.existed = leadership.existed_by_now(
        member.existed, topics, member.metadata, member.planned_with, first
    )
    # KIP-814: a static leader came back, and its old plan holds. If this very process made that, it knows
    # with what, and sees what has grown since.
    if not member.skip_assignment:
        member.inherited, member.planned_with = False, member.metadata
    elif member.planned_with is None:
        member.inherited, member.planned_with = member.policy.check_inherited_plan, member.metadata
    member.snapshot = leadership.snapshot(topics, member.planned_with, member.config.rack_id is not None)
    assignments: list[SyncGroupRequestAssignment] = []
    if not member.skip_assignment:
        assignor = next(a for a in member.assignors if a.name == member.protocol)
        try:
            assignments = leadership.plan(assignor, member.group, member.metadata, member.existed)
        except Exception as error:
            assignor_failed(member, assignor, error, out)
            return
    sync(member, assignments, out)


def assignor_failed(member: Member, assignor: Assignor, error: Exception, out: Out) -> None:
    """It may be the application's own, which hears of it."""
    failure = IllegalState(f"the assignor {assignor.name!r} failed: {error!r}")
    failure.__cause__ = error
    fail(member, failure, type(error).__name__, out)


def sync(member: Member, assignments: list[SyncGroupRequestAssignment], out: Out) -> None:
    assert member.generation is not None
    request = SyncGroupRequest(
        group_id=member.config.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.config.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=member.protocol,
        assignments=assignments,
    )
    member.open = request
    out.append(Send(request, purpose=Purpose.SYNC))
    move(member, S.syncing)


def metadata(member: Member, event: Metadata, now: int, out: Out) -> None:
    if event.asked is None:
        member.metadata = event
        return
    old = member.metadata
    member.metadata = Metadata(
        {**{t: n for t, n in old.partitions.items() if t not in event.asked}, **event.partitions},
        complete=event.complete,
        ids={**old.ids, **event.ids},
        racks={**old.racks, **event.racks},
    )


def metadata_for_plan(member: Member, event: Metadata, now: int, out: Out) -> None:
    metadata(member, event, now, out)
    topics = leadership.topics_of(member.group)
    if event.asked is None or topics <= event.asked or topics <= member.metadata.partitions.keys():
        plan(member, out)


def sync_answered(member: Member, event: Received, now: int, out: Out) -> None:
    if event.request is not member.open:
        return
    answer = event.response
    assert isinstance(answer, SyncGroupResponse)
    member.open = None
    code = answer.error_code
    if code == ErrorCode.NONE:
        synced(member, answer, out)
    elif code == ErrorCode.FENCED_INSTANCE_ID:
        fence(member, "SyncGroup", out)
    elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        reason = FAILED_WITH.format(java_name(code))
        reset(member, reason, out, keep_id=code == ErrorCode.ILLEGAL_GENERATION)
    elif code == ErrorCode.REBALANCE_IN_PROGRESS:
        join_later(member, java_name(code), now, 0)
    elif code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
        join_later(member, java_name(code), now, member.config.retry_backoff_ms)
        lose_coordinator(member, now)
    elif code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        join_later(member, java_name(code), now, member.config.retry_backoff_ms)
    else:
        # Of the others Java's SyncGroup knows none by name.
        name = java_name(code) if code == ErrorCode.GROUP_AUTHORIZATION_FAILED else JAVA_OTHER
        fail(member, error(code, "SyncGroup", member.config), name, out)
    not_for_ever_at_once(member, now)


def synced(member: Member, answer: SyncGroupResponse, out: Out) -> None:
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    got = (answer.protocol_type or PROTOCOL_TYPE, answer.protocol_name or member.protocol)
    if got != (PROTOCOL_TYPE, member.protocol):
        detail = f"the group uses {got[0]} {got[1]}, but this member joined with {member.protocol}"
        fail(member, BrokerError(code, "SyncGroup", detail), JAVA_EXCEPTIONS[code], out)
        return
    try:
        assignment = Assignment.decode(answer.assignment)
    except KprotoError as error:
        fail(member, error, JAVA_OTHER, out)
        return
    member.rejoin_needed, member.prepared, member.reason = False, False, ""
    assert member.generation is not None
    member.assigned_identity = member.joined_identity
    if not all(wants(member, topic) for topic in {tp.topic for tp in assignment.partitions}):
        want_rejoin(member, NOT_OUR_SUBSCRIPTION)
        move(member, S.stable)
        return
    existed = leadership.read_memory(assignment.user_data)
    if existed is not None:
        member.existed = existed
    if member.pattern is not None:  # the leader may know topics that this member has not met yet
        met = {tp.topic for tp in assignment.partitions}
        member.topics, member.joined_topics = member.topics | met, member.joined_topics | met
    if member.planned != member.generation:
        member.planned = member.generation
        # A plan that was made without a static member goes by what that had when it joined last.
        if not (member.put_out and member.cooperative):
            member.given_back = set()
    member.put_out = False
    nobodys = member.given_back.difference(assignment.partitions)
    gone = set(member.owned).difference(assignment.partitions)
    if gone:
        member.adopting = assignment
        let_go(member, gone, False, REVOKED_SOME, out)
        move(member, S.adopting)
        return
    adopt(member, assignment, out)
    if nobodys and member.policy.finish_revocations:
        want_rejoin(member, REVOKED_SOME)
    else:
        member.joins = 0


def adopt(member: Member, assignment: Assignment, out: Out) -> None:
    """Own what was assigned; the application hears of what is new, even when that is nothing."""
    assert member.generation is not None
    owned = tuple(sorted(set(assignment.partitions)))
    before = set(member.owned)
    added = tuple(tp for tp in owned if tp not in before)
    new = leadership.new_partitions(added, member.existed)
    member.owned, member.adopting = owned, None
    member.last_assigned, member.last_generation = owned, member.generation
    move(member, S.stable)
    out.append(Assign(added, owned, member.generation, member.generation == 1, new, dict(member.existed)))
