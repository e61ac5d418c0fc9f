"""Deleting: OffsetDelete takes single offsets from a group, DeleteGroups the group as a whole.

Rules that hold here:

* A group that there is not, or that keeps its offsets, is all that is told; else partitions that don't
  exist are, as with commits.
* An Empty group loses whatever is asked for, also what was never committed: the answer is no error.
* A group of consumers keeps the offsets of topics that a member subscribes to. Members of another kind
  don't say what they read, so their group keeps everything.
* Only an Empty group is deleted. Its promised offsets and handed out ids go with it.

Follows OffsetMetadataManager.deleteOffsets and GroupCoordinatorShard.deleteGroups of Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....error_codes import ErrorCode
from ....messages.delete_groups import DeletableGroupResult
from ....messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from .errors import refuse
from .offsets import CONSUMER, is_subscribed, topic_error
from .responses import gathered
from .state import Group, GroupState, Received, Turn, move


@dataclass(slots=True)
class Deletion:
    """An OffsetDelete on its way: the partitions that exist are `open_`."""

    call: Received[OffsetDeleteRequest]
    codes: dict[tuple[str, int], int]
    open_: list[tuple[str, int]]

    def answer(self, turn: Turn) -> None:
        topics = self.call.request.topics
        named = [(topic.name, p.partition_index) for topic in topics for p in topic.partitions]
        there = {position for position, key in enumerate(named) if key in self.open_}
        told = gathered(topics, [self.codes[key] for key in named], there)
        turn.reply(
            self.call,
            OffsetDeleteResponse(
                error_code=ErrorCode.NONE,
                throttle_time_ms=0,
                topics=[
                    OffsetDeleteResponseTopic(
                        name=topics[number].name,
                        partitions=[
                            OffsetDeleteResponsePartition(partition_index=index, error_code=code)
                            for index, code in partitions
                        ],
                    )
                    for number, partitions in told
                ],
            ),
        )


def read_deletion(turn: Turn, call: Received[OffsetDeleteRequest]) -> Deletion:
    named = [(topic.name, p.partition_index) for topic in call.request.topics for p in topic.partitions]
    codes: dict[tuple[str, int], int] = {
        (topic, index): topic_error(turn.coordinator.topics, topic, index) for topic, index in named
    }
    return Deletion(call, codes, [key for key, code in codes.items() if not code])


def delete_from_empty_group(turn: Turn, group: Group, deletion: Deletion) -> None:
    """Nobody reads: forget every offset asked for, committed or promised."""
    for topic, index in deletion.open_:
        _forget(group, topic, index)
    deletion.answer(turn)


def _delete_what_nobody_reads(turn: Turn, group: Group, deletion: Deletion) -> None:
    """Forget the offsets of topics that no member subscribes to."""
    for topic, index in deletion.open_:
        if is_subscribed(group, topic):
            deletion.codes[topic, index] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        else:
            _forget(group, topic, index)
    deletion.answer(turn)


def _forget(group: Group, topic: str, index: int) -> None:
    offsets = group.offsets.get(topic, {})
    if offsets.pop(index, None) and not offsets:
        del group.offsets[topic]
    for producer_id, promise in list(group.promised.items()):
        promise.pop((topic, index), None)
        if not promise:
            del group.promised[producer_id]


def delete_offsets_of_nobody(turn: Turn, group: Group, deletion: Deletion) -> None:
    """There is no such group."""
    refuse(turn, deletion.call, ErrorCode.GROUP_ID_NOT_FOUND)


def delete_unread_offsets(turn: Turn, group: Group, deletion: Deletion) -> None:
    """Delete what no consumer reads; what members of another kind read isn't known, so nothing of theirs."""
    if group.protocol_type == CONSUMER:
        _delete_what_nobody_reads(turn, group, deletion)
    else:
        refuse(turn, deletion.call, ErrorCode.NON_EMPTY_GROUP)


def delete(turn: Turn, group: Group, results: list[DeletableGroupResult]) -> None:
    """Forget the group with its offsets, promised ones and handed out ids too."""
    move(turn, group, GroupState.DEAD)
    results.append(DeletableGroupResult(group_id=group.group_id, error_code=ErrorCode.NONE))


def delete_nothing(turn: Turn, group: Group, results: list[DeletableGroupResult]) -> None:
    """There is no such group."""
    results.append(DeletableGroupResult(group_id=group.group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND))


def keep(turn: Turn, group: Group, results: list[DeletableGroupResult]) -> None:
    """A group with members is not deleted."""
    results.append(DeletableGroupResult(group_id=group.group_id, error_code=ErrorCode.NON_EMPTY_GROUP))
