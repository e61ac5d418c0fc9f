"""Every exception that kproto raises.

    KprotoError
    ├── DecodeError            bytes are not a valid message of the expected type
    │   ├── FrameError         a size prefix is negative or larger than allowed
    │   └── RecordError        a record batch is malformed: CRC, size, count, magic, codec
    ├── EncodeError            values do not fit the message in this version
    │   └── BatchFull          a record does not fit into the batch any more
    ├── UnsupportedVersion     the message or the peer does not support the version
    ├── ConfigError            an option has a value that is not allowed
    ├── MissingExtra           a codec or a feature needs a package that is not installed
    ├── ConnectionFailed       no broker accepts connections at the address, or the connection broke
    ├── AuthenticationFailed   a broker rejects this client, or this client rejects the broker: TLS or SASL
    ├── RequestTimedOut        no response within request.timeout.ms or the caller's timeout
    ├── SerializationError     a serializer of the application failed, and the record was not sent
    ├── PartitionerError       a partitioner of the application failed, and the record was not sent
    ├── DeserializationError   a deserializer of the application failed; poll raises this error until a seek
    ├── NotDelivered           records that a producer accepted were not acknowledged
    ├── PartialFailure         an admin call about several items failed for some of them
    ├── IllegalState           a call does not fit the object's state (poll after close, ...)
    └── BrokerError            a broker answered with an error code
        ├── OffsetOutOfRange   the position is below the start or above the end of the log
        │   ├── LogTruncated   the log was truncated below the position: records already read are lost
        │   └── NoOffsetForPartition  no offset is committed, and no policy says where to start
        ├── CommitFailed       the group rebalanced; these offsets are not committed
        ├── Fenced             another member with the same group.instance.id replaced this one
        ├── NotAuthorized      the broker's authorizer denied the request
        ├── UnknownTopic       the topic or partition does not exist in the cluster
        └── Retriable          the same request may succeed later

Codecs and state machines return a broker's error code as data. Only the clients in ``consumer`` raise a
`BrokerError` for an error code. Such an error always names the request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .lazy_imports import lazy_attributes
from .printable import escape_unprintable

if TYPE_CHECKING:
    from .error_codes import ErrorCode as ErrorCode
# Type checkers must not see `__getattr__`: with it, they would accept any attribute of the module.
else:
    # The import is lazy, so that `error_codes` can import `errors`.
    __getattr__ = lazy_attributes(__name__, {"ErrorCode": "kproto.error_codes"})


_MAX_SHOWN = 200  # The maximum length, in characters, of a value or word in an error message.


def brief(value: object) -> str:
    """Return the repr of a value for an error message, shortened; if repr fails, name the value's type."""
    try:
        return _shorten(repr(value))
    # repr raises for integers of more than 4300 digits, and for some objects that were not initialized.
    except Exception:
        return f"(a value of type {type(value).__name__} that has no text)"


def brief_list(labels: Sequence[str], most: int = 10, separator: str = ", ") -> str:
    """Join at most `most` labels of a list that may be long, and append the number of omitted ones."""
    shown = separator.join(labels[:most])
    return shown if len(labels) <= most else f"{shown} and {len(labels) - most} more"


def without_long_words(text: str) -> str:
    """Shorten the long words and quoted strings in a text that repeats user input."""
    return _LONG_WORD.sub(lambda match: _shorten(match[0]), text)


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}... ({len(text)} characters)"


# Matches quoted strings and words with at least 3 * `_MAX_SHOWN` characters. Values that `brief` has
# shortened have fewer characters, and do not match.
_LONG_WORD = re.compile(rf"(?<!\w)'[^']{{{3 * _MAX_SHOWN},}}'(?!\w)|\S{{{3 * _MAX_SHOWN},}}")


class KprotoError(Exception):
    """The base class of all exceptions in this module.

    Unprintable characters in the message, which may come from a broker or a client, are escaped.
    """

    def __str__(self) -> str:
        return escape_unprintable(self.text())

    def text(self) -> str:
        """Return the message with its unprintable characters, which `str` escapes."""
        return super().__str__()


class DecodeError(KprotoError):
    """The bytes are not the expected message. `decode` raises no other exception.

    `message` is Kafka's name for the message. `version` is the version in which it was decoded, or -1 if the
    version is unknown.

    `field` is the dotted path of the field that could not be read. `offset` is the position in bytes from the
    start of the message.
    """

    def __init__(self, message: str, version: int, field: str, offset: int, detail: str = "") -> None:
        super().__init__(message, version, field, offset, detail)
        self.message = message
        self.version = version
        self.field = field
        self.offset = offset
        self.detail = detail

    def text(self) -> str:
        where = f"{self.message} v{self.version}" if self.version >= 0 else self.message
        reason = self.detail or "the bytes end too early"
        return f"{where}: field {self.field or '(none)'} at offset {self.offset}: {reason}"


class FrameError(DecodeError):
    """The size prefix of a frame, `size`, is negative or larger than the reader allows.

    `limit` is the reader's limit in bytes, or None if the reader does not report it.

    For the first frame of a connection, `limit` is None: a wrong size probably means that the peer does not
    use Kafka's protocol, so a higher limit would not help.
    """

    size: int | None = None
    limit: int | None = None


class RecordError(DecodeError):
    """A record batch is complete, but its CRC, size, count, magic, codec or content is invalid.

    A consumer sets `topic`, `partition`, `first_offset` and `next_offset`, the offset after the batch. To
    skip the malformed batch, seek to `next_offset`.

    If the header of the batch cannot be read, `first_offset` is the consumer's position, and `next_offset` is
    None.
    """

    topic: str = ""
    partition: int = -1
    first_offset: int = -1
    next_offset: int | None = None

    def text(self) -> str:
        if not self.topic:
            return super().text()
        where = (
            f"{self.topic}-{self.partition}: the record batch at offset {self.first_offset} cannot be read"
        )
        reason = f"{self.field or 'batch'} at byte {self.offset}: {self.detail or 'the bytes end too early'}"
        after = self.next_offset if self.next_offset is not None else f"an offset above {self.first_offset}"
        return f"{where} ({reason}); seek to {after} to continue after the batch"


class DeserializationError(KprotoError):
    """A deserializer of the application failed for one record (Java's RecordDeserializationException).

    `part` is "key" or "value": the part that could not be deserialized. `__cause__` is the exception of the
    deserializer.

    `key`, `value` and `headers` are the original bytes of the record, and `timestamp` is in ms since 1970.
    The application can write the record to another topic (KIP-1036).

    The consumer's position stays at the record. Until the application seeks, polls raise the error again for
    this partition, but still read other partitions. To skip the record, seek to `offset + 1`.
    """

    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = -1

    def __init__(self, topic: str, partition: int, offset: int, part: str, detail: str) -> None:
        super().__init__(topic, partition, offset, part, detail)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.part = part
        self.detail = detail

    def text(self) -> str:
        return (
            f"{self.topic}-{self.partition}: the {self.part} of the record at offset {self.offset} cannot be "
            f"deserialized ({self.detail}); seek to {self.offset + 1} to skip the record"
        )


class SerializationError(KprotoError):
    """A serializer of the application failed in `send`, and the record was not sent.

    `part` is "key" or "value". `__cause__` is the exception of the serializer. `__cause__` is None if the
    serializer returned something other than bytes or None.
    """

    def __init__(self, topic: str, part: str, detail: str) -> None:
        super().__init__(topic, part, detail)
        self.topic = topic
        self.part = part
        self.detail = detail

    def text(self) -> str:
        return (
            f"topic {self.topic!r}: the {self.part} cannot be serialized ({self.detail}); "
            "the record was not sent"
        )


class PartitionerError(KprotoError):
    """A partitioner of the application failed in `send`, and the record was not sent.

    `__cause__` is the exception of the partitioner. `__cause__` is None if the partitioner returned something
    that is not a partition of the topic.
    """

    def __init__(self, topic: str, detail: str) -> None:
        super().__init__(topic, detail)
        self.topic = topic
        self.detail = detail

    def text(self) -> str:
        return f"topic {self.topic!r}: the partitioner failed ({self.detail}); the record was not sent"


class EncodeError(KprotoError, ValueError):
    """A value does not fit the message in this version. `field` is its dotted path."""

    def __init__(self, message: str, version: int, field: str, detail: str) -> None:
        super().__init__(message, version, field, detail)
        self.message = message
        self.version = version
        self.field = field
        self.detail = detail

    def text(self) -> str:
        return f"{self.message} v{self.version}: field {self.field or '(none)'}: {self.detail}"


class BatchFull(EncodeError):
    """A record would exceed the batch's size limit.

    Build the batch, call `clear`, and append the record again.

    `size` is the size in bytes, before compression, that the batch would have with the record. `max_bytes` is
    the limit. `count` is the number of records in the batch.
    """

    def __init__(self, size: int, max_bytes: int, count: int) -> None:
        detail = (
            f"with one more record the batch has {size} bytes, max_bytes is {max_bytes}; build it and clear"
        )
        super().__init__("RecordBatch", 2, f"records[{count}]", detail)
        self.args = (size, max_bytes, count)
        self.size = size
        self.max_bytes = max_bytes
        self.count = count


class UnsupportedVersion(KprotoError, ValueError):
    """The message does not exist in this version, or the two peers have no version in common.

    `version` is -1 if the broker supports no version of the message.
    """

    def __init__(self, message: str, version: int, allowed: str) -> None:
        super().__init__(message, version, allowed)
        self.message = message
        self.version = version
        self.allowed = allowed

    def text(self) -> str:
        if self.version == -1:
            return f"{self.message}: {self.allowed}"
        return f"{self.message}: version {self.version!r} is not supported; allowed: {self.allowed}"


class ConfigError(KprotoError, ValueError):
    """An option does not exist, or its value is not allowed. `allowed` describes the allowed values."""

    def __init__(self, option: str, value: object, allowed: str) -> None:
        super().__init__(option, value, allowed)
        self.option = option
        self.value = value
        self.allowed = allowed

    def text(self) -> str:
        option, allowed = without_long_words(self.option), without_long_words(self.allowed)
        return f"{option}={brief(self.value)} is not allowed; {allowed}"


class MissingExtra(KprotoError, ImportError):
    """A feature needs a package that is not installed. One of kproto's extras installs this package."""

    def __init__(self, feature: str, package: str, extra: str) -> None:
        super().__init__(feature, package, extra)
        self.feature = feature
        self.package = package
        self.extra = extra

    def text(self) -> str:
        command = f"pip install 'kproto[{self.extra}]', or in a checkout pip install -e '.[{self.extra}]'"
        return f"{self.feature} needs {self.package}: {command}"


class ConnectionFailed(KprotoError, ConnectionError):
    """A connection to a broker could not be established, or was lost. `address` is HOST:PORT.

    `reasons` maps each address that was tried to its error. With several addresses, `address` and `detail`
    name all of them.
    """

    def __init__(self, address: str, detail: str, reasons: Mapping[str, str] | None = None) -> None:
        super().__init__(address, detail, reasons)
        self.address = address
        self.detail = detail
        self.reasons = {address: detail} if reasons is None else dict(reasons)

    @classmethod
    def everywhere(cls, reasons: Mapping[str, str]) -> ConnectionFailed:
        """Build the error for several addresses, each with its reason."""
        return cls(", ".join(reasons), "; ".join(dict.fromkeys(reasons.values())), reasons)

    def text(self) -> str:
        return _unreachable_text(self.reasons)


def _unreachable_text(reasons: Mapping[str, str]) -> str:
    addresses: dict[str, list[str]] = {}
    for address, reason in reasons.items():
        addresses.setdefault(reason, []).append(address)
    return "no broker " + "; ".join(f"at {', '.join(at)}: {reason}" for reason, at in addresses.items())


class AuthenticationFailed(KprotoError, PermissionError):
    """The broker at `address` (HOST:PORT) rejects this client, or the client rejects the broker.

    A password, certificate, token, mechanism or protocol was rejected. A retry would fail, too. `detail` says
    what to change, and contains no secret.
    """

    def __init__(self, address: str, detail: str) -> None:
        super().__init__(address, detail)
        self.address = address
        self.detail = detail

    def text(self) -> str:
        return f"authentication with the broker at {self.address} failed: {self.detail}"


class RequestTimedOut(KprotoError, TimeoutError):
    """No response arrived in time. `request` names the request or call, and `timeout_ms` is its timeout.

    If requests to several brokers failed, `reasons` maps each broker's address to its error, and `detail`
    names all of them.
    """

    def __init__(
        self, request: str, timeout_ms: int, detail: str = "", reasons: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(request, timeout_ms, detail, reasons)
        self.request = request
        self.timeout_ms = timeout_ms
        self.detail = detail
        self.reasons = {} if reasons is None else dict(reasons)

    @classmethod
    def everywhere(cls, request: str, timeout_ms: int, reasons: Mapping[str, str]) -> RequestTimedOut:
        """Build the error for several addresses, each with its reason."""
        return cls(request, timeout_ms, _unreachable_text(reasons), reasons)

    def text(self) -> str:
        return f"{self.request}: no answer within {self.timeout_ms} ms" + (
            f" ({self.detail})" if self.detail else ""
        )


class NotDelivered(KprotoError):
    """Records that a producer accepted were not acknowledged, and no call awaited their deliveries.

    `flush` and `close` raise this error. `count` is the number of failed records that no earlier error has
    reported. `first` is the error of the first of these records.
    """

    def __init__(self, count: int, first: KprotoError) -> None:
        super().__init__(count, first)
        self.count = count
        self.first = first

    def text(self) -> str:
        return f"{self.count} records were not delivered; the first: {self.first}"


def _has_word(text: str, word: str) -> bool:
    """Return whether the text contains `word` as a whole word."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


class PartialFailure(KprotoError):
    """An admin call about several items failed for some of them.

    `succeeded` maps each successful item to its result. `failed` maps each other item to its error.

    An item whose response does not arrive before the timeout fails with RequestTimedOut, although the broker
    may have executed the request.
    """

    def __init__(self, call: str, succeeded: Mapping[Any, Any], failed: Mapping[Any, KprotoError]) -> None:
        super().__init__(call, succeeded, failed)
        self.call = call
        self.succeeded = dict(succeeded)
        self.failed = dict(failed)

    def text(self) -> str:
        count = len(self.succeeded) + len(self.failed)
        texts = {item: str(error) for item, error in self.failed.items()}
        # Most errors already name the topic, partition or group that failed. `item` is added to the others.
        labels = [text if _has_word(text, str(item)) else f"{item}: {text}" for item, text in texts.items()]
        errors = brief_list(labels, 3, "; ")
        return f"{self.call} failed for {len(self.failed)} of {count} items: {errors}"


class IllegalState(KprotoError, RuntimeError):
    """The object's state does not allow the call. The message says what to do instead."""


class WokenUp(KprotoError):
    """`Consumer.wakeup` ended the poll. Java: WakeupException."""

    def text(self) -> str:
        return "the poll was ended by wakeup()"


class BrokerError(KprotoError):
    """A broker answered `request` with the error `code`, an int; see `ErrorCode`."""

    def __init__(self, code: int, request: str, detail: str = "") -> None:
        super().__init__(code, request, detail)
        self.code = code
        self.request = request
        self.detail = detail

    def text(self) -> str:
        # The import is local, so that every other module can import `errors`.
        from .error_codes import ErrorCode

        try:
            name = ErrorCode(self.code).name
        except ValueError:
            name = "an error code that this release doesn't know"
        return f"{self.request}: {name} ({self.code})" + (f": {self.detail}" if self.detail else "")


class OffsetOutOfRange(BrokerError):
    """The position is below the start or above the end of the log, and no policy resets it."""


class NoOffsetForPartition(OffsetOutOfRange):
    """The group has no committed offset for `partition`, and no reset policy applies.

    `partition` is TOPIC-PARTITION. `code` is 1 (OFFSET_OUT_OF_RANGE), although no broker sent this error.
    """

    def __init__(self, partition: str, why: str) -> None:
        # The code of OFFSET_OUT_OF_RANGE.
        super().__init__(1, "OffsetFetch", f"{partition}: {why}")
        # The arguments of `__init__`, from which pickle re-creates the error.
        self.args = (partition, why)
        self.partition = partition

    def text(self) -> str:
        return self.detail


class LogTruncated(OffsetOutOfRange):
    """The log was truncated below the position: records that the consumer has read are lost (KIP-320).

    `partition` is TOPIC-PARTITION. `position` is the offset of the next record to read. To continue, seek to
    `diverging_offset`, or to an earlier offset. If `diverging_offset` is None, seek to any offset of the
    log, such as its start.

    `diverging_offset` is the first offset at which the log is known to differ from what was read. It is None
    if the log contains no record of the position's leader epoch or of an earlier epoch.
    """

    def __init__(self, partition: str, position: int, diverging_offset: int | None) -> None:
        where = "somewhere" if diverging_offset is None else f"at offset {diverging_offset}"
        detail = f"{partition} was truncated {where}, below position {position}: seek, or set a reset policy"
        # The code of OFFSET_OUT_OF_RANGE: Java's LogTruncationException is an OffsetOutOfRangeException, too.
        super().__init__(1, "OffsetForLeaderEpoch", detail)
        self.args = (partition, position, diverging_offset)
        self.partition = partition
        self.position = position
        self.diverging_offset = diverging_offset


class CommitFailed(BrokerError):
    """Nothing was committed: the caller does not own the partitions in the current generation."""


class RebalanceInProgress(CommitFailed):
    """The group is rebalancing, so the offsets were not committed. Poll, then commit again.

    Java: RebalanceInProgressException. With `policy="java"`, a commit during a rebalance raises this error.
    Otherwise, the commit waits until the member has joined the next generation.
    """


class Fenced(BrokerError):
    """Another process uses the same group.instance.id or transactional.id; this process must stop.

    `detail` names the id.
    """


class NotAuthorized(BrokerError):
    """The cluster's authorizer denied the request."""


class UnknownTopic(BrokerError):
    """The topic or partition that `detail` names does not exist in the cluster."""


class Retriable(BrokerError):
    """The cluster cannot process the request now; the same request may succeed later."""
