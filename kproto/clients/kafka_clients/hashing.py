"""The order of a java.util.HashSet of strings: 2.6 writes its topics in it, unsorted."""

from __future__ import annotations

from collections.abc import Iterable

_SMALLEST = 16


def hash_code(text: str) -> int:
    """String.hashCode, over UTF-16 units, as an unsigned int."""
    found = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        found = (31 * found + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return found


def hash_order(names: Iterable[str]) -> list[str]:
    """As `new HashSet<>(names)` is walked: by bucket, and within one as they came (here: sorted)."""
    wanted = sorted(set(names))
    size = _SMALLEST
    while size * 3 // 4 < len(wanted):
        size *= 2

    def bucket(name: str) -> int:
        code = hash_code(name)
        return (code ^ code >> 16) & (size - 1)

    return sorted(wanted, key=bucket)
