"""Find the records of many batches and decode their fields with numpy.

* The decompressed batches lie in one block of memory, the arena. It is read through `windows`: integers of 2
  or 8 bytes that begin at any byte.

* The search for record starts is sequential, because a record's length says where the next record starts.

* A "run" is a sequence of records of equal size, so this size determines where its records start.

* The end of a run is estimated by a binary search for the last record that has the run's size. The run is
  accepted if all of its records have this size.

* If runs are short, all batches are read in parallel: each step reads the length of one record of each batch.
  A "lane" is a batch, or a piece of a batch, that is read in parallel with others.

* For reading in parallel, long batches are split at guessed record starts. A position is a guess if a record
  can begin there and the record after it has the next offset.

* A guess is verified: the records before the guessed start must end exactly at this start. Otherwise the
  batch is read record by record.

* Rows are processed in slices that fit into a cache.

* A record is irregular if a length does not fit into the record, if the varint of a length or an offset delta
  has more than 5 bytes, or if the varint of a timestamp delta has more than 8 bytes.

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
_SLICE_ROWS = 16384
# The minimum number of lanes to read in parallel. With fewer lanes, reading record by record is faster.
_MIN_LANES = 40
# The number of lanes into which long batches are cut. A numpy operation takes 7 µs even for few lanes, and
# hardly more for this number.
_TARGET_LANES = 256
# A run consists of consecutive records of equal size. A run with fewer records than this is short. If most
# runs are short, batches are read in lanes, one record of each lane at a time, instead of run by run.
_MIN_RUN = 4
# If the runs that one search finds contain fewer records than this, reading in parallel is faster.
_MIN_RECORDS_PER_SEARCH = 500
# After this number of searches that each find fewer than `_MIN_RECORDS_PER_SEARCH` records, batches are read
# in parallel.
_MAX_SHORT_SEARCHES = 4
# The minimum number of records for which record starts are guessed. For fewer records, guessing costs more
# time than it saves.
_MIN_RECORDS_TO_GUESS = 2000
# The minimum number of records of a piece into which a batch is cut.
_MIN_PIECE = 32
# The largest number whose varint has one byte, and the largest number whose varint has two bytes.
_MAX_IN_ONE_BYTE, _MAX_IN_TWO_BYTES = 63, 8191
# The largest number of candidates that are checked for one record start.
_MAX_CANDIDATES = 64
# The largest mean size of a record, in bytes, for which record starts are guessed.
_MAX_MEAN_SIZE = 8192
_ONE = np.array(1)  # An array, so that numpy does not have to convert a number in each step.


@dataclass(frozen=True, slots=True)
class BatchArrays:
    """The batches to read. Each array has one entry per batch, in the order of the batches in the arena."""

    # The position at which the first record starts, and the position at which the last one ends.
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

    The module's docstring says which records are irregular. Raises IndexError if a field's length reaches
    beyond the arena, or if a window does not fit into the arena.
    """
    windows = Windows(arena)
    for find in (_find_starts_by_runs, _find_starts_in_parallel):
        starts = find(windows, batches)
        if starts is not None and (fields := _decode_fields(windows, starts, batches)) is not None:
            return fields
    return None


# --- record starts ------------------------------------------------------------------------------------------


def _find_starts_in_parallel(windows: Windows, batches: BatchArrays) -> Int64s | None:
    """Find all record starts. Each step reads one record of each batch, for many batches in parallel.

    Returns None if a record is irregular.
    """
    first_record = np.cumsum(batches.count) - batches.count
    starts = np.empty(int(batches.count.sum()), np.int64)
    piece_start, piece_end, piece_count, piece_record, piece_batch = _cut_batches(
        windows, batches, first_record
    )
    # A lane is a batch, or a piece of one. Lanes with more records come first, so the lanes that still have a
    # record are always the first ones.
    order = np.argsort(-piece_count, kind="stable")
    position, count, record = piece_start[order], piece_count[order], piece_record[order]
    _, record_sizes = tables()
    limit = int(batches.stop[-1])
    steps = int(count[0])
    lanes_in_step = np.searchsorted(-count, -np.arange(1, steps + 1), side="right").tolist()
    pairs, step = windows.pairs, 0
    for step, lanes in enumerate(lanes_in_step):  # noqa: B007
        if lanes < _MIN_LANES:
            break
        # These slices are views, so adding to them in place also changes `position` and `record`.
        lane_position, lane_record = position[:lanes], record[:lanes]
        starts[lane_record] = lane_position
        lane_record += _ONE
        lane_position += record_sizes.take(pairs[lane_position])
    else:
        step = steps
    # A few lanes are longer than all others. Their remaining records are read record by record.
    raw: Any = windows.bytes  # `Any`, because numpy's type hints do not declare that an array is a buffer.
    view = memoryview(raw)
    for lane in range(lanes_in_step[step] if step < steps else 0):
        remaining = int(count[lane]) - step
        first = int(record[lane])
        lane_starts, position[lane] = _read_starts(view, int(position[lane]), remaining, limit)
        starts[first : first + len(lane_starts)] = lane_starts
    # A batch with a lane that does not end where the next one starts is read again, record by record.
    wrong_batches = piece_batch[order[position != piece_end[order]]]
    for batch in sorted(set(wrong_batches.tolist())):
        total, first = int(batches.count[batch]), int(first_record[batch])
        batch_starts, end = _read_starts(view, int(batches.at[batch]), total, limit)
        if end != batches.stop[batch]:
            return None
        starts[first : first + total] = batch_starts
    return starts


def _find_starts_by_runs(windows: Windows, batches: BatchArrays) -> Int64s | None:
    """Find the starts of all records, one run at a time. The records of a run have equal sizes.

    Returns None if too many runs are short, or if the estimated runs of a batch do not end at the end of
    the batch.

    The estimated end of a run is the last record found with the same length as the first one. `_decode_slice`
    later checks the lengths in between.
    """
    count, stop = batches.count, batches.stop
    # The batches that are not read completely. Each comes with the position of its next record and its number
    # of unread records.
    batch, position, remaining = np.arange(len(count)), batches.at, count
    short_searches_left = _MAX_SHORT_SEARCHES
    runs: list[tuple[NDArray[np.intp], Int64s, Int64s]] = []
    while len(batch):
        size = tables()[1].take(windows.pairs[position])
        if int(size.min()) == 0:
            return None
        max_run = np.minimum(remaining, (stop[batch] - position) // size)
        if int(max_run.min()) == 0:
            return None
        run = _estimate_runs(windows, position, size, max_run, count[batch] - remaining)
        if run is None or not short_searches_left:
            return None
        short_searches_left -= int(run.sum()) < _MIN_RECORDS_PER_SEARCH
        runs.append((batch, size, run))
        position, remaining = position + size * run, remaining - run
        if ((position == stop[batch]) != (remaining == 0)).any():
            return None
        unread = remaining > 0
        batch, position, remaining = batch[unread], position[unread], remaining[unread]
    batch, size, run = (np.concatenate(column) for column in zip(*runs, strict=True))
    order = np.argsort(batch, kind="stable")
    steps = np.repeat(size[order], run[order])
    # The step from a batch's last record to the next batch includes the bytes between the batches' records.
    steps[np.cumsum(count)[:-1] - 1] += batches.at[1:] - stop[:-1]
    # Each record starts at the sum of the steps of all records before it. The first step leads from the start
    # of the arena to the first record.
    steps[1:] = steps[:-1]
    steps[0] = batches.at[0]
    return np.cumsum(steps, out=steps)


def _estimate_runs(
    windows: Windows, position: Int64s, size: Int64s, max_run: Int64s, index: Int64s
) -> Int64s | None:
    """Estimate for each position how many consecutive records of equal size begin there, up to `max_run`.

    `index` is the index in the batch of each run's first record. Returns None if most runs are shorter than
    `_MIN_RUN`.
    """
    pairs, before = windows.pairs, position - size
    length_bytes = pairs[position]
    # The bounds of the search, counted from 1: record `run` is known to have the run's size, and record
    # `beyond` is known not to belong to the run.
    run, beyond = np.ones_like(max_run), max_run + 1

    def narrow(guess: Any) -> tuple[Int64s, Int64s]:
        guess = np.minimum(np.maximum(guess, run), beyond - 1)
        is_alike = pairs[before + size * guess] == length_bytes
        return np.where(is_alike, guess, run), np.where(is_alike, beyond, guess)

    run, beyond = narrow(_MIN_RUN)
    if 2 * np.count_nonzero(run < np.minimum(max_run, _MIN_RUN)) > len(run):
        return None
    # Most runs end where the offset delta takes one more byte, so these positions are checked first.
    # Bisection finds the other ends.
    next_wider = np.where(index <= _MAX_IN_ONE_BYTE, _MAX_IN_ONE_BYTE + 1, _MAX_IN_TWO_BYTES + 1)
    until_wider = next_wider - index
    run, beyond = narrow(until_wider)
    run, beyond = narrow(until_wider + 1)
    for _ in range((int((beyond - run).max()) - 1).bit_length()):
        run, beyond = narrow((run + beyond) >> 1)
    return run


def _read_starts(data: memoryview, at: int, count: int, limit: int) -> tuple[list[int], int]:
    """Return the starts of `count` records from `at` on, and the end of the last record.

    The end is -1 if a length is malformed or leads beyond `limit`.
    """
    starts: list[int] = []
    add = starts.append
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
                return starts, -1
            size &= 0xFFFFFFFF
        if size & 1 or (at := at + (size >> 1)) > limit:
            return starts, -1
    return starts, at


def _cut_batches(
    windows: Windows, batches: BatchArrays, first_record: Int64s
) -> tuple[Int64s, Int64s, Int64s, Int64s, Int64s]:
    """Cut long batches into pieces at guessed record starts. A shorter batch is one piece.

    Each piece has an entry in each of the five arrays: its start, its end, its number of records, the index
    of its first record among all records, and the index of its batch.
    """
    at, stop, count = batches.at, batches.stop, batches.count
    all_batches = np.arange(len(at))
    total = int(count.sum())
    piece_records = max(total // _TARGET_LANES, _MIN_PIECE)
    mean_size = (stop - at) // count
    is_long = batches.gapless & (count >= 2 * piece_records) & (mean_size <= _MAX_MEAN_SIZE)
    if total < _MIN_RECORDS_TO_GUESS or not is_long.any():
        return at.copy(), stop, count, first_record.copy(), all_batches
    start, index, batch = _guess_starts(windows, batches, np.flatnonzero(is_long), mean_size, piece_records)
    # The first piece of each batch starts with the batch; the other pieces start at guessed record starts.
    batch = np.concatenate((all_batches, batch))
    start = np.concatenate((at, start))
    index = np.concatenate((np.zeros(len(at), np.int64), index))
    order = np.argsort(start, kind="stable")
    start, index, batch = start[order], index[order], batch[order]
    # A piece ends where the next piece of its batch starts; the last one ends with the batch.
    is_last = np.append(batch[1:] != batch[:-1], True)
    end = np.where(is_last, stop[batch], np.append(start[1:], 0))
    end_index = np.where(is_last, count[batch], np.append(index[1:], 0))
    return start, end, end_index - index, index + first_record[batch], batch


def _guess_starts(
    windows: Windows,
    batches: BatchArrays,
    long_batches: NDArray[np.intp],
    mean_size: Int64s,
    piece_records: int,
) -> tuple[Int64s, Int64s, Int64s]:
    """Guess record starts in long batches, about `piece_records` records apart.

    Each guess has an entry in each of the three arrays: the guessed position, the index of the record in its
    batch, and the index of the batch.
    """
    _, record_sizes = tables()
    data = windows.bytes
    # Each batch is searched in several ranges at equal distances. At most one record start is guessed in each
    # range.
    at, typical_size = batches.at[long_batches], np.maximum(mean_size[long_batches], 8)
    distance = piece_records * typical_size
    width = np.minimum(typical_size + typical_size // 2 + 64, distance)
    ranges = np.maximum((batches.stop[long_batches] - at - width - 16) // distance, 0)
    if not ranges.any():
        return _NO_GUESS
    range_batch, ranges_so_far = np.repeat(long_batches, ranges), np.cumsum(ranges)
    # The number of each range in its batch, from 1.
    number = np.arange(1, int(ranges_so_far[-1]) + 1) - np.repeat(ranges_so_far - ranges, ranges)
    begin = np.repeat(at, ranges) + number * np.repeat(distance, ranges)
    end = begin + np.repeat(width, ranges)
    searched = np.concatenate([data[a:b] for a, b in zip((begin - 1).tolist(), end.tolist(), strict=True)])
    # Candidates for record starts are found by a zero byte (the attributes) after a nonzero byte (the last
    # byte of the record's length).
    attributes = np.flatnonzero((searched[1:] == 0) & (searched[:-1] != 0)) + 1
    searched_end = np.cumsum(end - begin + 1)
    which = np.searchsorted(searched_end, attributes, side="right")  # The index of the candidate's range.
    # Ranges with more than `_MAX_CANDIDATES` are skipped: checking the candidates would take longer than
    # reading record by record.
    has_few = (np.bincount(which) <= _MAX_CANDIDATES)[which]
    attributes, which = attributes[has_few], which[has_few]
    attributes += (end - searched_end)[which]  # Convert positions in `searched` to positions in the arena.
    ends_varint = data[attributes - 1] < 128
    may_have_two = ends_varint & (data[attributes - 2] >= 128)
    start = np.concatenate((attributes[ends_varint] - 1, attributes[may_have_two] - 2))
    which = np.concatenate((which[ends_varint], which[may_have_two]))
    size = record_sizes[windows.twos(start)]
    following = start + size
    good = (size > 6) & (following < batches.stop[range_batch[which]] - 16)
    start, which, following = start[good], which[good], following[good]
    good = _can_begin(windows, following)
    start, which, following = start[good], which[good], following[good]
    index, following_index = _read_offset_deltas(windows, start), _read_offset_deltas(windows, following)
    good = (index > 0) & (index < batches.count[range_batch[which]]) & (following_index == index + 1)
    start, which, index = start[good], which[good], index[good]
    if not len(start):
        return _NO_GUESS
    which, first_in_range = np.unique(which, return_index=True)
    start, index, batch = start[first_in_range], index[first_in_range], range_batch[which]
    # Record indexes ascend within a batch. A guess is dropped if its index is not above the index of
    # the previous guess. Reading the records verifies all other guesses.
    ascends = np.append(True, (index[1:] > index[:-1]) | (batch[1:] != batch[:-1]))
    return start[ascends], index[ascends], batch[ascends]


_NO_STARTS = np.empty(0, np.int64)
_NO_GUESS: tuple[Int64s, Int64s, Int64s] = (_NO_STARTS, _NO_STARTS, _NO_STARTS)


def _can_begin(windows: Windows, position: Int64s) -> Bools:
    """Return for each position whether a record can start there.

    A record starts with its length, a varint. The next byte, the attributes, is always zero.
    """
    table, _ = tables()
    has_attributes: Bools = windows.bytes[position + (table[windows.twos(position)] & 3)] == 0
    return has_attributes


def _read_offset_deltas(windows: Windows, position: Int64s) -> Int64s:
    """Read the offset delta of the record at each position; -1 if the varint is too long."""
    eights, (table, _) = windows.eights, tables()
    length_width = table[windows.twos(position)] & 3
    window = eights[position + length_width + 1]
    _, timestamp_width = short_varints(window)
    window >>= timestamp_width << 3
    offset_delta, offset_width = short_varints(window)
    offset_delta[(timestamp_width == 0) | (offset_width == 0)] = -1
    return offset_delta


# --- fields -------------------------------------------------------------------------------------------------


def _decode_fields(windows: Windows, starts: Int64s, batches: BatchArrays) -> FieldArrays | None:
    """Decode the fields of the records with these starts. Returns None if a record is irregular."""
    total = len(starts)
    count = batches.count
    ends = np.empty(total, np.int64)
    ends[:-1] = starts[1:]
    ends[np.cumsum(count)[count > 0] - 1] = batches.stop[count > 0]
    # `_decode_slice` adds the deltas to the offsets and timestamps, and fills the other arrays.
    fields = FieldArrays(
        offset=np.repeat(batches.base_offset, count),
        timestamp=np.repeat(batches.base_timestamp, count),
        key=np.empty(2 * total, np.int32),
        value=np.empty(2 * total, np.int32),
        end=ends,
        null_key=np.zeros(total, np.bool_),
        null_value=np.zeros(total, np.bool_),
        has_headers=np.empty(total, np.bool_),
    )
    has_wide_offsets = int(count.max()) > _MAX_IN_TWO_BYTES
    for low in range(0, total, _SLICE_ROWS):
        high = min(low + _SLICE_ROWS, total)
        if not _decode_slice(windows, starts[low:high], ends[low:high], low, high, fields, has_wide_offsets):
            return None
    return fields


def _decode_slice(
    windows: Windows,
    start: Int64s,
    end: Int64s,
    low: int,
    high: int,
    fields: FieldArrays,
    has_wide_offsets: bool,
) -> bool:
    """Decode the rows from `low` to `high` into `fields`. Returns False if a row is irregular.

    `has_wide_offsets` means that offset deltas may take three bytes. In that case the first window of 8 bytes
    may not contain the whole varint of the key's length.
    """
    table, _ = tables()
    eights = windows.eights
    window = eights[start]
    # `min_width` is each row's smallest width so far: 0 means that a varint did not fit into its window.
    record_end, min_width = short_varints(window)
    # So far `record_end` is the length that the varint contains. The record ends at the start of the varint,
    # plus the varint's width, plus this length.
    record_end += min_width
    record_end += start
    if not np.array_equal(record_end, end):
        return False
    used = min_width + 1  # The width of the record's length, plus one byte for the attributes.
    window >>= used << 3
    timestamp, width = short_varints(window)
    np.minimum(min_width, width, out=min_width)
    used += width
    window_bytes = 8
    # Load a second window, unless all bytes up to the key's length are in the first window.
    if has_wide_offsets or int(width.max()) > 2:
        window = eights[start + used]
        window_bytes = 16
    else:
        window >>= width << 3
    offset, width = short_varints(window)
    np.minimum(min_width, width, out=min_width)
    used += width
    window >>= width << 3
    key_size, width = short_varints(window)
    np.minimum(min_width, width, out=min_width)
    used += width
    key = start + used
    slow_rows = np.flatnonzero((min_width == 0) | (used > window_bytes))
    if len(slow_rows):
        position = start[slow_rows]
        _, length_width = varints(eights[position])
        position += length_width + 1
        timestamp[slow_rows], timestamp_width = varints(eights[position])
        position += timestamp_width
        offset[slow_rows], offset_width = varints(eights[position])
        position += offset_width
        key_size[slow_rows], key_size_width = varints(eights[position])
        position += key_size_width
        key[slow_rows] = position
        offset_fits = _fit_int32(offset[slow_rows], offset_width)
        if not (offset_fits and _fit_int32(key_size[slow_rows], key_size_width) and timestamp_width.all()):
            return False
    if not _mark_nulls(key_size, fields.null_key[low:high]):
        return False
    key_end = key + key_size
    entry = table[windows.twos(key_end)]
    width = entry & 3
    value_size = (entry >> 2).astype(np.int64)
    value = key_end + width
    if int(width.max()) > 2:
        slow_rows = np.flatnonzero(width > 2)
        value_size[slow_rows], value_size_width = varints(eights[key_end[slow_rows]])
        value[slow_rows] = key_end[slow_rows] + value_size_width
        if not _fit_int32(value_size[slow_rows], value_size_width):
            return False
    if not _mark_nulls(value_size, fields.null_value[low:high]):
        return False
    value_end = value + value_size
    headers_size = end - value_end
    if int(headers_size.min()) < 1:
        return False
    # A record without headers ends with the number of its headers, which is the byte 0.
    no_headers = windows.bytes[value_end] == 0
    if int(headers_size.max()) > 1 and (no_headers & (headers_size > 1)).any():
        return False
    np.logical_not(no_headers, out=fields.has_headers[low:high])
    fields.offset[low:high] += offset
    fields.timestamp[low:high] += timestamp
    fields.key[2 * low : 2 * high : 2] = key
    fields.key[2 * low + 1 : 2 * high : 2] = key_end
    fields.value[2 * low : 2 * high : 2] = value
    fields.value[2 * low + 1 : 2 * high : 2] = value_end
    return True


def _mark_nulls(size: Int64s, null: Bools) -> bool:
    """Mark the rows with size -1 as null, and set these sizes to 0; return False for a size below -1."""
    lowest = int(size.min())
    if lowest < 0:
        np.less(size, 0, out=null)
        size += null
    return lowest >= -1


def _fit_int32(value: Int64s, width: Int64s) -> bool:
    """Return whether all varints have at most 5 bytes and a value that fits into 32 bits."""
    return bool(
        ((width > 0) & (width <= 5)).all() and (value >= -(1 << 31)).all() and (value < 1 << 31).all()
    )
