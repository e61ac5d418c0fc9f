"""Why members join and leave, as they tell the coordinator (KIP-800): word for word what Java says."""

from __future__ import annotations

from ....error_codes import ErrorCode

MAX_REASON = 255  # AbstractCoordinator.maybeTruncateReason

ALREADY_REBALANCING = "group is already rebalancing"
COMMIT_WHILE_REBALANCING = "offset commit failed since group is already rebalancing"
METADATA_CHANGED = "cached metadata has changed"
SUBSCRIPTION_CHANGED = "subscription has changed"
NOT_OUR_SUBSCRIPTION = "received assignment does not match the current subscription"
REVOKED_SOME = "need to revoke partitions and re-join"
BEING_CLOSED = "the consumer is being closed"
UNSUBSCRIBED = "the consumer unsubscribed from all topics"
LEFT_BY_ITSELF = "consumer pro-actively leaving the group"
GET_MEMBER_ID = "need to re-join with the given member-id: {}"
ENCOUNTERED = "encountered {} from {} response"
FAILED_WITH = "rebalance failed due to {}"
NO_ANSWER = "no heartbeat was accepted for session.timeout.ms"  # ours: Java has no such reason

# Java names its exception classes in FAILED_WITH; for codes that it does not expect, this one.
JAVA_OTHER = "KafkaException"
JAVA_EXCEPTIONS: dict[int, str] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "CoordinatorLoadInProgressException",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "CoordinatorNotAvailableException",
    ErrorCode.NOT_COORDINATOR: "NotCoordinatorException",
    ErrorCode.ILLEGAL_GENERATION: "IllegalGenerationException",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "InconsistentGroupProtocolException",
    ErrorCode.INVALID_GROUP_ID: "InvalidGroupIdException",
    ErrorCode.UNKNOWN_MEMBER_ID: "UnknownMemberIdException",
    ErrorCode.INVALID_SESSION_TIMEOUT: "InvalidSessionTimeoutException",
    ErrorCode.REBALANCE_IN_PROGRESS: "RebalanceInProgressException",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "GroupAuthorizationException",
    ErrorCode.UNSUPPORTED_VERSION: "UnsupportedVersionException",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "GroupMaxSizeReachedException",
    ErrorCode.FENCED_INSTANCE_ID: "FencedInstanceIdException",
}


def java_name(code: int) -> str:
    """The name of Java's exception class for an error code that a JoinGroup or SyncGroup got."""
    return JAVA_EXCEPTIONS.get(code, JAVA_OTHER)
