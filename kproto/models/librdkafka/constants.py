"""Constants of rdkafka.h: logical offsets, and the names and texts of errors."""

from __future__ import annotations

from ...error_codes import ErrorCode

# RD_KAFKA_OFFSET_BEGINNING: the first offset of the log.
BEGINNING = -2
# RD_KAFKA_OFFSET_END: the offset after the last record.
END = -1
# RD_KAFKA_OFFSET_STORED: the committed offset of the group.
STORED = -1000
# RD_KAFKA_OFFSET_INVALID: not set.
INVALID = -1001
# RD_KAFKA_OFFSET_TAIL_BASE: TAIL_BASE - n means n records before the end.
TAIL_BASE = -2000

_OFFSET_NAMES = {BEGINNING: "BEGINNING", END: "END", STORED: "STORED", INVALID: "INVALID"}


def is_logical(offset: int) -> bool:
    """Return whether an offset is logical (RD_KAFKA_OFFSET_IS_LOGICAL)."""
    return offset < 0


def offset2str(offset: int) -> str:
    """Return the name of a logical offset, such as "STORED" or "TAIL(3)". Any other offset is returned as
    digits.

    Follows rd_kafka_offset2str.
    """
    if offset <= TAIL_BASE:
        return f"TAIL({TAIL_BASE - offset})"
    return _OFFSET_NAMES.get(offset, str(offset))


# The errors that have other names in librdkafka than in Kafka.
_RENAMED_ERRORS = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "UNKNOWN",
    ErrorCode.CORRUPT_MESSAGE: "INVALID_MSG",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "UNKNOWN_TOPIC_OR_PART",
    ErrorCode.INVALID_FETCH_SIZE: "INVALID_MSG_SIZE",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "NOT_LEADER_FOR_PARTITION",
    ErrorCode.MESSAGE_TOO_LARGE: "MSG_SIZE_TOO_LARGE",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "TOPIC_EXCEPTION",
}


def err2name(code: int) -> str:
    """Return librdkafka's name for an error code, which in most cases is Kafka's (rd_kafka_err2name)."""
    try:
        error = ErrorCode(code)
    except ValueError:
        return f"ERR_{code}?"
    return _RENAMED_ERRORS.get(error, error.name)


# Errors of the library itself, as (name, text) or only as a name.
STATE = ("_STATE", "Local: Erroneous state")
UNKNOWN_PARTITION = ("_UNKNOWN_PARTITION", "Local: Unknown partition")
INVALID_ARG = ("_INVALID_ARG", "Local: Invalid argument or configuration")
CONFLICT = ("_CONFLICT", "Local: Conflicting use")
NO_OFFSET = ("_NO_OFFSET", "Local: No offset stored")
ASSIGNMENT_LOST = ("_ASSIGNMENT_LOST", "Local: Group partition assignment lost")
WAIT_COORD = ("_WAIT_COORD", "Local: Waiting for coordinator")
FATAL = ("_FATAL", "Local: Fatal error")
MAX_POLL_EXCEEDED = "_MAX_POLL_EXCEEDED"
AUTO_OFFSET_RESET = "_AUTO_OFFSET_RESET"
PARTITION_EOF = "_PARTITION_EOF"
UNKNOWN_PROTOCOL = "_UNKNOWN_PROTOCOL"
