"""Turning a broker's error code into the exception that people catch."""

from __future__ import annotations

from kproto.error_codes import ErrorCode
from kproto.errors import (
    BrokerError,
    CommitFailed,
    Fenced,
    NotAuthorized,
    OffsetOutOfRange,
    Retriable,
    UnknownTopic,
)

_SUBCLASSES: dict[int, type[BrokerError]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRange,
    ErrorCode.ILLEGAL_GENERATION: CommitFailed,
    ErrorCode.UNKNOWN_MEMBER_ID: CommitFailed,
    ErrorCode.REBALANCE_IN_PROGRESS: CommitFailed,
    ErrorCode.FENCED_INSTANCE_ID: Fenced,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: NotAuthorized,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: NotAuthorized,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: NotAuthorized,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: NotAuthorized,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopic,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopic,
}


def broker_error(code: int, request: str, detail: str = "") -> BrokerError:
    """The exception for an error code that `request` was answered with."""
    kind = _SUBCLASSES.get(code)
    if kind is None:
        kind = Retriable if is_retriable(code) else BrokerError
    return kind(code, request, detail)


def is_retriable(code: int) -> bool:
    """True when Kafka says that the same request may succeed later; unknown codes are not."""
    try:
        return ErrorCode(code).retriable
    except ValueError:
        return False
