"""A run of a world (a simulated cluster) can be repeated from its seed, replayed and rewound, even with
faults.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import kproto.testing.world
from consumer.engine.positions import offset_lookup
from kproto.errors import ConfigError, IllegalState
from kproto.group.assignors import ASSIGNORS, Assignor
from kproto.models.common import OffsetToCommit, offset_commit_request
from kproto.models.index import load_model
from kproto.scenarios import group_life
from kproto.testing.invariants import ALWAYS, InvariantBroken, check
from kproto.testing.world import Stuck, World, tp
from tests.testing.world.stage import GROUP, mixed_run, two_members

# ---- time and repetition


def test_equal_seeds_give_identical_runs() -> None:
    assert mixed_run(3).digest() == mixed_run(3).digest()


def test_another_seed_gives_another_run() -> None:
    assert mixed_run(3).digest() != mixed_run(4).digest()


@pytest.mark.thorough
def test_a_run_is_the_same_in_every_process() -> None:
    """The same seed gives the same run in every process.

    The order of a set of strings differs between processes, so no result may depend on it.
    """
    program = "from tests.testing.world.stage import mixed_run; print(mixed_run(5).digest())"
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[3])},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1


def test_time_passes_while_nothing_happens() -> None:
    world, a, b = two_members(trace=False)
    start = world.now
    world.run(60_000)
    assert world.now - start == 60_000
    assert a.owned | b.owned == set(world.partitions())


def test_a_run_ends_when_its_condition_holds() -> None:
    world, a, _ = two_members()
    start = world.now
    world.write("t", min(a.owned).partition, "z")
    assert world.run(5_000, until=lambda: "z" in a.values())
    assert world.now - start < 100


def test_a_world_that_makes_no_progress_is_an_error() -> None:
    world = World()

    def repeat() -> None:
        world.push(world.now, repeat)

    world.call_later(5, repeat)
    with pytest.raises(Stuck, match="turns at 1000005 ms"):
        world.run(10)


def test_an_error_names_its_turn_and_seed() -> None:
    world = World(seed=9)

    def fail() -> None:
        raise ValueError("oh")

    world.call_later(5, fail)
    with pytest.raises(ValueError, match="oh") as raised:
        world.run(10)
    assert raised.value.__notes__ == ["in turn 1 at 1000005 ms of World(seed=9)"]


# ---- replay and rewind


def test_the_replay_of_a_world_is_identical() -> None:
    world = mixed_run(1)
    assert world.replay().digest() == world.digest()


def test_code_that_holds_the_original_world_is_not_replayed() -> None:
    """A replay raises IllegalState if a function refers to the original world, because the function would
    change that world.
    """
    world, a, _ = two_members()
    world.call_later(50, a.rejoin)
    world.run(100)
    digest = world.digest()
    with pytest.raises(IllegalState, match=r"rejoin\(\) is called on the original world during its replay"):
        world.replay()
    assert world.digest() == digest
    world.run(100)
    assert world.rewind(world.turns).turns == 0


def test_code_without_references_to_the_world_is_replayed() -> None:
    world, _, _ = two_members()
    done: list[int] = []
    world.call_later(50, lambda: done.append(1))
    world.run(100)
    assert world.replay().digest() == world.digest()
    assert done == [1, 1]


def test_rewind_returns_the_world_before_the_last_turn() -> None:
    world, _, _ = two_members()
    before = world.rewind()
    assert before.turns == world.turns - 1
    assert list(before.trace()) == list(world.trace())[: len(before.entries)]
    before.run(100)
    assert before.turns > world.turns - 1


def test_every_turn_can_be_replayed() -> None:
    world, _, _ = two_members()
    for turn in range(0, world.turns, 17):
        assert world.replay(turn).turns == turn


def test_a_saved_world_is_loaded_as_it_was(tmp_path: Path) -> None:
    world = mixed_run(2)
    world.save(tmp_path / "run.jsonl")
    assert World.load(tmp_path / "run.jsonl").digest() == world.digest()
    assert World.load(tmp_path / "run.jsonl", 40).turns == 40


def test_code_in_a_journal_is_not_saved(tmp_path: Path) -> None:
    world = World()
    world.call_later(1, lambda: None)
    with pytest.raises(ConfigError, match="a value that JSON can hold"):
        world.save(tmp_path / "run.jsonl")


def test_an_assignor_is_saved_by_name_and_passed_to_load(tmp_path: Path) -> None:
    mine = Assignor("mine", ASSIGNORS["range"].assign)
    world = World({"t": 2})
    world.join("a", topics=["t"], **{**GROUP, "partition_assignment_strategy": [mine, "range"]})
    world.run(2_000)
    world.save(tmp_path / "run.jsonl")
    assert World.load(tmp_path / "run.jsonl", assignors=[mine]).digest() == world.digest()
    with pytest.raises(ConfigError, match=r"assignors=\[\] is not allowed; an assignor named 'mine'"):
        World.load(tmp_path / "run.jsonl")


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (["hello"], "line 1"),
        (["[1]"], "line 1"),
        ([], "first line"),
        (['{"world": {}}'], "World.save"),
        (['{"world": {"latency": [1, 1], "sped": 3}}'], "World.save"),
        (
            ['{"world": {"latency": [1, 1]}}', '{"turn": 0, "on": "", "call": "save", "args": ["x"]}'],
            "method",
        ),
        (['{"world": {"latency": [1, 1]}}', '{"turn": 0, "on": "zz", "call": "close"}'], "zz"),
        (['{"world": {"latency": [1, 1]}}', '{"turn": 0, "on": "", "call": "replay_turns"}'], "World.save"),
        (['{"world": {"latency": {"$module": "os"}}}'], "World.save"),
    ],
)
def test_a_file_that_is_not_a_journal_is_rejected(lines: list[str], named: str, tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text("\n".join(lines))
    with pytest.raises(ConfigError, match=named):
        World.load(tmp_path / "run.jsonl")


def test_a_rejected_call_is_replayed_and_rejected_again(tmp_path: Path) -> None:
    world, _, _ = two_members()
    with pytest.raises(ConfigError, match="no client of this world"):
        world.join("a", **GROUP)
    with pytest.raises(ConfigError, match="partitions cannot be removed"):
        world.grow("t", 1)
    world.run(1_000)
    world.save(tmp_path / "run.jsonl")
    assert world.replay().digest() == World.load(tmp_path / "run.jsonl").digest() == world.digest()


def test_a_broken_invariant_can_be_rewound() -> None:
    """`rewind` returns the world as it was before the turn that broke the invariant."""
    world = World({"t": 1})
    a = world.join("a", topics=["t"], **GROUP)

    def nothing_is_delivered(world: World) -> None:
        assert not a.records

    world.watch(nothing_is_delivered)
    world.write("t", 0, "x")
    with pytest.raises(AssertionError):
        world.run()
    before = world.rewind()
    assert before.turns == world.turns - 1 > 10
    assert list(before.trace()) == list(world.trace())[: len(before.entries)]


def test_the_trace_has_requests_and_responses_as_json_lines() -> None:
    world, _, _ = two_members()
    lines = [json.loads(line) for line in world.trace()]
    assert [line["n"] for line in lines] == list(range(len(lines)))
    joins = [line for line in lines if line["what"] == "request" and line["api"] == "JoinGroup"]
    responses = [line for line in lines if line["what"] == "response" and line["api"] == "JoinGroup"]
    assert {line["who"] for line in joins} == {"a", "b"} == {line["who"] for line in responses}
    assert joins[0]["body"]["groupId"] == "g"


# ---- the network


def test_stalled_bytes_arrive_after_the_stall() -> None:
    world, a, _ = two_members()
    world.fault("stall", a, lasts=1_500)
    world.write("t", min(a.owned).partition, "late")
    world.run(1_400)
    assert "late" not in a.values()
    world.run(200)
    assert "late" in a.values()


def test_a_short_stall_loses_no_partitions() -> None:
    world, a, b = two_members()
    world.fault("stall", lasts=1_000)
    world.run(5_000)
    assert not a.changes_of("lost") + b.changes_of("lost") + a.changes_of("unreachable")


def test_a_stall_beyond_the_session_timeout_loses_the_partitions() -> None:
    world, a, b = two_members()
    world.fault("stall", a, lasts=10_000)
    world.run(9_000)
    assert b.owned == set(world.partitions())
    world.run(9_000)
    assert a.owned | b.owned == set(world.partitions())
    assert a.changes_of("lost")


def test_dropped_bytes_are_detected_by_a_timeout_only() -> None:
    world, a, _ = two_members()
    world.fault("drop", a, lasts=100)
    world.run(1_000)
    assert not a.changes_of("unreachable")
    world.run(10_000)
    assert a.owned


def test_a_cut_connection_is_reopened() -> None:
    world, a, _ = two_members()
    world.cut(a)
    world.write("t", min(a.owned).partition, "after")
    assert world.run(1_000, until=lambda: "after" in a.values())


def test_refused_connections_are_retried_until_they_succeed() -> None:
    world, a, _ = two_members()
    world.fault("refuse", a)
    world.cut(a)
    world.write("t", min(a.owned).partition, "after")
    world.run(1_000)
    assert "after" not in a.values()
    world.heal()
    assert world.run(3_000, until=lambda: "after" in a.values())


def test_a_half_closed_connection_is_detected() -> None:
    world, a, _ = two_members()
    world.fault("half_close", a)
    world.write("t", min(a.owned).partition, "after")
    assert not world.run(500, until=lambda: "after" in a.values())
    assert world.run(10_000, until=lambda: "after" in a.values())


@pytest.mark.parametrize(
    ("kind", "options"),
    [("smash", {}), ("delay", {"ms": -1}), ("drop", {"chance": 2.0}), ("stall", {"node": 7})],
)
def test_an_invalid_fault_is_rejected(kind: str, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        World().fault(kind, **options)


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("run", (-1,)),
        ("run", ("1s",)),
        ("replay", (-1,)),
        ("replay", (10**9,)),
        ("rewind", (-1,)),
        ("call_later", (-1, print)),
        ("watch", (5,)),
        ("join", (None,)),
        ("grow", ("t", "6")),
        ("write", ("t", 9, "x")),
        ("write", ("nope", 0, "x")),
        ("write", ("t", 0, 5)),
        ("append", ("t", 0, "x")),
        ("delete_before", ("t", 9, 0)),
        ("delete_topic", ("nope",)),
        ("stop_broker", (7,)),
        ("start_broker", (7,)),
        ("kill", ("zz",)),
    ],
)
def test_an_invalid_call_is_rejected_and_changes_nothing(call: str, arguments: tuple[Any, ...]) -> None:
    world = World({"t": 3})
    with pytest.raises(ConfigError, match=r"is not allowed; .{5}"):
        getattr(world, call)(*arguments)
    world.run(1)
    assert world.replay().digest() == world.digest()
    assert world.partitions() == [tp("t", 0), tp("t", 1), tp("t", 2)]
    assert not world.had_fault


@pytest.mark.parametrize(
    "arguments",
    [
        {"topics": {"t": "3"}},
        {"topics": "t"},
        {"topics": {"t": 0}},
        {"seed": None},
        {"brokers": 0},
        {"brokers": 1001},
        {"brokers": "2"},
        {"latency": 5},
        {"latency": (2, 1)},
    ],
)
def test_invalid_arguments_of_a_world_are_rejected(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"is not allowed; .{5}"):
        World(**arguments)


def test_the_example_of_the_package_runs() -> None:
    shown = re.findall(r"(?m)^    .*\n|^\n", inspect.getdoc(kproto.testing.world) or "")
    code = textwrap.dedent("".join(shown))
    assert "world.kill(b)" in code
    exec(code, {})


# ---- clients and brokers


def test_a_killed_client_is_removed_after_its_session_timeout() -> None:
    world, a, b = two_members()
    world.kill("b")
    world.run(2_000)
    assert len(a.owned) == 2
    assert world.run(5_000, until=lambda: a.owned == set(world.partitions()))
    assert not b.owned


def test_a_frozen_client_delivers_nothing_until_it_continues() -> None:
    world, a, _ = two_members()
    before = len(a.records)
    a.freeze(1_000)
    world.write("t", min(a.owned).partition, "z")
    world.run(999)
    assert len(a.records) == before
    assert world.run(100, until=lambda: "z" in a.values())


def test_a_client_name_is_unique() -> None:
    world, _, _ = two_members()
    with pytest.raises(ConfigError, match=r"no client of this world.*such as 'a-2'$"):
        world.join("a", **GROUP)


def test_a_client_has_a_name_also_with_an_empty_client_id() -> None:
    world = World({"t": 1})
    client = world.consumer(client_id="", **GROUP)
    assert client.name == "consumer-1"
    client.subscribe("t")
    world.run(3_000)
    assert "consumer-1" in group_life.page(world)
    with pytest.raises(ConfigError, match="name='' is not allowed; a name that is not empty"):
        world.join("", **GROUP)


def test_a_killed_client_restarts_as_another_process_with_the_same_client_id() -> None:
    world, a, _ = two_members()
    world.kill(a)
    with pytest.raises(ConfigError, match=r"such as 'a-2' with client_id='a', for its next process$"):
        world.join("a", **GROUP)
    restarted = world.join("a-2", client_id="a", topics=["t"], **GROUP)
    assert world.run(60_000, until=lambda: len(restarted.owned) == 2)
    # The coordinator creates member ids that start with the client id.
    assert restarted.member_id.startswith("a-")
    assert not restarted.member_id.startswith("a-2-")


def test_a_moved_coordinator_is_found() -> None:
    world, a, b = two_members(brokers=3)
    world.move_coordinator("g", 3)
    world.run(5_000)
    assert world.is_stable("g")
    assert not a.changes_of("lost") + b.changes_of("lost")


def test_the_partitions_and_groups_of_a_stopped_broker_move() -> None:
    world, a, b = two_members(brokers=2)
    stopped = world.cluster.group_coordinator_of("g")
    world.stop_broker(stopped)
    for partition in range(4):
        world.write("t", partition, "after")
    assert world.run(10_000, until=lambda: a.values().count("after") + b.values().count("after") == 4)
    assert world.cluster.group_coordinator_of("g") == 3 - stopped
    world.start_broker(stopped)
    world.run(5_000)
    assert len(a.owned) == len(b.owned) == 2


def test_a_restarted_broker_keeps_its_logs_and_groups() -> None:
    world, a, b = two_members()
    world.stop_broker()
    world.run(2_000)
    world.start_broker(loading_ms=50)
    world.write("t", 0, "after")
    assert world.run(5_000, until=lambda: "after" in a.values() + b.values())
    with pytest.raises(IllegalState):
        world.start_broker()


def test_a_producer_writes_through_faults_each_record_once() -> None:
    world = World({"t": 1}, seed=3)
    producer = world.producer(request_timeout_ms=500, retry_backoff_ms=20)
    for number in range(30):
        producer.must_send("t", str(number))
        if number % 10 == 3:
            world.fault("half_close", producer)
        if number % 10 == 7:
            world.cut(producer)
        world.run(5)
    assert world.run(20_000, until=lambda: all(delivery.done() for delivery in producer.sent))
    a = world.join("a", topics=["t"], **GROUP)
    world.run(3_000)
    assert a.values() == [str(number) for number in range(30)]


def test_truncation_removes_records_and_starts_a_new_leader_epoch() -> None:
    world = World({"t": 1})
    world.write("t", 0, "a", "b")
    world.write("t", 0, "c")
    world.truncate("t", 0, 2)
    assert (world.log(tp("t", 0)).end_offset, world.log(tp("t", 0)).leader_epoch) == (2, 1)


# ---- other clients' machines


@pytest.mark.parametrize("kind", ["java", "java-2.6", "sarama", "kafka-go", "librdkafka"])
def test_a_removed_model_is_observed_as_fenced(kind: str) -> None:
    machine: Any = load_model(kind)
    world = World({"t": 1})
    a = world.join("a", machine, topics=["t"], group_id="g", session_ms=6_000, heartbeat_ms=500)
    assert (a.generation, a.member_id) == (-1, "")
    assert world.run(until=lambda: a.generation == 1)
    assert a.member_id.startswith("a-")
    a.freeze(10_000)
    assert world.run(
        20_000, until=lambda: any(observation.kind == "fenced" for observation in world.observations)
    )


def test_a_start_at_the_end_loses_no_record() -> None:
    world = World({"t": 1}, seed=1)
    world.watch(*ALWAYS)
    world.write("t", 0, "a", "b")
    reader = world.join("a", topics=["t"], group_id="g")
    world.run(20_000)
    world.write("t", 0, "c")
    world.run(20_000)
    assert reader.values("t", 0) == ["c"]
    check(world)


def test_a_start_at_the_end_of_a_new_partition_loses_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_lookup.OffsetLookup, "_is_new", lambda *_: False)
    world = World({"t": 1}, seed=1)
    world.join("a", topics=["t"], group_id="g", metadata_max_age_ms=5_000)
    world.run(20_000)
    world.grow("t", 2)
    world.write("t", 1, "a")
    world.run(60_000)
    with pytest.raises(InvariantBroken, match="t-1 is committed at 1, but record 0 was not delivered"):
        check(world)


def test_an_operators_request_for_a_group_goes_to_its_coordinator() -> None:
    world, groups = World({"t": 1}, brokers=3), ("a", "b", "c", "d")
    for group in groups:
        world.send_as_operator(offset_commit_request(group, -1, "", None, {tp("t", 0): OffsetToCommit(5)}), 2)
    assert [world.committed(group, tp("t", 0)) for group in groups] == [5] * 4


def test_a_client_that_does_not_exist_is_rejected_with_the_names_of_the_others() -> None:
    world = World({"t": 1})
    with pytest.raises(ConfigError, match=r"client='b' is not allowed; allowed: none, before join\(\)$"):
        world.kill("b")
    world.join("a", topics=["t"], group_id="g")
    with pytest.raises(ConfigError, match=r"client='b' is not allowed; allowed: a$"):
        world.kill("b")
