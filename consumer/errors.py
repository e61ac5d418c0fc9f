"""Turning a broker's error code into the exception that people catch."""

from __future__ import annotations

from kproto.error_codes import ErrorCode
from kproto.errors import (
    BrokerError,
    CommitFailed,
    Fenced,
    KprotoError,
    NotAuthorized,
    OffsetOutOfRange,
    Retriable,
    UnknownTopic,
)

_SUBCLASSES: dict[int, type[BrokerError]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRange,
    ErrorCode.FENCED_INSTANCE_ID: Fenced,
    ErrorCode.PRODUCER_FENCED: Fenced,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: NotAuthorized,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: NotAuthorized,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: NotAuthorized,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: NotAuthorized,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopic,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopic,
}

# What these mean depends on what was asked: only a commit can fail as one.
_MOVED_ON = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS)

# What a request's subject must be allowed to (KafkaApis).
_NEEDED: dict[str, str] = {
    "CreatePartitions": "ALTER on the topic",
    "CreateTopics": "CREATE on the cluster, or on the topic",
    "DeleteTopics": "DELETE on the topic",
    "Fetch": "READ on the topic",
    "FindCoordinator": "DESCRIBE (or READ) on the group",
    "Heartbeat": "READ on the group",
    "AddOffsetsToTxn": "WRITE on the transactional id, and READ on the group",
    "AddPartitionsToTxn": "WRITE on the transactional id, and on the topic",
    "EndTxn": "WRITE on the transactional id",
    "InitProducerId": "IDEMPOTENT_WRITE on the cluster, or WRITE on any topic",
    "JoinGroup": "READ on the group",
    "ListOffsets": "DESCRIBE (or READ) on the topic",
    "Metadata": "DESCRIBE (or READ, or WRITE) on the topic",
    "OffsetCommit": "READ on the group and on the topic",
    "OffsetFetch": "DESCRIBE (or READ) on the group and on the topic",
    "OffsetForLeaderEpoch": "DESCRIBE on the topic",
    "Produce": "WRITE on the topic",
    "SyncGroup": "READ on the group",
    "TxnOffsetCommit": "WRITE on the transactional id, and READ on the group and the topic",
}


def broker_error(code: int, request: str, detail: str = "") -> BrokerError:
    """The exception for an error code that `request` was answered with."""
    needed = _NEEDED.get(request) if _SUBCLASSES.get(code) is NotAuthorized else None
    if needed is not None:
        cure = f"whom the broker takes this client for needs an ACL that allows {needed}"
        detail = f"{detail}: {cure}" if detail else cure
    kind = CommitFailed if request == "OffsetCommit" and code in _MOVED_ON else _SUBCLASSES.get(code)
    if kind is None:
        kind = Retriable if is_retriable(code) else BrokerError
    return kind(code, request, detail)


def helpful(error: KprotoError) -> KprotoError:
    """An error of the group protocol's machine, which knows no cures, as `broker_error` has it."""
    return (
        broker_error(error.code, error.request, error.detail) if isinstance(error, NotAuthorized) else error
    )


def is_retriable(code: int) -> bool:
    """True when Kafka says that the same request may succeed later; unknown codes are not."""
    try:
        return ErrorCode(code).retriable
    except ValueError:
        return False
