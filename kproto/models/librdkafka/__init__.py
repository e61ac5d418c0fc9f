"""librdkafka's consumer, 2.16 (and with "version": "1.9" the 1.9 and 2.0 before it), as a machine.

Sources: rdkafka_cgrp.c (`rd_kafka_cgrp_*`), rdkafka_assignment.c, rdkafka_partition.c, rdkafka_offset.c,
rdkafka_fetcher.c, rdkafka_metadata.c and rdkafka_request.c of 2.16; the versions of 1.9.2.

Two threads and a queue between them. The library joins, fetches and commits by itself; the application only
takes from the queue when it polls. Hence its races: what the group assigned while nobody polled is still an
event in the queue, and answers later than an assign() that the application made meanwhile.

* M101: an event wants an answer (`cgrp_rebalance`); the default one replaces what was assigned by hand.
* M102: subscribe during a rebalance waits; an eager one revokes and joins again, even for the same topics.
* M93: any member watches the partitions of its topics (`metadata`).
* M111: the session ends by the member's own clock; M112: max.poll.interval.ms is looked at twice a second.
* M126: what is stored and what is committed are two things (`offset_store`).
* M146: logical offsets by name (`constants`): STORED -1000, INVALID -1001, BEGINNING -2, END -1.
* M165, M194: no fetch sessions, one fetch per broker; what a partition's older version fetched is dropped.

A seek that is refused is Report("error", "_STATE", "_UNKNOWN_PARTITION" or "_INVALID_ARG"); so is a
wrong assign. `assigned_offsets` and `position` are what the application may look at.
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
