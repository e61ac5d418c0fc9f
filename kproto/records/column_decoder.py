"""Where the records of many batches lie and what their fields are, found by numpy.

Rules of this file:

* All batches lie, decompressed, in one arena of bytes, which is read through `windows`.
* The chain of record lengths is the only part that is sequential. Long runs of records of one size are found
  by their ends, and believed when each record in them has that length. Else batches advance in lockstep, one
  record of each per step. Long batches are cut at guessed starts first: a place where a record could begin,
  with another one behind it whose offset is the next. A guess is only believed when the chain before it lands
  exactly on it; else the batch is walked record by record.
* Rows go through in slices that fit a cache.
* Nothing is guessed about values. Whatever is not regular (a length that doesn't fit, a varint beyond 8
  bytes) makes the answer None, and the caller reads the rows one by one, which also finds the error's place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .windows import Bools, Int64s, Windows, short_varints, tables, varints

_SLICE = 16384  # rows per slice: its arrays of int64 stay in the second-level cache
_FEW_LANES = 40  # below this many batches at once, a step of numpy costs more than walking them
_LANES = 256  # a step of numpy costs 7 µs for few lanes, and little more for this many
_SHORTEST_RUN = 4  # records of one size one after the other: where most runs are shorter, they don't pay
_WORTH_A_STEP = 500  # records that are found in one step: fewer don't pay for it
_PATIENCE = 4  # steps that didn't pay, after which the other way is taken
_WORTH_GUESSES = 2000  # below this many records, guessing takes longer than walking
_SHORTEST_PIECE = 32
_ONE_BYTE, _TWO_BYTES = 63, 8191  # the largest numbers whose varints have one byte and two
_MOST_CANDIDATES = 64  # for the start of a piece
_WIDEST = 8192  # no guesses where records are larger than this
_ONE = np.array(1)


@dataclass(frozen=True, slots=True)
class BatchArrays:
    """What is to be read: one entry for each batch, in the order of the arena."""

    at: Int64s
    stop: Int64s
    count: Int64s
    base_offset: Int64s
    base_timestamp: Int64s
    # Whether there are as many records as offsets: only then can starts be guessed.
    gapless: Bools


@dataclass(frozen=True, slots=True)
class FieldArrays:
    """The fields of all records; places are those in the arena. Nulls are empty places."""

    offset: Int64s
    timestamp: Int64s
    # Start and end of each key in turn.
    key: NDArray[np.int32]
    value: NDArray[np.int32]
    # Where each record ends; its headers are between the value and that.
    end: Int64s
    null_key: Bools
    null_value: Bools
    has_headers: Bools


def read(arena: NDArray[np.uint8], batches: BatchArrays) -> FieldArrays | None:
    """The fields of all records of these batches, or None when something about them isn't regular.

    Raises IndexError where a length leads out of the arena, or a window doesn't fit into it.
    """
    windows = Windows(arena)
    for find in (_runs, _starts):
        starts = find(windows, batches)
        if starts is not None and (fields := _fields(windows, starts, batches)) is not None:
            return fields
    return None


# --- the chain ----------------------------------------------------------------------------------------------


def _starts(windows: Windows, batches: BatchArrays) -> Int64s | None:
    """The starts of all records; None when one isn't regular."""
    first = np.cumsum(batches.count) - batches.count
    found = np.empty(int(batches.count.sum()), np.int64)
    at, stop, count, place, owner = _cut(windows, batches, first)
    order = np.argsort(-count, kind="stable")
    here, left, spot = at[order], count[order], place[order]
    _, sizes = tables()
    limit = int(batches.stop[-1])
    longest = int(left[0])
    alive = np.searchsorted(-left, -np.arange(1, longest + 1), side="right").tolist()
    pairs, step = windows.pairs, 0
    for step, lanes in enumerate(alive):  # noqa: B007
        if lanes < _FEW_LANES:
            break
        now, into = here[:lanes], spot[:lanes]
        found[into] = now
        into += _ONE
        now += sizes.take(pairs[now])
    else:
        step = longest
    raw: Any = windows.bytes  # which is a buffer, though numpy doesn't say so
    view = memoryview(raw)
    for lane in range(alive[step] if step < longest else 0):
        rest = int(left[lane]) - step
        begin = int(spot[lane])
        places, here[lane] = _walk(view, int(here[lane]), rest, limit)
        found[begin : begin + len(places)] = places
    wrong = owner[order[here != stop[order]]]
    for index in sorted(set(wrong.tolist())):
        total, begin = int(batches.count[index]), int(first[index])
        places, end = _walk(view, int(batches.at[index]), total, limit)
        if end != batches.stop[index]:
            return None
        found[begin : begin + total] = places
    return found


def _runs(windows: Windows, batches: BatchArrays) -> Int64s | None:
    """The starts of records that come in long runs of one size; None when the runs are short, or lead astray.

    A run is believed to go as far as its first length stands where the last record would be. `_slice` reads
    the lengths of all others, too.
    """
    count, stop = batches.count, batches.stop
    owner, here, left, patience = np.arange(len(count)), batches.at, count, _PATIENCE
    found: list[tuple[NDArray[np.intp], Int64s, Int64s]] = []
    while len(owner):
        size = tables()[1].take(windows.pairs[here])
        if int(size.min()) == 0:
            return None
        most = np.minimum(left, (stop[owner] - here) // size)
        if int(most.min()) == 0:
            return None
        run = _run(windows, here, size, most, count[owner] - left)
        if run is None or not patience:
            return None
        patience -= int(run.sum()) < _WORTH_A_STEP
        found.append((owner, size, run))
        here, left = here + size * run, left - run
        if ((here == stop[owner]) != (left == 0)).any():
            return None
        more = left > 0
        owner, here, left = owner[more], here[more], left[more]
    owner, size, run = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.argsort(owner, kind="stable")
    steps = np.repeat(size[order], run[order])
    # The first record of a batch is as far from the last one before as the batch is from its end.
    steps[np.cumsum(count)[:-1] - 1] += batches.at[1:] - stop[:-1]
    steps[1:] = steps[:-1]
    steps[0] = batches.at[0]
    return np.cumsum(steps, out=steps)


def _run(windows: Windows, here: Int64s, size: Int64s, most: Int64s, number: Int64s) -> Int64s | None:
    """How many records of one size, `most` at most, seem to be at each place, which is that of a record with
    this number in its batch; None when they are few at most places."""
    pairs, before = windows.pairs, here - size
    wanted = pairs[here]
    run, beyond = np.ones_like(most), most + 1

    def look(guess: Any) -> tuple[Int64s, Int64s]:
        guess = np.minimum(np.maximum(guess, run), beyond - 1)
        alike = pairs[before + size * guess] == wanted
        return np.where(alike, guess, run), np.where(alike, beyond, guess)

    run, beyond = look(_SHORTEST_RUN)
    if 2 * np.count_nonzero(run < np.minimum(most, _SHORTEST_RUN)) > len(run):
        return None
    # Lengths change where an offset takes one byte more, mostly; else it is found by halves.
    wider = np.where(number <= _ONE_BYTE, _ONE_BYTE + 1, _TWO_BYTES + 1) - number
    run, beyond = look(wider)
    run, beyond = look(wider + 1)
    for _ in range((int((beyond - run).max()) - 1).bit_length()):
        run, beyond = look((run + beyond) >> 1)
    return run


def _walk(data: memoryview, at: int, count: int, limit: int) -> tuple[list[int], int]:
    """The starts of `count` records, and where they end: -1 when they leave the arena."""
    places: list[int] = []
    add = places.append
    for _ in range(count):
        add(at)
        size = data[at]
        if size < 128:
            at += 1
        elif (high := data[at + 1]) < 128:
            size += (high << 7) - 128
            at += 2
        else:
            size = shift = 0
            for byte in data[at : at + 5]:
                size |= (byte & 127) << shift
                shift += 7
                at += 1
                if byte < 128:
                    break
            else:
                return places, -1
            size &= 0xFFFFFFFF
        if size & 1 or (at := at + (size >> 1)) > limit:
            return places, -1
    return places, at


def _cut(
    windows: Windows, batches: BatchArrays, first: Int64s
) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
    """Start, end, records, place of the first record, and batch, of every piece to be walked on its own."""
    at, stop, count = batches.at, batches.stop, batches.count
    every = np.arange(len(at))
    total = int(count.sum())
    piece = max(total // _LANES, _SHORTEST_PIECE)
    mean = (stop - at) // count
    long = batches.gapless & (count >= 2 * piece) & (mean <= _WIDEST)
    if total < _WORTH_GUESSES or not long.any():
        return at.copy(), stop, count, first.copy(), every
    place, number, owner = _guess(windows, batches, np.flatnonzero(long), mean, piece)
    # Every batch starts with a piece, and the guesses come behind it.
    owner = np.concatenate((every, owner))
    place = np.concatenate((at, place))
    number = np.concatenate((np.zeros(len(at), np.int64), number))
    order = np.argsort(place, kind="stable")
    place, number, owner = place[order], number[order], owner[order]
    last = np.append(owner[1:] != owner[:-1], True)
    end = np.where(last, stop[owner], np.append(place[1:], 0))
    behind = np.where(last, count[owner], np.append(number[1:], 0))
    return place, end, behind - number, number + first[owner], owner


def _guess(
    windows: Windows, batches: BatchArrays, long: NDArray[np.intp], mean: Int64s, piece: int
) -> tuple[Int64s, Int64s, Int64s]:
    """Places in long batches where records probably start, which record each would be, and of which batch."""
    _, sizes = tables()
    data = windows.bytes
    at, wide = batches.at[long], np.maximum(mean[long], 8)
    apart = piece * wide
    width = np.minimum(wide + wide // 2 + 64, apart)
    many = np.maximum((batches.stop[long] - at - width - 16) // apart, 0)
    if not many.any():
        return _NO_GUESS
    owner, upto = np.repeat(long, many), np.cumsum(many)
    begin = np.arange(1, int(upto[-1]) + 1) - np.repeat(upto - many, many)
    begin = np.repeat(at, many) + begin * np.repeat(apart, many)
    end = begin + np.repeat(width, many)
    looked = np.concatenate([data[a:b] for a, b in zip((begin - 1).tolist(), end.tolist(), strict=True)])
    # The attributes of a record are a zero byte behind its length, which doesn't end in one.
    zero = np.flatnonzero((looked[1:] == 0) & (looked[:-1] != 0)) + 1
    upto = np.cumsum(end - begin + 1)
    which = np.searchsorted(upto, zero, side="right")
    few = (np.bincount(which) <= _MOST_CANDIDATES)[which]  # more would take longer than walking does
    zero, which = zero[few], which[few]
    zero += (end - upto)[which]
    last = data[zero - 1]
    one = last < 128
    two = one & (data[zero - 2] >= 128)
    place = np.concatenate((zero[one] - 1, zero[two] - 2))
    which = np.concatenate((which[one], which[two]))
    size = sizes[windows.twos(place)]
    behind = place + size
    good = (size > 6) & (behind < batches.stop[owner[which]] - 16)
    place, which, behind = place[good], which[good], behind[good]
    good = _begins(windows, behind)
    place, which, behind = place[good], which[good], behind[good]
    number, following = _number(windows, place), _number(windows, behind)
    good = (number > 0) & (number < batches.count[owner[which]]) & (following == number + 1)
    place, which, number = place[good], which[good], number[good]
    if not len(place):
        return _NO_GUESS
    which, pick = np.unique(which, return_index=True)
    place, number, owner = place[pick], number[pick], owner[which]
    # Guesses that go back were wrong; the rest is verified by walking.
    rising = np.append(True, (number[1:] > number[:-1]) | (owner[1:] != owner[:-1]))
    return place[rising], number[rising], owner[rising]


_NO_PLACES = np.empty(0, np.int64)
_NO_GUESS: tuple[Int64s, Int64s, Int64s] = (_NO_PLACES, _NO_PLACES, _NO_PLACES)


def _begins(windows: Windows, place: Int64s) -> Bools:
    """Whether attributes are behind the length of a record that starts at each place."""
    table, _ = tables()
    begins: Bools = windows.bytes[place + (table[windows.twos(place)] & 3)] == 0
    return begins


def _number(windows: Windows, place: Int64s) -> Int64s:
    """The offset delta of the record that starts at each place; -1 where it isn't plain to see."""
    eights, (table, _) = windows.eights, tables()
    window = eights[place + (table[windows.twos(place)] & 3) + 1]
    _, width = short_varints(window)
    window >>= width << 3
    number, width2 = short_varints(window)
    number[(width == 0) | (width2 == 0)] = -1
    return number


# --- fields -------------------------------------------------------------------------------------------------


def _fields(windows: Windows, starts: Int64s, batches: BatchArrays) -> FieldArrays | None:
    total = len(starts)
    count = batches.count
    ends = np.empty(total, np.int64)
    ends[:-1] = starts[1:]
    ends[np.cumsum(count)[count > 0] - 1] = batches.stop[count > 0]
    fields = FieldArrays(
        np.repeat(batches.base_offset, count),
        np.repeat(batches.base_timestamp, count),
        np.empty(2 * total, np.int32),
        np.empty(2 * total, np.int32),
        ends,
        np.zeros(total, np.bool_),
        np.zeros(total, np.bool_),
        np.empty(total, np.bool_),
    )
    far = int(count.max()) > _TWO_BYTES
    for low in range(0, total, _SLICE):
        high = min(low + _SLICE, total)
        if not _slice(windows, starts[low:high], ends[low:high], low, high, fields, far):
            return None
    return fields


def _slice(
    windows: Windows, start: Int64s, end: Int64s, low: int, high: int, fields: FieldArrays, far: bool
) -> bool:
    """Read the rows from `low` to `high` into `fields`; False when one is not regular.

    `far`: offsets may take three bytes.
    """
    table, _ = tables()
    eights = windows.eights
    window = eights[start]
    size, shortest = short_varints(window)
    size += shortest
    size += start
    if not np.array_equal(size, end):
        return False
    used = shortest + 1  # the attributes
    window >>= used << 3
    timestamp, width = short_varints(window)
    np.minimum(shortest, width, out=shortest)
    used += width
    room = 8
    if far or int(width.max()) > 2:  # else all up to the key's length is in one window
        window = eights[start + used]
        room = 16
    else:
        window >>= width << 3
    offset, width = short_varints(window)
    np.minimum(shortest, width, out=shortest)
    used += width
    window >>= width << 3
    size, width = short_varints(window)
    np.minimum(shortest, width, out=shortest)
    used += width
    key = start + used
    slow = np.flatnonzero((shortest == 0) | (used > room))
    if len(slow):
        place = start[slow]
        _, step = varints(eights[place])
        place += step + 1
        timestamp[slow], wide = varints(eights[place])
        place += wide
        offset[slow], wide2 = varints(eights[place])
        place += wide2
        size[slow], wide3 = varints(eights[place])
        place += wide3
        key[slow] = place
        if not (_fits(offset[slow], wide2) and _fits(size[slow], wide3) and wide.all()):
            return False
    if not _without_nulls(size, fields.null_key[low:high]):
        return False
    key_end = key + size
    entry = table[windows.twos(key_end)]
    width = entry & 3
    size = (entry >> 2).astype(np.int64)
    value = key_end + width
    if int(width.max()) > 2:
        slow = np.flatnonzero(width > 2)
        size[slow], wide = varints(eights[key_end[slow]])
        value[slow] = key_end[slow] + wide
        if not _fits(size[slow], wide):
            return False
    if not _without_nulls(size, fields.null_value[low:high]):
        return False
    value_end = value + size
    tail = end - value_end
    if int(tail.min()) < 1:
        return False
    plain = windows.bytes[value_end] == 0
    if int(tail.max()) > 1 and (plain & (tail > 1)).any():
        return False
    np.logical_not(plain, out=fields.has_headers[low:high])
    fields.offset[low:high] += offset
    fields.timestamp[low:high] += timestamp
    fields.key[2 * low : 2 * high : 2] = key
    fields.key[2 * low + 1 : 2 * high : 2] = key_end
    fields.value[2 * low : 2 * high : 2] = value
    fields.value[2 * low + 1 : 2 * high : 2] = value_end
    return True


def _without_nulls(size: Int64s, null: Bools) -> bool:
    """Make sizes of -1 nulls of size 0; False when one is below that."""
    lowest = int(size.min())
    if lowest < 0:
        np.less(size, 0, out=null)
        size += null
    return lowest >= -1


def _fits(value: Int64s, width: Int64s) -> bool:
    """Whether these are numbers that a varint of 32 bits has: not wider, not larger, not cut."""
    return bool(
        ((width > 0) & (width <= 5)).all() and (value >= -(1 << 31)).all() and (value < 1 << 31).all()
    )
