"""Document 001: who looks for new partitions, and where those begin."""

from __future__ import annotations

from kproto.clients.kafka_go import generation
from kproto.clients.kafka_go import state as kafka_go
from tests.scenarios.mutants.mutant import Mutant, Table

MUTANTS: Table = {
    "S1-14": Mutant("a watcher that sees nothing", generation, "_watched", lambda watcher, answer: False),
    "S1-15": Mutant("a queue without a bound", kafka_go, "_number", lambda config, name, default: 100_000),
    "S1-16": Mutant("LastOffset that means the first", kafka_go, "LAST", kafka_go.FIRST),
}
