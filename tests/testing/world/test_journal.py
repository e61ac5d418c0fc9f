"""Replays: the applications of a replayed world (simulated cluster) behave as in the original world."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from kproto.errors import ConfigError, IllegalState
from kproto.group.subscription import TopicPartition
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.testing.groups import Group
from kproto.testing.schedules import QUICK, play
from kproto.testing.world import Consumer, World, tp


@pytest.mark.parametrize("models", [(), ("sarama", "librdkafka")], ids=["kproto", "mixed"])
def test_the_replay_of_a_random_schedule_is_identical(models: tuple[str, ...], tmp_path: Path) -> None:
    """The replay of a random schedule is identical to the original run.

    The durations of callbacks and of the members' processing are also replayed.
    """
    world = play(2, steps=10, trace=True, models=models)
    world.save(tmp_path / "story.jsonl")
    assert world.replay().digest() == World.load(tmp_path / "story.jsonl").digest() == world.digest()


def world_with_reader(**options: Any) -> tuple[World, Consumer]:
    world = World({"t": 1}, seed=3)
    a = world.join("a", topics=["t"], **{**QUICK, **options})
    world.write("t", 0, "0", "1", "2")
    return world, a


def test_the_polls_of_an_application_are_replayed() -> None:
    world, a = world_with_reader()
    a.limit, a.works_ms, a.poll_timeout_ms, a.callback_ms = 1, 300, 70, 20
    world.run(700)
    replayed = world.replay()
    assert replayed.digest() == world.digest()
    assert replayed.clients["a"].values() == a.values() == ["0", "1", "2"]  # type: ignore[attr-defined]
    world.run(5_000)
    a.works_ms = 2_000
    world.write("t", 0, "3")
    world.run(3_000)
    assert world.replay().digest() == world.digest()


def test_tampered_responses_are_replayed(tmp_path: Path) -> None:
    world, _ = world_with_reader()
    world.run(1_000)
    unknown = HeartbeatResponse(throttle_time_ms=0, error_code=25)
    world.tamper = lambda client, request, version: unknown if isinstance(request, HeartbeatRequest) else None
    world.run(2_000)
    world.tamper = None
    world.run(2_000)
    assert world.replay().digest() == world.digest()
    with pytest.raises(ConfigError, match="a value that JSON can hold"):
        world.save(tmp_path / "run.jsonl")


def test_a_listener_that_holds_the_original_world_is_not_replayed() -> None:
    world, a = world_with_reader()
    a.listener = lambda kind, partitions: kind == "assigned" and a.seek(partitions[0], 2)
    world.run(3_000)
    assert a.values() == ["2"]
    with pytest.raises(IllegalState, match=r"seek\(\) is called on the original world .* configure\(\) pass"):
        world.replay()


class SeekToLast:
    """An application whose listener seeks to the last record, and whose worker commits after each poll."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer

    def assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
        for partition in partitions:
            self.consumer.seek(partition, 2)

    def records(self, records: list[Any]) -> None:
        self.consumer.commit()


def test_a_replay_creates_its_own_application(tmp_path: Path) -> None:
    consumers: list[Consumer] = []

    def add_application(consumer: Consumer) -> None:
        application = SeekToLast(consumer)
        consumer.listener = lambda kind, partitions: kind == "assigned" and application.assigned(partitions)
        consumer.worker = application.records
        consumers.append(consumer)

    world, a = world_with_reader(enable_auto_commit=False)
    a.configure(add_application)
    world.run(3_000)
    assert (a.values(), world.committed("g", tp("t", 0))) == (["2"], 3)
    replayed = world.replay()
    assert replayed.digest() == world.digest()
    assert consumers == [a, replayed.clients["a"]]
    world.save(tmp_path / "run.jsonl")
    loaded = World.load(tmp_path / "run.jsonl")
    assert loaded.clients["a"].values() == ["0", "1", "2"]  # type: ignore[attr-defined]


def test_a_replayed_group_has_its_own_applications() -> None:
    class Skipping(Group):
        topics: ClassVar = {"t": 2}
        options: ClassVar = ({"enable_auto_commit": False},)

        def application(self, consumer: Consumer) -> SeekToLast:
            return SeekToLast(consumer)

    state = Skipping()
    state.begin(seed=0)
    state.write(0, 3)
    state.wait(3_000)
    replayed, applications = state.world.replay(), dict(state.applications)
    history = [
        (observation.source, observation.kind, observation.partitions, observation.detail)
        for observation in state.world.observations
    ]
    assert [
        (observation.source, observation.kind, observation.partitions, observation.detail)
        for observation in replayed.observations
    ] == history
    assert "stored" in {kind for _, kind, _, _ in history}
    # The replay must not change the applications of the original world.
    assert state.applications == applications


def test_a_journal_sets_only_journaled_attributes(tmp_path: Path) -> None:
    world, a = world_with_reader()
    a.works_ms = 7
    world.save(tmp_path / "run.jsonl")
    lines = (tmp_path / "run.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["args"] == ["works_ms", 7]
    (tmp_path / "run.jsonl").write_text("\n".join(lines).replace('"works_ms"', '"alive"'))
    with pytest.raises(ConfigError, match="alive"):
        World.load(tmp_path / "run.jsonl")


def test_calls_of_until_are_replayed_in_the_same_turn(tmp_path: Path) -> None:
    """A call that `until` made after a turn of the world is replayed after the same turn.

    A replay does not call `until`, so the journal must list the commits that `until` made.
    """
    world, a = world_with_reader(enable_auto_commit=False)

    committed_counts = [0]

    def commit_new_records() -> bool:
        if len(a.records) > committed_counts[-1]:
            a.commit()
            committed_counts.append(len(a.records))
        return len(committed_counts) > 2

    assert not world.run(1_000, until=commit_new_records)
    world.write("t", 0, "3")
    assert world.run(1_000, until=commit_new_records)
    world.run(1_000)
    assert world.committed("g", tp("t", 0)) == 4
    world.save(tmp_path / "run.jsonl")
    assert world.replay().digest() == World.load(tmp_path / "run.jsonl").digest() == world.digest()
    halfway = world.replay(world.turns - 20)
    assert list(halfway.trace()) == list(world.trace())[: len(halfway.entries)]


def test_deliveries_of_a_producer_are_replayed(tmp_path: Path) -> None:
    """`deliver` lets time pass, and the journal lists the producer calls that `deliver` makes."""
    world, a = world_with_reader()
    producer = world.producer(linger_ms=5)
    for number in range(6):
        producer.deliver("t", f"x{number}")
        world.run(3)
    world.fault("cut", producer)
    producer.deliver("t", "last")
    world.run(3_000)
    assert a.values()[-1] == "last"
    world.save(tmp_path / "run.jsonl")
    assert world.replay().digest() == World.load(tmp_path / "run.jsonl").digest() == world.digest()
