"""Converts error codes of brokers to the exceptions that the application catches."""

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
    RebalanceInProgress,
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

# Error codes of OffsetCommit for a member that is not part of the group's current generation.
_NOT_IN_GENERATION = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
)

# The error codes of a missing permission, named after the resource.
_TOPIC, _GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
_CLUSTER, _ID = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_RESOURCES: dict[int, str] = {
    _TOPIC: "the topic",
    _GROUP: "the group",
    _CLUSTER: "the cluster",
    _ID: "the transactional id",
}

# Request -> error code -> the ACL operation that the client lacks (KafkaApis).
_CREATE, _IDEMPOTENT = (
    "CREATE on the cluster, or on the topic",
    "IDEMPOTENT_WRITE on the cluster, or WRITE on any topic",
)
_MISSING_OPERATIONS: dict[str, dict[int, str]] = {
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


# (Request, error code) -> an explanation, where the code's name does not say what happened or what to do.
_EXPLANATIONS: dict[tuple[str, int], str] = {
    ("EndTxn", ErrorCode.INVALID_TXN_STATE): (
        "the broker has aborted this transaction, as it does after transaction_timeout_ms, and rejects this "
        "producer from now on; make a new one"
    ),
}


def broker_error(code: int, request: str, detail: str = "") -> BrokerError:
    """Return the exception for an error code in the response to `request`."""
    operation = _MISSING_OPERATIONS.get(request, {}).get(code)
    if operation is not None:
        operation = operation if " on " in operation else f"{operation} on {_RESOURCES[code]}"
        advice = f"the principal of this client needs an ACL that allows {operation}"
        # Without access to its transactional id, a producer fails permanently
        # (TransactionManager.maybeTransitionToErrorState).
        if code == _ID:
            advice = f"{advice}; then make a new producer"
        detail = f"{detail.rstrip('.')}: {advice}" if detail else advice
    if (explanation := _EXPLANATIONS.get((request, code))) is not None:
        detail = f"{detail}: {explanation}" if detail else explanation
    error_class = _SUBCLASSES.get(code)
    if request == "OffsetCommit" and code in _NOT_IN_GENERATION:
        error_class = RebalanceInProgress if code == ErrorCode.REBALANCE_IN_PROGRESS else CommitFailed
    if error_class is None:
        error_class = Retriable if is_retriable(code) else BrokerError
    return error_class(code, request, detail)


def without_traceback(error: E) -> E:
    """Return a stored error without its traceback, to be raised again.

    Each raise adds frames to an error's traceback, and these frames keep their variables alive.
    """
    return error.with_traceback(None)


def with_advice(error: KprotoError) -> KprotoError:
    """Add `broker_error`'s advice to an error of the member's state machine, if it is NotAuthorized."""
    return (
        broker_error(error.code, error.request, error.detail) if isinstance(error, NotAuthorized) else error
    )


def is_retriable(code: int) -> bool:
    """Return whether the same request may succeed later, according to Kafka. False for unknown codes."""
    try:
        return ErrorCode(code).retriable
    except ValueError:
        return False
