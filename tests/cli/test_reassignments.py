"""`kproto cluster propose`, `reassign`, `verify` and `reassignments` move partitions to other brokers."""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from consumer import PartitionReassignment, TopicPartition
from kproto.cli import reassignments
from kproto.cli.reassignments import spread
from kproto.errors import ConfigError
from tests.cli.stage import Shell


def plan(topic: str, *replicas: list[int], **fields: object) -> str:
    """Return a plan in Kafka's JSON format, with one list of `replicas` for each partition."""
    partitions = [
        {"topic": topic, "partition": number, "replicas": nodes, **fields}
        for number, nodes in enumerate(replicas)
    ]
    return json.dumps({"version": 1, "partitions": partitions})


def test_a_reassignment_prints_its_plan(shell: Shell) -> None:
    shell("topics create moved")
    assert shell("cluster reassign moved:0=1,2") == ["moved-0 on 1: move to 1,2"]
    assert shell("cluster reassign moved:0=cancel") == ["moved-0 on 1: cancel the move"]
    assert shell("cluster reassign moved:0=1 --cancel") == ["moved-0 on 1: cancel the move"]
    assert shell("cluster reassignments") == ["No partition reassignments found."]
    assert shell.json("cluster reassignments moved") == []


def test_a_proposed_plan_is_executed_and_verified(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell("topics create spread --partitions 2")
    [proposed] = shell.json("cluster propose spread")
    assert proposed["partitions"] == [
        {"topic": "spread", "partition": number, "replicas": [1], "log_dirs": ["any"]} for number in (0, 1)
    ]
    text = json.dumps(proposed)
    assert shell("cluster propose spread --brokers 1") == [
        "Current partition replica assignment",
        text,
        "",
        "Proposed partition reassignment configuration",
        text,
    ]
    file = tmp_path / "plan.json"
    file.write_text(text)
    assert shell(f"cluster reassign --file {file} --execute") == [
        "The replicas before the moves, for `reassign --file`:",
        text,
        "spread-0: started the move",
        "spread-1: started the move",
    ]
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert shell("cluster verify --file -") == [
        "Status of partition reassignment:",
        "Reassignment of partition spread-0 is completed.",
        "Reassignment of partition spread-1 is completed.",
    ]


def test_a_move_that_is_not_completed_fails_the_verification(shell: Shell) -> None:
    shell("topics create waits")
    assert shell("cluster verify waits:0=1,2", code=1)[1:] == [
        "Reassignment of partition waits-0 is not active, and its replicas are 1 instead of 1,2."
    ]
    assert shell.json("cluster verify waits:0=1") == [{"topic": "waits", "partition": 0, "completed": True}]


def test_a_move_in_progress_is_not_completed_although_its_new_replicas_exist() -> None:
    assert reassignments._move_state([1, 2], [1, 2], is_moving=True) == "is still in progress."
    assert reassignments._move_state([1, 2], [1, 2], is_moving=False) == "is completed."


def test_moves_in_progress_are_listed_with_the_brokers_that_they_add_and_remove(
    capsys: pytest.CaptureFixture[str],
) -> None:
    moves = {
        TopicPartition("t", 1): PartitionReassignment((3, 1), (3,), (1,)),
        TopicPartition("t", 0): PartitionReassignment((1, 2), (), ()),
    }
    reassignments._print_moves(moves, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "Current partition reassignments:",
        "t-0: replicas: 1,2.",
        "t-1: replicas: 3,1. adding: 3. removing: 1.",
    ]
    reassignments._print_moves(moves, as_json=True)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first == {
        "topic": "t",
        "partition": 0,
        "replicas": [1, 2],
        "addingReplicas": [],
        "removingReplicas": [],
    }
    assert (second["addingReplicas"], second["removingReplicas"]) == ([3], [1])


def test_a_move_that_the_broker_rejects_is_an_error(shell: Shell) -> None:
    shell("topics create stays")
    before = f"The replicas before the moves, for `reassign --file`:\n{plan('stays', [1], log_dirs=['any'])}"
    assert shell("cluster reassign stays:0=1,2 --execute", code=1) == before.splitlines()
    assert "INVALID_REPLICA_ASSIGNMENT" in shell.errors
    shell("cluster reassign stays:0=cancel --execute", code=1)
    assert "NO_REASSIGNMENT_IN_PROGRESS" in shell.errors


def test_the_moves_that_began_are_printed_although_others_fail(shell: Shell) -> None:
    shell("topics create mixed --partitions 2")
    words = "cluster reassign mixed:0=1 mixed:1=7 --execute"
    assert shell(words, code=1) == [
        "The replicas before the moves, for `reassign --file`:",
        plan("mixed", [1], [1], log_dirs=["any"]),
        "mixed-0: started the move",
    ]
    assert "INVALID_REPLICA_ASSIGNMENT" in shell.errors
    assert shell.json(words, code=1) == [{"topic": "mixed", "partition": 0, "done": "started"}]


def test_a_partition_that_does_not_exist_is_not_moved(shell: Shell) -> None:
    shell("topics create small")
    for execute in ("", " --execute"):
        assert shell(f"cluster reassign small:0=1 small:4=1{execute}", code=1) == []
        assert shell.errors == "kproto cluster reassign: partition small-4 does not exist\n"


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        ("reassign t:0=x", "TOPIC:P=NODES='t:0=x' is not allowed; allowed: a partition and its brokers"),
        (
            "reassign t:0=2147483648",
            "TOPIC:P=NODES='t:0=2147483648' is not allowed; allowed: a partition",
        ),
        (
            "reassign t:2147483648=1",
            "TOPIC:P=NODES='t:2147483648=1' is not allowed; allowed: a partition",
        ),
        ("reassign t:0=1,1", "TOPIC:P=NODES='t:0=1,1' is not allowed; allowed: a partition and its brokers"),
        ("reassign", "allowed: TOPIC:P=NODES or --file"),
        ("reassignments t:2147483648", "allowed: a topic, or TOPIC:P,P for some of its partitions"),
        ("reassign t:0=1 t:0=2", "allowed: each partition once"),
        ("reassign --file /no/such/file", "allowed: a readable file"),
        ("verify t:0=cancel", "TOPIC:P=NODES='t-0=cancel' is not allowed; allowed: the partition's target"),
        ("propose t --brokers 1,1", "'1,1' is not a list of different node ids"),
        ("propose t --brokers 2147483648", "'2147483648' is not a list of different node ids"),
        ("propose t --brokers 7", "--brokers='7' is not allowed; allowed: 1"),
    ],
)
def test_invalid_arguments_are_named(shell: Shell, words: str, allowed: str) -> None:
    shell("topics create t --if-not-exists")
    shell(f"cluster {words}", code=2)
    assert allowed in shell.errors


@pytest.mark.parametrize(
    "text",
    [
        "no JSON",
        "[]",
        '{"version": 2, "partitions": []}',
        '{"version": 1}',
        plan("t", []),
        plan("t", ["1"]),  # type: ignore[list-item]
        plan("t", [-1]),
        plan("t", [2**31]),
        plan("t", [1, 1]),
        plan("t", [1], partition=-1),
        plan("", [1]),
        plan("t", [1], log_dirs=["/data"]),
        plan("t"),
    ],
)
def test_an_invalid_file_is_named(shell: Shell, tmp_path: Path, text: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    shell(f"cluster reassign --file {file}", code=2)
    assert f"--file='{file}'" in shell.errors or "at least one partition" in shell.errors


@pytest.mark.parametrize(("brokers", "factor"), [(3, 2), (4, 3), (5, 3), (1, 1), (6, 6)])
def test_replicas_are_spread_evenly(brokers: int, factor: int) -> None:
    partitions = brokers * max(brokers - 1, 1)
    placed = spread(
        {TopicPartition("t", n): factor for n in range(partitions)}, list(range(1, brokers + 1)), {}
    )
    assert all(len(set(nodes)) == factor for nodes in placed.values())
    first = Counter(nodes[0] for nodes in placed.values())
    every = Counter(node for nodes in placed.values() for node in nodes)
    assert set(first.values()) == {partitions // brokers}
    assert set(every.values()) == {partitions * factor // brokers}


def test_replicas_of_a_partition_are_in_different_racks() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    placed = spread({TopicPartition("t", n): 3 for n in range(12)}, list(racks), racks)
    assert all({racks[node] for node in nodes} == {"a", "b", "c"} for nodes in placed.values())
    assert set(Counter(nodes[0] for nodes in placed.values()).values()) == {2}
    # More replicas than racks: all racks are used, and no broker is used twice.
    placed = spread({TopicPartition("t", n): 4 for n in range(6)}, list(racks), racks)
    assert all({racks[node] for node in nodes} == {"a", "b", "c"} for nodes in placed.values())
    assert all(len(set(nodes)) == 4 for nodes in placed.values())


P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("racks", "chosen", "is_rack_aware", "placed"),
    [
        ({1: "a", 2: "a", 3: "b", 4: "b"}, None, True, [[1, 3], [3, 2]]),
        ({1: "a", 2: "a", 3: "b", 4: "b"}, None, False, [[1, 2], [2, 3]]),
        ({1: None, 2: None, 3: None}, [3, 2], True, [[2, 3], [3, 2]]),
        # Broker 4 has no rack. The plan is still rack-aware, because it uses only brokers 1 to 3.
        ({1: "a", 2: "a", 3: "b", 4: None}, [1, 2, 3], True, [[1, 3], [3, 2]]),
        ({1: "a", 2: "a", 3: "b", 4: None}, None, False, [[1, 2], [2, 3]]),
    ],
)
def test_a_plan_keeps_the_numbers_of_replicas_and_uses_racks_that_all_brokers_have(
    racks: dict[int, str | None], chosen: list[int] | None, is_rack_aware: bool, placed: list[list[int]]
) -> None:
    before = {P0: (9, 8), P1: (8, 9)}
    proposed = reassignments._propose_replicas(before, racks, chosen, is_rack_aware=is_rack_aware)
    assert [proposed[P0], proposed[P1]] == placed


@pytest.mark.parametrize(
    ("racks", "replicas", "message"),
    [
        (
            {1: "a", 2: None, 3: None},
            1,
            "--brokers='1,2,3' is not allowed; brokers 2,3 have no rack; add --disable-rack-aware",
        ),
        ({1: None, 2: None}, 3, "at least 3 brokers, because a partition has 3 replicas"),
    ],
)
def test_a_plan_that_ignores_racks_or_loses_replicas_is_rejected(
    racks: dict[int, str | None], replicas: int, message: str
) -> None:
    before = {P0: (1,), P1: (1,) * replicas}
    with pytest.raises(ConfigError) as caught:
        reassignments._propose_replicas(before, racks, None, is_rack_aware=True)
    assert message in str(caught.value)


def test_a_plan_for_a_topic_without_partitions_is_empty() -> None:
    assert reassignments._propose_replicas({}, {1: None}, None, is_rack_aware=True) == {}
