"""What `send` takes, checked at the door: each error names the argument, what was given and what is allowed.

Nothing that comes through here can harm another record, or the thread that sends them all. The rules are
functions and not rows of `arguments.TABLE`, because `send` is called some hundred thousand times a second: it
looks for what is common by itself, and comes here with the rest.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, cast

from kproto.errors import ConfigError

Buffer = bytes | bytearray | memoryview
Headers = Sequence[tuple[str, bytes | None]]

SENT = ("topic", "value", "key", "partition", "timestamp", "headers")
"""What `send` takes."""

NO_HEADERS: Headers = ()

STRING_MAX = 2**15 - 1
LAST_TIMESTAMP = 2**63 - 1
# Numbers from the one up to the other are seconds of the years 2001 to 2096, or milliseconds of early 1970.
_LATE, SOON = 10**9, 4 * 10**9
LAST_PARTITION = 2**31 - 1
_OURS = __name__.partition(".")[0]
_PAIRS = 'a list of pairs, as [("name", b"value")]'


def as_bytes(name: str, data: object) -> bytes | None:
    """`data` as bytes; ConfigError for what is neither bytes-like nor None."""
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(cast("bytearray", data))
    hint = "; encode it first" if isinstance(data, str) else ""
    raise ConfigError(name, data, f"bytes or None{hint}")


def topic_name(topic: object) -> str:
    if not isinstance(topic, str) or not topic:
        raise ConfigError("topic", topic, "the name of a topic, a str that is not empty")
    return sayable("topic", topic)


class Unsayable(ConfigError):
    """A text that no request can carry."""


def sayable(name: str, text: str) -> str:
    """A text as it is; of a subclass, as an enum's, its characters. Raises Unsayable: it would spoil what is
    beside it in a request, too."""
    text = str.__str__(text)
    if len(text) <= STRING_MAX and text.isascii():
        return text
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise Unsayable(name, text, f"a text that has a UTF-8 form: {error.reason}") from None
    if size > STRING_MAX:
        raise Unsayable(name, text, f"a text of at most {STRING_MAX} bytes; this one has {size}")
    return text


def timestamp_ms(timestamp: object) -> int:
    if isinstance(timestamp, bool) or not isinstance(timestamp, int) or not 0 <= timestamp <= LAST_TIMESTAMP:
        allowed = "a whole number of milliseconds since 1970, as int(time.time() * 1000)"
        raise ConfigError("timestamp", timestamp, allowed)
    told_if_seconds("timestamp", timestamp)
    return int(timestamp)


def told_if_seconds(name: str, time_ms: int) -> None:
    """Warns of a time that seems to be in seconds: allowed, and nearly always a slip.

    Python tells it once for each line of the application's: the words say no number, as another number would
    be another warning."""
    if not _LATE <= time_ms < SOON:
        return
    frame, level = inspect.currentframe(), 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _OURS:
        frame, level = frame.f_back, level + 1
    warnings.warn(
        f"{name} is in milliseconds since 1970, and this looks like seconds: it is read as a day of early "
        "1970. Now is int(time.time() * 1000)",
        stacklevel=level,
    )


def partition_index(partition: object) -> int:
    if isinstance(partition, bool) or not isinstance(partition, int) or not 0 <= partition <= LAST_PARTITION:
        raise ConfigError("partition", partition, "a whole number, 0 or more; None lets the key decide")
    return int(partition)


def header_pairs(headers: object) -> Headers:
    """Pairs of a str and bytes-like or None, as a tuple of tuples."""
    if headers is None:
        return ()
    if isinstance(headers, Mapping):
        if not headers:
            return ()
        raise ConfigError("headers", cast("object", headers), f"{_PAIRS}: list(headers.items())")
    if not isinstance(headers, list | tuple):
        raise ConfigError("headers", headers, _PAIRS)
    found: list[tuple[str, bytes | None]] = []
    for number, pair in enumerate(cast("Sequence[Any]", headers)):
        if not isinstance(pair, list | tuple) or len(cast("Sequence[Any]", pair)) != 2:
            raise ConfigError(f"headers[{number}]", cast("object", pair), 'a pair, as ("name", b"value")')
        name, content = cast("tuple[object, object]", pair)
        if not isinstance(name, str) or any("\ud800" <= character <= "\udfff" for character in name):
            raise ConfigError(f"headers[{number}][0]", name, "a str that has a UTF-8 form")
        found.append((name, as_bytes(f"headers[{number}][1]", content)))
    return tuple(found)
