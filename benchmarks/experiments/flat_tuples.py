"""Compare large responses decoded as plain tuples (`decode_flat`) with message objects and with kio.

    python -m benchmarks.experiments.flat_tuples [--rounds 15]

Times are medians over the rounds in microseconds of CPU. A ratio is computed for each round, and its median
is printed; above 1, tuples are faster. kio decodes in Rust.

The messages describe a group of 100 members with and without static ids, and 1,000 topics of 10 partitions on
12 brokers. Fetch responses have 500 empty partitions, or 10 partitions with 2 KB of records each.

The goal is 1.2 times the speed of kio for the newest version and an older version of each message. Fetch with
topic ids (version 13 and later) reaches the goal without a margin. Older versions of Fetch miss it: with them
kio needs 0.3 microseconds per partition, as long as `struct` takes for the numbers alone.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import uuid
from typing import Any

from kproto.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kproto.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kproto.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kproto.wire import ZERO_UUID, Message
from kproto.wire.flat_tuples import decode_flat, flatten

from .. import report
from ..codec import kio

BROKERS = 12
GOAL = 1.2


def join_group_response(static: bool = False) -> JoinGroupResponse:
    ids = [f"consumer-{number:06d}-3c2ef0f4-91b5-4f02-a8d1-0c5a7f{number:06d}" for number in range(100)]
    members = [
        JoinGroupResponseMember(
            member_id=member_id,
            group_instance_id=f"instance-{number:06d}" if static else None,
            metadata=bytes(number + position & 0xFF for position in range(100)),
        )
        for number, member_id in enumerate(ids)
    ]
    return JoinGroupResponse(
        error_code=0,
        generation_id=7,
        protocol_name="cooperative-sticky",
        leader=ids[0],
        member_id=ids[0],
        members=members,
    )


def metadata_response(version: int) -> MetadataResponse:
    topics: list[MetadataResponseTopic] = []
    for number in range(1000):
        partitions: list[MetadataResponsePartition] = []
        for index in range(10):
            # Kafka assigns replicas in the same way: the distance to the followers grows with every round of
            # brokers.
            first, shift = number + index, 1 + (number + index) // BROKERS % (BROKERS - 2)
            replicas = [first % BROKERS, (first + shift) % BROKERS, (first + shift + 1) % BROKERS]
            partitions.append(
                MetadataResponsePartition(
                    error_code=0,
                    partition_index=index,
                    leader_id=replicas[0],
                    leader_epoch=index if version >= 7 else -1,
                    replica_nodes=replicas,
                    isr_nodes=sorted(replicas) if index % 3 == 0 else replicas,
                )
            )
        topics.append(
            MetadataResponseTopic(
                error_code=0,
                name=f"flights.departures.{number:05d}",
                topic_id=uuid.UUID(int=number + 1 << 64 | 7) if version >= 10 else ZERO_UUID,
                partitions=partitions,
            )
        )
    brokers = [
        MetadataResponseBroker(node_id=number, host=f"broker-{number}.kafka.svc", port=9092)
        for number in range(BROKERS)
    ]
    return MetadataResponse(
        brokers=brokers, cluster_id="Sr7mMzKSQ5WbVYYSC7rNXQ", controller_id=1, topics=topics
    )


def fetch_response(
    version: int, topics: int = 50, partitions: int = 10, records: bytes = b""
) -> FetchResponse:
    return FetchResponse(
        throttle_time_ms=0,
        session_id=7,
        responses=[
            FetchableTopicResponse(
                topic="" if version >= 13 else f"flights.departures.{number:05d}",
                topic_id=uuid.UUID(int=number + 1 << 64 | 7) if version >= 13 else ZERO_UUID,
                partitions=[
                    PartitionData(
                        partition_index=index,
                        error_code=0,
                        high_watermark=1_700_000_000 + index * 977,
                        last_stable_offset=1_700_000_000 + index * 977,
                        log_start_offset=1_600_000_000,
                        aborted_transactions=None,
                        records=records,
                    )
                    for index in range(partitions)
                ],
            )
            for number in range(topics)
        ],
    )


def cases() -> list[tuple[str, type[Message], int, bytes, bool]]:
    """Return for each message: description, class, version, bytes, and whether the goal applies to it."""
    messages: list[tuple[str, Message, int, bool]] = []
    for version in (9, 6, 5):
        messages.append(("100 members", join_group_response(), version, version > 5))
    for version in (9, 5):
        messages.append(("100 static members", join_group_response(static=True), version, False))
    for version in (13, 9, 5):
        messages.append(("10,000 partitions", metadata_response(version), version, True))
    for version in (18, 13, 12, 11):
        messages.append(("500 empty partitions", fetch_response(version), version, version > 12))
    for version in (18, 12):
        messages.append(("10 partitions of 2 KB", fetch_response(version, 2, 5, bytes(2000)), version, False))
    return [
        (description, type(message), version, message.encode(version), has_goal)
        for description, message, version, has_goal in messages
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    print(report.machine("kio"))
    results: list[tuple[str, float, float]] = []
    report.header(
        "message", "content", "version", "bytes", "objects µs", "flat µs", "kio µs", "x objects", "x kio"
    )
    for description, cls, version, data, has_goal in cases():
        kio_decode, _ = kio(cls, version)
        if decode_flat(cls, data, version) != flatten(cls.decode(data, version)):
            raise SystemExit(f"{cls.__name__} v{version}: decode_flat and decode differ")
        candidates: dict[str, Any] = {
            "objects": lambda c=cls, d=data, v=version: c.decode(d, v),
            "flat": lambda c=cls, d=data, v=version: decode_flat(c, d, v),
            "kio": lambda f=kio_decode, d=data: f(d),
        }
        gc.collect()
        timings = report.measure(candidates, rounds)
        medians = [f"{statistics.median(timings[name]) * 1e6:.1f}" for name in candidates]
        kio_ratio = report.ratio(timings, "flat", "kio")
        report.row(
            cls.__name__,
            description,
            version,
            len(data),
            *medians,
            report.ratio(timings, "flat", "objects"),
            kio_ratio,
        )
        if has_goal:
            results.append((f"{cls.__name__} v{version} x kio", kio_ratio, GOAL))
    report.goals(results)


if __name__ == "__main__":
    main()
