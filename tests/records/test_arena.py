"""Arenas, the memory into which batches are decompressed, keep their bytes when they grow."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow")

from kproto.records import Record, encode_batch
from kproto.records import arena as arenas
from kproto.records.columns import columns

COUNT = 200


@pytest.mark.parametrize("size", [900 << 10, 5 << 20])
def test_an_uncompressed_batch_fits_behind_one_that_has_grown_more_than_expected(size: int) -> None:
    """The arena makes room for the next batch after a batch that has outgrown its reserved memory.

    The compressed values are zeros. They compress so well that the arena reserves too little memory at first.
    """
    arenas._pool.clear()
    values = [bytes(size // COUNT), b"v" * 1500, bytes(size // COUNT), b"w" * 1500]
    data = b"".join(
        encode_batch(
            [Record(number * COUNT + index, 0, None, value) for index in range(COUNT)],
            compression=("gzip", "none")[number % 2],
        )
        for number, value in enumerate(values)
    )
    assert columns(data).value.to_pylist() == [value for value in values for _ in range(COUNT)]


def test_a_pool_keeps_two_arenas_of_at_most_64_mib() -> None:
    arenas._pool.clear()
    used_arenas = [arenas.Arena() for _ in range(3)]
    for arena in used_arenas:
        arena.release()
    assert len(arenas._pool) == 2
    arenas._pool.clear()
    large = arenas.Arena()
    large._reserve(64 << 20)
    large.release()
    assert arenas._pool == []


def test_a_grown_arena_keeps_its_bytes() -> None:
    arenas._pool.clear()
    arena = arenas.Arena()
    arena._append_records(0, memoryview(b"before"), None, 1 << 40)
    arena._reserve(2 << 20)
    arena._append_records(0, memoryview(b" behind"), None, 1 << 40)
    assert bytes(arena.bytes[: arena.used]) == b"before behind"
    assert len(arena.bytes) >= (2 << 20) + 6
