"""What a message class should be made of: the same object from eight bases.

    python -m benchmarks.experiments.message_bases [--rounds 41]

The object is a partition of an offset fetch response. It is made one at a time from values in order, and by
tens out of the bytes, as the decoders do it; then its fields are read, as the encoders do. Ratios are to
`__slots__` filled one by one, which the messages were before.

On an EPYC with two busy cores, Python 3.11, msgspec 0.22, in nanoseconds per object and times as fast as
slots:

    base                          one        of ten    read and pack
    slots                      338 1.00    700 1.00    325 1.00
    msgspec, gc=False          218 1.55    421 1.62    327 0.98
    msgspec                    262 1.28    485 1.42    329 0.99
    a subclass of StructMeta   279 1.20    482 1.44    328 0.97
    dataclass with slots       480 0.70    702 0.99    326 1.00
    frozen dataclass          1729 0.20   1909 0.36    328 0.99
    namedtuple                 747 0.47    955 0.71    446 0.73
    tuple                      165 2.06    358 1.93    326 1.00

Whole messages, the 22 of `codec.py`, old and new in one process: msgspec's structs decode 1.34 times as
fast as slots (0.96 to 1.8), which is 0.70 instead of 0.53 of kio and 3.2 instead of 2.4 of kafka-python;
they encode at 0.98. With a class of classes of our own on top of msgspec's ("a subclass of StructMeta") it
was 1.2 and 0.63: Python 3.11 calls such classes by a detour, later ones don't. Where the garbage collector
visits the structs, metadata of 1000 topics takes 1.2 times as long, and groups of 100 members 1.1 times.

Tried for arrays and lost, ten elements of five fields, against the loop over `iter_unpack` that makes the
objects: columns by `zip(*rows)` and `map(cls, *columns)` 0.6, lengths compared in strided slices first and
then a comprehension 0.87, tuples first and then `starmap` 0.81. `starmap(cls, rows)` is 1.37 times as fast,
but needs all fields of the class in the row: it is used where these are of fixed size. For single strings,
other ways to move `p` on and to check lengths were within 2 %.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import struct
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from types import FunctionType
from typing import Any

import msgspec

from .. import report

FIELDS = ("partition_index", "committed_offset", "leader_epoch", "metadata", "error_code")
ROW = (3, 1_700_000_000, 5, "", 0)
MANY = 10
PACKED = struct.Struct(">iqix3sh")
BYTES = b"".join(PACKED.pack(index, 1_700_000_000 + index, 5, b"abc", 0) for index in range(MANY))


class Slots:
    """Made by `object.__new__`, then filled slot by slot."""

    __slots__ = FIELDS
    partition_index: int
    committed_offset: int
    leader_epoch: int
    metadata: str
    error_code: int


@dataclass(slots=True)
class Dataclass:
    partition_index: int
    committed_offset: int
    leader_epoch: int
    metadata: str
    error_code: int


@dataclass(slots=True, frozen=True)
class Frozen:
    partition_index: int
    committed_offset: int
    leader_epoch: int
    metadata: str
    error_code: int


class Struct(msgspec.Struct, gc=False):
    partition_index: int
    committed_offset: int
    leader_epoch: int
    metadata: str
    error_code: int


class Tracked(msgspec.Struct):
    partition_index: int
    committed_offset: int
    leader_epoch: int
    metadata: str
    error_code: int


class Meta(msgspec.StructMeta):
    """A class of classes written in Python."""


class Derived(msgspec.Struct, gc=False, metaclass=Meta):
    partition_index: int
    committed_offset: int
    leader_epoch: int
    metadata: str
    error_code: int


Named: Any = namedtuple(
    "Named", ["partition_index", "committed_offset", "leader_epoch", "metadata", "error_code"]
)

Make = Callable[[], object]


def slots() -> tuple[Make, Make]:
    new = object.__new__

    def one() -> Slots:
        made = new(Slots)
        made.partition_index, made.committed_offset, made.leader_epoch, made.metadata, made.error_code = ROW
        return made

    def many() -> list[Slots]:
        items = [*map(new, repeat(Slots, MANY))]
        for item, (a, b, c, d, e) in zip(items, PACKED.iter_unpack(BYTES), strict=True):
            item.partition_index = a
            item.committed_offset = b
            item.leader_epoch = c
            item.metadata = d.decode()
            item.error_code = e
        return items

    return one, many


def called(cls: Any) -> tuple[Make, Make]:
    def one() -> object:
        a, b, c, d, e = ROW
        return cls(a, b, c, d, e)

    def many() -> list[object]:
        items: list[object] = []
        for a, b, c, d, e in PACKED.iter_unpack(BYTES):
            items.append(cls(a, b, c, d.decode(), e))
        return items

    return one, many


def tuples() -> tuple[Make, Make]:
    def one() -> object:
        a, b, c, d, e = ROW
        return (a, b, c, d, e)

    def many() -> list[object]:
        items: list[object] = []
        for a, b, c, d, e in PACKED.iter_unpack(BYTES):
            items.append((a, b, c, d.decode(), e))
        return items

    return one, many


def reads(item: Any) -> Make:
    pack = PACKED.pack

    def by_name() -> bytes:
        name = item.metadata.encode()
        return pack(item.partition_index, item.committed_offset, item.leader_epoch, name, item.error_code)

    def by_place() -> bytes:
        return pack(item[0], item[1], item[2], item[3].encode(), item[4])

    # Each base has code of its own: Python remembers in it where it found the fields.
    chosen = by_place if type(item) is tuple else by_name
    return FunctionType(chosen.__code__.replace(), globals(), None, None, chosen.__closure__)


def bases() -> Iterator[tuple[str, Make, Make, Make]]:
    one, many = slots()
    yield "slots", one, many, reads(one())
    for name, cls in (
        ("msgspec, gc=False", Struct),
        ("msgspec", Tracked),
        ("a subclass of StructMeta", Derived),
        ("dataclass with slots", Dataclass),
        ("frozen dataclass", Frozen),
        ("namedtuple", Named),
    ):
        one, many = called(cls)
        yield name, one, many, reads(one())
    one, many = tuples()
    yield "tuple", one, many, reads(one())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=41)
    rounds = parser.parse_args().rounds
    print(report.machine("msgspec"))
    found = {name: calls for name, *calls in bases()}
    gc.collect()
    gc.freeze()
    taken = [
        report.measure({name: calls[job] for name, calls in found.items()}, rounds, min_seconds=0.003)
        for job in range(3)
    ]
    report.header("base", "one", "x slots", "of ten", "x slots", "read and pack", "x slots")
    for name in found:
        cells: list[object] = []
        for job, objects in zip(taken, (1, MANY, 1), strict=True):
            each = statistics.median(job[name]) / objects
            cells += [f"{each * 1e9:.0f} ns", report.ratio(job, name, "slots")]
        report.row(name, *cells)


if __name__ == "__main__":
    main()
