"""A story that no change to its machine can spoil tells nothing: each of these does, and a claim says so."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.clients import zookeeper
from kproto.clients.kafka_go import generation
from kproto.clients.kafka_go import state as kafka_go
from kproto.clients.librdkafka import assigning, calling, toppars
from kproto.clients.sarama import joining
from kproto.scenarios import find

pytestmark = pytest.mark.thorough

MUTANTS: dict[str, tuple[object, str, Any, str]] = {
    "a watcher that sees nothing": (generation, "_watched", lambda watcher, answer: False, "S1-14"),
    "LastOffset that means the first": (kafka_go, "LAST", kafka_go.FIRST, "S1-16"),
    "a queue without a bound": (kafka_go, "_number", lambda config, name, default: 100_000, "S1-15"),
    "an id that is not forgotten": (joining, "_FORGET", set[int](), "S3-19d"),
    "no way back from NOT_COORDINATOR": (joining, "_BACK_OFF", set[int](), "S3-19e"),
    "no wait for a rebalance": (joining, "_BACK_OFF", set[int](), "S3-19f"),
    "a seek to STORED that is taken": (toppars, "STORED", -5, "S0-9"),
    "no offset given means the beginning": (assigning, "STORED", -2, "S0-3"),
    "an event that nobody answers": (calling, "default_answer", lambda *_: None, "S0-5"),
    "consumers that never let go": (zookeeper, "_release", lambda *_: None, "S2-21"),
    "consumers elsewhere": (zookeeper, "ids_path", lambda group: f"/groups/{group}", "S2-20"),
}


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_mutant_of_the_machine_breaks_its_story(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, new, story = MUTANTS[mutant]
    assert getattr(module, name) != new
    monkeypatch.setattr(module, name, new)
    try:
        holds = find(story).run().holds
    except Exception:  # a machine that breaks is no machine that holds
        holds = False
    assert not holds
