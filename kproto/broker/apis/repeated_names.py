"""The repetition of results for names that a request contains several times, as Kafka repeats them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

# The limit of all repeated results in bytes. A request of 400 bytes can name 200 times a group whose
# description has megabytes.
MAX_REPEATED: Final = 1 << 20


def repeat_as_named(answers: Mapping[str, T], names: Sequence[str], size: Callable[[T], int]) -> list[T]:
    """Return the result for each of the names, in their order; each result once if repetitions are large.

    `answers` maps a name to its result, and `size` returns the approximate size of a result in bytes.
    """
    repetitions = {name: count - 1 for name, count in Counter(names).items() if count > 1 and name in answers}
    if sum(count * size(answers[name]) for name, count in repetitions.items()) > MAX_REPEATED:
        return list(answers.values())
    return [answers[name] for name in names if name in answers]
