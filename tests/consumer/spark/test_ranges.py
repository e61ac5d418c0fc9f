"""Ranges are split among tasks, and bounds outside of a log are moved to its edges.

The tests need neither Spark nor a broker.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.spark.offsets import Offsets
from consumer.spark.ranges import Range, batch_ranges, check_partitions, clamp_starts, ranges, split
from kproto.errors import ConfigError
from kproto.group.subscription import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_a_start_that_lacks_a_partition_of_the_end_is_rejected() -> None:
    with pytest.raises(ConfigError, match="a-0"):
        ranges(Offsets(), Offsets({A0: 5}))


# ---- splitting ranges

pieces = st.lists(
    st.builds(Range, st.just("a"), st.integers(0, 9), st.just(3), st.integers(3, 500)), max_size=6
)


@given(pieces, st.integers(1, 60), st.none() | st.integers(1, 50))
def test_pieces_cover_the_ranges_without_gap_or_overlap(
    whole: list[Range], least: int, most: int | None
) -> None:
    cut = split(whole, least=least, most_records=most)
    at = 0
    for r in (r for r in whole if r.size):
        begin = r.start
        while begin < r.end:
            assert (cut[at].partition, cut[at].start) == (r.partition, begin)
            begin, at = cut[at].end, at + 1
        assert begin == r.end
    assert at == len(cut)


@given(pieces, st.integers(1, 60), st.none() | st.integers(1, 50))
def test_a_split_has_at_least_the_requested_pieces_if_enough_offsets_exist(
    whole: list[Range], least: int, most: int | None
) -> None:
    cut = split(whole, least=least, most_records=most)
    assert len(cut) >= min(least, sum(r.size for r in whole))
    assert most is None or all(r.size <= most for r in cut)


def test_the_longest_range_is_cut_first() -> None:
    cut = split([Range("a", 0, 0, 10), Range("a", 1, 0, 90)], least=4)
    assert [(r.partition, r.start, r.end) for r in cut] == [(0, 0, 10), (1, 0, 30), (1, 30, 60), (1, 60, 90)]


def test_without_limits_ranges_are_not_split() -> None:
    whole = [Range("a", 0, 0, 10), Range("b", 0, 5, 6)]
    assert split(whole) == whole


# ---- starts outside of their logs


def test_a_start_at_either_edge_of_its_log_is_inside() -> None:
    starts = {A0: 3, A1: 9}
    assert clamp_starts("startingOffsets", starts, {A0: 3, A1: 3}, {A0: 9, A1: 9}) == (starts, [])


@pytest.mark.parametrize(("start", "moved"), [(2, 3), (10, 9)])
def test_a_start_outside_of_its_log_is_a_loss_and_moved_to_the_edge(start: int, moved: int) -> None:
    loss = f"startingOffsets says {start} for a-0, whose log is from 3 to 9"
    assert clamp_starts("startingOffsets", {A0: start}, {A0: 3}, {A0: 9}) == ({A0: moved}, [loss])


# ---- batches


def test_a_batch_reads_from_its_start_to_its_end() -> None:
    assert batch_ranges({A0: 2}, {A0: 5}, {A0: 0}, {A0: 9}, {"a": "i"}) == ([Range("a", 0, 2, 5, "i")], [])


def test_a_start_before_the_logs_start_is_a_loss_and_moves_there() -> None:
    result = batch_ranges({A0: 2}, {A0: 5}, {A0: 3}, {A0: 9}, {}, explicit_starts=[A0])
    assert result == ([Range("a", 0, 3, 5)], ["the log of a-0 begins at 3, after the requested start, 2"])


def test_a_range_deleted_completely_is_empty_and_a_loss() -> None:
    ranges_read, losses = batch_ranges(
        {A0: 2}, {A0: 5}, {A0: 7}, {A0: 9}, {}, explicit_starts=[A0], explicit_ends=[A0]
    )
    assert (ranges_read, len(losses)) == ([], 1)


def test_an_end_after_the_logs_end_is_a_loss() -> None:
    result = batch_ranges({A0: 2}, {A0: 12}, {A0: 0}, {A0: 9}, {}, explicit_ends=[A0])
    assert result == ([Range("a", 0, 2, 9)], ["the log of a-0 ends at 9, before the requested end, 12"])


def test_an_edge_that_moved_during_the_lookup_is_no_loss() -> None:
    """A start or end from a broker that is now outside of the log moves to the log's edge.

    No loss is reported. An offset outside of the log counts as a loss only if the user's options name it.
    """
    assert batch_ranges({A0: 2}, {A0: 5}, {A0: 3}, {A0: 9}, {}) == ([Range("a", 0, 3, 5)], [])
    assert batch_ranges({A0: 2}, {A0: 12}, {A0: 0}, {A0: 9}, {}) == ([Range("a", 0, 2, 9)], [])
    assert batch_ranges({A0: 10}, {A0: 9}, {A0: 0}, {A0: 9}, {}) == ([], [])


def test_an_open_range_is_kept_even_if_it_is_empty() -> None:
    ranges_read, _ = batch_ranges(
        {A0: 2, A1: 0},
        {A0: 2, A1: 9},
        {A0: 2, A1: 0},
        {A0: 2, A1: 9},
        {},
        open_starts=[A0],
        open_ends=[A0],
    )
    assert ranges_read == [Range("a", 0, 2, 2, None, True, True), Range("a", 1, 0, 9)]


def test_only_the_first_and_last_piece_of_an_open_range_are_open() -> None:
    cut = split([Range("a", 0, 0, 9, None, True, True)], least=3)
    assert [(r.start, r.end, r.open_start, r.open_end) for r in cut] == [
        (0, 3, True, False),
        (3, 6, False, False),
        (6, 9, False, True),
    ]


def test_offsets_must_name_exactly_the_partitions_that_are_read() -> None:
    with pytest.raises(ConfigError) as e:
        check_partitions("startingOffsets", [A0, B0], [A0, A1])
    assert str(e.value) == (
        "startingOffsets='a-0, b-0' is not allowed; "
        "it must name exactly the partitions that are read: a-0, a-1"
    )


def test_a_range_of_one_record_is_read_and_an_empty_one_only_with_an_open_end() -> None:
    ranges, losses = batch_ranges({A0: 4}, {A0: 5}, {A0: 0}, {A0: 9}, {})
    assert ([(r.start, r.end) for r in ranges], losses) == ([(4, 5)], [])
    assert batch_ranges({A0: 5}, {A0: 5}, {A0: 0}, {A0: 9}, {}) == ([], [])
    ranges, _ = batch_ranges({A0: 5}, {A0: 5}, {A0: 0}, {A0: 9}, {}, open_ends=[A0])
    assert [(r.start, r.end, r.open_end) for r in ranges] == [(5, 5, True)]


def test_a_requested_start_behind_the_log_is_a_loss_and_moved_to_its_end() -> None:
    ranges, losses = batch_ranges(
        {A0: 12}, {A0: 9}, {A0: 3}, {A0: 9}, {}, open_ends=[A0], explicit_starts=[A0]
    )
    assert [(r.start, r.end) for r in ranges] == [(9, 9)]
    assert losses == ["startingOffsets says 12 for a-0, whose log is from 3 to 9"]
    assert batch_ranges({A0: 9}, {A0: 9}, {A0: 3}, {A0: 9}, {}, explicit_starts=[A0])[1] == []


def test_a_requested_end_before_the_log_is_a_loss_unless_it_is_zero_or_the_start_is_requested_too() -> None:
    for end, starts, lost in ((2, [], True), (0, [], False), (3, [], False), (2, [A0], False)):
        _, losses = batch_ranges(
            {A0: 3}, {A0: end}, {A0: 3}, {A0: 9}, {}, explicit_starts=starts, explicit_ends=[A0]
        )
        text = f"the log of a-0 begins at 3, after the requested end, {end}"
        assert losses == ([text] if lost else [])
