"""OffsetDelete, which deletes individual offsets of a group, and DeleteGroups, which deletes groups.

* R126: an OffsetDelete is answered with one error code and no partitions if the group id is empty, if the
  group does not exist, or if the group has members and its protocol type is not "consumer".

* R129: in all other cases, the response has an error code for each partition. As in OffsetCommit, a partition
  that does not exist has UNKNOWN_TOPIC_OR_PARTITION.

* R127: OffsetDelete deletes every requested offset of an Empty group. The error code of an existing partition
  is NONE even if it had no committed offset.

* R127: in a group with members and the protocol type "consumer", the offsets of topics to which a member
  subscribes are kept, with the error code GROUP_SUBSCRIBED_TO_TOPIC. The other requested offsets are deleted.

* R126: a group whose protocol type is not "consumer" keeps all offsets while it has members, because the
  coordinator cannot decode its subscriptions.

* R112, R124, R125: only an Empty group can be deleted. Its pending offsets and pending member ids are
  deleted, too.

The module follows OffsetMetadataManager.deleteOffsets and GroupCoordinatorShard.deleteGroups of Kafka 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass

from ....error_codes import ErrorCode
from ....machine import RequestReceived
from ....messages.delete_groups import DeletableGroupResult
from ....messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from .offsets import CONSUMER, topic_error
from .responses import group_by_topic, send_error
from .state import ClassicGroup, ClassicGroupState, GroupContext, is_subscribed, move

# OffsetDelete.


@dataclass(slots=True)
class OffsetDeletion:
    """An OffsetDelete request, and the error code of each of its partitions."""

    call: RequestReceived[OffsetDeleteRequest]
    codes: dict[tuple[str, int], int]
    # The requested partitions that exist, as (topic name, partition index).
    existing: list[tuple[str, int]]

    def answer(self, context: GroupContext) -> None:
        """Send the response with the results of all partitions."""
        topics = self.call.request.topics
        keys = [(topic.name, partition.partition_index) for topic in topics for partition in topic.partitions]
        existing_indexes = {index for index, key in enumerate(keys) if key in self.existing}
        results = group_by_topic(topics, [self.codes[key] for key in keys], existing_indexes)
        context.reply(
            self.call,
            OffsetDeleteResponse(
                error_code=ErrorCode.NONE,
                throttle_time_ms=0,
                topics=[
                    OffsetDeleteResponseTopic(
                        name=topics[topic_position].name,
                        partitions=[
                            OffsetDeleteResponsePartition(partition_index=partition_index, error_code=code)
                            for partition_index, code in partition_results
                        ],
                    )
                    for topic_position, partition_results in results
                ],
            ),
        )


def read_offset_deletion(context: GroupContext, call: RequestReceived[OffsetDeleteRequest]) -> OffsetDeletion:
    """Return the OffsetDeletion of a request; partitions that do not exist have an error code."""
    keys = [
        (topic.name, partition.partition_index)
        for topic in call.request.topics
        for partition in topic.partitions
    ]
    topics = context.coordinator.topics
    codes: dict[tuple[str, int], int] = {key: topic_error(topics, *key) for key in keys}
    return OffsetDeletion(call, codes, [key for key, code in codes.items() if not code])


def delete_offsets_of_missing_group(
    context: GroupContext, group: ClassicGroup, deletion: OffsetDeletion
) -> None:
    """Answer GROUP_ID_NOT_FOUND: the group does not exist."""
    send_error(context, deletion.call, ErrorCode.GROUP_ID_NOT_FOUND)


def delete_offsets_of_empty_group(
    context: GroupContext, group: ClassicGroup, deletion: OffsetDeletion
) -> None:
    """Delete every requested offset of an Empty group, including pending offsets (R112)."""
    for topic, index in deletion.existing:
        _delete_offset(group, topic, index)
    deletion.answer(context)


def delete_unsubscribed_offsets(context: GroupContext, group: ClassicGroup, deletion: OffsetDeletion) -> None:
    """Delete the requested offsets of topics to which no member subscribes.

    Answers NON_EMPTY_GROUP if the protocol type of the group is not "consumer".
    """
    if group.protocol_type != CONSUMER:
        send_error(context, deletion.call, ErrorCode.NON_EMPTY_GROUP)
        return
    for topic, index in deletion.existing:
        if is_subscribed(group, topic):
            deletion.codes[topic, index] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        else:
            _delete_offset(group, topic, index)
    deletion.answer(context)


def _delete_offset(group: ClassicGroup, topic: str, index: int) -> None:
    """Delete the committed and the pending offsets of one partition (R112)."""
    offsets = group.offsets.get(topic, {})
    if offsets.pop(index, None) and not offsets:
        del group.offsets[topic]
    for producer_id, pending in list(group.pending_transactions.items()):
        pending.pop((topic, index), None)
        if not pending:
            del group.pending_transactions[producer_id]


# DeleteGroups.


def delete_group(context: GroupContext, group: ClassicGroup, results: list[DeletableGroupResult]) -> None:
    """Delete the group, with its committed offsets, pending offsets and pending member ids."""
    move(context, group, ClassicGroupState.DEAD)
    results.append(DeletableGroupResult(group_id=group.group_id, error_code=ErrorCode.NONE))


def delete_missing_group(
    context: GroupContext, group: ClassicGroup, results: list[DeletableGroupResult]
) -> None:
    """Report GROUP_ID_NOT_FOUND: the group does not exist."""
    results.append(DeletableGroupResult(group_id=group.group_id, error_code=ErrorCode.GROUP_ID_NOT_FOUND))


def refuse_deletion(context: GroupContext, group: ClassicGroup, results: list[DeletableGroupResult]) -> None:
    """Report NON_EMPTY_GROUP: the group has members."""
    results.append(DeletableGroupResult(group_id=group.group_id, error_code=ErrorCode.NON_EMPTY_GROUP))
