"""Assignments: the leader computes them, SyncGroup delivers them, and the member adopts its own."""

from __future__ import annotations

from ....error_codes import ErrorCode
from ....errors import BrokerError, IllegalState, KprotoError
from ....messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ....wire.message import Message
from ...protocol import (
    AdoptAssignment,
    Fatal,
    MetadataUpdated,
    Purpose,
    Received,
    Released,
    RevokePurpose,
    Send,
)
from ...subscription import Assignment
from . import leadership
from .membership import assignor_failed, broker_error, fail, fence, join_later, lose_coordinator, reset
from .reasons import (
    FAILED_WITH,
    JAVA_EXCEPTIONS,
    JAVA_OTHER,
    NOT_OUR_PLAN,
    NOT_OUR_SUBSCRIPTION,
    REVOKED_SOME,
    java_name,
)
from .revocation import finish_release, revoke
from .state import (
    PROTOCOL_TYPE,
    Actions,
    Member,
    S,
    back_off_from_repeated_joins,
    is_subscribed,
    move,
    request_rejoin,
)

# The leader


def on_metadata(member: Member, event: MetadataUpdated, now: int, out: Actions) -> None:
    """Store the metadata. If only some topics were requested, replace only the metadata of these topics.

    If a requested topic no longer exists, its topic id and its racks are kept.
    """
    if event.requested is None:
        member.metadata = event
        return
    previous = member.metadata
    other_counts = {
        topic: count for topic, count in previous.partitions.items() if topic not in event.requested
    }
    member.metadata = MetadataUpdated(
        {**other_counts, **event.partitions},
        complete=event.complete,
        ids={**previous.ids, **event.ids},
        racks={**previous.racks, **event.racks},
    )


def on_metadata_assigning(member: Member, event: MetadataUpdated, now: int, out: Actions) -> None:
    """Store the metadata; if it covers the topics of all members, run the assignor (M80)."""
    on_metadata(member, event, now, out)
    topics = leadership.topics_of(member.subscriptions)
    were_requested = event.requested is None or topics <= event.requested
    if were_requested or topics <= member.metadata.partitions.keys():
        assign_group(member, out)


def assign_group(member: Member, out: Actions) -> None:
    """Run the assignor, store a snapshot of the metadata that it used, and send SyncGroup (M80).

    A restarted static leader sends SyncGroup without assignments and does not run the assignor: the group
    keeps its assignment (KIP-814).
    """
    _store_assignment_metadata(member)
    assignments: list[SyncGroupRequestAssignment] = []
    if not member.skips_assignment:
        assignor = next(assignor for assignor in member.assignors if assignor.name == member.protocol)
        try:
            assignments = leadership.assign(
                assignor, member.subscriptions, member.metadata, member.initial_counts
            )
        except Exception as error:
            assignor_failed(member, assignor, error, out)
            return
    send_sync(member, assignments, out)


def _store_assignment_metadata(member: Member) -> None:
    """Store the metadata that the assignor used, store a snapshot, and update `initial_counts`."""
    topics = leadership.topics_of(member.subscriptions)
    member.initial_counts = leadership.update_initial_counts(
        member.initial_counts,
        topics,
        member.metadata,
        previous=member.assignment_metadata,
        is_first_generation=member.generation == 1,
    )
    if not member.skips_assignment:
        member.inherits_assignment, member.assignment_metadata = False, member.metadata
    elif member.assignment_metadata is None:
        # The former process of this static member computed the assignment from metadata that is unknown here.
        # Later metadata is compared with the first metadata of this process instead.
        member.inherits_assignment = member.policy.check_inherited_plan
        member.assignment_metadata = member.metadata
    with_racks = member.config.rack_id is not None
    member.assignment_snapshot = leadership.take_snapshot(topics, member.assignment_metadata, with_racks)


# SyncGroup


def send_sync(member: Member, assignments: list[SyncGroupRequestAssignment], out: Actions) -> None:
    """Send SyncGroup and wait for its response. A follower sends it without assignments."""
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
    member.rebalance_request = request
    out.append(Send(request, purpose=Purpose.SYNC))
    move(member, S.SYNCING)


def on_sync_response(member: Member, event: Received, now: int, out: Actions) -> None:
    """Adopt the assignment (M9), or handle the error code of the response.

    A response is ignored if the member no longer waits for it (M10).
    """
    if event.request is not member.rebalance_request:
        return
    response = event.response
    assert isinstance(response, SyncGroupResponse)
    member.rebalance_request = None
    code = response.error_code
    if code == ErrorCode.NONE:
        _apply_assignment(member, event.request, response, out)
    elif code == ErrorCode.FENCED_INSTANCE_ID:
        fence(member, "SyncGroup", out)
    elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        reason = FAILED_WITH.format(java_name(code))
        reset(member, reason, out, keep_id=code == ErrorCode.ILLEGAL_GENERATION)
    elif code == ErrorCode.REBALANCE_IN_PROGRESS:
        join_later(member, java_name(code), now, backoff_ms=0)
    elif code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
        join_later(member, java_name(code), now, backoff_ms=member.config.retry_backoff_ms)
        lose_coordinator(member, now)
    elif code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and member.policy.retry_loading:
        join_later(member, java_name(code), now, backoff_ms=member.config.retry_backoff_ms)
    else:
        # The reason in the next JoinGroup names Java's exception class. Among the codes of this branch, only
        # GROUP_AUTHORIZATION_FAILED has its own class.
        name = java_name(code) if code == ErrorCode.GROUP_AUTHORIZATION_FAILED else JAVA_OTHER
        fail(member, broker_error(code, "SyncGroup", member), name, out)
    back_off_from_repeated_joins(member, now)


def _apply_assignment(member: Member, request: Message, response: SyncGroupResponse, out: Actions) -> None:
    """Check the assignment, revoke the owned partitions that it does not contain (M84), and adopt it.

    If the member must not use the assignment, it keeps the partitions that it owns, and rejoins.
    """
    protocol_error = _protocol_error(member, response)
    if protocol_error is not None:
        fail(member, protocol_error, JAVA_EXCEPTIONS[ErrorCode.INCONSISTENT_GROUP_PROTOCOL], out)
        return
    try:
        assignment = _decode_assignment(member, response)
    except KprotoError as error:
        _report_unreadable_assignment(member, error, out)
        return
    member.rejoin_needed, member.is_prepared, member.rejoin_reason = False, False, ""
    member.assigned_identity = member.joined_identity
    topics = {partition.topic for partition in assignment.partitions}
    reason = "" if all(is_subscribed(member, topic) for topic in topics) else NOT_OUR_SUBSCRIPTION
    if member.policy.check_inherited_plan and _contradicts_plan(member, request, response):
        reason = NOT_OUR_PLAN
    if reason:
        request_rejoin(member, reason)
        move(member, S.STABLE)
        return
    initial_counts = leadership.decode_initial_counts(assignment.user_data)
    if initial_counts is not None:
        member.initial_counts = initial_counts
    if member.pattern is not None:
        # The leader may assign topics that match the pattern but are missing in this member's metadata. The
        # member then subscribes to them (M85).
        member.topics, member.joined_topics = member.topics | topics, member.joined_topics | topics
    _store_assigned_generation(member)
    revoked = set(member.owned).difference(assignment.partitions)
    if revoked:
        member.pending_assignment = assignment
        revoke(member, revoked, RevokePurpose.REASSIGNED, REVOKED_SOME, out)
        move(member, S.ADOPTING)
        return
    adopt(member, assignment, out)
    unowned = member.revoked_since_assignment.difference(assignment.partitions)
    if unowned and member.policy.finish_revocations:
        request_rejoin(member, REVOKED_SOME)
    else:
        member.joins = 0


def _protocol_error(member: Member, response: SyncGroupResponse) -> BrokerError | None:
    """Return an error if the group does not use the protocol with which the member joined; otherwise None.

    SyncGroup responses below v5 do not name the protocol, so the member does not check them.
    """
    protocol_type = response.protocol_type or PROTOCOL_TYPE
    protocol_name = response.protocol_name or member.protocol
    if (protocol_type, protocol_name) == (PROTOCOL_TYPE, member.protocol):
        return None
    detail = f"the group uses {protocol_type} {protocol_name}, but this member joined with {member.protocol}"
    return BrokerError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "SyncGroup", detail)


def _report_unreadable_assignment(member: Member, error: KprotoError, out: Actions) -> None:
    """Report `error` to the application.

    With `replaces_unreadable_assignment`, the member loses its partitions and rejoins at the next poll.
    Otherwise it stays in the group without the assignment, and each poll raises the error.
    """
    if member.policy.replaces_unreadable_assignment:
        fail(member, error, JAVA_OTHER, out)
        return
    member.rejoin_needed, member.rejoin_reason, member.assignment_error = False, "", error
    member.assigned_identity = member.joined_identity
    move(member, S.STABLE)
    out.append(Fatal(error))


def _store_assigned_generation(member: Member) -> None:
    """Store the generation of the assignment. A new generation clears `revoked_since_assignment`."""
    if member.assigned_generation != member.generation:
        member.assigned_generation = member.generation
        # Partitions that the member has revoked since its last JoinGroup have no owner until the member
        # rejoins. A cooperative static member that was removed and has joined again keeps
        # `revoked_since_assignment`, so that it rejoins for these partitions (`finish_revocations`).
        if not (member.was_reset and member.cooperative):
            member.revoked_since_assignment = set()
    member.was_reset = False


def _decode_assignment(member: Member, response: SyncGroupResponse) -> Assignment:
    """Decode the assignment of a SyncGroup response.

    Raises DecodeError for an unreadable assignment. An assignment of zero bytes counts as empty if the policy
    has `replaces_unreadable_assignment`, and raises IllegalState otherwise.
    """
    if not response.assignment and not member.policy.replaces_unreadable_assignment:
        raise IllegalState(
            f"the SyncGroup response has no assignment; the leader of group {member.config.group_id!r} "
            "assigned nothing to this member, not even an empty list of partitions"
        )
    return Assignment.decode(response.assignment)


def _contradicts_plan(member: Member, request: Message, response: SyncGroupResponse) -> bool:
    """Return whether the leader received another assignment for itself than it had sent.

    A member that has sent no assignment for itself, such as a follower, has nothing to compare.
    """
    assert isinstance(request, SyncGroupRequest)
    sent = [entry.assignment for entry in request.assignments if entry.member_id == member.member_id]
    return bool(sent) and sent != [response.assignment]


def on_released_adopting(member: Member, event: Released, now: int, out: Actions) -> None:
    """Adopt the pending assignment, and rejoin so that the revoked partitions get new owners (M84, M91)."""
    finish_release(member)
    assert member.pending_assignment is not None
    adopt(member, member.pending_assignment, out)
    request_rejoin(member, REVOKED_SOME)
    back_off_from_repeated_joins(member, now)


def adopt(member: Member, assignment: Assignment, out: Actions) -> None:
    """Take ownership of the partitions, and run the assigned callback even if none was added (M89)."""
    assert member.generation is not None
    owned = tuple(sorted(set(assignment.partitions)))
    previously_owned = set(member.owned)
    added = tuple(partition for partition in owned if partition not in previously_owned)
    new_partitions = leadership.find_new_partitions(added, member.initial_counts)
    member.owned, member.pending_assignment = owned, None
    member.last_assigned, member.last_generation = owned, member.generation
    member.has_checked_empty = member.has_checked_empty and not owned
    needs_no_check = member.is_leader or member.has_checked_empty or bool(owned)
    member.checks_empty = member.policy.check_inherited_plan and not needs_no_check
    move(member, S.STABLE)
    out.append(
        AdoptAssignment(
            added,
            owned,
            member.generation,
            first=member.generation == 1,
            new=new_partitions,
            initial_counts=dict(member.initial_counts),
        )
    )
