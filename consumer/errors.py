"""Turning a broker's error code into the exception that people catch."""

from __future__ import annotations

from typing import TypeVar

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

E = TypeVar("E", bound=BaseException)

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

_TOPIC, _GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
_CLUSTER, _ID = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_ON: dict[int, str] = {
    _TOPIC: "the topic",
    _GROUP: "the group",
    _CLUSTER: "the cluster",
    _ID: "the transactional id",
}

# What a request's subject must be allowed to, by what it was refused on (KafkaApis).
_CREATE, _IDEMPOTENT = (
    "CREATE on the cluster, or on the topic",
    "IDEMPOTENT_WRITE on the cluster, or WRITE on any topic",
)
_NEEDED: dict[str, dict[int, str]] = {
    "AddOffsetsToTxn": {_ID: "WRITE", _GROUP: "READ"},
    "AddPartitionsToTxn": {_ID: "WRITE", _TOPIC: "WRITE"},
    "AlterConfigs": {_TOPIC: "ALTER_CONFIGS", _CLUSTER: "ALTER_CONFIGS", _GROUP: "ALTER_CONFIGS"},
    "CreateAcls": {_CLUSTER: "ALTER"},
    "CreatePartitions": {_TOPIC: "ALTER"},
    "CreateTopics": {_TOPIC: _CREATE, _CLUSTER: _CREATE},
    "DeleteAcls": {_CLUSTER: "ALTER"},
    "DeleteGroups": {_GROUP: "DELETE"},
    "DeleteRecords": {_TOPIC: "DELETE"},
    "DeleteTopics": {_TOPIC: "DELETE"},
    "DescribeAcls": {_CLUSTER: "DESCRIBE"},
    "DescribeConfigs": {_TOPIC: "DESCRIBE_CONFIGS", _CLUSTER: "DESCRIBE_CONFIGS", _GROUP: "DESCRIBE_CONFIGS"},
    "DescribeGroups": {_GROUP: "DESCRIBE (or READ)"},
    "EndTxn": {_ID: "WRITE"},
    "Fetch": {_TOPIC: "READ"},
    "FindCoordinator": {_GROUP: "DESCRIBE (or READ)", _ID: "DESCRIBE (or WRITE)"},
    "Heartbeat": {_GROUP: "READ"},
    "IncrementalAlterConfigs": {_TOPIC: "ALTER_CONFIGS", _CLUSTER: "ALTER_CONFIGS", _GROUP: "ALTER_CONFIGS"},
    "InitProducerId": {_CLUSTER: _IDEMPOTENT, _ID: "WRITE"},
    "JoinGroup": {_GROUP: "READ"},
    "LeaveGroup": {_GROUP: "READ"},
    "ListOffsets": {_TOPIC: "DESCRIBE (or READ)"},
    "Metadata": {_TOPIC: "DESCRIBE (or READ, or WRITE)"},
    "OffsetCommit": {_GROUP: "READ", _TOPIC: "READ"},
    "OffsetDelete": {_GROUP: "DELETE", _TOPIC: "READ"},
    "OffsetFetch": {_GROUP: "DESCRIBE (or READ)", _TOPIC: "DESCRIBE (or READ)"},
    "OffsetForLeaderEpoch": {_TOPIC: "DESCRIBE"},
    "Produce": {_TOPIC: "WRITE", _CLUSTER: _IDEMPOTENT, _ID: "WRITE"},
    "SyncGroup": {_GROUP: "READ"},
    "TxnOffsetCommit": {_ID: "WRITE", _GROUP: "READ", _TOPIC: "READ"},
}


# What a code means in the answer to one request, where its name doesn't say what happened or what to do.
_MEANT: dict[tuple[str, int], str] = {
    ("EndTxn", ErrorCode.INVALID_TXN_STATE): (
        "the broker has ended this transaction by itself, as it does after transaction_timeout_ms, and takes "
        "no more from this producer; make a new one"
    ),
}


def broker_error(code: int, request: str, detail: str = "") -> BrokerError:
    """The exception for an error code that `request` was answered with."""
    needed = _NEEDED.get(request, {}).get(code)
    if needed is not None:
        needed = needed if " on " in needed else f"{needed} on {_ON[code]}"
        cure = f"whom the broker takes this client for needs an ACL that allows {needed}"
        if code == _ID:  # which ends a producer (TransactionManager.maybeTransitionToErrorState)
            cure = f"{cure}; then make a new producer"
        detail = f"{detail.rstrip('.')}: {cure}" if detail else cure
    if (meant := _MEANT.get((request, code))) is not None:
        detail = f"{detail}: {meant}" if detail else meant
    kind = CommitFailed if request == "OffsetCommit" and code in _MOVED_ON else _SUBCLASSES.get(code)
    if kind is None:
        kind = Retriable if is_retriable(code) else BrokerError
    return kind(code, request, detail)


def again(error: E) -> E:
    """A kept error, to be raised as if for the first time. Each raise adds its frames to those before, which
    hold what was in them, so that who is told at every call would be told more each time."""
    return error.with_traceback(None)


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
