"""The types of worlds (simulated clusters). mypy --strict and pyright check the module; it never runs."""

from __future__ import annotations

from typing import assert_type

import kproto.models
from kproto.group.subscription import TopicPartition
from kproto.testing.world import World
from kproto.testing.world.consumers import Consumer
from kproto.testing.world.members import ModelClient


def who_joins_is_known(world: World) -> None:
    ours = world.join("a", topics=["flights"], group_id="g")
    assert_type(ours, Consumer)
    assert_type(ours.owned, set[TopicPartition])
    assert_type(world.join("b", kproto.models.sarama, topics=["flights"], group_id="g"), ModelClient)
