"""sarama's errors under the names of their Go types.

KError(n) stands for Kafka's error code n. Network errors have Go's own types.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from ...error_codes import ErrorCode
from ...group.subscription import TopicPartition


class GoError(NamedTuple):
    """A Go error value: its type name, its text, and the broker's error code if it came from a broker."""

    name: str
    text: str
    code: int | None = None


# sarama's texts of the errors that brokers send to consumers. If such an error ends a session, its text is
# the reason in the next JoinGroup.
_TEXTS = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "Unexpected (unknown?) server error",
    ErrorCode.OFFSET_OUT_OF_RANGE: (
        "The requested offset is outside the range of offsets maintained by the server for the given"
        " topic/partition"
    ),
    ErrorCode.CORRUPT_MESSAGE: "Message contents does not match its CRC",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (
        "Request was for a topic or partition that does not exist on this broker"
    ),
    ErrorCode.LEADER_NOT_AVAILABLE: (
        "In the middle of a leadership election, there is currently no leader for this partition and hence it"
        " is unavailable for writes"
    ),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: (
        "Tried to send a message to a replica that is not the leader for some partition. Your metadata is out"
        " of date"
    ),
    ErrorCode.REQUEST_TIMED_OUT: "Request exceeded the user-specified time limit in the request",
    ErrorCode.REPLICA_NOT_AVAILABLE: "Replica information not available, one or more brokers are down",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: (
        "Specified a string larger than the configured maximum for offset metadata"
    ),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: (
        "The coordinator is still loading offsets and cannot currently process requests"
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available",
    ErrorCode.NOT_COORDINATOR: "Request was for a consumer group that is not coordinated by this broker",
    ErrorCode.ILLEGAL_GENERATION: "The provided generation id is not the current generation",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "The provider group protocol type is incompatible with the other members"
    ),
    ErrorCode.INVALID_GROUP_ID: "The provided group id was empty",
    ErrorCode.UNKNOWN_MEMBER_ID: "The provided member is not known in the current generation",
    ErrorCode.INVALID_SESSION_TIMEOUT: "The provided session timeout is outside the allowed range",
    ErrorCode.REBALANCE_IN_PROGRESS: "A rebalance for the group is in progress. Please re-join the group",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "The provided commit metadata was too large",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "The client is not authorized to access this topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "The client is not authorized to access this group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "The client is not authorized to send this request type",
    ErrorCode.UNSUPPORTED_VERSION: "The version of API is not supported",
    ErrorCode.KAFKA_STORAGE_ERROR: "Disk error when trying to access log file on the disk",
    ErrorCode.FENCED_LEADER_EPOCH: "The leader epoch in the request is older than the epoch on the broker",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "The leader epoch in the request is newer than the epoch on the broker",
    ErrorCode.MEMBER_ID_REQUIRED: (
        "The group member needs to have a valid member id before actually entering a consumer group"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        "Consumer group The consumer group has reached its max size. already has the configured maximum"
        " number of members"
    ),
    ErrorCode.FENCED_INSTANCE_ID: (
        "The broker rejected this static consumer since another consumer with the same group.instance.id has"
        " registered with a different member.id"
    ),
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "There are unstable offsets that need to be cleared",
}


@cache
def kafka(code: int) -> GoError:
    """Return the error for a broker's error code, which may be unknown."""
    try:
        name = ErrorCode(code)
    except ValueError:
        return GoError(f"KError({code})", f"Unknown error, how did this happen? Error code = {code}", code)
    text = _TEXTS.get(name)
    return GoError(f"KError({code})", name.name if text is None else f"kafka server: {text}", code)


def network(why: str, timed_out: bool, address: str = "") -> GoError:
    """Return the error of a request to `address` that got no response.

    Go reports EOF for a broken connection, and a net.OpError for a timeout or a refused connection.
    """
    if "refused" in why and address:
        return GoError("net.OpError", f"dial tcp {address}: connect: connection refused")
    return GoError("net.OpError" if timed_out or "refused" in why else "errors.errorString", why or "EOF")


def out_of_brokers(failures: Iterable[GoError]) -> GoError:
    """Return the error of a call whose request has failed on every known broker (ErrOutOfBrokers)."""
    texts = "\n".join(failure.text for failure in failures)
    text = "kafka: client has run out of available brokers to talk to"
    return GoError("sarama.sentinelError", f"{text}: {texts}" if texts else text)


CLOSED_GROUP = GoError("errors.errorString", "kafka: tried to use a consumer group that was closed")
CANCELED = GoError("errors.errorString", "context canceled")
NOT_CONNECTED = GoError("errors.errorString", "kafka: broker not connected")
INCOMPLETE = GoError(
    "errors.errorString", "kafka: response did not contain all the expected topic/partition blocks"
)
TIMED_OUT = GoError("errors.errorString", "timed out feeding messages to the user")
RETRIES_EXHAUSTED = GoError(
    "errors.errorString", "kafka: partition consumer giving up after consecutive failures"
)
MESSAGE_TOO_LARGE = GoError("errors.errorString", "kafka: message is larger than Consumer.Fetch.Max")
REBALANCE_TIMED_OUT = GoError(
    "errors.errorString",
    "kafka: ConsumeClaim did not exit within Consumer.Group.Rebalance.Timeout of being revoked",
)
CLAIM_EXITED = GoError("errors.errorString", "kafka: ConsumeClaim goroutine exited")
HEARTBEAT_FAILED = GoError("errors.errorString", "kafka: heartbeat loop failed")
PARTITIONS_CHANGED = GoError("errors.errorString", "the number of partitions changed")
UNKNOWN_TOPIC = kafka(3)
OUT_OF_RANGE = kafka(1)
LEADER_NOT_AVAILABLE = kafka(5)
COORDINATOR_NOT_AVAILABLE = kafka(15)
FENCED = kafka(82)
REBALANCE_IN_PROGRESS = kafka(27)


def as_consumer_error(error: GoError, partition: TopicPartition) -> GoError:
    """Return the error as a ConsumerError, whose text names the partition.

    An error that a broker sent keeps its name, for example KError(1): only its text changes.
    """
    text = f"kafka: error while consuming {partition.topic}/{partition.partition}: {error.text}"
    return error._replace(name="sarama.ConsumerError" if error.code is None else error.name, text=text)
