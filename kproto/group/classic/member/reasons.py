"""The reasons in JoinGroup and LeaveGroup (KIP-800), in the words of Java's consumer (M116)."""

from __future__ import annotations

from ....error_codes import ErrorCode

# AbstractCoordinator.maybeTruncateReason.
MAX_REASON = 255

ALREADY_REBALANCING = "group is already rebalancing"
COMMIT_WHILE_REBALANCING = "offset commit failed since group is already rebalancing"
METADATA_CHANGED = "cached metadata has changed"
SUBSCRIPTION_CHANGED = "subscription has changed"
NOT_OUR_SUBSCRIPTION = "received assignment does not match the current subscription"
# The leader received a different assignment for itself than it had sent. Java does not check this.
NOT_OUR_PLAN = "the response to SyncGroup does not contain the assignment that the leader sent"
# The member's assignment is empty, and DescribeGroups shows that this is wrong. Java does not check this.
EMPTY_BY_MISTAKE = "the member owns no partition, although another assignment was expected"
REVOKED_SOME = "need to revoke partitions and re-join"
BEING_CLOSED = "the consumer is being closed"
UNSUBSCRIBED = "the consumer unsubscribed from all topics"
LEFT_BY_ITSELF = "consumer pro-actively leaving the group"
GET_MEMBER_ID = "need to re-join with the given member-id: {}"
ENCOUNTERED = "encountered {} from {} response"
FAILED_WITH = "rebalance failed due to {}"
# The membership ended before an assignment was adopted. {} is the member id that the member still has.
GENERATION_RESET = (
    "rebalance failed since the generation/state was modified by heartbeat thread to "
    "Generation{{generationId=-1, memberId='{}', protocol='null'}}/UNJOINED "
    "before the rebalance callback triggered"
)
# The reason for rejoining after a session timeout with `Policy.lose_on_session_timeout`. Java's member keeps
# its partitions, and only looks up the coordinator.
NO_ANSWER = "no heartbeat was accepted for session.timeout.ms"

# The exception class that completes FAILED_WITH after an error code that Java does not expect.
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
    """Return the name of Java's exception class for an error code of JoinGroup or SyncGroup."""
    return JAVA_EXCEPTIONS.get(code, JAVA_OTHER)
