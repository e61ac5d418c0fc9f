"""The differences between Java's consumer 2.6.2 and 4.3.1. All other code is common to both releases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...error_codes import ErrorCode as E
from ...group.assignors import Assignor
from .sticky_assignor_2_6 import COOPERATIVE_STICKY_2_6, STICKY_2_6


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaRelease:
    """How one release behaves."""

    versions: Mapping[int, int]
    # Default of partition.assignment.strategy.
    assignors: tuple[str, ...]
    # The version of ConsumerProtocolSubscription. kafka-clients 2.6 writes version 1, which has neither
    # generation (KIP-792) nor rack (KIP-881). Its cooperative assignor has no user data.
    subscription_version: int
    # Whether onJoinPrepare commits synchronously, and so blocks poll (maybeAutoCommitOffsetsSync), as in 2.6.
    commits_synchronously: bool
    # Whether a membership is lost only if generation and member id are both missing, as in 2.6. In 4.3 one
    # missing value suffices (KAFKA-13419).
    lost_needs_both: bool
    # Whether the member id is reset together with the generation, as in 2.6: after ILLEGAL_GENERATION and
    # after a retriable JoinGroup error.
    forgets_member_id: bool
    # Whether a failed JoinGroup is retried after retry.backoff.ms. kafka-clients 2.6 retries immediately.
    backs_off: bool
    # Whether JoinGroup and LeaveGroup carry a reason (KIP-800).
    reasons: bool
    # Whether a JoinGroup that is answered with REBALANCE_IN_PROGRESS is retried. kafka-clients 2.6 does not
    # expect this error, and throws a KafkaException from poll.
    retries_join_rebalance: bool
    # Whether the consumer closes its fetch sessions when it is closed.
    closes_sessions: bool
    # The assignors of this release that differ from those in `kproto.group.assignors`.
    assignors_2_6: Mapping[str, Assignor] = field(default_factory=dict[str, Assignor])
    # Whether the consumer stores and encodes assignments in sorted order. kafka-clients 2.6 uses the order of
    # its hash tables.
    sorts_partitions: bool


JAVA_2_6 = JavaRelease(
    versions={1: 11, 2: 5, 3: 9, 8: 8, 9: 7, 10: 3, 11: 7, 12: 4, 13: 4, 14: 5, 23: 3},
    assignors=("range",),
    subscription_version=1,
    commits_synchronously=True,
    lost_needs_both=True,
    forgets_member_id=True,
    backs_off=False,
    reasons=False,
    retries_join_rebalance=False,
    closes_sessions=False,
    sorts_partitions=False,
    assignors_2_6={assignor.name: assignor for assignor in (STICKY_2_6, COOPERATIVE_STICKY_2_6)},
)

JAVA_4_3 = JavaRelease(
    versions={1: 18, 2: 11, 3: 13, 8: 9, 9: 9, 10: 6, 11: 9, 12: 4, 13: 5, 14: 5, 23: 4},
    assignors=("range", "cooperative-sticky"),
    subscription_version=3,
    commits_synchronously=False,
    lost_needs_both=False,
    forgets_member_id=False,
    backs_off=True,
    reasons=True,
    retries_join_rebalance=True,
    closes_sessions=True,
    sorts_partitions=True,
)

# Error code -> the name of Java's exception.
EXCEPTIONS: dict[int, str] = {
    E.UNKNOWN_TOPIC_OR_PARTITION: "UnknownTopicOrPartitionException",
    E.REQUEST_TIMED_OUT: "TimeoutException",
    E.OFFSET_METADATA_TOO_LARGE: "OffsetMetadataTooLarge",
    E.COORDINATOR_LOAD_IN_PROGRESS: "CoordinatorLoadInProgressException",
    E.COORDINATOR_NOT_AVAILABLE: "CoordinatorNotAvailableException",
    E.NOT_COORDINATOR: "NotCoordinatorException",
    E.ILLEGAL_GENERATION: "IllegalGenerationException",
    E.INCONSISTENT_GROUP_PROTOCOL: "InconsistentGroupProtocolException",
    E.INVALID_GROUP_ID: "InvalidGroupIdException",
    E.UNKNOWN_MEMBER_ID: "UnknownMemberIdException",
    E.INVALID_SESSION_TIMEOUT: "InvalidSessionTimeoutException",
    E.REBALANCE_IN_PROGRESS: "RebalanceInProgressException",
    E.TOPIC_AUTHORIZATION_FAILED: "TopicAuthorizationException",
    E.GROUP_AUTHORIZATION_FAILED: "GroupAuthorizationException",
    E.UNSUPPORTED_VERSION: "UnsupportedVersionException",
    E.GROUP_MAX_SIZE_REACHED: "GroupMaxSizeReachedException",
    E.FENCED_INSTANCE_ID: "FencedInstanceIdException",
    E.INVALID_COMMIT_OFFSET_SIZE: "InvalidCommitOffsetSizeException",
}


# The message of the KafkaException that wraps an exception of the rebalance listener.
CALLBACK = "User rebalance callback throws an error"
# The names of KafkaException and its subclasses. If a callback throws one of them in onJoinComplete, poll
# throws it unchanged. Poll wraps any other exception of the callback in a KafkaException.
_KAFKA_EXCEPTIONS = {
    *EXCEPTIONS.values(),
    "KafkaException",
    "CommitFailedException",
    "RetriableCommitFailedException",
    "TimeoutException",
    "SerializationException",
    "InvalidOffsetException",
    "NoOffsetForPartitionException",
    "OffsetOutOfRangeException",
}


def wrap_callback_error(cause: tuple[str, str]) -> tuple[str, str]:
    """Return (name, text) of a KafkaException that wraps the exception `cause` of a callback."""
    return "KafkaException", f"{CALLBACK}; caused by {cause[0]}: {cause[1]}"


def callback_exception(cause: tuple[str, str]) -> tuple[str, str]:
    """Return `cause` if it is a KafkaException, otherwise a KafkaException that wraps it (onJoinComplete)."""
    return cause if cause[0] in _KAFKA_EXCEPTIONS else wrap_callback_error(cause)


def exception_name(code: int) -> str:
    """Return the name of Java's exception for an error code; KafkaException if `EXCEPTIONS` has none."""
    return EXCEPTIONS.get(code, "KafkaException")
