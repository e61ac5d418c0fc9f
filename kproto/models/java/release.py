"""Where 2.6.2 and 4.3.1 differ. What isn't here, they do alike."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...error_codes import ErrorCode as E
from ...group.assignors import Assignor
from .sticky_assignor_2_6 import COOPERATIVE_STICKY_2_6, STICKY_2_6


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaRelease:
    """One release."""

    versions: Mapping[int, int]
    assignors: tuple[str, ...]
    """partition.assignment.strategy where nobody says one."""
    subscription_version: int
    """2.6: v1, no generation and no user data of the cooperative assignor. From KIP-792 on: v3."""
    commits_synchronously: bool
    """onJoinPrepare commits with poll blocked (maybeAutoCommitOffsetsSync). 4.3: polls go on meanwhile."""
    lost_needs_both: bool
    """Lost is what has neither generation nor member id. 4.3: one of them missing is enough (KAFKA-10122)."""
    forgets_member_id: bool
    """ILLEGAL_GENERATION forgets the member id too, and so does a JoinGroup that is tried again."""
    backs_off: bool
    """A JoinGroup that is tried again waits for retry.backoff.ms; in 2.6 its timer is 0."""
    reasons: bool
    """KIP-800."""
    retries_join_rebalance: bool
    """REBALANCE_IN_PROGRESS for a JoinGroup is tried again; 2.6 doesn't expect it and throws."""
    closes_sessions: bool
    """Fetch sessions end with the consumer."""
    assignors_2_6: Mapping[str, Assignor] = field(default_factory=dict[str, Assignor])
    """Assignors that are not today's."""
    sorts_partitions: bool
    """What is assigned is kept, and written, in order; in 2.6 as hash tables have it."""


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
    assignors_2_6={one.name: one for one in (STICKY_2_6, COOPERATIVE_STICKY_2_6)},
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


CALLBACK = "User rebalance callback throws an error"
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
"""Names of what extends KafkaException; others are wrapped before poll throws them."""


def wrap_callback_error(cause: tuple[str, str]) -> tuple[str, str]:
    """KafkaException around what the application raised."""
    return "KafkaException", f"{CALLBACK}; caused by {cause[0]}: {cause[1]}"


def callback_exception(cause: tuple[str, str]) -> tuple[str, str]:
    """What onJoinComplete throws: Kafka's own as they are, others wrapped."""
    return cause if cause[0] in _KAFKA_EXCEPTIONS else wrap_callback_error(cause)


def exception_name(code: int) -> str:
    """The name of Java's exception class; KafkaException where it expects no such code."""
    return EXCEPTIONS.get(code, "KafkaException")
