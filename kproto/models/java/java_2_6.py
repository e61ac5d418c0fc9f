"""Java's consumer 2.6.2 (kafka-clients), the one of the second seed document, as a machine.

It runs the code of `kproto.models.java` with `release.JAVA_2_6`. What differs from 4.3.1:

* onJoinPrepare commits synchronously: poll is blocked until that is answered, or for the rebalance timeout.
* Lost is a membership without generation *and* member id. A reset that comes in the middle of a join doesn't
  prepare again: cooperative members then keep what they own, claim it under a new id, and let go of what they
  didn't get only after the SyncGroup; the listener never hears of lost.
* ILLEGAL_GENERATION, and a JoinGroup that is tried again, forget the member id.
* No reasons, no generation in the subscription, no skipAssignment; the fetch session is left to the broker.
"""

from __future__ import annotations

from ..contract import ModelConfig
from .machine import next_deadline, step
from .release import JAVA_2_6
from .state import JavaState, new_consumer

VERSIONS = dict(JAVA_2_6.versions)
HEARS_DISCONNECTS = True

__all__ = ["HEARS_DISCONNECTS", "VERSIONS", "JavaState", "next_deadline", "start", "step"]


def start(config: ModelConfig) -> JavaState:
    """A consumer before its first event."""
    return new_consumer(config, JAVA_2_6)
