"""Records without a key go to the partitions that Java's BuiltInPartitioner selects (KIP-794, KIP-1123)."""

from __future__ import annotations

import os
import subprocess
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from consumer.engine.producer.accumulator import RecordAccumulator
from consumer.engine.producer.batches import NO_BATCH
from consumer.options import producer_options
from kproto.errors import ConfigError
from kproto.group.subscription import TopicPartition
from kproto.messages.index import KAFKA_RELEASE
from tests.conformance import judges

pytestmark = pytest.mark.java

DRAWS = 20_000
# The number of standard deviations by which Java's draws may differ from kproto's probabilities. With 1,000
# compared numbers, a random deviation exceeds this limit once in 500,000 runs.
DEVIATIONS = 6
RACKS = ["a", "b", "", "-"]


class Case(NamedTuple):
    """The options of a producer, and for each partition the leader's rack and the number of waiting batches.

    The rack is "-" for a partition without a leader, and "" for a leader without a rack.
    """

    is_rack_aware: bool
    rack: str
    partitions: list[tuple[str, int]]


def drawn_cases(seed: int, count: int) -> list[Case]:
    random = Random(seed)
    cases: list[Case] = []
    for _ in range(count):
        sizes = random.choice([[0], [0, 1, 4], [0, 0, 9, 20]])
        partitions = [(random.choice(RACKS), random.choice(sizes)) for _ in range(random.randint(1, 6))]
        cases.append(Case(random.random() < 0.8, random.choice(["a", "a", "b", "c", "", " "]), partitions))
    return cases


def draws_of_java(cases: list[Case], folder: Path) -> list[list[int] | None]:
    """Return for each case how often Java selects each partition, or None if it rejects the options."""
    source = Path(__file__).parent / "java" / "StickyPartitions.java"
    lines = [
        "\t".join([str(case.is_rack_aware), case.rack, *(f"{rack}\t{n}" for rack, n in case.partitions)])
        for case in cases
    ]
    run = [judges.java(), "-cp", judges.kafka_jars(KAFKA_RELEASE), str(source)]
    text = "\n".join(lines)
    done = subprocess.run(run, input=text, capture_output=True, text=True, cwd=folder, check=True)
    return [
        None if line == "refused" else [int(number) for number in line.split("\t")]
        for line in done.stdout.splitlines()
    ]


def probabilities_of_kproto(case: Case) -> list[float] | None:
    """Return the probability of each partition, or None if the options are rejected."""
    config = {"partitioner_rack_aware": case.is_rack_aware, "client_rack": case.rack}
    try:
        options = producer_options(config)
    except ConfigError:
        return None
    records = RecordAccumulator(options, Random(1), lambda: 0)
    with_leader = [index for index, (rack, _) in enumerate(case.partitions) if rack != "-"]
    in_rack = [index for index in with_leader if case.partitions[index][0] == case.rack]
    records.set_route("t", len(case.partitions), with_leader, in_rack if case.is_rack_aware else ())
    for index in with_leader:
        records.queues[TopicPartition("t", index)].waiting.extend([NO_BATCH] * case.partitions[index][1])
    route = records.routes["t"]
    records.change_sticky_partition(route)
    probabilities = [0.0] * len(case.partitions)
    weights = route.cumulative_weights
    for queue, (before, after) in zip(route.candidates, pairwise([0, *weights]), strict=True):
        probabilities[queue.partition.partition] = (after - before) / weights[-1]
    return probabilities


def is_like_java(probabilities: list[float] | None, drawn: list[int] | None) -> bool:
    if probabilities is None or drawn is None:
        return probabilities is drawn
    return all(
        abs(number - DRAWS * probability)
        <= DEVIATIONS * (DRAWS * probability * (1 - probability)) ** 0.5 + 1e-6
        for number, probability in zip(drawn, probabilities, strict=True)
    )


def test_java_selects_each_partition_with_the_same_probability(tmp_path: Path) -> None:
    seed = int(os.environ.get("KPROTO_SEED", "7"))
    cases = drawn_cases(seed, 250)
    java = draws_of_java(cases, tmp_path)
    ours = [probabilities_of_kproto(case) for case in cases]
    assert 20 < ours.count(None) < 100
    wrong = [
        (case, drawn, probabilities)
        for case, drawn, probabilities in zip(cases, java, ours, strict=True)
        if not is_like_java(probabilities, drawn)
    ]
    assert wrong == [], f"KPROTO_SEED={seed}"
