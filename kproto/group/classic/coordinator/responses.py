"""Answers about partitions, gathered by topic as brokers gather them (OffsetCommitResponse.Builder).

Rules that hold here:

* What doesn't exist is told first, one entry for each topic; the rest goes into the same entries.
* Where all exist, each topic of the request has its own entry, even one that is in the request twice.
* A topic without partitions is not told of.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any
from uuid import UUID

from ....messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ....messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ....wire.types import ZERO_UUID

Told = tuple[int, list[tuple[int, int]]]
"""The number of a topic in a request, and its partitions with their codes."""


def gathered(topics: Sequence[Any], codes: Sequence[int], there: Collection[int]) -> list[Told]:
    """The answer to a request about these topics; `codes` are those of all its partitions in their order,
    and `there` are the positions of partitions that exist.
    """
    first: dict[tuple[str, UUID], int] = {}
    missing: dict[int, list[tuple[int, int]]] = {}
    rest: list[Told] = []
    position = 0

    def entry(number: int) -> list[tuple[int, int]]:
        topic = topics[number]
        key = (topic.name, getattr(topic, "topic_id", ZERO_UUID))
        return missing.setdefault(first.setdefault(key, number), [])

    for number, topic in enumerate(topics):
        found: list[tuple[int, int]] = []
        for partition in topic.partitions:
            told = (partition.partition_index, codes[position])
            (found if position in there else entry(number)).append(told)
            position += 1
        if found:
            rest.append((number, found))
    if not missing:
        return rest
    for number, found in rest:
        entry(number).extend(found)
    return list(missing.items())


def everywhere(topics: Sequence[Any], code: int) -> list[Told]:
    """One code for all that a request names, each topic as it stands there."""
    return [
        (number, [(partition.partition_index, code) for partition in topic.partitions])
        for number, topic in enumerate(topics)
    ]


def commit_response(request: OffsetCommitRequest, told: Iterable[Told]) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=request.topics[number].name,
                topic_id=request.topics[number].topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=index, error_code=code)
                    for index, code in partitions
                ],
            )
            for number, partitions in told
        ]
    )


def txn_commit_response(request: TxnOffsetCommitRequest, told: Iterable[Told]) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            TxnOffsetCommitResponseTopic(
                name=request.topics[number].name,
                partitions=[
                    TxnOffsetCommitResponsePartition(partition_index=index, error_code=code)
                    for index, code in partitions
                ],
            )
            for number, partitions in told
        ],
    )
