"""The offset at which a claim starts: OffsetFetch, its errors, and Offsets.Initial."""

from __future__ import annotations

import pytest

from tests.models.sarama.stage import (
    add_second_member,
    inject_offset_fetch_errors,
    requests_of,
    stage_with_client,
    stage_with_member,
    time_of_request,
)
from tests.rules import rule


def test_offsets_are_fetched_one_by_one_without_require_stable() -> None:
    _, a = stage_with_member()
    assert requests_of(a, "OffsetFetch") == [
        "OffsetFetch v8 stable=False t:0 -> 0 t:0@-1",
        "OffsetFetch v8 stable=False t:1 -> 0 t:1@-1",
    ]


def test_read_committed_requires_stable_offsets() -> None:
    _, a = stage_with_member(isolation="read_committed")
    assert requests_of(a, "OffsetFetch")[0].startswith("OffsetFetch v8 stable=True")


@rule("M62")
@pytest.mark.parametrize("code", [15, 16])
def test_a_fetch_that_fails_with_a_moved_coordinator_looks_it_up_again(code: int) -> None:
    # TestOffsetManagerFetchInitialFail
    stage, a = stage_with_client()
    inject_offset_fetch_errors(a, code)
    a.run_command("subscribe t")
    stage.run(until=lambda: a.has_printed("assigned"))
    lines = requests_of(a, "OffsetFetch", "Find")
    assert [line.split()[0] for line in lines] == [
        "Find",
        "Find",
        "OffsetFetch",
        "Find",
        "OffsetFetch",
        "OffsetFetch",
    ]
    assert time_of_request(a, "OffsetFetch", 1) - time_of_request(a, "OffsetFetch", 0) >= 250


@rule("M62")
def test_a_fetch_during_loading_waits_and_repeats_the_request() -> None:
    # TestOffsetManagerFetchInitialLoadInProgress, TestOffsetManagerFetchInitialTopLevelErr
    stage, a = stage_with_client()
    inject_offset_fetch_errors(a, 14)
    a.run_command("subscribe t")
    stage.run(until=lambda: a.has_printed("assigned"))
    assert len(requests_of(a, "Find")) == 2
    assert time_of_request(a, "OffsetFetch", 1) - time_of_request(a, "OffsetFetch", 0) >= 250


def test_a_failed_fetch_releases_without_cleanup_after_metadata_retry_max() -> None:
    stage, a = stage_with_client()
    inject_offset_fetch_errors(a, *[14] * 4)
    a.run_command("subscribe t")
    stage.run(until=lambda: a.has_printed("error"))
    assert a.has_printed("error KError(14)")
    assert not a.has_printed("revoked")
    assert len(requests_of(a, "OffsetFetch")) == 4


@pytest.mark.parametrize("code", [22, 25, 27])
def test_other_errors_of_the_fetch_end_the_session_immediately(code: int) -> None:
    stage, a = stage_with_client()
    inject_offset_fetch_errors(a, code)
    a.run_command("subscribe t")
    stage.run(until=lambda: a.has_printed("assigned"))
    assert a.has_printed(f"error KError({code})")
    assert requests_of(a, "Join")[2].startswith("Join v8 id=A1 ")


def test_without_a_commit_a_claim_starts_at_the_initial_offset() -> None:
    # TestPartitionOffsetManagerInitialOffset, TestConsumerOffsetNewest, TestConsumerOffsetOldest
    stage, a = stage_with_client(reset="latest")
    a.run_command("subscribe t")
    stage.run(2_000)
    stage.produce("t", [0], 3)
    stage.run(1_000)
    assert [record.offset for record in a.records] == [5, 6, 7]


def test_the_next_session_starts_at_the_committed_offset() -> None:
    # TestPartitionOffsetManagerNextOffset
    stage, a = stage_with_member()
    stage.run(500)
    a.run_command("close")
    stage.run(2_000)
    stage.produce("t", [0, 1], 2)
    b = add_second_member(stage)
    assert sorted((record.partition.partition, record.offset) for record in b.records) == [
        (0, 5),
        (0, 6),
        (1, 5),
        (1, 6),
    ]
