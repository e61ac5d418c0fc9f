"""Compare eight base classes for messages.

    python -m benchmarks.experiments.message_bases [--rounds 41]

The object is a partition of an OffsetFetch response. The benchmark creates it from its field values, and
decodes it from bytes in arrays of ten. Then it reads and packs the fields, as the encoders do. Ratios are
relative to a class with `__slots__` that is filled field by field.

Results on an EPYC with two busy cores, Python 3.11, msgspec 0.22. Each column has nanoseconds per object and
the speed relative to slots:

    base                      create one     one of ten    read and pack
    slots                      338 1.00       700 1.00       325 1.00
    msgspec, gc=False          218 1.55       421 1.62       327 0.98
    msgspec                    262 1.28       485 1.42       329 0.99
    a subclass of StructMeta   279 1.20       482 1.44       328 0.97
    dataclass with slots       480 0.70       702 0.99       326 1.00
    frozen dataclass          1729 0.20      1909 0.36       328 0.99
    namedtuple                 747 0.47       955 0.71       446 0.73
    tuple                      165 2.06       358 1.93       326 1.00

The 22 messages of `benchmarks.codec` are decoded 1.34 times as fast with msgspec as with slots (0.96 to
1.8), and encoded 0.98 times as fast. This is 0.70 of the speed of kio instead of 0.53, and 3.2 times that
of kafka-python instead of 2.4.
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
ELEMENTS = 10
PACKED = struct.Struct(">iqix3sh")
BYTES = b"".join(PACKED.pack(index, 1_700_000_000 + index, 5, b"abc", 0) for index in range(ELEMENTS))


class Slots:
    """An object that is created by `object.__new__` and filled slot by slot."""

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
    """A metaclass written in Python."""


class Derived(msgspec.Struct, gc=False, metaclass=Meta):
    partition_index: int
    committed_offset: int
    leader_epoch: int
    metadata: str
    error_code: int


Named: Any = namedtuple(
    "Named", ["partition_index", "committed_offset", "leader_epoch", "metadata", "error_code"]
)

Call = Callable[[], object]


def slots_calls() -> tuple[Call, Call]:
    new = object.__new__

    def create_one() -> Slots:
        item = new(Slots)
        item.partition_index, item.committed_offset, item.leader_epoch, item.metadata, item.error_code = ROW
        return item

    def decode_array() -> list[Slots]:
        items = [*map(new, repeat(Slots, ELEMENTS))]
        for item, (a, b, c, d, e) in zip(items, PACKED.iter_unpack(BYTES), strict=True):
            item.partition_index = a
            item.committed_offset = b
            item.leader_epoch = c
            item.metadata = d.decode()
            item.error_code = e
        return items

    return create_one, decode_array


def class_calls(cls: Any) -> tuple[Call, Call]:
    def create_one() -> object:
        a, b, c, d, e = ROW
        return cls(a, b, c, d, e)

    def decode_array() -> list[object]:
        items: list[object] = []
        for a, b, c, d, e in PACKED.iter_unpack(BYTES):
            items.append(cls(a, b, c, d.decode(), e))
        return items

    return create_one, decode_array


def tuple_calls() -> tuple[Call, Call]:
    def create_one() -> object:
        a, b, c, d, e = ROW
        return (a, b, c, d, e)

    def decode_array() -> list[object]:
        items: list[object] = []
        for a, b, c, d, e in PACKED.iter_unpack(BYTES):
            items.append((a, b, c, d.decode(), e))
        return items

    return create_one, decode_array


def pack_call(item: Any) -> Call:
    """Return a function that reads the fields of `item` and packs them."""
    pack = PACKED.pack

    def by_name() -> bytes:
        name = item.metadata.encode()
        return pack(item.partition_index, item.committed_offset, item.leader_epoch, name, item.error_code)

    def by_index() -> bytes:
        return pack(item[0], item[1], item[2], item[3].encode(), item[4])

    # Each base gets its own code object, because Python caches attribute lookups in it.
    function = by_index if type(item) is tuple else by_name
    return FunctionType(function.__code__.replace(), globals(), None, None, function.__closure__)


def bases() -> Iterator[tuple[str, Call, Call, Call]]:
    create_one, decode_array = slots_calls()
    yield "slots", create_one, decode_array, pack_call(create_one())
    for name, cls in (
        ("msgspec, gc=False", Struct),
        ("msgspec", Tracked),
        ("a subclass of StructMeta", Derived),
        ("dataclass with slots", Dataclass),
        ("frozen dataclass", Frozen),
        ("namedtuple", Named),
    ):
        create_one, decode_array = class_calls(cls)
        yield name, create_one, decode_array, pack_call(create_one())
    create_one, decode_array = tuple_calls()
    yield "tuple", create_one, decode_array, pack_call(create_one())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=41)
    rounds = parser.parse_args().rounds
    print(report.machine("msgspec"))
    calls_by_base = {name: calls for name, *calls in bases()}
    gc.collect()
    gc.freeze()
    timings = [
        report.measure({name: calls[job] for name, calls in calls_by_base.items()}, rounds, min_seconds=0.003)
        for job in range(3)
    ]
    report.header("base", "create one", "x slots", "one of ten", "x slots", "read and pack", "x slots")
    for name in calls_by_base:
        cells: list[object] = []
        for job, objects in zip(timings, (1, ELEMENTS, 1), strict=True):
            seconds = statistics.median(job[name]) / objects
            cells += [f"{seconds * 1e9:.0f} ns", report.ratio(job, name, "slots")]
        report.row(name, *cells)


if __name__ == "__main__":
    main()
