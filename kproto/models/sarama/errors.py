"""sarama's errors under the names of their Go types.

KError(n) stands for Kafka's error code n. Network errors have Go's own types.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from ...error_codes import ErrorCode


class GoError(NamedTuple):
    """A Go error value: the name of its type, its text, and the broker's error code, if a broker sent one."""

    name: str
    text: str
    code: int | None = None


# sarama's texts of the errors that can end a session. The next JoinGroup sends the text as its reason.
_ON_THE_WIRE = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "Unexpected (unknown?) server error",
    ErrorCode.REQUEST_TIMED_OUT: "Request exceeded the user-specified time limit in the request",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: (
        "The coordinator is still loading offsets and cannot currently process requests"
    ),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available",
    ErrorCode.NOT_COORDINATOR: ("Request was for a consumer group that is not coordinated by this broker"),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "The provider group protocol type is incompatible with the other members"
    ),
    ErrorCode.INVALID_GROUP_ID: "The provided group id was empty",
    ErrorCode.INVALID_SESSION_TIMEOUT: "The provided session timeout is outside the allowed range",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "The client is not authorized to access this group",
    ErrorCode.UNSUPPORTED_VERSION: "The version of API is not supported",
    ErrorCode.MEMBER_ID_REQUIRED: (
        "The group member needs to have a valid member id before actually entering a consumer group"
    ),
}


@cache
def kafka(code: int) -> GoError:
    """Return the error for a broker's error code."""
    try:
        name = ErrorCode(code)
    except ValueError:
        return GoError(f"KError({code})", f"Unknown error, how did this happen? Error code = {code}", code)
    text = _ON_THE_WIRE.get(name)
    return GoError(f"KError({code})", name.name if text is None else f"kafka server: {text}", code)


def network(why: str, late: bool) -> GoError:
    """Return the error of a request without a response.

    Go reports EOF for a broken connection, and another error type for a timeout.
    """
    return GoError("net.OpError" if late or "refused" in why else "errors.errorString", why or "EOF")


CLOSED_GROUP = GoError("errors.errorString", "the consumer group is closed")
CANCELED = GoError("errors.errorString", "context canceled")
NOT_CONNECTED = GoError("errors.errorString", "the broker is not connected")
OUT_OF_BROKERS = GoError("errors.errorString", "no broker is left to ask")
INCOMPLETE = GoError("errors.errorString", "the answer doesn't say anything about the partition")
TIMED_OUT = GoError("errors.errorString", "the application took no message in time")
RETRIES_EXHAUSTED = GoError("errors.errorString", "the partition consumer has no retries left")
MESSAGE_TOO_LARGE = GoError("errors.errorString", "a message is larger than Consumer.Fetch.Max")
REBALANCE_TIMED_OUT = GoError(
    "errors.errorString",
    "kafka: ConsumeClaim did not exit within Consumer.Group.Rebalance.Timeout of being revoked",
)
CLAIM_EXITED = GoError("errors.errorString", "a ConsumeClaim ended by itself")
HEARTBEAT_FAILED = GoError("errors.errorString", "the heartbeats stopped")
PARTITIONS_CHANGED = GoError("errors.errorString", "the number of partitions changed")
UNKNOWN_TOPIC = kafka(3)
OUT_OF_RANGE = kafka(1)
LEADER_NOT_AVAILABLE = kafka(5)
COORDINATOR_NOT_AVAILABLE = kafka(15)
FENCED = kafka(82)
REBALANCE_IN_PROGRESS = kafka(27)


def as_consumer_error(error: GoError) -> GoError:
    """Return the error as a ConsumerError, except that an error with a broker's code remains a KError."""
    return error if error.code is not None else error._replace(name="sarama.ConsumerError")
