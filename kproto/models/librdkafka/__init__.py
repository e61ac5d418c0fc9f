"""librdkafka's consumer as a state machine: by default release 2.16, optionally 1.9 and 2.0.

The model follows release 2.16: rdkafka_cgrp.c (`rd_kafka_cgrp_*`), rdkafka_assignment.c, rdkafka_partition.c,
rdkafka_offset.c, rdkafka_fetcher.c, rdkafka_metadata.c and rdkafka_request.c. With "version": "1.9" in
`extra`, the model follows releases 1.9 and 2.0, and sends the request versions of 1.9.2.

The client has two threads with a queue between them. The library joins, fetches and commits on its own
thread. The application takes entries from the queue only when it polls.

The queue causes races. For example, the application may call assign() while a rebalance event is queued. The
later answer to the event replaces this assignment.

* M101: The application answers each rebalance event with assign or unassign (`cgrp_rebalance`). Without a
  rebalance callback, the language binding (such as confluent-kafka-go) answers. The binding's answer replaces
  an assignment that the application has made with assign().

* M102: subscribe() during a rebalance is deferred. An eager member revokes and rejoins even if the topics are
  the same.

* M93: Every member, not only the leader, rejoins when the partition count of a topic changes (`metadata`).

* M111: The member measures its session timeout by its own clock.

* M112: The member checks max.poll.interval.ms twice a second.

* M126: Offsets are first stored, and committed later (`offset_store`).

* M146: Logical offsets (`constants`): STORED -1000, INVALID -1001, BEGINNING -2, END -1.

* M165, M194: The client uses no fetch sessions, and has at most one Fetch in flight per broker.

* M194: A start, stop, seek, pause or resume of a partition gives it a new version. Records that were fetched
  under an older version are dropped.

A rejected seek or assign is reported as `Notify("error", name)`. The name is "_STATE", "_UNKNOWN_PARTITION"
or "_INVALID_ARG". `assigned_offsets` returns the assignment, and `position` the position of a partition.
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
