"""How the offsets of a query determine its batches, limits and losses. The tests need neither Spark nor a
broker.
"""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.spark.offsets import (
    Changes,
    Offsets,
    View,
    advance,
    find_changes,
    moved,
    share,
    should_wait,
)
from consumer.spark.ranges import Range, ranges, waiting
from consumer.spark.selection import Assigned, Choice, Pattern, Topics, partition_filter
from kproto.errors import ConfigError
from kproto.group.subscription import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
START = Offsets({A0: 5, A1: 7}, {"a": "id-a"})

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b", "c.d"]), st.integers(0, 12))
positions = st.dictionaries(partitions, st.integers(0, 1 << 62), max_size=12)
backlogs = st.dictionaries(partitions, st.integers(1, 10_000), min_size=1, max_size=12)


def view(ends: dict[TopicPartition, int], **ids: str) -> View:
    return View(ends, ids or {"a": "id-a"})


# ---- offsets as JSON


@given(positions, positions, positions)
def test_offsets_survive_their_json(
    at: dict[TopicPartition, int], began: dict[TopicPartition, int], epochs: dict[TopicPartition, int]
) -> None:
    sent = Offsets(at, {"a": "id-a"}, began, epochs)
    assert Offsets.from_json(json.loads(json.dumps(sent.to_json()))) == sent


@given(positions, st.randoms())
def test_the_json_text_does_not_depend_on_the_order_of_the_offsets(
    at: dict[TopicPartition, int], random: Random
) -> None:
    shuffled = list(at.items())
    random.shuffle(shuffled)
    ids = {"c": "3", "a": "1", "b": "2"}
    sorted_offsets, shuffled_offsets = Offsets(at, ids), Offsets(dict(shuffled), dict(reversed(ids.items())))
    assert json.dumps(sorted_offsets.to_json()) == json.dumps(shuffled_offsets.to_json())


def test_partitions_are_in_order_of_number_not_of_text() -> None:
    at = {TopicPartition("a", n): n for n in (10, 9, 2)}
    assert json.dumps(Offsets(at).to_json()) == '{"a": {"2": 2, "9": 9, "10": 10}}'


def test_other_readers_of_the_json_see_only_kafkas_form() -> None:
    """The JSON of offsets maps topics to partitions and offsets.

    Tools that read a query's progress expect offsets in this JSON form.
    """
    offsets = Offsets({A0: 9, B0: 3}, {"a": "id-a", "b": "id-b"}, {A0: 2})
    pairs = {
        (topic, int(partition)): int(offset)
        for topic, partitions in offsets.to_json().items()
        for partition, offset in partitions.items()  # type: ignore[attr-defined]
    }
    assert pairs == {("a", 0): 9, ("b", 0): 3}


def test_a_checkpoint_of_before_the_first_release_is_read() -> None:
    old = {"@began": {"a": {"0": 2}}, "@ids": {"a": "id-a"}, "a": {"0": 9}}
    assert Offsets.from_json(old) == Offsets({A0: 9}, {"a": "id-a"}, {A0: 2})


def test_a_new_query_differs_from_one_without_partitions() -> None:
    """`Offsets` distinguishes a new query from one that began without any partition.

    Spark's own source writes ``{}`` for a query that began without any partition. So `Offsets` reads ``{}``
    as a query that has begun.
    """
    assert Offsets.from_json(Offsets().to_json()) == Offsets()
    assert Offsets().new
    begun = Offsets(begun=True)
    texts: list[dict[str, object]] = [{}, {"a": {}}, begun.to_json()]
    assert [Offsets.from_json(text) for text in texts] == [begun] * 3


@pytest.mark.parametrize(
    "broken",
    [
        None,
        [1],
        {"a": 5},
        {"logOffset": 5},
        *({"a": {number: 5}} for number in ("x", "-1", "²")),
        *({"a": {"0": position}} for position in (None, "5", 5.7, True, -15, 1 << 63)),
    ],
    ids=str,
)
def test_invalid_checkpoint_offsets_raise_with_a_remedy(broken: object) -> None:
    with pytest.raises(ConfigError, match=r"checkpointLocation=.*Restore a copy of it"):
        Offsets.from_json(broken)


# ---- changes in the cluster


def test_logs_that_only_grew_have_no_changes() -> None:
    assert find_changes(START, view({A0: 9, A1: 7})) == Changes()


def test_a_partition_that_was_never_read_is_new_and_no_loss() -> None:
    changes = find_changes(START, View({A0: 5, A1: 7, B0: 3}, {"a": "id-a", "b": "id-b"}))
    assert changes.new == (B0,)
    assert changes.losses == ()


def test_a_deleted_partition_is_a_loss_that_names_it() -> None:
    changes = find_changes(START, view({A0: 5}))
    assert changes.removed == (A1,)
    assert changes.losses == ("partition a-1 was deleted; it was read up to 7",)


def test_a_re_created_topic_is_a_loss_even_with_more_records() -> None:
    changes = find_changes(START, view({A0: 100, A1: 100}, a="other"))
    assert changes.recreated == (A0, A1)
    assert changes.losses == ("topic a was deleted and re-created (its id was id-a, and is other)",)


def test_a_topic_re_created_with_fewer_partitions_loses_the_others() -> None:
    changes = find_changes(START, view({A0: 2}, a="other"))
    assert (changes.recreated, changes.removed) == ((A0,), (A1,))


def test_a_log_that_ends_before_the_position_was_truncated_at_an_unknown_offset() -> None:
    changes = find_changes(START, view({A0: 4, A1: 7}))
    assert changes.truncated == (A0,)
    assert "a-0 ends at 4, and was read up to 5: it was truncated at an unknown offset" in changes.losses[0]


def test_a_truncated_log_that_has_grown_again_is_a_loss_with_the_offset() -> None:
    changes = find_changes(START, View({A0: 9, A1: 7}, {"a": "id-a"}, {A0: 2}, {A0: 3}))
    assert changes.truncated == (A0,)
    assert changes.losses == ("the log of a-0 was truncated at 3; it was read up to 5",)


def test_only_logs_with_a_newer_leader_may_be_truncated() -> None:
    at = Offsets({A0: 5, A1: 7}, {"a": "id-a"}, epochs={A0: 1, A1: 1})
    assert moved(at, View({A0: 9, A1: 9}, {"a": "id-a"}, {A0: 1, A1: 2})) == {A1: 1}
    assert moved(at, View({A0: 9, A1: 9}, {"a": "another"}, {A0: 1, A1: 2})) == {}
    assert moved(START, View({A0: 9, A1: 9}, {"a": "id-a"}, {A0: 1, A1: 2})) == {}


def test_the_end_of_a_batch_contains_the_leader_epochs() -> None:
    end = advance(START, View({A0: 9, A1: 7}, {"a": "id-a"}, {A0: 3, A1: 4}), {})
    assert end.epochs == {A0: 3, A1: 4}
    assert "@a epochs=0:3,1:4" in end.to_json()


def test_a_new_leader_alone_causes_no_batch() -> None:
    at = Offsets({A0: 5, A1: 7}, {"a": "id-a"}, epochs={A0: 1, A1: 1})
    assert advance(at, View({A0: 5, A1: 7}, {"a": "id-a"}, {A0: 3, A1: 4}), {}) is at


def test_without_topic_ids_only_offsets_are_compared() -> None:
    changes = find_changes(Offsets({A0: 5}), View({A0: 9}, {}))
    assert changes.losses == ()


def test_a_partition_no_longer_selected_is_not_called_deleted() -> None:
    changes = find_changes(START, view({A0: 5}), partition_filter(Assigned((A0,))))
    assert changes.losses == (
        "partition a-1 is no longer selected by the query of this checkpoint; it was read up to 7",
    )


@pytest.mark.parametrize(
    ("choice", "is_selected"),
    [(Topics(("a",)), True), (Topics(("b",)), False), (Pattern("a+"), True), (Pattern("b"), False)],
)
def test_a_partition_filter_returns_whether_a_partition_is_selected(
    choice: Choice, is_selected: bool
) -> None:
    assert partition_filter(choice)(A0) is is_selected


# ---- the end of the next batch


def test_without_new_records_the_end_is_the_start_itself() -> None:
    assert advance(START, view({A0: 5, A1: 7}), {}) is START


def test_without_new_records_the_first_offset_of_a_new_partition_is_kept() -> None:
    start = Offsets({A0: 5}, {"a": "id-a"}, began={A0: 3})
    assert advance(start, view({A0: 5}), {}) is start


def test_the_end_is_the_end_of_every_log() -> None:
    end = advance(START, view({A0: 9, A1: 7}), {})
    assert end == Offsets({A0: 9, A1: 7}, {"a": "id-a"})
    assert ranges(START, end) == [Range("a", 0, 5, 9, "id-a")]


def test_a_new_partition_with_records_is_read_in_the_same_batch_from_its_start() -> None:
    current = View({A0: 5, A1: 7, B0: 3}, {"a": "id-a", "b": "id-b"})
    end = advance(START, current, {B0: 1})
    assert ranges(START, end) == [Range("b", 0, 1, 3, "id-b")]


def test_the_first_batch_reads_without_an_initial_offset() -> None:
    end = advance(Offsets(), view({A0: 9}), {A0: 2})
    assert end.to_json() == {"@a id=id-a began=0:2": {}, "a": {"0": 9}}
    assert ranges(Offsets(), end) == [Range("a", 0, 2, 9, "id-a")]


def test_new_partitions_without_records_cause_no_batch() -> None:
    current = View({A0: 5, A1: 7, B0: 3}, {"a": "id-a", "b": "id-b"})
    assert advance(START, current, {B0: 3}) is START


def test_a_new_partition_without_records_is_included_in_the_batch_of_another() -> None:
    end = advance(Offsets(), view({A0: 9, A1: 5}), {A0: 0, A1: 5})
    assert end.positions == {A0: 9, A1: 5}
    assert end.began == {A0: 0, A1: 5}


def test_a_new_query_fixes_its_start_even_without_records() -> None:
    end = advance(Offsets(), view({A0: 9}), {A0: 9})
    assert end.positions == {A0: 9}
    assert ranges(Offsets(), end) == []


def test_records_after_a_fixed_start_are_read_by_the_next_batch() -> None:
    settled = advance(Offsets(), view({A0: 9}), {A0: 9})
    end = advance(settled, view({A0: 14}), {})
    assert ranges(settled, end) == [Range("a", 0, 9, 14, "id-a")]
    assert end.began == {}


def test_a_deleted_partition_is_removed_from_the_end() -> None:
    assert advance(START, view({A0: 5}), {}).positions == {A0: 5}


def test_a_re_created_topic_is_read_from_its_new_start() -> None:
    end = advance(START, view({A0: 2, A1: 0}, a="other"), {A0: 0, A1: 0})
    assert ranges(START, end) == [Range("a", 0, 0, 2, "other")]
    assert end.ids == {"a": "other"}
    assert end.positions == {A0: 2, A1: 0}


def test_a_truncated_log_is_read_from_its_new_end() -> None:
    end = advance(START, view({A0: 3, A1: 7}), {A0: 3})
    assert ranges(START, end) == []
    assert ranges(end, advance(end, view({A0: 6, A1: 7}), {})) == [Range("a", 0, 3, 6, "id-a")]


def test_batches_have_exactly_the_limit_until_the_backlog_is_read() -> None:
    current = view({A0: 105, A1: 107})
    at, rows = START, 0
    for _ in range(20):
        end = advance(at, current, {}, limit=10)
        assert waiting(at, end) == 10
        at, rows = end, rows + 10
    assert at.positions == {A0: 105, A1: 107}
    assert advance(at, current, {}, limit=10) is at


def test_a_new_partition_counts_against_the_limit() -> None:
    end = advance(START, View({A0: 105, A1: 7, B0: 100}, {"a": "id-a", "b": "id-b"}), {B0: 0}, limit=10)
    assert {r.topic: r.size for r in ranges(START, end)} == {"a": 5, "b": 5}


def test_a_ceiling_is_not_exceeded() -> None:
    end = advance(START, view({A0: 50, A1: 60}), {}, ceiling=view({A0: 10, A1: 7}))
    assert end.positions == {A0: 10, A1: 7}
    assert advance(end, view({A0: 99, A1: 99}), {}, ceiling=view({A0: 10, A1: 7})) is end


def test_a_partition_found_after_the_ceiling_was_set_waits_for_the_next_run() -> None:
    current = View({A0: 5, A1: 7, B0: 3}, {"a": "id-a", "b": "id-b"})
    assert advance(START, current, {B0: 0}, ceiling=view({A0: 5, A1: 7})) is START


def test_a_topic_re_created_after_the_ceiling_was_set_yields_no_rows_in_this_run() -> None:
    end = advance(START, view({A0: 9, A1: 9}, a="other"), {A0: 0, A1: 0}, ceiling=view({A0: 9, A1: 9}))
    assert ranges(START, end) == []


@given(positions, positions)
def test_a_position_never_moves_back(at: dict[TopicPartition, int], ends: dict[TopicPartition, int]) -> None:
    start = Offsets(at)
    starts = {p: 0 for p in ends if p not in at}
    end = advance(start, View({p: max(n, at.get(p, 0)) for p, n in ends.items()}, {}), starts)
    assert all(end.positions[p] >= n for p, n in at.items() if p in end.positions)


@given(backlogs, st.integers(1, 5_000))
def test_limited_batches_of_random_backlogs_have_no_gap(ends: dict[TopicPartition, int], limit: int) -> None:
    current, at = View(ends, {}), Offsets()
    read: dict[tuple[str, int], int] = {}
    while (end := advance(at, current, {p: 0 for p in ends if p not in at.positions}, limit=limit)) is not at:
        for r in ranges(at, end):
            assert r.start == read.get((r.topic, r.partition), 0)
            read[r.topic, r.partition] = r.end
        at = end
        limit *= 2
    assert read == {tuple(p): n for p, n in ends.items()}


# ---- how partitions share a limit of records per batch


@given(backlogs, st.integers(1, 50_000))
def test_shares_add_up_to_the_limit_and_none_exceeds_its_backlog(
    backlog: dict[TopicPartition, int], limit: int
) -> None:
    shares = share(limit, backlog)
    assert all(shares[p] <= available for p, available in backlog.items())
    assert abs(sum(shares.values()) - min(limit, sum(backlog.values()))) < len(backlog) + 1


@pytest.mark.parametrize(
    ("limit", "sizes", "shared"),
    [
        # The numbers of the test "maxOffsetsPerTrigger" in Spark's KafkaMicroBatchSourceSuite.
        (10, (101, 11, 1), (8, 1, 1)),
        (10, (93, 10), (9, 1)),
        (5, (7, 3), (3, 1)),  # The exact shares, 3.5 and 1.5, are rounded down, as in Spark 4.2.
        (2, (9, 9, 9), (1, 1, 1)),
        (2**63 - 1, (5, 3), (5, 3)),
    ],
)
def test_the_shares_equal_those_of_sparks_own_source(
    limit: int, sizes: tuple[int, ...], shared: tuple[int, ...]
) -> None:
    backlog = {TopicPartition("a", number): n for number, n in enumerate(sizes)}
    assert tuple(share(limit, backlog).values()) == shared


@given(backlogs, st.integers(1, 50_000))
def test_no_partition_starves(backlog: dict[TopicPartition, int], limit: int) -> None:
    assert all(n >= 1 for n in share(limit, backlog).values())


@given(backlogs, st.integers(100, 50_000))
def test_a_share_differs_from_the_exact_proportion_by_less_than_one(
    backlog: dict[TopicPartition, int], limit: int
) -> None:
    total = sum(backlog.values())
    exact = {p: min(n, limit * n / total) for p, n in backlog.items()}
    if all(n >= 1 for n in exact.values()):
        assert all(abs(n - exact[p]) < 1 for p, n in share(limit, backlog).items())


# ---- minOffsetsPerTrigger and maxTriggerDelay


def test_the_first_batch_of_a_run_does_not_wait() -> None:
    assert not should_wait(1, 100, None, 1_000)


def test_too_few_records_wait_until_the_delay_is_over() -> None:
    assert should_wait(99, 100, 999, 1_000)
    assert not should_wait(99, 100, 1_000, 1_000)


def test_enough_records_do_not_wait() -> None:
    assert not should_wait(100, 100, 0, 1_000)


def test_without_min_offsets_no_batch_waits() -> None:
    assert not should_wait(0, None, 0, 1_000)
