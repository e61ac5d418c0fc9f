"""The group loop of consumergroup.go: ConsumerGroup.run and nextGeneration.

* Each generation looks up the coordinator, on a connection that is closed after the response. The
  generation's own connection to the coordinator is closed when its last goroutine has ended.

* To leave the group, the member opens two more connections: for the coordinator lookup, and for LeaveGroup.

* The next generation uses the same member id, unless JoinGroup fails.

* After REBALANCE_IN_PROGRESS the member joins again immediately. After any other error before the generation
  has started, the member leaves the group if it has a member id. It joins again after JoinGroupBackoff.

* Close waits for a JoinGroup, SyncGroup or OffsetFetch in flight before it sends LeaveGroup. During the
  backoff after an error, the member has no member id, so Close sends no LeaveGroup.
"""

from __future__ import annotations

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
from ..common import find_coordinator_request, parse_find_coordinator, parse_offset_fetch
from ..contract import (
    FinishClose,
    FinishPoll,
)
from . import generation, partition_reader, reader
from .groupbalancer import assign
from .state import (
    TIMEOUT_MS,
    ConsumerGroupPhase,
    Error,
    KafkaGoState,
    Out,
    close_connection,
    kafka_error,
    move,
    network_error,
    new_connection,
    report_error,
    send_request,
)

P = ConsumerGroupPhase


# -- nextGeneration ---------------------------------------------------------------------------------------


def start_next_generation(state: KafkaGoState, now: int, out: Out) -> None:
    """Begin the next generation with the coordinator lookup."""
    state.tried_addresses = 0
    _find_coordinator(state, P.FINDING, out)


def _find_coordinator(state: KafkaGoState, phase: ConsumerGroupPhase, out: Out) -> None:
    """Send FindCoordinator to the next bootstrap address (ConsumerGroup.coordinator)."""
    move(state, phase)
    host, port = state.bootstrap[state.tried_addresses]
    state.coordinator = new_connection(state, host, port, "find")
    state.open = send_request(out, state.coordinator, find_coordinator_request(state.config.group_id, 0), 0)


def on_find_coordinator_response(
    state: KafkaGoState, response: Message | None, failure: str, now: int, out: Out
) -> None:
    """Handle FindCoordinator's response; None means that the request failed, and `failure` says why.

    After a failed request, the member tries the next bootstrap address. After a successful lookup, it sends
    JoinGroup, or LeaveGroup if it is leaving the group.
    """
    close_connection(out, state.coordinator)
    if not isinstance(response, FindCoordinatorResponse):
        state.tried_addresses += 1
        if state.tried_addresses < len(state.bootstrap):
            _find_coordinator(state, state.state, out)
        elif state.state is P.FINDING:
            _fail_next_generation(state, network_error(failure), now, out)
        else:
            on_leave_group_response(state, None, failure, now, out)
        return
    coordinator = parse_find_coordinator(response)
    if coordinator.error and state.state is P.FINDING:
        _fail_next_generation(state, kafka_error(coordinator.error), now, out)
    elif coordinator.error:
        on_leave_group_response(state, None, failure, now, out)
    elif state.state is P.FINDING:
        state.coordinator = new_connection(state, coordinator.host, coordinator.port, "group")
        _join_group(state, out)
    else:
        state.coordinator = new_connection(state, coordinator.host, coordinator.port, "leave")
        move(state, P.LEAVING)
        request = LeaveGroupRequest(group_id=state.config.group_id, member_id=state.member_id)
        state.open = send_request(out, state.coordinator, request, 0)


def _join_group(state: KafkaGoState, out: Out) -> None:
    """Send JoinGroup (makeJoinGroupRequest).

    The subscription in the request declares version 1, but has only the fields of version 0, as in kafka-go.
    """
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
    move(state, P.JOINING)
    state.open = send_request(out, state.coordinator, request, 2, TIMEOUT_MS + state.rebalance_ms)


def on_join_group_response(
    state: KafkaGoState, response: Message | None, failure: str, now: int, out: Out
) -> None:
    """Handle a JoinGroup response.

    After a successful join, a leader requests the metadata of all members' topics, with which it assigns the
    partitions before SyncGroup. A follower sends SyncGroup immediately.
    """
    if not isinstance(response, JoinGroupResponse) or response.error_code:
        state.member_id = ""
        code = response.error_code if isinstance(response, JoinGroupResponse) else 0
        error = kafka_error(code) if code else network_error(failure)
        _fail_next_generation(state, error, now, out, code)
        return
    state.member_id, state.generation_id = response.member_id, response.generation_id
    state.protocol, state.assignments = response.protocol_name or "", {}
    if response.leader != response.member_id:
        _sync_group(state, out)
        return
    topics_by_member: dict[str, tuple[str, ...]] = {}
    for member in response.members:
        topics_or_error = _decode_topics(member.metadata)
        if isinstance(topics_or_error, str):
            text = f"unable to read metadata for member, {member.member_id}: {topics_or_error}"
            _fail_next_generation(state, ("fmt.wrapError", text), now, out)
            return
        topics_by_member[member.member_id] = topics_or_error
    state.members = topics_by_member
    move(state, P.PLANNING)
    assert state.coordinator is not None
    topics = sorted({topic for topics_of_member in state.members.values() for topic in topics_of_member})
    state.open = generation.read_partitions(state, topics, out)


def _decode_topics(metadata: bytes) -> tuple[str, ...] | str:
    """Decode a subscription as groupMetadata.readFrom does. Return its topics, or the text of the error.

    Only the fields of version 0 are read. Any bytes behind these fields are an error with the text
    "%!w(<nil>)", as in makeMemberProtocolMetadata: Go formats a nil error in this way.
    """
    view = memoryview(metadata)[2:]
    try:
        body, stop = decode_from(ConsumerProtocolSubscription, view, 0, 0)
    except DecodeError:
        return "not enough bytes available to load the response"
    return tuple(body.topics) if stop == len(view) else "%!w(<nil>)"


def on_metadata_response(
    state: KafkaGoState, response: Message | None, failure: str, now: int, out: Out
) -> None:
    """Assign the partitions as the leader, then send SyncGroup."""
    if not isinstance(response, MetadataResponse):
        _fail_next_generation(state, network_error(failure), now, out)
        return
    code, partitions = generation.parse_partitions(response)
    if code and code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        _fail_next_generation(state, kafka_error(code), now, out)
        return
    assignments = assign(state.protocol, state.members, partitions)
    state.assignments = {member: _encode_assignment(assignment) for member, assignment in assignments.items()}
    _sync_group(state, out)


def _encode_assignment(assignment: dict[str, list[int]]) -> bytes:
    """Encode the partitions of one member, by topic, in version 1 of the assignment."""
    body = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=indexes)
            for topic, indexes in assignment.items()
        ]
    )
    return (1).to_bytes(2, "big") + body.encode(1)


def _sync_group(state: KafkaGoState, out: Out) -> None:
    """Send SyncGroup (ConsumerGroup.syncGroup). Only a leader sends assignments."""
    assert state.coordinator is not None
    request = SyncGroupRequest(
        group_id=state.config.group_id,
        generation_id=state.generation_id,
        member_id=state.member_id,
        assignments=[
            SyncGroupRequestAssignment(member_id=member, assignment=data)
            for member, data in state.assignments.items()
        ],
    )
    move(state, P.SYNCING)
    state.open = send_request(out, state.coordinator, request, 0, TIMEOUT_MS + state.session_ms)


def on_sync_group_response(
    state: KafkaGoState, response: Message | None, failure: str, now: int, out: Out
) -> None:
    """Handle a SyncGroup response: adopt the assignment and fetch the committed offsets."""
    if not isinstance(response, SyncGroupResponse) or response.error_code:
        code = response.error_code if isinstance(response, SyncGroupResponse) else 0
        error = kafka_error(code) if code else network_error(failure)
        _fail_next_generation(state, error, now, out, code)
        return
    state.assigned = {}
    if response.assignment:
        body, _ = decode_from(ConsumerProtocolAssignment, memoryview(response.assignment)[2:], 0, 0)
        state.assigned = {
            topic_partitions.topic: list(topic_partitions.partitions)
            for topic_partitions in body.assigned_partitions
        }
    assert state.coordinator is not None
    request = OffsetFetchRequest(
        group_id=state.config.group_id,
        topics=[
            OffsetFetchRequestTopic(name=topic, partition_indexes=state.assigned.get(topic, []))
            for topic in state.topics
        ],
    )
    move(state, P.FETCHING_OFFSETS)
    state.open = send_request(out, state.coordinator, request, 1)


def on_offset_fetch_response(
    state: KafkaGoState, response: Message | None, failure: str, now: int, out: Out
) -> None:
    """Handle an OffsetFetch response, and start the generation."""
    if not isinstance(response, OffsetFetchResponse):
        _fail_next_generation(state, network_error(failure), now, out)
        return
    _, committed = parse_offset_fetch(response)
    code = next((offset.error for offset in committed.values() if offset.error), 0)
    if code:
        _fail_next_generation(state, kafka_error(code), now, out)
        return
    start_offsets = {
        tp: offset.offset if offset.offset >= 0 else state.start_offset for tp, offset in committed.items()
    }
    _start_generation(state, start_offsets, now, out)


# -- a generation -----------------------------------------------------------------------------------------


def _start_generation(
    state: KafkaGoState, start_offsets: dict[TopicPartition, int], now: int, out: Out
) -> None:
    """Start the goroutines of the generation. If the Reader is closing, end them immediately."""
    move(state, P.RUNNING)
    state.errors = 0
    generation.start(state, start_offsets, now, out)
    if state.closing:
        end_generation(state, out)


def end_generation(state: KafkaGoState, out: Out) -> None:
    """Cancel the generation. Each of its goroutines ends as soon as it can (Generation.done)."""
    assert state.generation is not None
    move(state, P.ENDING)
    for partition in state.generation.readers:
        partition_reader.cancel(state, partition, out)


def complete_generation(state: KafkaGoState, now: int, out: Out) -> None:
    """When all goroutines have ended, begin the next generation, or leave the group if the Reader is closing.

    Follows Generation.close.
    """
    if state.generation is None or not generation.has_ended(state.generation):
        return
    state.generation = None
    close_connection(out, state.coordinator)
    if state.closing:
        _leave_group(state, None, now, out)
    else:
        start_next_generation(state, now, out)


# -- errors and leaving


def _fail_next_generation(state: KafkaGoState, error: Error, now: int, out: Out, code: int = 0) -> None:
    """Handle an error of nextGeneration as ConsumerGroup.run does.

    `code` is the error code of a JoinGroup or SyncGroup response. All other errors have the same effect, so
    for them `code` is 0.
    """
    close_connection(out, state.coordinator)
    if code == ErrorCode.REBALANCE_IN_PROGRESS:
        if state.closing:
            finish_close(state, out)
            return
        report_error(state, error, out)
        start_next_generation(state, now, out)
    else:
        _leave_group(state, error, now, out)


def _leave_group(state: KafkaGoState, error: Error | None, now: int, out: Out) -> None:
    """Leave the group after `error`, or for close() if `error` is None.

    A member without a member id sends no LeaveGroup.
    """
    state.leave_error = error
    if state.member_id:
        state.tried_addresses = 0
        _find_coordinator(state, P.FINDING_TO_LEAVE, out)
    else:
        on_leave_group_response(state, None, "", now, out)


def on_leave_group_response(
    state: KafkaGoState, response: Message | None, failure: str, now: int, out: Out
) -> None:
    """Reset the member id after any response to LeaveGroup, or if no LeaveGroup could be sent.

    Then finish close() if the reader is closing. Otherwise report the error that made the member leave, and
    back off.
    """
    if state.state is P.LEAVING:
        close_connection(out, state.coordinator)
    state.member_id = ""
    if state.closing or state.leave_error is None:
        finish_close(state, out)
        return
    move(state, P.BACKING_OFF)
    state.retry_at = now + state.backoff_ms
    report_error(state, state.leave_error, out)


def finish_close(state: KafkaGoState, out: Out) -> None:
    """End the application's poll, its CommitMessages calls and close(). The Reader is then CLOSED."""
    if state.open_poll is not None:
        state.open_poll = None
        out.append(FinishPoll())
    for commit in (*state.blocked_commits, *state.commits):
        if commit.token is not None:
            out.append(reader.closed_commit(commit))
    state.blocked_commits.clear()
    state.commits.clear()
    move(state, P.CLOSED)
    out.append(FinishClose())
