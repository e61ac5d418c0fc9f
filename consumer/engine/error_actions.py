"""What each part of a client does about each error code: the one table.

Kafka says of each code whether it is worth another try and whether metadata is stale (`kproto.error_codes`).
That is the rule; a request's own row holds only where its meaning is another one. Codes that this release
doesn't know are raised.

    to_do(FETCH, code) is Do.refresh
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kproto.error_codes import REFRESH_METADATA, RETRIABLE, ErrorCode
from kproto.errors import Fenced, KprotoError, NotAuthorized, UnsupportedVersion

E = ErrorCode


class ErrorAction(Enum):
    """What to do about an error code."""

    take = "take"  # no error: use the answer
    retry = "retry"  # the same request to the same broker, after a backoff
    refresh = "refresh"  # ask for metadata, then whoever leads now, after a backoff
    find = "find"  # look the coordinator up, then ask it, after a backoff
    reset = "reset"  # the position is not in the log: what the reset policy says
    rejoin = "rejoin"  # a rebalance is under way: again, as a member of the next generation
    lose = "lose"  # this member is none any more: what it had belongs to others
    divide = "divide"  # the batch is too large: two halves
    sort_out = "sort out"  # some records of the batch are bad: the others go on without them
    renumber = "renumber"  # the broker lost count of this producer, or we did: new numbers
    spoil = "abort"  # this transaction can't be committed any more; the next one can
    told = "raise"  # the application has to know; trying again is slow, and useless until somebody acts


Row = Mapping[int, ErrorAction]

_GROUP: Row = {
    E.COORDINATOR_NOT_AVAILABLE: ErrorAction.find,
    E.NOT_COORDINATOR: ErrorAction.find,
    # The right broker, still reading: looking it up again finds the same one.
    E.COORDINATOR_LOAD_IN_PROGRESS: ErrorAction.retry,
}

# FetchCollector.handleInitializeErrors. Java knows no way on for CORRUPT_MESSAGE either, and tells.
FETCH: Row = {
    E.OFFSET_OUT_OF_RANGE: ErrorAction.reset,
    E.CORRUPT_MESSAGE: ErrorAction.told,
    # Not retriable by itself, but metadata of a newer epoch is on its way to us, or to the broker.
    E.UNKNOWN_LEADER_EPOCH: ErrorAction.refresh,
    E.OFFSET_NOT_AVAILABLE: ErrorAction.refresh,
    E.TOPIC_AUTHORIZATION_FAILED: ErrorAction.told,
}

# OffsetFetcherUtils and OffsetsForLeaderEpochUtils.
LIST_OFFSETS: Row = {E.UNKNOWN_LEADER_EPOCH: ErrorAction.refresh, E.OFFSET_NOT_AVAILABLE: ErrorAction.refresh}
EPOCHS: Row = {E.UNKNOWN_LEADER_EPOCH: ErrorAction.refresh, E.OFFSET_NOT_AVAILABLE: ErrorAction.refresh}

# ConsumerCoordinator.OffsetFetchResponseHandler; each partition may have an error of its own.
OFFSET_FETCH: Row = _GROUP

# ConsumerCoordinator.OffsetCommitResponseHandler.
OFFSET_COMMIT: Row = {
    **_GROUP,
    E.REQUEST_TIMED_OUT: ErrorAction.find,
    # The topic is gone, and whoever commits for it should hear of it: no retry brings it back.
    E.UNKNOWN_TOPIC_OR_PARTITION: ErrorAction.told,
    E.UNKNOWN_TOPIC_ID: ErrorAction.refresh,
    E.REBALANCE_IN_PROGRESS: ErrorAction.rejoin,
    E.ILLEGAL_GENERATION: ErrorAction.lose,
    E.UNKNOWN_MEMBER_ID: ErrorAction.lose,
    E.FENCED_INSTANCE_ID: ErrorAction.lose,
}

# What admins ask of coordinators: KafkaAdminClient.listGroups, Describe- and DeleteConsumerGroupsHandler.
GROUPS: Row = _GROUP

# AbstractCoordinator.FindCoordinatorResponseHandler: any other broker may know better.
FIND_COORDINATOR: Row = {
    **_GROUP,
    E.COORDINATOR_NOT_AVAILABLE: ErrorAction.retry,
    E.NOT_COORDINATOR: ErrorAction.retry,
}

# A topic of a Metadata answer.
METADATA: Row = {
    E.INVALID_TOPIC_EXCEPTION: ErrorAction.told,
    E.TOPIC_AUTHORIZATION_FAILED: ErrorAction.told,
}

# What only the controller does: CreateTopics and its kin. Somebody who asks to grow a topic that isn't there
# has mistyped its name, or waits for it elsewhere.
CONTROLLER: Row = {E.NOT_CONTROLLER: ErrorAction.refresh, E.UNKNOWN_TOPIC_OR_PARTITION: ErrorAction.told}

# Sender.completeBatch: who leads is asked again wherever Kafka's metadata is stale.
PRODUCE: Row = {
    E.DUPLICATE_SEQUENCE_NUMBER: ErrorAction.take,  # the log has it, from an earlier try
    E.MESSAGE_TOO_LARGE: ErrorAction.divide,
    E.RECORD_LIST_TOO_LARGE: ErrorAction.divide,
    # KIP-467: the answer may say which records.
    E.INVALID_RECORD: ErrorAction.sort_out,
    E.INVALID_TIMESTAMP: ErrorAction.sort_out,
    # TransactionManager.canRetry, for a producer without transactions.
    E.OUT_OF_ORDER_SEQUENCE_NUMBER: ErrorAction.renumber,
    E.UNKNOWN_PRODUCER_ID: ErrorAction.renumber,
    E.INVALID_PRODUCER_EPOCH: ErrorAction.renumber,
}
INIT_PRODUCER_ID: Row = {}

# TransactionManager's handlers: what isn't here and isn't retriable is the end of the producer.
TRANSACTION: Row = {
    **_GROUP,
    E.TRANSACTION_ABORTABLE: ErrorAction.spoil,
    E.UNKNOWN_PRODUCER_ID: ErrorAction.spoil,
    E.INVALID_PRODUCER_ID_MAPPING: ErrorAction.spoil,
    E.TOPIC_AUTHORIZATION_FAILED: ErrorAction.spoil,
    E.GROUP_AUTHORIZATION_FAILED: ErrorAction.spoil,
}
# Java takes what it doesn't expect here for the end of the transaction, and not of the producer.
TXN_PARTITIONS: Row = {
    **TRANSACTION,
    E.OPERATION_NOT_ATTEMPTED: ErrorAction.spoil,
    E.UNKNOWN_SERVER_ERROR: ErrorAction.spoil,
}
TXN_OFFSETS: Row = {
    **TRANSACTION,
    E.REQUEST_TIMED_OUT: ErrorAction.find,
    E.UNKNOWN_TOPIC_OR_PARTITION: ErrorAction.spoil,  # as of OffsetCommit; Java's tries for ever
    E.UNKNOWN_MEMBER_ID: ErrorAction.spoil,
    E.ILLEGAL_GENERATION: ErrorAction.spoil,
    E.FENCED_INSTANCE_ID: ErrorAction.spoil,
}


def to_do(row: Row, code: int) -> ErrorAction:
    """What to do about `code`, by this request's row."""
    if code == E.NONE:
        return ErrorAction.take
    found = row.get(code)
    if found is not None:
        return found
    if code in REFRESH_METADATA:
        return ErrorAction.refresh
    return ErrorAction.retry if code in RETRIABLE else ErrorAction.told


def ends_producer(error: KprotoError) -> bool:
    """Whether a batch's error says that this producer is none any more (Sender.maybeTransitionToErrorState).

    INVALID_PRODUCER_EPOCH isn't among them: a transaction whose time was over ends so, too, and the
    coordinator knows which it is.
    """
    lost = (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.CLUSTER_AUTHORIZATION_FAILED)
    return isinstance(error, Fenced | UnsupportedVersion) or (
        isinstance(error, NotAuthorized) and error.code in lost
    )
