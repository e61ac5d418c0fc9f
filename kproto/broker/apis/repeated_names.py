"""Repeats the results of names that a request contains several times, as Kafka does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

# The maximum total size of all repeated results in bytes. A request of 400 bytes can name the same group 200
# times, and the description of one group may be megabytes long.
MAX_REPEATED: Final = 1 << 20


def repeat_as_named(results: Mapping[str, T], names: Sequence[str], size_of: Callable[[T], int]) -> list[T]:
    """Return the result of each name, in the order of `names`, including repetitions.

    `results` maps a name to its result. A name that `results` does not contain is omitted. `size_of` returns
    the approximate size of a result in bytes.
    If the additional copies of repeated results exceed `MAX_REPEATED` bytes, each result is returned once.
    """
    repetitions = {name: count - 1 for name, count in Counter(names).items() if count > 1 and name in results}
    if sum(count * size_of(results[name]) for name, count in repetitions.items()) > MAX_REPEATED:
        return list(results.values())
    return [results[name] for name in names if name in results]


def truncate_name(name: str, count: int) -> str:
    """Return `name`, truncated so that `count` copies of it have at most `MAX_REPEATED` bytes.

    The truncation limits the size of error messages that repeat the name: a request of 100 kilobytes can list
    19,000 partitions of a topic whose name has 3,000 characters.
    """
    return name.encode()[: MAX_REPEATED // max(count, 1)].decode(errors="ignore")
