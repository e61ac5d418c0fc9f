"""librdkafka's consumer as a state machine: release 2.16, or 1.9 and 2.0 with "version": "1.9" in `extra`.

Sources of 2.16: rdkafka_cgrp.c (`rd_kafka_cgrp_*`), rdkafka_assignment.c, rdkafka_partition.c,
rdkafka_offset.c, rdkafka_fetcher.c, rdkafka_metadata.c and rdkafka_request.c. For releases 1.9 and 2.0 the
model sends the request versions of 1.9.2.

The client has two threads with a queue between them. The library joins, fetches and commits on its own
thread. The application takes entries from the queue only when it polls. The queue causes races: while a
rebalance event waits in it, the application may call assign(). When the event is answered later, the answer's
assignment replaces the application's.

* M101: The application, or else its binding, answers each rebalance event with a call of assign or unassign
  (`cgrp_rebalance`). The call of the binding replaces an assignment that the application has made with
  assign().
* M102: subscribe() during a rebalance is deferred. An eager member revokes and rejoins even if it subscribes
  to the same topics.
* M93: Every member, not only the leader, rejoins when the partition count of a topic changes (`metadata`).
* M111: The member measures its session timeout by its own clock.
* M112: The member checks max.poll.interval.ms twice a second.
* M126: Offsets are first stored, and committed later (`offset_store`).
* M146: Logical offsets (`constants`): STORED -1000, INVALID -1001, BEGINNING -2, END -1.
* M165, M194: There are no fetch sessions. One Fetch is in flight per broker. Each start, stop, seek, pause or
  resume of a partition gives it a new version. Records that were fetched under an older version are dropped.

A rejected seek or assign is reported as `Notify("error", name)`, with the name "_STATE", "_UNKNOWN_PARTITION"
or "_INVALID_ARG". The application reads its assignment with `assigned_offsets` and its positions with
`position`.
"""

from .machine import next_deadline, step
from .rdkafka import assigned_offsets, position
from .state import VERSIONS, CgrpJoinState, LibrdkafkaState, start

HEARS_DISCONNECTS = True

__all__ = [
    "HEARS_DISCONNECTS",
    "VERSIONS",
    "CgrpJoinState",
    "LibrdkafkaState",
    "assigned_offsets",
    "next_deadline",
    "position",
    "start",
    "step",
]
