"""Committed offsets: OffsetCommit, TxnOffsetCommit and OffsetFetch, and how offsets expire.

* R85: partitions that do not exist are rejected first. The offsets of the other partitions are committed. If
  no partition exists, the group is neither validated nor created.

* R86, R88: an OffsetCommit without a generation is accepted only if the group is Empty or does not exist. If
  the group does not exist, the commit creates it.

* R88, R89: a member may commit in the current generation, even in PreparingRebalance. In CompletingRebalance,
  between the JoinGroup responses and the leader's SyncGroup, the error code is REBALANCE_IN_PROGRESS.

* R110, R111: a TxnOffsetCommit with valid ids is accepted in every state. Its offsets are pending until the
  event `TransactionEnded`.

* R97, R101: the result of OffsetFetch does not depend on the group's state. A group that does not exist has
  no offsets, and the error code is NONE.

* R150, R151: the offsets of an Empty group expire `offsets.retention.minutes` after the group became Empty.

* R152: while a group is Stable, the offsets of its subscribed topics do not expire.

* R156: an Empty group without offsets is deleted.

The module follows OffsetMetadataManager, ClassicGroup.validateOffsetCommit and OffsetExpirationConditionImpl
of Kafka 4.3. The offsets are stored in memory. -1 is Kafka's value for "no offset" and "no leader epoch".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from uuid import UUID

from ....error_codes import ErrorCode
from ....machine import RequestReceived
from ....messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
)
from ....messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ....messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
)
from ....wire.types import ZERO_UUID
from ...protocol import TopicCatalog
from .responses import commit_response, group_by_topic, txn_commit_response
from .state import (
    ClassicGroup,
    ClassicGroupState,
    GroupContext,
    StoredOffset,
    member_error,
    move,
    subscribed_topics,
)

# The protocol type of groups in which the members' metadata is a ConsumerProtocolSubscription.
CONSUMER: Final = "consumer"

# From this version on, OffsetCommit may return GROUP_ID_NOT_FOUND (KIP-848).
_GROUP_ID_NOT_FOUND_VERSION: Final = 9
# From this version on, TxnOffsetCommit has topic ids, and reports GROUP_ID_NOT_FOUND (KIP-1319).
_TXN_TOPIC_IDS_VERSION: Final = 6
# From this version on, OffsetCommit and OffsetFetch have topic ids (KIP-848).
_TOPIC_IDS_VERSION: Final = 10
# From this version on, OffsetFetch has a list of groups (KIP-709).
_BATCH_FETCH_VERSION: Final = 8

_CommitPartition: TypeAlias = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition


# OffsetCommit and TxnOffsetCommit.


@dataclass(slots=True)
class CommitAttempt:
    """An OffsetCommit or TxnOffsetCommit request, and the error codes of its partitions so far."""

    call: RequestReceived[OffsetCommitRequest] | RequestReceived[TxnOffsetCommitRequest]
    generation: int
    member_id: str
    group_instance_id: str | None
    # The error code of each partition, in the order of the request.
    codes: list[int] = field(default_factory=list[int])
    # For each partition that exists: (position in `codes`, topic name, entry in the request).
    existing: list[tuple[int, str, _CommitPartition]] = field(
        default_factory=list["tuple[int, str, _CommitPartition]"]
    )

    @property
    def is_anonymous(self) -> bool:
        """Return whether the commit names neither a member nor a generation."""
        return self.generation < 0 and not self.member_id and self.group_instance_id is None

    def refuse(self, context: GroupContext, code: ErrorCode) -> None:
        """Answer with `code` for existing partitions (R90). Unknown ones keep their own error code."""
        for position, _, _ in self.existing:
            self.codes[position] = code
        self.answer(context)

    def answer(self, context: GroupContext) -> None:
        """Send the response with the results of all partitions."""
        request = self.call.request
        positions = {position for position, _, _ in self.existing}
        results = group_by_topic(request.topics, self.codes, positions)
        if isinstance(request, OffsetCommitRequest):
            context.reply(self.call, commit_response(request, results))
        else:
            context.reply(self.call, txn_commit_response(request, results))


def read_commit(context: GroupContext, call: RequestReceived[OffsetCommitRequest]) -> CommitAttempt:
    """Return the CommitAttempt for an OffsetCommit, with error codes for unknown partitions (R85, R96)."""
    request = call.request
    attempt = CommitAttempt(
        call, request.generation_id_or_member_epoch, request.member_id, request.group_instance_id
    )
    topics = context.coordinator.topics
    for topic in request.topics:
        name: str | None = topic.name
        if call.version >= _TOPIC_IDS_VERSION:
            name = None if topics is None else topics.name(topic.topic_id)
        _add_partitions(attempt, name, topic.partitions, topics)
    return attempt


def read_txn_commit(context: GroupContext, call: RequestReceived[TxnOffsetCommitRequest]) -> CommitAttempt:
    """Return the CommitAttempt for a TxnOffsetCommit, with error codes for unknown partitions (R106)."""
    request = call.request
    attempt = CommitAttempt(
        call, request.generation_id_or_member_epoch, request.member_id, request.group_instance_id
    )
    topics = context.coordinator.topics
    for topic in request.topics:
        name: str | None = topic.name
        if call.version >= _TXN_TOPIC_IDS_VERSION:
            name = None if topics is None else topics.name(topic.topic_id)
        _add_partitions(attempt, name, topic.partitions, topics)
    return attempt


def _add_partitions(
    attempt: CommitAttempt,
    name: str | None,
    partitions: Sequence[_CommitPartition],
    topics: TopicCatalog | None,
) -> None:
    """Add the partitions of one topic to the commit, with an error code for each missing partition."""
    for partition in partitions:
        if name is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            code = topic_error(topics, name, partition.partition_index)
        if name is not None and not code:
            attempt.existing.append((len(attempt.codes), name, partition))
        attempt.codes.append(code)


def topic_error(topics: TopicCatalog | None, name: str, index: int) -> ErrorCode:
    """Return the error code for a partition, which is NONE if the partition exists.

    A coordinator without a topic catalog accepts every partition.
    """
    if topics is None:
        return ErrorCode.NONE
    count = topics.partitions(name)
    exists = count is not None and 0 <= index < count
    return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def commit_to_missing_group(context: GroupContext, group: ClassicGroup, attempt: CommitAttempt) -> None:
    """Reject a commit that names a generation. Otherwise create an Empty group and store the offsets."""
    if attempt.generation < 0:
        move(context, group, ClassicGroupState.EMPTY)
        _store_offsets(context, group, attempt)
        return
    is_offset_commit = isinstance(attempt.call.request, OffsetCommitRequest)
    not_found_version = _GROUP_ID_NOT_FOUND_VERSION if is_offset_commit else _TXN_TOPIC_IDS_VERSION
    if attempt.call.version >= not_found_version:
        attempt.refuse(context, ErrorCode.GROUP_ID_NOT_FOUND)
    else:
        attempt.refuse(context, ErrorCode.ILLEGAL_GENERATION)


def commit_to_empty_group(context: GroupContext, group: ClassicGroup, attempt: CommitAttempt) -> None:
    """Accept a commit without a generation; reject others, because the group has no members."""
    if attempt.generation < 0:
        _store_offsets(context, group, attempt)
    else:
        attempt.refuse(context, ErrorCode.UNKNOWN_MEMBER_ID)


def commit_by_member(context: GroupContext, group: ClassicGroup, attempt: CommitAttempt) -> None:
    """Accept the commit of a member in the current generation, and restart its session timeout."""
    if error := _commit_error(group, attempt):
        attempt.refuse(context, error)
        return
    context.restart_session(group, group.members[attempt.member_id])
    _store_offsets(context, group, attempt)


def commit_while_completing(context: GroupContext, group: ClassicGroup, attempt: CommitAttempt) -> None:
    """Reject the commit with REBALANCE_IN_PROGRESS, because this generation has no assignment yet.

    The member's session timeout is not restarted.
    """
    attempt.refuse(context, _commit_error(group, attempt) or ErrorCode.REBALANCE_IN_PROGRESS)


def commit_in_transaction(context: GroupContext, group: ClassicGroup, attempt: CommitAttempt) -> None:
    """Store the offsets as pending until the transaction ends.

    The commit is accepted if it contains the id of a member and the current generation, or if it names
    neither a member nor a generation. An Empty group also accepts a member id without a generation.
    """
    to_empty_group = attempt.generation < 0 and group.state is ClassicGroupState.EMPTY
    error = ErrorCode.NONE if attempt.is_anonymous or to_empty_group else _commit_error(group, attempt)
    if error:
        attempt.refuse(context, error)
    else:
        _store_offsets(context, group, attempt)


def _commit_error(group: ClassicGroup, attempt: CommitAttempt) -> ErrorCode:
    """Return the error code that rejects a commit to a group with members, or NONE to accept it.

    The member id is checked before the generation (R16).
    """
    if error := member_error(group, attempt.member_id, attempt.group_instance_id):
        return error
    return ErrorCode.NONE if attempt.generation == group.generation else ErrorCode.ILLEGAL_GENERATION


def _store_offsets(context: GroupContext, group: ClassicGroup, attempt: CommitAttempt) -> None:
    """Store the offsets, except those whose metadata is too long, and respond (R91, R92, R111).

    The offsets of a TxnOffsetCommit are stored as pending.
    """
    coordinator = context.coordinator
    max_length = coordinator.settings.offset_metadata_max_bytes
    request = attempt.call.request
    expires_at: int | None = None
    # The pending offsets of the producer's transaction, or None for an OffsetCommit.
    pending: dict[tuple[str, int], StoredOffset] | None = None
    if isinstance(request, TxnOffsetCommitRequest):
        pending = group.pending_transactions.setdefault(request.producer_id, {})
        coordinator.pending_groups.setdefault(request.producer_id, {})[group.group_id] = None
    elif request.retention_time_ms != -1:
        expires_at = context.now + request.retention_time_ms
    for position, topic, partition in attempt.existing:
        metadata = partition.committed_metadata or ""
        if _java_length(metadata) > max_length:
            attempt.codes[position] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            continue
        coordinator.commits += 1
        group.written = True
        stored = StoredOffset(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=metadata,
            committed_at=context.now,
            expires_at=expires_at,
            order=coordinator.commits,
        )
        if pending is None:
            group.offsets.setdefault(topic, {})[partition.partition_index] = stored
        else:
            pending[topic, partition.partition_index] = stored
    if pending is not None and not pending:
        del group.pending_transactions[request.producer_id]  # type: ignore[union-attr]
    attempt.answer(context)


def _java_length(text: str) -> int:
    """Return the length as Java's `String.length()` counts it: in UTF-16 code units (R91)."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def end_transaction(context: GroupContext, producer_id: int, committed: bool) -> None:
    """Store the pending offsets of a committed transaction, or drop them after an abort (R111).

    A pending offset does not overwrite an offset that an OffsetCommit has stored in the meantime.
    """
    for group_id in context.coordinator.pending_groups.pop(producer_id, ()):
        group = context.coordinator.groups.get(group_id)
        if group is None:
            continue
        for (topic, index), stored in group.pending_transactions.pop(producer_id, {}).items():
            current = group.offsets.get(topic, {}).get(index)
            if committed and (current is None or current.order < stored.order):
                group.offsets.setdefault(topic, {})[index] = stored


# OffsetFetch.


@dataclass(frozen=True, slots=True)
class _FetchedOffset:
    index: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: int = ErrorCode.NONE


def fetch_offsets(context: GroupContext, call: RequestReceived[OffsetFetchRequest]) -> None:
    """Answer with the committed offsets of one group, or, from v8 on, of several (R97, R98, R99, R102)."""
    if call.version < _BATCH_FETCH_VERSION:
        _fetch_one_group(context, call)
        return
    groups = [
        OffsetFetchResponseGroup(group_id=group.group_id, topics=_fetch_topics(context, call, group))
        for group in call.request.groups
    ]
    context.reply(call, OffsetFetchResponse(groups=groups))


def _fetch_topics(
    context: GroupContext, call: RequestReceived[OffsetFetchRequest], group: OffsetFetchRequestGroup
) -> list[OffsetFetchResponseTopics]:
    """Return the results for one group of an OffsetFetch of version 8 or later.

    If `group.topics` is None, the result has all topics with offsets. From v10 on, this result omits topics
    whose id is unknown, because the response has topic ids instead of names.
    """
    has_topic_ids = call.version >= _TOPIC_IDS_VERSION
    require_stable = call.request.require_stable
    results: list[OffsetFetchResponseTopics] = []
    if group.topics is None:
        for name, partitions in _look_up_offsets(context, group.group_id, None, require_stable):
            topic_id = _topic_id(context, name)
            if not has_topic_ids or topic_id != ZERO_UUID:
                results.append(_response_topic(name, topic_id, partitions))
        return results
    for topic in group.topics:
        name = _topic_name(context, topic.topic_id) if has_topic_ids else topic.name
        if has_topic_ids and not name:
            partitions = [
                _FetchedOffset(index, error=ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes
            ]
        else:
            requested = [(name, topic.partition_indexes)]
            ((_, partitions),) = _look_up_offsets(context, group.group_id, requested, require_stable)
        results.append(_response_topic(name, topic.topic_id, partitions))
    return results


def _fetch_one_group(context: GroupContext, call: RequestReceived[OffsetFetchRequest]) -> None:
    """Answer an OffsetFetch below v8, which requests the offsets of one group."""
    request = call.request
    requested = None
    if request.topics is not None:
        requested = [(topic.name, topic.partition_indexes) for topic in request.topics]
    topics = [
        OffsetFetchResponseTopic(
            name=name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=partition.index,
                    committed_offset=partition.offset,
                    committed_leader_epoch=partition.leader_epoch,
                    metadata=partition.metadata,
                    error_code=partition.error,
                )
                for partition in partitions
            ],
        )
        for name, partitions in _look_up_offsets(context, request.group_id, requested, request.require_stable)
    ]
    context.reply(call, OffsetFetchResponse(topics=topics))


def _look_up_offsets(
    context: GroupContext,
    group_id: str,
    requested: Sequence[tuple[str, Sequence[int]]] | None,
    require_stable: bool,
) -> list[tuple[str, list[_FetchedOffset]]]:
    """Return the committed offsets of `requested`, or of all partitions if `requested` is None.

    If `require_stable` is set, a partition with a pending offset has the error code UNSTABLE_OFFSET_COMMIT
    (R100).
    """
    group = context.coordinator.find(group_id)
    if requested is None:
        requested = [(topic, list(offsets)) for topic, offsets in group.offsets.items() if offsets]
    unstable = _pending_partitions(group) if require_stable else set[tuple[str, int]]()
    return [
        (topic, [_fetched_offset(group, topic, index, unstable) for index in indexes])
        for topic, indexes in requested
    ]


def _fetched_offset(
    group: ClassicGroup, topic: str, index: int, unstable: set[tuple[str, int]]
) -> _FetchedOffset:
    if (topic, index) in unstable:
        return _FetchedOffset(index, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    stored = group.offsets.get(topic, {}).get(index)
    if stored is None:
        return _FetchedOffset(index)
    return _FetchedOffset(index, stored.offset, stored.leader_epoch, stored.metadata)


def _response_topic(name: str, topic_id: UUID, partitions: list[_FetchedOffset]) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=name,
        topic_id=topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=partition.index,
                committed_offset=partition.offset,
                committed_leader_epoch=partition.leader_epoch,
                metadata=partition.metadata,
                error_code=partition.error,
            )
            for partition in partitions
        ],
    )


def _pending_partitions(group: ClassicGroup) -> set[tuple[str, int]]:
    """Return the partitions with a pending offset of an open transaction, as (topic, partition index)."""
    return set[tuple[str, int]]().union(*group.pending_transactions.values())


def _topic_name(context: GroupContext, topic_id: UUID) -> str:
    """Return the name of a topic, or "" if the id is unknown."""
    topics = context.coordinator.topics
    return (None if topics is None else topics.name(topic_id)) or ""


def _topic_id(context: GroupContext, name: str) -> UUID:
    """Return the id of a topic, or ZERO_UUID if the id is unknown."""
    topics = context.coordinator.topics
    return (None if topics is None else topics.id(name)) or ZERO_UUID


# Expiry.


def forget_topics(context: GroupContext, names: frozenset[str]) -> None:
    """Drop the committed and the pending offsets of deleted topics (R157).

    The next `clean_up` deletes the Empty groups that have no offsets left.
    """
    for group in context.coordinator.groups.values():
        for name in names & group.offsets.keys():
            del group.offsets[name]
        for producer_id, pending in list(group.pending_transactions.items()):
            remaining = {key: stored for key, stored in pending.items() if key[0] not in names}
            if remaining:
                group.pending_transactions[producer_id] = remaining
            else:
                del group.pending_transactions[producer_id]


def clean_up(context: GroupContext) -> None:
    """Drop expired offsets, then delete the Empty groups without offsets (R149, R156)."""
    retention_ms = context.coordinator.settings.offsets_retention_minutes * 60_000
    for group in list(context.coordinator.groups.values()):
        _expire_offsets(context, group, retention_ms)
        if group.state is ClassicGroupState.EMPTY and not group.offsets and not group.pending_transactions:
            move(context, group, ClassicGroupState.DEAD)


def _expire_offsets(context: GroupContext, group: ClassicGroup, retention_ms: int) -> None:
    """Drop the expired offsets of one group (R150, R151, R152, R153, R154, R155).

    The offsets of a group expire only in these cases:

    * In an Empty group that had members, the retention begins when the group becomes Empty.

    * In a group that never had members, the retention of an offset begins with its commit.

    * In a Stable group with protocol type "consumer", only offsets of topics to which no member subscribes
      expire. Their retention begins with the commit.

    The retention time in an OffsetCommit request (v2 to v4) always begins at the commit. The offset
    of a partition with a pending offset does not expire.
    """
    kept_topics: frozenset[str] = frozenset()
    empty_since: int | None = None
    if group.protocol_type is not None and group.state is ClassicGroupState.EMPTY:
        empty_since = group.state_since
    elif group.protocol_type == CONSUMER and group.state is ClassicGroupState.STABLE:
        subscribed = subscribed_topics(group)
        if subscribed is None:
            return
        kept_topics = subscribed
    elif group.protocol_type is not None:
        return
    pending = _pending_partitions(group)
    for topic in [topic for topic in group.offsets if topic not in kept_topics]:
        for index, stored in list(group.offsets[topic].items()):
            retained_since = stored.committed_at if empty_since is None else empty_since
            expires_at = retained_since + retention_ms if stored.expires_at is None else stored.expires_at
            if context.now >= expires_at and (topic, index) not in pending:
                del group.offsets[topic][index]
        if not group.offsets[topic]:
            del group.offsets[topic]
