"""Java's consumer 2.6.2 (kafka-clients), as a state machine.

The model runs the code of `kproto.models.java` with `release.JAVA_2_6`. It differs from 4.3.1 as follows:

* onJoinPrepare commits synchronously: poll is blocked until the response arrives, at most for the rebalance
  timeout.
* A membership is lost only if the generation *and* the member id are missing. A member that is reset during a
  join does not run onJoinPrepare again, so onPartitionsLost is not called. A cooperative member therefore
  keeps its partitions, and reports them as owned under its new member id. After SyncGroup it revokes the
  partitions that its new assignment does not contain.
* After ILLEGAL_GENERATION, and when a JoinGroup is retried, the member id is reset.
* JoinGroup and LeaveGroup have no reason, the subscription has no generation, and skipAssignment does not
  exist. Fetch sessions are not closed: they expire at the broker.
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
    """Return the state of a consumer before its first event."""
    return new_consumer(config, JAVA_2_6)
