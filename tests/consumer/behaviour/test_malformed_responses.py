"""Malformed responses to a producer and an `Admin`: the reported results are correct, and the clients
recover.

For a minute the brokers' responses to one API are wrong in one way: they cannot be decoded, reject the login,
lack an entry, repeat an entry, or contain an entry for another topic or partition.

Every call ends, no broker is flooded with requests, and both clients work again afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from consumer.engine.admin import cluster as cluster_plans
from consumer.engine.admin import group_changes as group_plans
from consumer.engine.admin import offsets as offset_plans
from consumer.engine.admin import records as record_plans
from consumer.engine.admin import topics as topic_plans
from consumer.engine.admin.plan import Plan
from kproto.errors import KprotoError
from kproto.records import Record, encode_batch
from tests.broker.stage import classic_coordinator
from tests.consumer.behaviour.hostile_brokers import (
    FIRST,
    MOST,
    check_producer_recovers,
    check_transactions_recover,
)
from tests.consumer.behaviour.malformed_responses import (
    Malformation,
    MalformedWorld,
    malformations,
)
from tests.consumer.behaviour.simulated_admin import SimulatedAdmin
from tests.consumer.stage import tp

# ---- producers

WRITES = malformations("ApiVersions", "Metadata", "InitProducerId", "Produce")


@given(change=st.sampled_from(WRITES), late=st.booleans())
@example(change=("Produce", "", "cut"), late=True)
@example(change=("Produce", "responses.partition_responses", "left out"), late=False)
def test_reports_of_a_producer_are_true_despite_malformed_responses(change: Malformation, late: bool) -> None:
    world = MalformedWorld(change)
    app = check_producer_recovers(world, late, 3)
    counts, offsets = world.values(), world.offsets()
    assert max(counts.values()) == 1
    for delivery, partition, value in app.sent:
        if delivery.exception() is None:
            assert delivery.result().offset in (offsets[partition, value], None)


TRANSACTIONS = malformations(
    "Metadata", "FindCoordinator", "InitProducerId", "Produce", "AddPartitionsToTxn", "AddOffsetsToTxn",
    "TxnOffsetCommit", "EndTxn",
)  # fmt: skip


@given(change=st.sampled_from(TRANSACTIONS), late=st.booleans(), second=st.booleans())
@example(change=("AddPartitionsToTxn", "results_by_topic_v3_and_below", "empty"), late=False, second=False)
@example(change=("EndTxn", "", "cut"), late=True, second=True)
def test_a_transaction_is_committed_once_despite_malformed_responses(
    change: Malformation, late: bool, second: bool
) -> None:
    check_transactions_recover(MalformedWorld(change, highest=None if second else FIRST), late, 3)


# ---- a cluster


T0, T1 = tp("t", 0), tp("t", 1)
BATCH = encode_batch([Record(0, 0, None, b"x")])
LEVEL = "read_uncommitted"
CALLS: dict[str, tuple[Callable[[SimulatedAdmin], Plan[Any]], list[str]]] = {
    "leader": (lambda a: cluster_plans.leader_of(a.view, T0, a.clock), ["Metadata"]),
    "list offsets": (
        lambda a: record_plans.list_offsets(
            a.view, {T0: "latest", T1: "earliest"}, a.clock, isolation=LEVEL, timeout_ms=5_000
        ),
        ["Metadata", "ListOffsets"],
    ),
    "epochs": (lambda a: record_plans.epoch_ends(a.view, {T0: 0, T1: 0}, a.clock), ["OffsetForLeaderEpoch"]),
    "produce": (
        lambda a: record_plans.produce(a.view, T1, BATCH, a.clock, acks=-1, timeout_ms=5_000),
        ["Produce"],
    ),
    "commit": (
        lambda a: offset_plans.commit_offsets(a.view, "h", {T0: (3, None, ""), T1: (4, None, "")}, a.clock),
        ["FindCoordinator", "OffsetCommit"],
    ),
    "committed": (
        lambda a: offset_plans.committed_offsets(a.view, "g", [T0, T1], a.clock),
        ["FindCoordinator", "OffsetFetch"],
    ),
    "create": (
        lambda a: topic_plans.create_topics(
            a.view,
            {"n": 2, "m": 1},
            a.clock,
            replication_factor=1,
            configs={},
            timeout_ms=5_000,
            exist_ok=True,
        ),
        ["Metadata", "CreateTopics"],
    ),
    "grow": (
        lambda a: topic_plans.create_partitions(a.view, {"u": 3}, a.clock, timeout_ms=5_000),
        ["Metadata", "CreatePartitions"],
    ),
    "delete": (
        lambda a: topic_plans.delete_topics(a.view, ["u", "v"], a.clock, timeout_ms=5_000),
        ["Metadata", "DeleteTopics"],
    ),
    "delete groups": (
        lambda a: group_plans.delete_groups(a.view, ["g"], a.clock),
        ["FindCoordinator", "DeleteGroups"],
    ),
}
CASES = [
    (call, change) for call, (_, apis) in CALLS.items() for change in malformations("ApiVersions", *apis)
]
# The calls that the client may repeat.
REPEATABLE = (
    "leader",
    "list offsets",
    "epochs",
    "produce",
    "commit",
    "committed",
)


def is_true(world: MalformedWorld, call: str, result: Any) -> bool:
    """Return whether the reported result of a call agrees with the cluster's state."""
    partitions, groups = world.partitions(), classic_coordinator(world.cluster).groups
    match call:
        case "leader":
            return bool(result == world._leader_or_first_up(T0))
        case "list offsets":
            return {
                partition: result_of_partition.offset for partition, result_of_partition in result.items()
            } == {T0: 3, T1: 0}
        case "epochs":
            return bool(result == {T0: 3, T1: 3})
        case "produce":
            return result in (3, 4) and world.log(T1).end_offset > result
        case "commit":
            return [world.committed("h", partition) for partition in (T0, T1)] == [3, 4]
        case "committed":
            return {
                partition: result_of_partition and result_of_partition.offset
                for partition, result_of_partition in result.items()
            } == {T0: 3, T1: 2}
        case "create":
            return {tp("n", 0), tp("n", 1), tp("m", 0)} <= set(partitions)
        case "grow":
            return tp("u", 2) in partitions
        case "delete":
            return not {"u", "v"} & {partition.topic for partition in partitions}
        case _:
            return "g" not in groups


@given(case=st.sampled_from(CASES), late=st.booleans())
@example(case=("delete", ("DeleteTopics", "", "undone")), late=False)
@example(case=("list offsets", ("ListOffsets", "topics.name", "another")), late=True)
def test_results_of_a_cluster_are_true_despite_malformed_responses(
    case: tuple[str, Malformation], late: bool
) -> None:
    call, change = case
    plan = CALLS[call][0]
    world = MalformedWorld(change)
    for name in ("u", "v"):
        world.create(name, 1)
    for partition in (0, 1):
        world.write("t", partition, "x", "y", "z")
    client = world._add_client(SimulatedAdmin(world))
    assert client.run(
        offset_plans.commit_offsets(client.view, "g", {T0: (3, None, ""), T1: (2, None, "")}, client.clock)
    )
    if not late:
        client.kill()
        client = world._add_client(SimulatedAdmin(world, "another"))
    world.bad = True
    earlier = len(world.requests)
    ended = client.run(plan(client))
    per = Counter(type(request).__name__ for _, request, _ in world.requests[earlier:])
    assert max(per.values(), default=0) <= 2 * MOST, per
    if ended.error is None:
        assert is_true(world, call, ended.value)
    else:
        assert isinstance(ended.error, KprotoError)
    world.bad = False
    world.run(2_000)
    if call in REPEATABLE:
        ended = client.run(plan(client))
        assert ended.error is None
        assert is_true(world, call, ended.value)
