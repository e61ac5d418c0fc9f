"""ConsumePartition in a group: the offsets that it requests."""

from __future__ import annotations

from tests.models.sarama.stage import requests_of, stage_with_member


def test_s3_13_both_ends_of_the_log_are_requested_for_each_partition() -> None:
    _, a = stage_with_member()
    assert requests_of(a, "ListOffsets") == [
        "ListOffsets v6 iso=0 t:0@-1 -> 0 t:0@5",
        "ListOffsets v6 iso=0 t:0@-2 -> 0 t:0@0",
        "ListOffsets v6 iso=0 t:1@-1 -> 0 t:1@5",
        "ListOffsets v6 iso=0 t:1@-2 -> 0 t:1@0",
    ]
