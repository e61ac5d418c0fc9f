"""If Ctrl-C interrupts a call at any moment, the next call continues, and no record is lost.

Real signals are raised, in virtual time, at each point where Python checks for signals (`virtual_threads`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer import RebalanceListener, TopicPartition
from kproto.testing.world import World
from tests.broker.stage import classic_coordinator
from tests.consumer.behaviour.virtual_threads import CtrlC, virtual_consumer

SOME = 24
GROUP: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest", "max_partition_fetch_bytes": 300}


class Application:
    """An application that catches Ctrl-C and continues with the next call."""

    def __init__(self, consumer: Any, ctrl_c: CtrlC) -> None:
        self.consumer = consumer
        self.ctrl_c = ctrl_c
        self.interrupted = ""  # The name of the call that Ctrl-C has interrupted.
        self.read: dict[int, list[int]] = {0: [], 1: []}

    def call(self, name: str, *args: Any) -> Any:
        if self.interrupted:
            return getattr(self.consumer, name)(*args)
        sys.settrace(self.ctrl_c)
        try:
            return getattr(self.consumer, name)(*args)
        except KeyboardInterrupt:
            self.interrupted = name
        finally:
            sys.settrace(None)
        return None

    def call_until_done(self, name: str, *args: Any) -> Any:
        """Call a method, and call it again if it was interrupted."""
        before = self.interrupted
        result = self.call(name, *args)
        return self.call(name, *args) if self.interrupted != before else result

    def read_all(self, how: str) -> None:
        """Read all records. No fault delays them, so ten seconds of virtual time must be enough."""
        end = self.consumer._runtime.virtual_thread.world.now + 10_000
        while sum(map(len, self.read.values())) < 2 * SOME:
            assert self.consumer._runtime.virtual_thread.world.now < end, "it stands still"
            HOW[how](self)

    def poll(self) -> None:
        for record in self.call("poll", 1.0, 5) or ():
            self.read[record.partition].append(record.offset)

    def poll_columns(self) -> None:
        for batch in self.call("poll_columns", 1.0) or ():
            self.read[batch.partition] += batch.columns.offset.tolist()

    def iterate(self) -> None:
        if (record := self.call("__next__")) is not None:
            self.read[record.partition].append(record.offset)


HOW: dict[str, Callable[[Application], None]] = {
    "poll": Application.poll,
    "poll_columns": Application.poll_columns,
    "iterate": Application.iterate,
}


def written(seed: int = 1) -> World:
    world = World({"t": 2}, seed=seed, trace=False)
    for partition in (0, 1):
        for number in range(SOME):
            world.write("t", partition, str(number))
    return world


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("uses_tls", [False, True], ids=["its thread reads", "it reads itself"])
@pytest.mark.parametrize("how", HOW)
@given(at=st.integers(1, 6_000))
def test_after_ctrl_c_every_record_is_read_once_and_committed(how: str, uses_tls: bool, at: int) -> None:
    world = written()
    ctrl_c = CtrlC(at)
    with virtual_consumer(world, "c", uses_tls=uses_tls, **GROUP) as consumer:
        application = Application(consumer, ctrl_c)
        application.call_until_done("subscribe", ["t"])
        application.read_all(how)
        application.call_until_done("commit")
        committed = application.call_until_done("committed")
        application.call_until_done("close")
    everything = list(range(SOME))
    assert application.read == {0: everything, 1: everything}, ctrl_c.where
    assert {p.partition: known.offset for p, known in committed.items()} == {0: SOME, 1: SOME}, ctrl_c.where
    if application.interrupted != "close":  # After Ctrl-C in close(), a second call returns immediately.
        assert classic_coordinator(world.cluster).groups["g"].members == {}, ctrl_c.where


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("uses_tls", [False, True], ids=["its thread reads", "it reads itself"])
@given(at=st.integers(1, 12_000))
def test_after_ctrl_c_every_record_is_read_once_while_a_member_joins_and_leaves(
    uses_tls: bool, at: int
) -> None:
    world = written()
    ctrl_c = CtrlC(at)
    calls: list[tuple[str, int]] = []

    class Listener(RebalanceListener):
        def assigned(self, partitions: tuple[TopicPartition, ...]) -> None:
            calls.append(("assigned", len(partitions)))

        def revoked(self, partitions: tuple[TopicPartition, ...]) -> None:
            calls.append(("revoked", len(partitions)))

    def come() -> None:
        member = world.join("other", topics=["t"], **GROUP, max_poll_records=1, enable_auto_commit=True)
        member.works_ms = 100
        world.call_later(6_000, member.close)

    world.call_later(200, come)
    with virtual_consumer(world, "c", uses_tls=uses_tls, **GROUP) as consumer:
        application = Application(consumer, ctrl_c)
        application.call_until_done("subscribe", ["t"], Listener())
        while world.now < 1_030_000:
            for record in application.call("poll", 1.0, 1) or ():
                application.read[record.partition].append(record.offset)
            world.run(100)  # Here the application processes the record.
        owned = sum(number if kind == "assigned" else -number for kind, number in calls)
        assert owned == len(consumer.assignment()) == 2, ctrl_c.where
        application.call_until_done("close")
    other_offsets = [record.offset for record in world.clients["other"].records if record.partition == 0]
    assert sorted(application.read[0] + other_offsets) == list(range(SOME)), ctrl_c.where
    other_offsets = [record.offset for record in world.clients["other"].records if record.partition == 1]
    assert sorted(application.read[1] + other_offsets) == list(range(SOME)), ctrl_c.where
    assert other_offsets
