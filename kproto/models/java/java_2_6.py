"""Java's consumer 2.6.2 (kafka-clients), as a state machine.

The model runs the code of `kproto.models.java` with `release.JAVA_2_6`. It differs from 4.3.1 as follows:

* onJoinPrepare commits synchronously. Poll blocks until the response arrives, for at most the rebalance
  timeout.

* A membership is lost only if the generation *and* the member id are missing.

* A member whose membership is reset during a join does not repeat onJoinPrepare, so it does not call
  onPartitionsLost.

* A cooperative member whose membership is reset during a join keeps its partitions, and reports them as owned
  under its new member id. After SyncGroup it revokes the partitions that the new assignment lacks.

* The member id is reset after ILLEGAL_GENERATION, and when a JoinGroup is retried.

* JoinGroup and LeaveGroup carry no reason, and the subscription carries no generation. skipAssignment does
  not exist. Fetch sessions are not closed, so they expire at the broker.
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
