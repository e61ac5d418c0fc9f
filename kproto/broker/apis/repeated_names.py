"""Answers to names that a request contains several times. Kafka answers each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

# The most bytes of repeated answers. A request of 400 bytes can name a group of megabytes 200 times.
MAX_REPEATED: Final = 1 << 20


def repeat_as_named(answers: Mapping[str, T], names: Sequence[str], size: Callable[[T], int]) -> list[T]:
    """Return the answer to each of the names, in their order; without repetitions if these are large.

    `size` returns the approximate size of an answer in bytes.
    """
    repetitions = {name: count - 1 for name, count in Counter(names).items() if count > 1 and name in answers}
    if sum(count * size(answers[name]) for name, count in repetitions.items()) > MAX_REPEATED:
        return list(answers.values())
    return [answers[name] for name in names if name in answers]
