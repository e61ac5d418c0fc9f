"""Java's consumer 4.3.1 (kafka-clients, group.protocol classic), as a machine.

Everything is in `kafka_clients`; what is its own is in `kafka_clients.rules.JAVA_4_3`. It is Java as it is,
and so not `kproto.group.member`, which is Java's member without its losses: this one lets a fenced member
fence the other one back, throws an error and goes on with its assignment, and tells of lost one poll later.
"""

from __future__ import annotations

from .contract import Config
from .kafka_clients.machine import next_deadline, step
from .kafka_clients.rules import JAVA_4_3
from .kafka_clients.state import State, make

VERSIONS = dict(JAVA_4_3.versions)
HEARS_DISCONNECTS = True

__all__ = ["HEARS_DISCONNECTS", "VERSIONS", "State", "next_deadline", "start", "step"]


def start(config: Config) -> State:
    """A consumer before its first event."""
    return make(config, JAVA_4_3)
