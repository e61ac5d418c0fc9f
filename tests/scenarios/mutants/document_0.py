"""Document 000: librdkafka's queue and assignment, and kproto's rules in their place."""

from __future__ import annotations

from kproto.clients.librdkafka import assigning, calling, toppars
from tests.scenarios.mutants.mutant import Mutant, Table, nothing

MUTANTS: Table = {
    "S0-3": Mutant("no offset given means the beginning", assigning, "STORED", -2),
    "S0-5": Mutant("an event that nobody answers", calling, "default_answer", nothing),
    "S0-9": Mutant("a seek to STORED that is taken", toppars, "STORED", -5),
}
