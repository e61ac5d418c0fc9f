"""Every exception that kproto raises.

    KprotoError
    ├── DecodeError            bytes that are not the message they are said to be
    │   ├── FrameError         a size prefix that is negative or larger than allowed
    │   └── RecordError        a record batch that is broken: CRC, size, count, magic, codec
    ├── EncodeError            values that this message can't carry in this version
    │   └── BatchFull          a record that has no room in a batch any more
    ├── UnsupportedVersion     a version that the message, or the other side, doesn't have
    ├── ConfigError            an option with a value that is not allowed
    ├── MissingExtra           a codec or column needs a package that is not installed
    ├── ConnectionFailed       nobody answers at that address, or the connection broke
    ├── AuthenticationFailed   a broker and this client do not let each other in: TLS or SASL
    ├── RequestTimedOut        no answer within request.timeout.ms or the caller's own timeout
    ├── NotDelivered           records that a producer accepted and that were not acknowledged
    ├── IllegalState           a call that doesn't fit the object's state (poll after close, ...)
    └── BrokerError            an error code that a broker answered
        ├── OffsetOutOfRange   the position is not in the log any more, or not yet
        │   ├── LogTruncated   the log was cut below the position: records that were read are gone
        │   └── NoOffsetForPartition  nothing is committed, and no policy says where to begin
        ├── CommitFailed       the group moved on; these offsets are not committed
        ├── Fenced             another member with the same group.instance.id took over
        ├── NotAuthorized      the broker's authorizer said no
        ├── UnknownTopic       no such topic or partition on the cluster
        └── Retriable          the same request may succeed later

Codecs and state machines never *raise* a broker's error code: there it is data. Only the clients in
``consumer`` turn one into a `BrokerError`, and always name the request that got it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .lazy_imports import lazy_attributes

if TYPE_CHECKING:
    from .error_codes import ErrorCode as ErrorCode
else:  # a type checker would accept any attribute
    # Lazily, as `error_codes` may import this module, which is below everything else.
    __getattr__ = lazy_attributes(__name__, {"ErrorCode": "kproto.error_codes"})


_MOST_TOLD = 200  # characters of a wrong value, or of a word


def brief(value: object) -> str:
    """A value as an error shows it: its beginning, if it is long, and its type, if it has no text."""
    try:
        return _cut(repr(value))
    except Exception:  # numbers of more than 4300 digits have no text, half-made objects neither
        return f"(a value of type {type(value).__name__} that has no text)"


def without_long_words(text: str) -> str:
    """A text that repeats what somebody wrote: of words and quotations that are long only the beginning."""
    return _LONG.sub(lambda found: _cut(found[0]), text)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TOLD else f"{text[:_MOST_TOLD]}... ({len(text)} characters)"


# So long that it isn't what was cut already, with its name in front.
_LONG = re.compile(rf"(?<!\w)'[^']{{{3 * _MOST_TOLD},}}'(?!\w)|\S{{{3 * _MOST_TOLD},}}")


class KprotoError(Exception):
    """Base of everything that kproto raises on purpose."""


class DecodeError(KprotoError):
    """The bytes are not what they are said to be: the only exception that `decode` raises on any input.

    `message` is Kafka's name of the message, `version` the version it was read as (-1 where there is
    none), `field` the dotted path of the field that could not be read, and `offset` the position, in
    bytes from the start of the message, at which reading it failed.
    """

    def __init__(self, message: str, version: int, field: str, offset: int, detail: str = "") -> None:
        super().__init__(message, version, field, offset, detail)
        self.message = message
        self.version = version
        self.field = field
        self.offset = offset
        self.detail = detail

    def __str__(self) -> str:
        where = f"{self.message} v{self.version}" if self.version >= 0 else self.message
        what = self.detail or "the bytes end too early"
        return f"{where}: field {self.field or '(none)'} at offset {self.offset}: {what}"


class FrameError(DecodeError):
    """A frame whose size prefix is negative, or larger than the reader allows; `size` is what it says."""

    size: int | None = None


class RecordError(DecodeError):
    """A record batch that is complete but wrong: CRC, size, count, magic, codec or content."""


class EncodeError(KprotoError, ValueError):
    """A value that the message can't carry in this version. `field` is the dotted path of the field."""

    def __init__(self, message: str, version: int, field: str, detail: str) -> None:
        super().__init__(message, version, field, detail)
        self.message = message
        self.version = version
        self.field = field
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.message} v{self.version}: field {self.field or '(none)'}: {self.detail}"


class BatchFull(EncodeError):
    """A record would make the batch larger than was asked for: build the batch, clear, and append it again.

    `size` is what the batch would have, in bytes before compression, `max_bytes` what it may have, and
    `count` the number of records that are in it.
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
    """The message has no such version, or both sides have no version in common; `version` is -1 where a
    broker doesn't know the message at all."""

    def __init__(self, message: str, version: int, allowed: str) -> None:
        super().__init__(message, version, allowed)
        self.message = message
        self.version = version
        self.allowed = allowed

    def __str__(self) -> str:
        if self.version == -1:
            return f"{self.message}: {self.allowed}"
        return f"{self.message}: version {self.version!r} is not supported; allowed: {self.allowed}"


class ConfigError(KprotoError, ValueError):
    """An option that doesn't exist, or whose value is not allowed. `allowed` says what is."""

    def __init__(self, option: str, value: object, allowed: str) -> None:
        super().__init__(option, value, allowed)
        self.option = option
        self.value = value
        self.allowed = allowed

    def __str__(self) -> str:
        said = without_long_words(self.option), without_long_words(self.allowed)
        return f"{said[0]}={brief(self.value)} is not allowed; {said[1]}"


class MissingExtra(KprotoError, ImportError):
    """A feature needs a package that comes with one of kproto's extras."""

    def __init__(self, feature: str, package: str, extra: str) -> None:
        super().__init__(feature, package, extra)
        self.feature = feature
        self.package = package
        self.extra = extra

    def __str__(self) -> str:
        how = f"pip install 'kproto[{self.extra}]', or in a checkout pip install -e '.[{self.extra}]'"
        return f"{self.feature} needs {self.package}: {how}"


class ConnectionFailed(KprotoError, ConnectionError):
    """No connection to a broker could be made, or the one there was broke. `address` is HOST:PORT.

    `reasons` has each address that was tried, and why there is no broker; with several, `address` and
    `detail` name all of them.
    """

    def __init__(self, address: str, detail: str, reasons: Mapping[str, str] | None = None) -> None:
        super().__init__(address, detail, reasons)
        self.address = address
        self.detail = detail
        self.reasons = {address: detail} if reasons is None else dict(reasons)

    @classmethod
    def everywhere(cls, reasons: Mapping[str, str]) -> ConnectionFailed:
        """None of these addresses, each with its reason, has a broker."""
        return cls(", ".join(reasons), "; ".join(dict.fromkeys(reasons.values())), reasons)

    def __str__(self) -> str:
        return _nowhere(self.reasons)


def _nowhere(reasons: Mapping[str, str]) -> str:
    places: dict[str, list[str]] = {}
    for address, why in reasons.items():
        places.setdefault(why, []).append(address)
    return "no broker " + "; ".join(f"at {', '.join(at)}: {why}" for why, at in places.items())


class AuthenticationFailed(KprotoError, PermissionError):
    """The broker at `address` (HOST:PORT) doesn't let this client in, or the client doesn't trust the broker.

    A password, certificate, token, mechanism or protocol is wrong, and will be so again; `detail` says what
    helps, and has no secret in it.
    """

    def __init__(self, address: str, detail: str) -> None:
        super().__init__(address, detail)
        self.address = address
        self.detail = detail

    def __str__(self) -> str:
        return f"no way into the broker at {self.address}: {self.detail}"


class RequestTimedOut(KprotoError, TimeoutError):
    """No answer in time. `request` is what was asked, `timeout_ms` how long was waited.

    Where any broker could have answered, `reasons` has each address and why it didn't, as in
    `ConnectionFailed`; with several, `detail` names all of them.
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
        """None of these addresses, each with its reason, answered in time."""
        return cls(request, timeout_ms, _nowhere(reasons), reasons)

    def __str__(self) -> str:
        return f"{self.request}: no answer within {self.timeout_ms} ms" + (
            f" ({self.detail})" if self.detail else ""
        )


class NotDelivered(KprotoError):
    """Records that a producer accepted were not acknowledged, and nobody has looked at their deliveries.

    Raised by flush and close, once for each such record: `count` of them since the last time; `first` is the
    error of the first one.
    """

    def __init__(self, count: int, first: KprotoError) -> None:
        super().__init__(count, first)
        self.count = count
        self.first = first

    def __str__(self) -> str:
        return f"{self.count} records were not delivered; the first: {self.first}"


class IllegalState(KprotoError, RuntimeError):
    """The call doesn't fit what the object is doing; the text says what to do instead."""


class BrokerError(KprotoError):
    """A broker answered `request` with the error `code` (an int; see `kproto.error_codes.ErrorCode`)."""

    def __init__(self, code: int, request: str, detail: str = "") -> None:
        super().__init__(code, request, detail)
        self.code = code
        self.request = request
        self.detail = detail

    def __str__(self) -> str:
        from .error_codes import ErrorCode  # here, because errors stands below everything else

        try:
            name = ErrorCode(self.code).name
        except ValueError:
            name = "an error code that this release doesn't know"
        return f"{self.request}: {name} ({self.code})" + (f": {self.detail}" if self.detail else "")


class OffsetOutOfRange(BrokerError):
    """The position is below the log's start or above its end, and no reset policy allows a jump."""


class NoOffsetForPartition(OffsetOutOfRange):
    """The group committed nothing for `partition` (TOPIC-PARTITION), and no reset policy says where to begin.

    No broker answered that, so `code` is only what the class above stands for.
    """

    def __init__(self, partition: str, why: str) -> None:
        super().__init__(1, "OffsetFetch", f"{partition}: {why}")  # 1 = OFFSET_OUT_OF_RANGE
        self.args = (partition, why)  # as it is made anew, where it was pickled
        self.partition = partition

    def __str__(self) -> str:
        return self.detail


class LogTruncated(OffsetOutOfRange):
    """The log was cut below the position: what was read is gone, other records have its offsets (KIP-320).

    `partition` is TOPIC-PARTITION, `position` the offset of the next record that was to be read, and
    `diverging_offset` the first one that is not what it was; None when the log doesn't tell. Seek there, or
    wherever else what was read before can be corrected.
    """

    def __init__(self, partition: str, position: int, diverging_offset: int | None) -> None:
        where = "somewhere" if diverging_offset is None else f"at offset {diverging_offset}"
        detail = f"{partition} was cut {where}, below the position {position}: seek, or choose a reset policy"
        super().__init__(1, "OffsetForLeaderEpoch", detail)  # OFFSET_OUT_OF_RANGE, as Java has it
        self.args = (partition, position, diverging_offset)
        self.partition = partition
        self.position = position
        self.diverging_offset = diverging_offset


class CommitFailed(BrokerError):
    """The group moved on while this member was away: another member may own the partitions now."""


class Fenced(BrokerError):
    """Another process has the same group.instance.id or transactional.id now; this one must stop. `detail`
    names the id."""


class NotAuthorized(BrokerError):
    """The cluster's authorizer refused the request."""


class UnknownTopic(BrokerError):
    """The topic or partition doesn't exist on the cluster. `detail` names it."""


class Retriable(BrokerError):
    """The cluster can't answer now; the same request may succeed later."""
