"""Large answers as tuples: `decode_flat` against our own objects, and against kio, which decodes in Rust.

    python -m benchmarks.experiments.flat_tuples [--rounds 15]

A figure is the median over the rounds in microseconds of CPU, a ratio the median of the ratios within a
round: above 1 where flat is faster. The messages: a group of 100 members, with and without static ids; 1000
topics of 10 partitions on 12 brokers; 500 partitions without news, and 10 with 2 KB of records each.

The goal was 1.2 times kio for each of the three in its newest and in an older version. It is reached, for
fetches of topic ids (13 and later) only just, and not in fetches of old versions: there kio takes 0.3
microseconds for a partition, which is what `struct` needs for its numbers alone.

What was tried and lost against the loop over the rows of `iter_unpack`, in times as fast for 10 and 50 or
more elements: `zip` over the values of all elements in a row (1.0 and 1.2, but each new number of elements
needs a `Struct` of its own), comparing all lengths by a second unpacking (0.9 and 1.0), five elements in one
turn of the loop (1.0), keeping each list of numbers by itself and not all of an element's together (1.0).
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


def group(version: int, static: bool = False) -> JoinGroupResponse:
    ids = [f"consumer-{number:06d}-3c2ef0f4-91b5-4f02-a8d1-0c5a7f{number:06d}" for number in range(100)]
    members = [
        JoinGroupResponseMember(
            member_id=member_id,
            group_instance_id=f"instance-{number:06d}" if static else None,
            metadata=bytes(number + at & 0xFF for at in range(100)),
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


def cluster(version: int) -> MetadataResponse:
    topics: list[MetadataResponseTopic] = []
    for number in range(1000):
        partitions: list[MetadataResponsePartition] = []
        for index in range(10):
            # Kafka spreads them like this: the followers are further off with every round of the brokers.
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


def fetched(version: int, topics: int = 50, partitions: int = 10, records: bytes = b"") -> FetchResponse:
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
    """What it is, its class, the version, the bytes, whether it has to reach the goal."""
    found: list[tuple[str, Message, int, bool]] = []
    for version in (9, 6, 5):
        found.append(("100 members", group(version), version, version > 5))
    for version in (9, 5):
        found.append(("100 static members", group(version, static=True), version, False))
    for version in (13, 9, 5):
        found.append(("10000 partitions", cluster(version), version, True))
    for version in (18, 13, 12, 11):
        found.append(("500 partitions without news", fetched(version), version, version > 12))
    for version in (18, 12):
        found.append(("10 partitions of 2 KB", fetched(version, 2, 5, bytes(2000)), version, False))
    return [(what, type(m), version, m.encode(version), goal) for what, m, version, goal in found]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    print(report.machine("kio"))
    reached: list[tuple[str, float, float]] = []
    report.header(
        "message", "what", "version", "bytes", "objects µs", "flat µs", "kio µs", "x objects", "x kio"
    )
    for what, cls, version, data, goal in cases():
        theirs, _ = kio(cls, version)
        if decode_flat(cls, data, version) != flatten(cls.decode(data, version)):
            raise SystemExit(f"{cls.__name__} v{version}: flat reads something else")
        candidates: dict[str, Any] = {
            "objects": lambda c=cls, d=data, v=version: c.decode(d, v),
            "flat": lambda c=cls, d=data, v=version: decode_flat(c, d, v),
            "kio": lambda f=theirs, d=data: f(d),
        }
        gc.collect()
        taken = report.measure(candidates, rounds)
        times = [f"{statistics.median(taken[name]) * 1e6:.1f}" for name in candidates]
        faster = report.ratio(taken, "flat", "kio")
        report.row(
            cls.__name__, what, version, len(data), *times, report.ratio(taken, "flat", "objects"), faster
        )
        if goal:
            reached.append((f"{cls.__name__} v{version} x kio", faster, GOAL))
    report.goals(reached)


if __name__ == "__main__":
    main()
