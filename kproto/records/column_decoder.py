"""Find the records of many batches and decode their fields with numpy.

* The decompressed batches lie in one arena, which is read through `windows`.

* The search for record starts is sequential, because a record's length says where the next record starts.

* A "run" is a sequence of records of equal size, so this size determines where its records start.

* The end of a run is estimated by a binary search for the last record that has the run's size. The run is
  accepted if all of its records have this size.

* If runs are short, all batches are read in parallel: each step reads the length of one record of each batch.

* For reading in parallel, long batches are split at guessed record starts. A position is a guess if a record
  can begin there and the record after it has the next offset.

* A guess is verified: the records before it must end exactly there. Otherwise the batch is read record by
  record.

* Rows are processed in slices that fit into a cache.

* A record is irregular if a length does not fit into the record, if the varint of a length or an offset delta
  has more than 5 bytes, or if that of a timestamp delta has more than 8 bytes.

* If a record is irregular, `read` returns None. The caller then reads row by row, which finds the position of
  the error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .windows import Bools, Int64s, Windows, short_varints, tables, varints

# The number of rows per slice: small enough for the int64 arrays of a slice to stay in the L2 cache.
_SLICE = 16384
# The minimum number of batches to read in parallel. With fewer batches, reading record by record is faster.
_FEW_LANES = 40
# The number of pieces of batches to read in parallel. A numpy operation takes 7 µs even for few pieces, and
# hardly more for this number.
_LANES = 256
# The minimum number of records in a useful run. If most runs are shorter, batches are read in parallel.
_SHORTEST_RUN = 4
# The minimum number of records that one search for runs must cover to be faster than parallel reading.
_WORTH_A_STEP = 500
# After this number of searches that each cover fewer than `_WORTH_A_STEP` records, batches are read in
# parallel.
_PATIENCE = 4
# The minimum number of records for which record starts are guessed. For fewer records, guessing costs more
# time than it saves.
_WORTH_GUESSES = 2000
_SHORTEST_PIECE = 32
# The largest numbers whose varints have one byte and two bytes.
_ONE_BYTE, _TWO_BYTES = 63, 8191
# The largest number of candidates that are checked for one record start.
_MOST_CANDIDATES = 64
# The largest mean size of a record, in bytes, for which record starts are guessed.
_WIDEST = 8192
_ONE = np.array(1)


@dataclass(frozen=True, slots=True)
class BatchArrays:
    """The batches to read. Each array has one entry per batch, in the order of the batches in the arena."""

    at: Int64s
    stop: Int64s
    count: Int64s
    base_offset: Int64s
    base_timestamp: Int64s
    # Whether the batch has a record for each of its offsets. Record starts are guessed only in these batches.
    gapless: Bools


@dataclass(frozen=True, slots=True)
class FieldArrays:
    """The fields of all records. Keys and values are ranges of the arena. The range of a null is empty."""

    offset: Int64s
    timestamp: Int64s
    # The start and the end of each key, alternately. `value` has the same layout.
    key: NDArray[np.int32]
    value: NDArray[np.int32]
    # The end of each record. Its headers lie between the end of its value and this position.
    end: Int64s
    null_key: Bools
    null_value: Bools
    has_headers: Bools


def read(arena: NDArray[np.uint8], batches: BatchArrays) -> FieldArrays | None:
    """Read the fields of all records of these batches. Returns None if a record is irregular.

    Raises IndexError if a field's length reaches beyond the arena, or a window does not fit into it.
    """
    windows = Windows(arena)
    for find in (_runs, _starts):
        starts = find(windows, batches)
        if starts is not None and (fields := _fields(windows, starts, batches)) is not None:
            return fields
    return None


# --- record starts ------------------------------------------------------------------------------------------


def _starts(windows: Windows, batches: BatchArrays) -> Int64s | None:
    """Find all record starts. Each step reads one record of each batch, for many batches in parallel.

    Returns None if a record is irregular.
    """
    first = np.cumsum(batches.count) - batches.count
    starts = np.empty(int(batches.count.sum()), np.int64)
    at, stop, count, place, owner = _cut(windows, batches, first)
    order = np.argsort(-count, kind="stable")
    position, remaining, spot = at[order], count[order], place[order]
    _, sizes = tables()
    limit = int(batches.stop[-1])
    longest = int(remaining[0])
    alive = np.searchsorted(-remaining, -np.arange(1, longest + 1), side="right").tolist()
    pairs, step = windows.pairs, 0
    for step, lanes in enumerate(alive):  # noqa: B007
        if lanes < _FEW_LANES:
            break
        now, into = position[:lanes], spot[:lanes]
        starts[into] = now
        into += _ONE
        now += sizes.take(pairs[now])
    else:
        step = longest
    raw: Any = windows.bytes  # Untyped, because numpy's type hints do not declare that an array is a buffer.
    view = memoryview(raw)
    for lane in range(alive[step] if step < longest else 0):
        count_left = int(remaining[lane]) - step
        begin = int(spot[lane])
        places, position[lane] = _walk(view, int(position[lane]), count_left, limit)
        starts[begin : begin + len(places)] = places
    wrong = owner[order[position != stop[order]]]
    for index in sorted(set(wrong.tolist())):
        total, begin = int(batches.count[index]), int(first[index])
        places, end = _walk(view, int(batches.at[index]), total, limit)
        if end != batches.stop[index]:
            return None
        starts[begin : begin + total] = places
    return starts


def _runs(windows: Windows, batches: BatchArrays) -> Int64s | None:
    """Find the starts of all records, one run at a time. The records of a run have equal sizes.

    Returns None if runs are short, or if the estimated runs do not end where the batches end.

    The estimated end of a run is the last record found with the same length as the first one. `_slice` later
    checks the lengths in between.
    """
    count, stop = batches.count, batches.stop
    owner, position, remaining, patience = np.arange(len(count)), batches.at, count, _PATIENCE
    runs: list[tuple[NDArray[np.intp], Int64s, Int64s]] = []
    while len(owner):
        size = tables()[1].take(windows.pairs[position])
        if int(size.min()) == 0:
            return None
        most = np.minimum(remaining, (stop[owner] - position) // size)
        if int(most.min()) == 0:
            return None
        run = _run(windows, position, size, most, count[owner] - remaining)
        if run is None or not patience:
            return None
        patience -= int(run.sum()) < _WORTH_A_STEP
        runs.append((owner, size, run))
        position, remaining = position + size * run, remaining - run
        if ((position == stop[owner]) != (remaining == 0)).any():
            return None
        more = remaining > 0
        owner, position, remaining = owner[more], position[more], remaining[more]
    owner, size, run = (np.concatenate(column) for column in zip(*runs, strict=True))
    order = np.argsort(owner, kind="stable")
    steps = np.repeat(size[order], run[order])
    # The step from a batch's last record to the next batch includes the gap between the batches.
    steps[np.cumsum(count)[:-1] - 1] += batches.at[1:] - stop[:-1]
    steps[1:] = steps[:-1]
    steps[0] = batches.at[0]
    return np.cumsum(steps, out=steps)


def _run(windows: Windows, position: Int64s, size: Int64s, most: Int64s, number: Int64s) -> Int64s | None:
    """Estimate the number of consecutive records of equal size from each position on, up to `most`.

    `number` is the index of the run's first record in its batch. Returns None if most runs are short.
    """
    pairs, before = windows.pairs, position - size
    wanted = pairs[position]
    run, beyond = np.ones_like(most), most + 1

    def look(guess: Any) -> tuple[Int64s, Int64s]:
        guess = np.minimum(np.maximum(guess, run), beyond - 1)
        alike = pairs[before + size * guess] == wanted
        return np.where(alike, guess, run), np.where(alike, beyond, guess)

    run, beyond = look(_SHORTEST_RUN)
    if 2 * np.count_nonzero(run < np.minimum(most, _SHORTEST_RUN)) > len(run):
        return None
    # Most runs end where the offset delta takes one more byte, so these positions are checked first.
    # Bisection finds the other ends.
    wider = np.where(number <= _ONE_BYTE, _ONE_BYTE + 1, _TWO_BYTES + 1) - number
    run, beyond = look(wider)
    run, beyond = look(wider + 1)
    for _ in range((int((beyond - run).max()) - 1).bit_length()):
        run, beyond = look((run + beyond) >> 1)
    return run


def _walk(data: memoryview, at: int, count: int, limit: int) -> tuple[list[int], int]:
    """Return the starts of `count` records from `at` on, and the end of the last record.

    The end is -1 if a length is malformed or leads beyond `limit`.
    """
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
    """Cut long batches into pieces at guessed record starts.

    Each piece has an entry in each of the five arrays: its start, its end, its number of records, the index
    of its first record among all records, and the index of its batch.
    """
    at, stop, count = batches.at, batches.stop, batches.count
    every = np.arange(len(at))
    total = int(count.sum())
    piece = max(total // _LANES, _SHORTEST_PIECE)
    mean = (stop - at) // count
    long = batches.gapless & (count >= 2 * piece) & (mean <= _WIDEST)
    if total < _WORTH_GUESSES or not long.any():
        return at.copy(), stop, count, first.copy(), every
    place, number, owner = _guess(windows, batches, np.flatnonzero(long), mean, piece)
    # The first piece of each batch starts with the batch; the other pieces start at guessed record starts.
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
    """Guess record starts in long batches.

    Each guess has an entry in each of the three arrays: the guessed position, the index of the record in its
    batch, and the index of the batch.
    """
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
    # Candidates for record starts are found by a zero byte (the attributes) after a nonzero byte (the last
    # byte of the record's length).
    zero = np.flatnonzero((looked[1:] == 0) & (looked[:-1] != 0)) + 1
    upto = np.cumsum(end - begin + 1)
    which = np.searchsorted(upto, zero, side="right")
    # Ranges with more candidates are skipped: checking the candidates would take longer than reading record
    # by record.
    few = (np.bincount(which) <= _MOST_CANDIDATES)[which]
    zero, which = zero[few], which[few]
    zero += (end - upto)[which]
    last = data[zero - 1]
    one_byte = last < 128
    two = one_byte & (data[zero - 2] >= 128)
    place = np.concatenate((zero[one_byte] - 1, zero[two] - 2))
    which = np.concatenate((which[one_byte], which[two]))
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
    # Record numbers ascend within a batch. A guess is dropped if its number is not above the previous one.
    # Reading the records verifies all other guesses.
    rising = np.append(True, (number[1:] > number[:-1]) | (owner[1:] != owner[:-1]))
    return place[rising], number[rising], owner[rising]


_NO_PLACES = np.empty(0, np.int64)
_NO_GUESS: tuple[Int64s, Int64s, Int64s] = (_NO_PLACES, _NO_PLACES, _NO_PLACES)


def _begins(windows: Windows, place: Int64s) -> Bools:
    """Return for each position whether a record can start there.

    A record starts with its length, a varint. The next byte, the attributes, is always zero.
    """
    table, _ = tables()
    begins: Bools = windows.bytes[place + (table[windows.twos(place)] & 3)] == 0
    return begins


def _number(windows: Windows, place: Int64s) -> Int64s:
    """Read the offset delta of the record at each position; -1 if the varint is too long."""
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
    """Decode the rows from `low` to `high` into `fields`. Returns False if a row is irregular.

    `far` means that offset deltas may take three bytes. In that case the first window of 8 bytes may not
    contain the whole varint of the key's length.
    """
    table, _ = tables()
    eights = windows.eights
    window = eights[start]
    size, shortest = short_varints(window)
    size += shortest
    size += start
    if not np.array_equal(size, end):
        return False
    used = shortest + 1  # The length, and the attributes byte after it.
    window >>= used << 3
    timestamp, width = short_varints(window)
    np.minimum(shortest, width, out=shortest)
    used += width
    room = 8
    # Load a second window, unless all bytes up to the key's length are in the first window.
    if far or int(width.max()) > 2:
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
    """Mark the rows with size -1 as null, and set these sizes to 0; return False for a size below -1."""
    lowest = int(size.min())
    if lowest < 0:
        np.less(size, 0, out=null)
        size += null
    return lowest >= -1


def _fits(value: Int64s, width: Int64s) -> bool:
    """Return whether all varints have at most 5 bytes and a value that fits into 32 bits."""
    return bool(
        ((width > 0) & (width <= 5)).all() and (value >= -(1 << 31)).all() and (value < 1 << 31).all()
    )
