"""Document 003: sarama, from its fetch loop to newSession."""

from __future__ import annotations

from kproto.clients.sarama import joining
from tests.scenarios.mutants.mutant import Mutant, Table

NO_BACKOFF = Mutant("no way back from a refusal", joining, "_BACK_OFF", set[int]())

MUTANTS: Table = {
    "S3-19d": Mutant("an id that is not forgotten", joining, "_FORGET", set[int]()),
    "S3-19e": NO_BACKOFF,
    "S3-19f": NO_BACKOFF,
}
