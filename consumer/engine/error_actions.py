"""What each part of a client does about each error code.

Kafka marks codes as retriable and as a sign of stale metadata (`kproto.error_codes`). A request's own table
only lists the codes that mean something else for it. Codes that this release does not know are raised.

    action_for(FETCH, code) is ErrorAction.REFRESH
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kproto.error_codes import REFRESH_METADATA, RETRIABLE, ErrorCode
from kproto.errors import Fenced, KprotoError, NotAuthorized, UnsupportedVersion

E = ErrorCode


class ErrorAction(Enum):
    """What to do about an error code."""

    take = "take"  # no error: use the response
    retry = "retry"  # send the same request to the same broker, after a backoff
    refresh = "refresh"  # refresh metadata, then send to the current leader, after a backoff
    find = "find"  # look the coordinator up, then send to it, after a backoff
    reset = "reset"  # the position is not in the log: apply the reset policy
    rejoin = "rejoin"  # a rebalance is in progress: send again as a member of the next generation
    lose = "lose"  # the member was removed: its partitions belong to other members
    divide = "divide"  # the batch is too large: split it
    sort_out = "sort out"  # some records of the batch are invalid: send the others without them
    renumber = "renumber"  # the broker does not know this sequence: assign new sequence numbers
    spoil = "abort"  # the transaction can only be aborted; the next one can succeed
    told = "raise"  # the application must know; a retry is slow, and useless until somebody intervenes


Row = Mapping[int, ErrorAction]

_GROUP: Row = {
    E.COORDINATOR_NOT_AVAILABLE: ErrorAction.find,
    E.NOT_COORDINATOR: ErrorAction.find,
    # This is the right broker, still loading: a lookup would find the same one.
    E.COORDINATOR_LOAD_IN_PROGRESS: ErrorAction.retry,
}

# FetchCollector.handleInitializeErrors. Java cannot handle CORRUPT_MESSAGE either, and raises.
FETCH: Row = {
    E.OFFSET_OUT_OF_RANGE: ErrorAction.reset,
    E.CORRUPT_MESSAGE: ErrorAction.told,
    # Not retriable by itself, but newer metadata is on its way to the client or to the broker.
    E.UNKNOWN_LEADER_EPOCH: ErrorAction.refresh,
    E.OFFSET_NOT_AVAILABLE: ErrorAction.refresh,
    E.TOPIC_AUTHORIZATION_FAILED: ErrorAction.told,
}

# OffsetFetcherUtils and OffsetsForLeaderEpochUtils.
LIST_OFFSETS: Row = {E.UNKNOWN_LEADER_EPOCH: ErrorAction.refresh, E.OFFSET_NOT_AVAILABLE: ErrorAction.refresh}
EPOCHS: Row = {E.UNKNOWN_LEADER_EPOCH: ErrorAction.refresh, E.OFFSET_NOT_AVAILABLE: ErrorAction.refresh}

# ConsumerCoordinator.OffsetFetchResponseHandler. Each partition may have its own error code.
OFFSET_FETCH: Row = _GROUP

# ConsumerCoordinator.OffsetCommitResponseHandler.
OFFSET_COMMIT: Row = {
    **_GROUP,
    E.REQUEST_TIMED_OUT: ErrorAction.find,
    # The topic was deleted: a retry does not help, so the caller must know.
    E.UNKNOWN_TOPIC_OR_PARTITION: ErrorAction.told,
    E.UNKNOWN_TOPIC_ID: ErrorAction.refresh,
    E.REBALANCE_IN_PROGRESS: ErrorAction.rejoin,
    E.ILLEGAL_GENERATION: ErrorAction.lose,
    E.UNKNOWN_MEMBER_ID: ErrorAction.lose,
    E.FENCED_INSTANCE_ID: ErrorAction.lose,
}

# Admin requests to coordinators: KafkaAdminClient.listGroups, Describe- and DeleteConsumerGroupsHandler.
GROUPS: Row = _GROUP

# AbstractCoordinator.FindCoordinatorResponseHandler: any other broker may know better.
FIND_COORDINATOR: Row = {
    **_GROUP,
    E.COORDINATOR_NOT_AVAILABLE: ErrorAction.retry,
    E.NOT_COORDINATOR: ErrorAction.retry,
}

# A topic of a Metadata response.
METADATA: Row = {
    E.INVALID_TOPIC_EXCEPTION: ErrorAction.told,
    E.TOPIC_AUTHORIZATION_FAILED: ErrorAction.told,
}

# Requests to the controller, such as CreateTopics. CreatePartitions for an unknown topic is a mistyped name.
CONTROLLER: Row = {E.NOT_CONTROLLER: ErrorAction.refresh, E.UNKNOWN_TOPIC_OR_PARTITION: ErrorAction.told}

# Sender.completeBatch: refresh metadata wherever Kafka calls it stale.
PRODUCE: Row = {
    E.DUPLICATE_SEQUENCE_NUMBER: ErrorAction.take,  # the log has the batch from an earlier attempt
    E.MESSAGE_TOO_LARGE: ErrorAction.divide,
    E.RECORD_LIST_TOO_LARGE: ErrorAction.divide,
    # KIP-467: the response may name the invalid records.
    E.INVALID_RECORD: ErrorAction.sort_out,
    E.INVALID_TIMESTAMP: ErrorAction.sort_out,
    # TransactionManager.canRetry, for a producer without transactions.
    E.OUT_OF_ORDER_SEQUENCE_NUMBER: ErrorAction.renumber,
    E.UNKNOWN_PRODUCER_ID: ErrorAction.renumber,
    E.INVALID_PRODUCER_EPOCH: ErrorAction.renumber,
}
INIT_PRODUCER_ID: Row = {}

# TransactionManager's handlers. An error that is neither listed nor retriable ends the producer.
TRANSACTION: Row = {
    **_GROUP,
    E.TRANSACTION_ABORTABLE: ErrorAction.spoil,
    E.UNKNOWN_PRODUCER_ID: ErrorAction.spoil,
    E.INVALID_PRODUCER_ID_MAPPING: ErrorAction.spoil,
    E.TOPIC_AUTHORIZATION_FAILED: ErrorAction.spoil,
    E.GROUP_AUTHORIZATION_FAILED: ErrorAction.spoil,
}
# In Java an unexpected error here ends the transaction, not the producer.
TXN_PARTITIONS: Row = {
    **TRANSACTION,
    E.OPERATION_NOT_ATTEMPTED: ErrorAction.spoil,
    E.UNKNOWN_SERVER_ERROR: ErrorAction.spoil,
}
TXN_OFFSETS: Row = {
    **TRANSACTION,
    E.REQUEST_TIMED_OUT: ErrorAction.find,
    E.UNKNOWN_TOPIC_OR_PARTITION: ErrorAction.spoil,  # as for OffsetCommit; Java retries without end
    E.UNKNOWN_MEMBER_ID: ErrorAction.spoil,
    E.ILLEGAL_GENERATION: ErrorAction.spoil,
    E.FENCED_INSTANCE_ID: ErrorAction.spoil,
}


def to_do(row: Row, code: int) -> ErrorAction:
    """Return what to do about `code`, given the table of the request."""
    if code == E.NONE:
        return ErrorAction.take
    action = row.get(code)
    if action is not None:
        return action
    if code in REFRESH_METADATA:
        return ErrorAction.refresh
    return ErrorAction.retry if code in RETRIABLE else ErrorAction.told


def ends_producer(error: KprotoError) -> bool:
    """Return whether an error of a batch ends this producer (Sender.maybeTransitionToErrorState).

    INVALID_PRODUCER_EPOCH does not: a transaction that timed out also ends with it, and only the coordinator
    knows which of the two it is.
    """
    fatal_codes = (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.CLUSTER_AUTHORIZATION_FAILED)
    return isinstance(error, Fenced | UnsupportedVersion) or (
        isinstance(error, NotAuthorized) and error.code in fatal_codes
    )
