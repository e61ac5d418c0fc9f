"""Committed offsets: who may write them, how they are read, and when they are forgotten.

Rules that hold here:

* A commit is checked partition by partition first: a topic or partition that doesn't exist is answered at
  once, and only what is left is brought before the group. If nothing is left, the group is not asked, nor
  founded.
* A commit without a generation is a stranger's and only an Empty group takes it; it also founds a group. A
  member may commit in its own generation until that generation's JoinGroups are answered, so that it can
  commit while the next rebalance already gathers. Between the answers to JoinGroup and the leader's
  SyncGroup it may not.
* Transactional commits skip the question of the state. They are promises, invisible, until
  `TransactionEnded`.
* Reading never depends on the group's state, and an unknown group has no offsets rather than an error.
* What a group of subscribed consumers reads doesn't expire; what an Empty group left behind expires after
  `offsets.retention.minutes`, counted from the moment it became Empty. An Empty group without offsets goes.

Follows OffsetMetadataManager, ClassicGroup.validateOffsetCommit and OffsetExpirationConditionImpl of Kafka
4.3. The store is memory, so an append can't fail; -1 is Kafka's "no offset" and "no leader epoch".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from ....error_codes import ErrorCode
from ....errors import DecodeError
from ....messages.consumer_protocol import ConsumerProtocolSubscription
from ....messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
)
from ....messages.offset_fetch import (
    OffsetFetchRequest,
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
from .responses import commit_response, gathered, txn_commit_response
from .state import Committed, Group, GroupState, Received, Topics, Turn, member_error, move

CONSUMER: Final = "consumer"  # the protocol type whose metadata is a ConsumerProtocolSubscription

# From v9 on a commit by a member of a group that is not there is told so (KIP-848).
_V_GROUP_ID_NOT_FOUND: Final = 9
# From v10 on topics are ids (KIP-848's OffsetCommit and OffsetFetch).
_V_TOPIC_IDS: Final = 10
# OffsetFetch asks for several groups from v8 on (KIP-709).
_V_GROUPS: Final = 8


# Committing.


@dataclass(slots=True)
class Commit:
    """An OffsetCommit or TxnOffsetCommit on its way: what is asked, and the answer so far."""

    call: Received[OffsetCommitRequest] | Received[TxnOffsetCommitRequest]
    generation: int
    member_id: str
    group_instance_id: str | None
    # One code per partition, in the order of the request; `open_` are the positions not refused yet.
    codes: list[int] = field(default_factory=list[int])
    open_: list[tuple[int, str, _Partition]] = field(default_factory=list["tuple[int, str, _Partition]"])

    @property
    def anonymous(self) -> bool:
        return self.generation < 0 and not self.member_id and self.group_instance_id is None

    def refuse(self, turn: Turn, code: ErrorCode) -> None:
        """Answer: this code for every partition that has no worse news yet."""
        for position, _, _ in self.open_:
            self.codes[position] = code
        self.answer(turn)

    def answer(self, turn: Turn) -> None:
        request = self.call.request
        told = gathered(request.topics, self.codes, {position for position, _, _ in self.open_})
        if isinstance(request, OffsetCommitRequest):
            turn.reply(self.call, commit_response(request, told))
        else:
            turn.reply(self.call, txn_commit_response(request, told))


_Partition = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition


def read_commit(turn: Turn, call: Received[OffsetCommitRequest]) -> Commit:
    """What the request asks for, with the topics and partitions that don't exist already refused."""
    request = call.request
    commit = Commit(call, request.generation_id_or_member_epoch, request.member_id, request.group_instance_id)
    topics = turn.coordinator.topics
    for topic in request.topics:
        name: str | None = topic.name
        if call.version >= _V_TOPIC_IDS:
            name = None if topics is None else topics.name(topic.topic_id)
        _sort(commit, name, topic.partitions, topics)
    return commit


def read_txn_commit(turn: Turn, call: Received[TxnOffsetCommitRequest]) -> Commit:
    """The same for a commit in a transaction, which names topics in every version."""
    request = call.request
    commit = Commit(call, request.generation_id, request.member_id, request.group_instance_id)
    for topic in request.topics:
        _sort(commit, topic.name, topic.partitions, turn.coordinator.topics)
    return commit


def _sort(commit: Commit, name: str | None, partitions: Sequence[_Partition], topics: Topics | None) -> None:
    for partition in partitions:
        if name is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            code = topic_error(topics, name, partition.partition_index)
        if name is not None and not code:
            commit.open_.append((len(commit.codes), name, partition))
        commit.codes.append(code)


def topic_error(topics: Topics | None, name: str, index: int) -> ErrorCode:
    """NONE if the partition exists, or if nobody told the coordinator which ones do."""
    if topics is None:
        return ErrorCode.NONE
    count = topics.partitions(name)
    known = count is not None and 0 <= index < count
    return ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def commit_to_new_group(turn: Turn, group: Group, commit: Commit) -> None:
    """Found a group that only keeps offsets, unless a generation was named."""
    if commit.generation < 0:
        move(turn, group, GroupState.EMPTY)
        _store(turn, group, commit)
    elif commit.call.version >= _V_GROUP_ID_NOT_FOUND and isinstance(
        commit.call.request, OffsetCommitRequest
    ):
        commit.refuse(turn, ErrorCode.GROUP_ID_NOT_FOUND)
    else:
        commit.refuse(turn, ErrorCode.ILLEGAL_GENERATION)


def commit_to_empty_group(turn: Turn, group: Group, commit: Commit) -> None:
    """Take what comes without a generation, whoever sends it; there are no members to have one."""
    if commit.generation < 0:
        _store(turn, group, commit)
    else:
        commit.refuse(turn, ErrorCode.UNKNOWN_MEMBER_ID)


def commit_by_member(turn: Turn, group: Group, commit: Commit) -> None:
    """Take a member's commit in the current generation, which is also a sign of life."""
    if error := _commit_error(group, commit):
        commit.refuse(turn, error)
        return
    turn.refresh_session(group, group.members[commit.member_id])
    _store(turn, group, commit)


def commit_while_completing(turn: Turn, group: Group, commit: Commit) -> None:
    """Refuse: this generation's plan isn't known yet. It is no sign of life either."""
    commit.refuse(turn, _commit_error(group, commit) or ErrorCode.REBALANCE_IN_PROGRESS)


def txn_commit(turn: Turn, group: Group, commit: Commit) -> None:
    """Take a promise in any state: from a member in its generation, or from a producer that names neither;
    without a generation from anybody, where there are no members.
    """
    nobody = commit.generation < 0 and group.state is GroupState.EMPTY
    error = ErrorCode.NONE if commit.anonymous or nobody else _commit_error(group, commit)
    if error:
        commit.refuse(turn, error)
    else:
        _store(turn, group, commit)


def _commit_error(group: Group, commit: Commit) -> ErrorCode:
    """Why a group with members refuses: who is it, and then, does it know the generation?"""
    return member_error(group, commit.member_id, commit.group_instance_id) or (
        ErrorCode.NONE if commit.generation == group.generation else ErrorCode.ILLEGAL_GENERATION
    )


def _store(turn: Turn, group: Group, commit: Commit) -> None:
    coordinator = turn.coordinator
    longest = coordinator.settings.offset_metadata_max_bytes
    request = commit.call.request
    expires_at: int | None = None
    promise: dict[tuple[str, int], Committed] | None = None
    if isinstance(request, TxnOffsetCommitRequest):
        promise = group.promised.setdefault(request.producer_id, {})
        coordinator.promised_to.setdefault(request.producer_id, {})[group.group_id] = None
    elif request.retention_time_ms != -1:
        expires_at = turn.now + request.retention_time_ms
    for position, topic, partition in commit.open_:
        metadata = partition.committed_metadata or ""
        if _java_length(metadata) > longest:
            commit.codes[position] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            continue
        coordinator.commits += 1
        group.written = True
        committed = Committed(
            offset=partition.committed_offset,
            leader_epoch=partition.committed_leader_epoch,
            metadata=metadata,
            committed_at=turn.now,
            expires_at=expires_at,
            order=coordinator.commits,
        )
        if promise is None:
            group.offsets.setdefault(topic, {})[partition.partition_index] = committed
        else:
            promise[topic, partition.partition_index] = committed
    if promise is not None and not promise:
        del group.promised[request.producer_id]  # type: ignore[union-attr]
    commit.answer(turn)


def _java_length(text: str) -> int:
    """`String.length()`: UTF-16 units, of which a character outside of the basic plane takes two."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def end_transaction(turn: Turn, producer_id: int, committed: bool) -> None:
    """Keep or break the producer's promises. A plain commit made after a promise outlasts it."""
    for group_id in turn.coordinator.promised_to.pop(producer_id, ()):
        group = turn.coordinator.groups.get(group_id)
        if group is None:
            continue
        for (topic, index), one in group.promised.pop(producer_id, {}).items():
            before = group.offsets.get(topic, {}).get(index)
            if committed and (before is None or before.order < one.order):
                group.offsets.setdefault(topic, {})[index] = one


# Reading.


@dataclass(frozen=True, slots=True)
class _Found:
    index: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: int = ErrorCode.NONE


def fetch(turn: Turn, call: Received[OffsetFetchRequest]) -> None:
    """Answer with the committed offsets of one group, or from v8 on of several, in the order asked."""
    request = call.request
    if call.version < _V_GROUPS:
        asked = None if request.topics is None else [(t.name, t.partition_indexes) for t in request.topics]
        turn.reply(
            call,
            OffsetFetchResponse(
                topics=[
                    OffsetFetchResponseTopic(
                        name=name,
                        partitions=[
                            OffsetFetchResponsePartition(
                                partition_index=one.index,
                                committed_offset=one.offset,
                                committed_leader_epoch=one.leader_epoch,
                                metadata=one.metadata,
                                error_code=one.error,
                            )
                            for one in found
                        ],
                    )
                    for name, found in _look_up(turn, request.group_id, asked, request.require_stable)
                ]
            ),
        )
        return
    groups: list[OffsetFetchResponseGroup] = []
    for wanted in request.groups:
        topics: list[OffsetFetchResponseTopics] = []
        if wanted.topics is None:
            for name, found in _look_up(turn, wanted.group_id, None, request.require_stable):
                topic_id = _topic_id(turn, name)
                if call.version < _V_TOPIC_IDS or topic_id != ZERO_UUID:
                    topics.append(_fetched(name, topic_id, found))
        else:
            for topic in wanted.topics:
                name, found = (
                    topic.name,
                    [_Found(index, error=ErrorCode.UNKNOWN_TOPIC_ID) for index in topic.partition_indexes],
                )
                if call.version >= _V_TOPIC_IDS:
                    name = _topic_name(turn, topic.topic_id)
                if call.version < _V_TOPIC_IDS or name:
                    ((_, found),) = _look_up(
                        turn, wanted.group_id, [(name, topic.partition_indexes)], request.require_stable
                    )
                topics.append(_fetched(name, topic.topic_id, found))
        groups.append(OffsetFetchResponseGroup(group_id=wanted.group_id, topics=topics))
    turn.reply(call, OffsetFetchResponse(groups=groups))


def _look_up(
    turn: Turn, group_id: str, asked: Sequence[tuple[str, Sequence[int]]] | None, require_stable: bool
) -> list[tuple[str, list[_Found]]]:
    group = turn.coordinator.find(group_id)
    if asked is None:
        asked = [(topic, list(offsets)) for topic, offsets in group.offsets.items() if offsets]
    unstable: set[tuple[str, int]] = set()
    if require_stable:
        unstable.update(*group.promised.values())
    return [(topic, [_found(group, topic, index, unstable) for index in indexes]) for topic, indexes in asked]


def _found(group: Group, topic: str, index: int, unstable: set[tuple[str, int]]) -> _Found:
    if (topic, index) in unstable:
        return _Found(index, error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
    one = group.offsets.get(topic, {}).get(index)
    return _Found(index) if one is None else _Found(index, one.offset, one.leader_epoch, one.metadata)


def _fetched(name: str, topic_id: UUID, found: list[_Found]) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=name,
        topic_id=topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=one.index,
                committed_offset=one.offset,
                committed_leader_epoch=one.leader_epoch,
                metadata=one.metadata,
                error_code=one.error,
            )
            for one in found
        ],
    )


def _topic_name(turn: Turn, topic_id: UUID) -> str:
    topics = turn.coordinator.topics
    return (None if topics is None else topics.name(topic_id)) or ""


def _topic_id(turn: Turn, name: str) -> UUID:
    topics = turn.coordinator.topics
    return (None if topics is None else topics.id(name)) or ZERO_UUID


def is_subscribed(group: Group, topic: str) -> bool:
    """Does a member read this topic?

    Where that can't be told (no generation yet, bytes that nobody can read), yes.
    """
    topics = subscribed_topics(group)
    return topics is None or topic in topics


def subscribed_topics(group: Group) -> frozenset[str] | None:
    """All topics of this generation's subscriptions, None where they can't be told."""
    if group.subscriptions is None:
        return None
    topics: set[str] = set()
    for metadata in dict.fromkeys(group.subscriptions):
        if len(metadata) < 2:
            return None
        try:
            # Every version begins as v0 does, after an int16 that names it.
            topics.update(ConsumerProtocolSubscription.decode(metadata[2:], 0).topics)
        except DecodeError:
            return None
    return frozenset(topics)


# Forgetting.


def forget_topics(turn: Turn, names: frozenset[str]) -> None:
    """Forget what was committed for topics that are gone. Groups that this empties go at the next cleanup."""
    for group in turn.coordinator.groups.values():
        for name in names & group.offsets.keys():
            del group.offsets[name]
        for producer_id, promise in list(group.promised.items()):
            kept = {key: one for key, one in promise.items() if key[0] not in names}
            if kept:
                group.promised[producer_id] = kept
            else:
                del group.promised[producer_id]


def clean_up(turn: Turn) -> None:
    """Forget the offsets that have expired, and then the groups that have neither members nor offsets."""
    retention = turn.coordinator.settings.offsets_retention_minutes * 60_000
    for group in list(turn.coordinator.groups.values()):
        _expire(turn, group, retention)
        if group.state is GroupState.EMPTY and not group.offsets and not group.promised:
            move(turn, group, GroupState.DEAD)


def _expire(turn: Turn, group: Group, retention: int) -> None:
    subscribed: frozenset[str] = frozenset()
    since: int | None = None  # None: each offset's age counts from its own commit
    if group.protocol_type is not None and group.state is GroupState.EMPTY:
        since = group.state_since
    elif group.protocol_type == CONSUMER and group.state is GroupState.STABLE:
        known = subscribed_topics(group)
        if known is None:
            return
        subscribed = known
    elif group.protocol_type is not None:
        return
    unstable: set[tuple[str, int]] = set()
    unstable.update(*group.promised.values())
    for topic in [topic for topic in group.offsets if topic not in subscribed]:
        for index, one in list(group.offsets[topic].items()):
            age_from = one.committed_at if since is None else since
            expires = age_from + retention if one.expires_at is None else one.expires_at
            if turn.now >= expires and (topic, index) not in unstable:
                del group.offsets[topic][index]
        if not group.offsets[topic]:
            del group.offsets[topic]
