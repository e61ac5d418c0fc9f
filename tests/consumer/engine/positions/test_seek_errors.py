"""Seeks and assignments with an invalid offset are rejected and change nothing (M141)."""

from __future__ import annotations

from typing import Any

import pytest

from consumer.engine import events as ev
from kproto.errors import (
    ConfigError,
    IllegalState,
)
from tests.consumer.engine.stage import (
    caught_up_member,
    numbers,
    world_with_records,
)
from tests.consumer.stage import tp


@pytest.mark.parametrize("offset", [-1, -2, "earliest", 1.5, True, None, float("nan")])
def test_a_seek_to_an_invalid_offset_is_rejected_and_changes_nothing(offset: Any) -> None:
    world = world_with_records()
    a = caught_up_member(world)
    before = a.position(tp("t", 0))
    with pytest.raises(ConfigError, match="seek_to"):
        a.do(ev.Seek(tp("t", 0), offset))
    assert a.position(tp("t", 0)) == before
    world.write("t", 0, "more")
    assert world.run(1000, until=lambda: len(a.records) == 11)


@pytest.mark.parametrize("place", ["begin", -1, 1.5, True, None])
def test_seek_to_an_unknown_place_is_rejected_and_changes_nothing(place: Any) -> None:
    world = world_with_records()
    a = caught_up_member(world)
    with pytest.raises(ConfigError, match="earliest"):
        a.do(ev.SeekTo(frozenset(), place))
    assert a.position(tp("t", 0)) == 10


def test_a_seek_of_several_partitions_moves_all_or_none() -> None:
    world = world_with_records()
    a = world.consumer()
    a.assign({tp("t", 0): 7})
    world.run(500)
    with pytest.raises(IllegalState, match="t-5"):
        a.do(ev.SeekTo(frozenset({tp("t", 0), tp("t", 5)}), "earliest"))
    world.run(500)
    assert a.values() == numbers(7, 10)


def test_an_assignment_with_an_invalid_offset_changes_nothing() -> None:
    world = world_with_records()
    a = world.consumer()
    a.assign({tp("t", 0): 7})
    with pytest.raises(ConfigError):
        a.do(ev.Assign({tp("t", 1): -1}))
    assert set(a.engine.partitions) == {tp("t", 0)}
