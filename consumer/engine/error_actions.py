"""Tables that say what a client does after an error code: one table per kind of request.

The table of a request lists the error codes whose action differs from the default. The default depends on
whether Kafka's exception for the code is retriable, and whether it requires new metadata
(`kproto.error_codes`).

If a code has no entry and is not retriable, its error is raised.

    action_for(FETCH, code) is ErrorAction.REFRESH_METADATA
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from kproto.error_codes import REFRESH_METADATA, RETRIABLE, ErrorCode
from kproto.errors import Fenced, KprotoError, NotAuthorized, UnsupportedVersion

E = ErrorCode


class ErrorAction(Enum):
    """What a client does after an error code."""

    USE = "use"  # No error: use the response.
    RETRY = "retry"  # Send the same request to the same broker, after a backoff.
    # Refresh the metadata and, after a backoff, send the request to the current leader.
    REFRESH_METADATA = "refresh metadata"
    # Look up the coordinator and, after a backoff, send the request to it.
    FIND_COORDINATOR = "find coordinator"
    RESET_OFFSET = "reset offset"  # The position is not in the log: apply the reset policy.

    # A rebalance is in progress: send the request again as a member of the next generation.
    REJOIN = "rejoin"
    LOSE_MEMBERSHIP = "lose membership"  # The member was removed: its partitions belong to other members.
    SPLIT_BATCH = "split batch"  # The batch is too large: split it.
    DROP_INVALID_RECORDS = (
        "drop invalid records"  # Some records of the batch are invalid: send only the valid ones.
    )
    RENUMBER = "renumber"  # The broker expects another sequence number: assign new sequence numbers.

    ABORT = "abort"  # The transaction can only be aborted. The next transaction can succeed.

    # Raise the error, because usually only an operator can fix the cause. A retry follows after the longest
    # backoff.
    RAISE = "raise"


# The table of one kind of request: error code -> action.
Row = Mapping[int, ErrorAction]

_GROUP: Row = {
    E.COORDINATOR_NOT_AVAILABLE: ErrorAction.FIND_COORDINATOR,
    E.NOT_COORDINATOR: ErrorAction.FIND_COORDINATOR,
    # The broker is the coordinator but is still loading the group's state, so a lookup would return the same
    # broker.
    E.COORDINATOR_LOAD_IN_PROGRESS: ErrorAction.RETRY,
}

# The actions for the error codes of Fetch, as in Java's FetchCollector.handleInitializeErrors.
FETCH: Row = {
    E.OFFSET_OUT_OF_RANGE: ErrorAction.RESET_OFFSET,
    E.CORRUPT_MESSAGE: ErrorAction.RAISE,
    # Kafka's exception for this code is retriable but does not require new metadata, and Java only logs the
    # code. Metadata is refreshed here, because the client's or the broker's metadata is outdated.
    E.UNKNOWN_LEADER_EPOCH: ErrorAction.REFRESH_METADATA,
    E.OFFSET_NOT_AVAILABLE: ErrorAction.REFRESH_METADATA,
    E.TOPIC_AUTHORIZATION_FAILED: ErrorAction.RAISE,
    # FETCH_SESSION_TOPIC_ID_ERROR is the only fetch session error after which metadata is refreshed, as in
    # AbstractFetch (M163).
    E.FETCH_SESSION_TOPIC_ID_ERROR: ErrorAction.REFRESH_METADATA,
}

# ListOffsets, as in OffsetFetcherUtils.
LIST_OFFSETS: Row = {
    E.UNKNOWN_LEADER_EPOCH: ErrorAction.REFRESH_METADATA,
    E.OFFSET_NOT_AVAILABLE: ErrorAction.REFRESH_METADATA,
}
# OffsetForLeaderEpoch, as in OffsetsForLeaderEpochUtils.
EPOCHS: Row = {
    E.UNKNOWN_LEADER_EPOCH: ErrorAction.REFRESH_METADATA,
    E.OFFSET_NOT_AVAILABLE: ErrorAction.REFRESH_METADATA,
}

# OffsetFetch, as in ConsumerCoordinator.OffsetFetchResponseHandler. Each partition may have its own error
# code.
OFFSET_FETCH: Row = _GROUP

# OffsetCommit, as in ConsumerCoordinator.OffsetCommitResponseHandler.
OFFSET_COMMIT: Row = {
    **_GROUP,
    E.REQUEST_TIMED_OUT: ErrorAction.FIND_COORDINATOR,
    # The topic was deleted. A retry would fail as well, so the error is raised.
    E.UNKNOWN_TOPIC_OR_PARTITION: ErrorAction.RAISE,
    E.UNKNOWN_TOPIC_ID: ErrorAction.REFRESH_METADATA,
    E.REBALANCE_IN_PROGRESS: ErrorAction.REJOIN,
    E.ILLEGAL_GENERATION: ErrorAction.LOSE_MEMBERSHIP,
    E.UNKNOWN_MEMBER_ID: ErrorAction.LOSE_MEMBERSHIP,
    E.FENCED_INSTANCE_ID: ErrorAction.LOSE_MEMBERSHIP,
}

# Admin requests to coordinators, as in KafkaAdminClient.listGroups, DescribeConsumerGroupsHandler and
# DeleteConsumerGroupsHandler.
GROUPS: Row = _GROUP

# FindCoordinator, as in AbstractCoordinator.FindCoordinatorResponseHandler. A retry may go to any broker.
FIND_COORDINATOR: Row = {
    **_GROUP,
    E.COORDINATOR_NOT_AVAILABLE: ErrorAction.RETRY,
    E.NOT_COORDINATOR: ErrorAction.RETRY,
}

# Metadata: the error code of a topic in the response.
METADATA: Row = {
    E.INVALID_TOPIC_EXCEPTION: ErrorAction.RAISE,
    E.TOPIC_AUTHORIZATION_FAILED: ErrorAction.RAISE,
}

# Requests to the controller, such as CreateTopics. UNKNOWN_TOPIC_OR_PARTITION is raised and not retried: the
# topic name of a CreatePartitions request is probably mistyped.
CONTROLLER: Row = {
    E.NOT_CONTROLLER: ErrorAction.REFRESH_METADATA,
    E.UNKNOWN_TOPIC_OR_PARTITION: ErrorAction.RAISE,
}

# Other admin requests, as in KafkaAdminClient. UNKNOWN_TOPIC_OR_PARTITION is retried a few times, because
# brokers learn of a new topic with a delay.
ADMIN: Row = {
    E.NOT_CONTROLLER: ErrorAction.REFRESH_METADATA,
}

# Produce, as in Sender.completeBatch.
PRODUCE: Row = {
    # The log contains the batch from an earlier attempt, so the batch has succeeded.
    E.DUPLICATE_SEQUENCE_NUMBER: ErrorAction.USE,
    E.MESSAGE_TOO_LARGE: ErrorAction.SPLIT_BATCH,
    E.RECORD_LIST_TOO_LARGE: ErrorAction.SPLIT_BATCH,
    # KIP-467: the response may name the invalid records.
    E.INVALID_RECORD: ErrorAction.DROP_INVALID_RECORDS,
    E.INVALID_TIMESTAMP: ErrorAction.DROP_INVALID_RECORDS,
    # A producer without transactions retries after these codes, as in TransactionManager.canRetry.
    E.OUT_OF_ORDER_SEQUENCE_NUMBER: ErrorAction.RENUMBER,
    E.UNKNOWN_PRODUCER_ID: ErrorAction.RENUMBER,
    E.INVALID_PRODUCER_EPOCH: ErrorAction.RENUMBER,
}
# InitProducerId. All codes have the default action.
INIT_PRODUCER_ID: Row = {}

# Requests of a transaction (TransactionManager's handlers). All error codes that are neither listed nor
# retriable are fatal for the producer.
TRANSACTION: Row = {
    **_GROUP,
    E.TRANSACTION_ABORTABLE: ErrorAction.ABORT,
    E.UNKNOWN_PRODUCER_ID: ErrorAction.ABORT,
    E.INVALID_PRODUCER_ID_MAPPING: ErrorAction.ABORT,
    E.TOPIC_AUTHORIZATION_FAILED: ErrorAction.ABORT,
    E.GROUP_AUTHORIZATION_FAILED: ErrorAction.ABORT,
}
# AddPartitionsToTxn. As in Java, UNKNOWN_SERVER_ERROR aborts the transaction and is not fatal for the
# producer.
TXN_PARTITIONS: Row = {
    **TRANSACTION,
    E.OPERATION_NOT_ATTEMPTED: ErrorAction.ABORT,
    E.UNKNOWN_SERVER_ERROR: ErrorAction.ABORT,
}
# TxnOffsetCommit.
TXN_OFFSETS: Row = {
    **TRANSACTION,
    E.REQUEST_TIMED_OUT: ErrorAction.FIND_COORDINATOR,
    # The topic was deleted, so the offsets cannot be committed. Java retries indefinitely.
    E.UNKNOWN_TOPIC_OR_PARTITION: ErrorAction.ABORT,
    # The topic was deleted or re-created, or the producer's metadata is outdated (KIP-1319).
    E.UNKNOWN_TOPIC_ID: ErrorAction.ABORT,
    E.UNKNOWN_MEMBER_ID: ErrorAction.ABORT,
    E.ILLEGAL_GENERATION: ErrorAction.ABORT,
    E.FENCED_INSTANCE_ID: ErrorAction.ABORT,
}


def action_for(row: Row, code: int) -> ErrorAction:
    """Return the action for an error code, according to `row`, the table of the request."""
    if code == E.NONE:
        return ErrorAction.USE
    action = row.get(code)
    if action is not None:
        return action
    if code in REFRESH_METADATA:
        return ErrorAction.REFRESH_METADATA
    return ErrorAction.RETRY if code in RETRIABLE else ErrorAction.RAISE


def is_fatal_for_producer(error: KprotoError) -> bool:
    """Return whether an error of a batch is fatal for the producer.

    Follows Java's Sender.maybeTransitionToErrorState.

    INVALID_PRODUCER_EPOCH is not fatal, but the transaction must be aborted. Either the transaction timed
    out, or a newer producer exists. The coordinator's next response shows which of the two has happened.
    """
    fatal_codes = (E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, E.CLUSTER_AUTHORIZATION_FAILED)
    return isinstance(error, Fenced | UnsupportedVersion) or (
        isinstance(error, NotAuthorized) and error.code in fatal_codes
    )
