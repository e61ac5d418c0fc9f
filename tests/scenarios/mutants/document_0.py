"""Mutants (mistakes patched into models) for lesson 000: librdkafka's queue and assignment, and kproto's
own rules.
"""

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

_add, _deliver_messages, _subscribe, _start = (
    assignment.add,
    rdkafka._deliver_messages,
    rdkafka.subscribe,
    librdkafka.start,
)


def _drop_offsets(state: LibrdkafkaState, partitions: Mapping[Any, int]) -> Any:
    return _add(state, dict.fromkeys(partitions, constants.INVALID))


def _subscribe_if_changed(state: LibrdkafkaState, topics: Any, out: Any) -> None:
    if topics is None or topics != state.subscription:
        _subscribe(state, topics, out)


def _store_last_offset(state: LibrdkafkaState, item: Any) -> None:
    _deliver_messages(state, item)
    partition = state.partitions[item.tp]
    position = partition.app_position
    partition.stored_position = FetchPos(position.offset - 1, position.epoch)


def _start_with_default_flags(config: contract.ModelConfig) -> LibrdkafkaState:
    extra = {**config.extra, "enable.auto.offset.store": True}
    return _start(replace(config, auto_commit=True, extra=extra))


ASSIGN_DROPS_OFFSETS = Mutant("assign drops the start offsets", assignment, "add", _drop_offsets)
SEEK_IGNORED = Mutant("seek does nothing", toppar, "seek", nothing)
FLAGS_IGNORED = Mutant(
    "the commit and store flags are ignored", librdkafka, "start", _start_with_default_flags
)
KPROTO_SEEK_IGNORED = Mutant("kproto's seek does nothing", engine.TABLE, ev.Seek, nothing)

MUTANTS: Table = {
    "S0-1": ASSIGN_DROPS_OFFSETS,
    "S0-2": ASSIGN_DROPS_OFFSETS,
    "S0-3": Mutant("an unset offset means the beginning", assignment, "STORED", -2),
    "S0-4": ASSIGN_DROPS_OFFSETS,
    "S0-5": Mutant(
        "an event without a callback gets no default answer", rdkafka, "answer_by_default", nothing
    ),
    "S0-6": Mutant("an identical subscription is ignored", rdkafka, "subscribe", _subscribe_if_changed),
    "S0-7": Mutant("no rebalance is ever in progress", LibrdkafkaState, "is_rebalancing", False),
    "S0-8": SEEK_IGNORED,
    "S0-9": Mutant("seek accepts STORED", toppar, "STORED", -5),
    "S0-10": FLAGS_IGNORED,
    "S0-11": FLAGS_IGNORED,
    "S0-12": Mutant(
        "the last offset is stored, not the next", rdkafka, "_deliver_messages", _store_last_offset
    ),
    "S0-13": Mutant("the end of a partition is not reported", rdkafka, "_deliver_eof", nothing),
    "S0-14": KPROTO_SEEK_IGNORED,
    "S0-15": KPROTO_SEEK_IGNORED,
    "S0-16": Mutant(
        "STORED has the name of another offset", constants._OFFSET_NAMES, constants.STORED, "BEGINNING"
    ),
    "S0-17": Mutant("an alias names the wrong property", conf.ALIASES, "metadata.broker.list", "group.id"),
    "S0-18": Mutant("the model is a library file", constants.__spec__, "origin", "/usr/lib/librdkafka.so"),
    "S0-19": Mutant(
        "seek of an unknown partition returns another error",
        rdkafka,
        "UNKNOWN_PARTITION",
        constants.INVALID_ARG,
    ),
    "S0-20": Mutant("two threads may use one consumer", BlockingRuntime, "call", lambda *_, **__: NO_CLAIM),
}
