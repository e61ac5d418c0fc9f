"""Mutants of document 000: librdkafka's queue and assignment, and kproto's rules instead of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from consumer.blocking.runtime import BlockingRuntime
from consumer.engine import consumer as engine
from consumer.engine import events as ev
from consumer.runtime import NO_CLAIM
from kproto.models import contract, librdkafka
from kproto.models.librdkafka import assignment, conf, constants, rdkafka, toppar
from kproto.models.librdkafka.state import FetchPos, LibrdkafkaState
from tests.scenarios.mutants.mutant import Mutant, Table, nothing

_add, _hand_over, _subscribe, _start = (
    assignment.add,
    rdkafka._deliver_messages,
    rdkafka.subscribe,
    librdkafka.start,
)


def _without_offsets(state: LibrdkafkaState, partitions: Mapping[Any, int]) -> Any:
    return _add(state, dict.fromkeys(partitions, constants.INVALID))


def _not_again(state: LibrdkafkaState, topics: Any, out: Any) -> None:
    if topics is None or topics != state.subscription:
        _subscribe(state, topics, out)


def _stores_the_last(state: LibrdkafkaState, item: Any) -> None:
    _hand_over(state, item)
    toppar = state.partitions[item.tp]
    toppar.stored = FetchPos(toppar.app.offset - 1, toppar.app.epoch)


def _by_default(config: contract.ModelConfig) -> LibrdkafkaState:
    extra = {**config.extra, "enable.auto.offset.store": True}
    return _start(replace(config, auto_commit=True, extra=extra))


NO_OFFSETS = Mutant("an assign that forgets its offsets", assignment, "add", _without_offsets)
SEEKS_AT_ONCE = Mutant("a seek that is never too early", toppar, "seek", nothing)
NO_FLAGS = Mutant("flags that nobody looks at", librdkafka, "start", _by_default)
NO_SEEK = Mutant("a seek of kproto's that is dropped", engine.TABLE, ev.Seek, nothing)

MUTANTS: Table = {
    "S0-1": NO_OFFSETS,
    "S0-2": NO_OFFSETS,
    "S0-3": Mutant("no offset given means the beginning", assignment, "STORED", -2),
    "S0-4": NO_OFFSETS,
    "S0-5": Mutant("an event that nobody answers", rdkafka, "answer_by_default", nothing),
    "S0-6": Mutant("a subscription that is known already", rdkafka, "subscribe", _not_again),
    "S0-7": Mutant("no rebalance is ever under way", LibrdkafkaState, "is_rebalancing", False),
    "S0-8": SEEKS_AT_ONCE,
    "S0-9": Mutant("a seek to STORED that is taken", toppar, "STORED", -5),
    "S0-10": NO_FLAGS,
    "S0-11": NO_FLAGS,
    "S0-12": Mutant(
        "the last offset is stored, not the next", rdkafka, "_deliver_messages", _stores_the_last
    ),
    "S0-13": Mutant("an end that nobody is told", rdkafka, "_deliver_eof", nothing),
    "S0-14": NO_SEEK,
    "S0-15": NO_SEEK,
    "S0-16": Mutant("STORED by another name", constants._OFFSET_NAMES, constants.STORED, "BEGINNING"),
    "S0-17": Mutant("another name of another property", conf.ALIASES, "metadata.broker.list", "group.id"),
    "S0-18": Mutant("a library", constants.__spec__, "origin", "/usr/lib/librdkafka.so"),
    "S0-19": Mutant("a seek of what nobody knows", rdkafka, "UNKNOWN_PARTITION", constants.STATE),
    "S0-20": Mutant("two threads may be in one consumer", BlockingRuntime, "call", lambda *_, **__: NO_CLAIM),
}
