"""Document 002: Java's consumer, and the groups of the ZooKeeper days."""

from __future__ import annotations

from kproto.clients import zookeeper
from tests.scenarios.mutants.mutant import Mutant, Table, nothing

MUTANTS: Table = {
    "S2-20": Mutant("consumers elsewhere", zookeeper, "ids_path", lambda group: f"/groups/{group}"),
    "S2-21": Mutant("consumers that never let go", zookeeper, "_release", nothing),
}
