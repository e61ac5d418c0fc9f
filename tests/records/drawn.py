"""What the tests of records draw: records fields of any number of batches, with all that may be in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
NOW = 1_700_000_000_000

HEADERS = st.lists(
    st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=6) | st.just(b"x" * 200)), max_size=3
).map(tuple)
CONTENT = (
    st.none()
    | st.binary(max_size=12)
    | st.sampled_from([b"v" * 63, b"v" * 64, b"\0" * 100, b"w" * 8191, b"w" * 8192, b"z" * 20000])
)
MOMENTS = st.integers(NOW, NOW + 300) | st.sampled_from(
    [-1, 0, NOW - 9000, NOW + 9000, NOW + (1 << 21), NOW + (1 << 35)]
)
WILD_MOMENTS = MOMENTS | st.sampled_from([(1 << 63) - 1, -(1 << 63)])
STEPS = st.integers(1, 3) | st.sampled_from([70, 9000, 1 << 21])
FIRSTS = st.sampled_from([0, 0, 7, 1 << 40, (1 << 63) - (1 << 30)])


@dataclass
class Drawn:
    """One batch to be: `rows` are (offset, timestamp, key, value, headers), `told` what its header says."""

    rows: Sequence[tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def next_offset(self) -> int:
        return int(self.told["last_offset"]) + 1


@st.composite
def batch(
    draw: st.DrawFn, start: int | None = None, control: bool = True, headers: bool = True, most: int = 12
) -> Drawn:
    """A batch whose offsets rise, maybe with gaps, maybe with nothing left."""
    base = draw(FIRSTS) if start is None else start + draw(st.sampled_from([0, 0, 5]))
    count = draw(st.integers(0, most))
    moments = WILD_MOMENTS if draw(st.integers(0, 19)) == 0 else MOMENTS
    gaps = draw(st.booleans())
    offset = base + (draw(STEPS) if gaps else 0)
    rows = []
    for _ in range(count):
        tail = draw(HEADERS) if headers and draw(st.integers(0, 3)) == 0 else ()
        rows.append((offset, draw(moments), draw(CONTENT), draw(CONTENT), tail))
        offset += draw(STEPS) if gaps else 1
    last = max(offset - 1, base) + (draw(STEPS) if gaps else 0)
    told: dict[str, Any] = {
        "base_offset": base,
        "last_offset": last,
        "compression": draw(st.sampled_from(CODECS)),
    }
    if draw(st.booleans()):
        told |= {"timestamp_type": "LogAppendTime", "max_timestamp": draw(moments)}
    if draw(st.booleans()):
        told |= {
            "producer_id": draw(st.integers(0, 2)),
            "producer_epoch": draw(st.integers(0, 5)),
            "base_sequence": draw(st.integers(0, 99)),
            "is_transactional": draw(st.booleans()),
        }
        if control and draw(st.integers(0, 3)) == 0:
            told |= {"is_control": True, "is_transactional": True, "compression": "none"}
            marker = draw(st.sampled_from([b"\0\0\0\0", b"\0\0\0\1"]))
            rows = [(base, draw(moments), marker, b"\0\0\0\0\0\0", ())]
            told["last_offset"] = base
    if draw(st.integers(0, 5)) == 0:
        told["delete_horizon_ms"] = draw(moments)
    return Drawn(rows, told)


@st.composite
def field_of_batches(
    draw: st.DrawFn, most: int = 5, control: bool = True, headers: bool = True, rows: int = 12
) -> list[Drawn]:
    """What a log segment may hold: batches one after the other."""
    found: list[Drawn] = []
    start: int | None = None
    for _ in range(draw(st.integers(0, most))):
        found.append(draw(batch(start, control, headers, rows)))
        start = found[-1].next_offset
        if start > (1 << 63) - (1 << 26):
            break
    return found
