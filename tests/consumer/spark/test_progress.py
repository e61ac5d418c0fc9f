"""The lag and the log lines that are computed from a query's progress. tests/conformance compares them with
Spark's own.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from consumer.spark.progress import behind, describe_batch
from kproto.group.subscription import TopicPartition


def progress(
    start: str | None,
    end: str | None,
    latest: str | None,
    *,
    rows: int = 40,
    speed: float = 20.0,
    name: Any = "etl",
) -> dict[str, Any]:
    """Return the progress of a query with one source, in the form of Spark's `lastProgress`."""
    source = {
        "startOffset": start,
        "endOffset": end,
        "latestOffset": latest,
        "numInputRows": rows,
        "processedRowsPerSecond": speed,
    }
    query = {"id": "5b1c0a52-aaaa", "name": name, "batchId": 3, "batchDuration": 1234, "numInputRows": rows}
    return {**query, "sources": [source]}


TWO = progress('{"t": {"0": 10, "1": 5}}', '{"t": {"0": 30, "1": 25}}', '{"t": {"0": 90, "1": 25}}')


def test_the_metrics_equal_those_of_sparks_own_source() -> None:
    [source] = behind(TWO)
    assert source.metrics == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "60",
        "avgOffsetsBehindLatest": "30.0",
    }


def test_a_progress_parsed_from_json_gives_the_same_lag() -> None:
    """In Spark Connect, the progress of a query has no total number of rows, and its offsets are objects
    instead of strings.
    """
    read: dict[str, Any] = json.loads(json.dumps(TWO))
    del read["numInputRows"]
    for name in ("startOffset", "endOffset", "latestOffset"):
        read["sources"][0][name] = json.loads(read["sources"][0][name])
    assert behind(read) == behind(TWO)
    assert describe_batch(read) == describe_batch(TWO)
    read["sources"][0].update(endOffset=None, processedRowsPerSecond=None)
    assert describe_batch(read) == "etl, batch 3, 1.2 s: 40 rows"


def test_the_time_to_catch_up_is_at_the_speed_of_the_batch() -> None:
    [source] = behind(TWO)
    assert source.seconds == 3.0


@pytest.mark.parametrize(("waiting", "seconds"), [(0, 0.0), (5, None)])
def test_without_rows_there_is_no_speed(waiting: int, seconds: float | None) -> None:
    [source] = behind(
        progress("{}", '{"t": {"0": 5}}', f'{{"t": {{"0": {5 + waiting}}}}}', rows=0, speed=0.0)
    )
    assert source.seconds == seconds


def test_the_lag_of_an_unread_partition_counts_from_its_start() -> None:
    [source] = behind(progress(None, '{"t": {"0": 5}}', '{"t": {"0": 5, "1": 7}}'))
    assert source.offsets == {TopicPartition("t", 0): 0, TopicPartition("t", 1): 7}


def test_a_new_partition_is_shown_from_its_first_offset() -> None:
    end = '{"@t id=abc began=0:100": {}, "t": {"0": 130}}'
    assert describe_batch(progress("{}", end, '{"t": {"0": 130}}', rows=30)) == (
        "etl, batch 3, 1.2 s: 30 rows (t-0 100 to 130), nothing waits"
    )


def test_a_batch_is_described_in_one_line_with_reads_and_backlog() -> None:
    assert describe_batch(TWO) == (
        "etl, batch 3, 1.2 s: 40 rows (t-0 10 to 30, t-1 5 to 25), 60 wait, 3 s at this speed (60 in t-0)"
    )


def test_only_the_partitions_with_the_largest_counts_are_named() -> None:
    end = ", ".join(f'"{n}": {n + 1}' for n in range(9))
    line = describe_batch(progress('{"t": {}}', f'{{"t": {{{end}}}}}', f'{{"t": {{{end}}}}}'))
    assert "(t-5 0 to 6, t-6 0 to 7, t-7 0 to 8, t-8 0 to 9, 5 more)" in line


def test_a_query_without_a_name_is_called_by_its_id() -> None:
    assert describe_batch(progress("{}", "{}", "{}", name=None)).startswith("query 5b1c0a52, batch 3")


@pytest.mark.parametrize("offset", [None, "17", '{"sourceVersion": 1, "reservoirVersion": 4}', "not JSON"])
def test_sources_of_other_kinds_are_only_counted(offset: str | None) -> None:
    progress_of_another_kind = progress(offset, offset, offset)
    assert behind(progress_of_another_kind) == []
    assert describe_batch(progress_of_another_kind) == "etl, batch 3, 1.2 s: 40 rows"


def test_a_query_without_progress_has_no_lag() -> None:
    assert behind(None) == []


def test_four_partitions_are_named_without_a_rest() -> None:
    end = ", ".join(f'"{n}": {n + 1}' for n in range(4))
    line = describe_batch(progress('{"t": {}}', f'{{"t": {{{end}}}}}', f'{{"t": {{{end}}}}}'))
    assert "(t-0 0 to 1, t-1 0 to 2, t-2 0 to 3, t-3 0 to 4), nothing waits" in line


def test_a_source_without_partitions_has_no_metrics() -> None:
    [source] = behind(progress("{}", "{}", "{}"))
    assert (source.metrics, source.seconds) == ({}, 0.0)
