"""The types that clients return or report: records, columns of records, changes and delivery statuses."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic

import msgspec

from kproto.errors import brief_list
from kproto.group.subscription import TopicPartition

from .serializers import K, V

if TYPE_CHECKING:
    from kproto.records.columns import Columns


class ConsumerRecord(msgspec.Struct, Generic[K, V], gc=False):
    """One record. `timestamp` is in ms since 1970, or -1 if the record has none.

    Key and value are bytes, or what the consumer's deserializers return. None is Kafka's null.

    `leader_epoch` is the epoch of the leader that appended the record, as in Java's ConsumerRecord. It is
    None for records in the formats of Kafka before 0.11.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: K | None
    value: V | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int | None = None

    def __str__(self) -> str:
        """Return a line with long keys and values shortened: "flights-2 @ 17: 'UA' = 'departed'"."""
        from kproto.records.record import format_record

        return f"{self.topic_partition} @ {self.offset}: {format_record(self.key, self.value, self.headers)}"

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and partition of the record."""
        return TopicPartition(self.topic, self.partition)


class ColumnBatch(msgspec.Struct):
    """Consecutive records of one partition as columns, which `kproto.records.columns` describes."""

    topic: str
    partition: int
    columns: Columns

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and partition of the records."""
        return TopicPartition(self.topic, self.partition)

    def __len__(self) -> int:
        return len(self.columns.offset)


class GroupChange(msgspec.Struct, frozen=True):
    """A change of a client's membership or state, for logs and timelines.

    `Consumer.events` and `Producer.events` report changes. The `kind` of a consumer's change is one of

    * "rejoining": the consumer sends JoinGroup because of `reason`, which is "" for the first join;

    * "assigned": `partitions` were added; `owned` are all owned partitions;

    * "revoked": `partitions` were released after the callback and the commit; no other member owns them yet;

    * "lost": `partitions` may already belong to another member, so their offsets cannot be committed;

    * "coordinator": a coordinator was found, or lost because of `reason`;

    * "reset": `partitions` are read from `offset` because of `reason`, and not from a committed offset. If
      `before` is set, the position was `before`, an offset that the log did not contain. The records between
      the two offsets are skipped if `offset` is the higher one, and otherwise returned again;

    * "unsought": seeks that waited for the assignment of `partitions` were dropped, because the group
      assigned these partitions to another member;

    * "truncated": the log was truncated below the position `before` of `partitions`; reading continues at
      `offset`;

    * "uncommitted": the commit of `partitions` before their release, or an auto commit if `partitions` is
      empty, failed because of `reason`;

    * "refused": a request that is retried indefinitely has failed for some seconds; `reason` contains the
      request and the error. While the request fails, the report is repeated at increasing intervals (30 s to
      10 min);

    * "throttled": a broker requires a pause of a second or more, because this client exceeds a quota
      (KIP-219). The report is repeated at increasing intervals;

    * "unreachable": no broker responds. The report is repeated at increasing intervals;

    * "reachable": a broker responds again;

    * "missing": a subscribed topic, or an assigned partition, does not exist;

    * "stalled": no record of `partitions` was returned for `stall_report_ms`, although their logs contain
      records after the positions; `reason` contains the result of `Consumer.why`;

    * "end": the application has read `partitions` up to their end offset, `offset`. With read_committed, this
      is the last stable offset. Only reported with `enable_partition_eof`;

    * "left": the member has left the group;

    * "closed": the consumer has been closed.

    Producers report "unreachable", "reachable", "missing", "refused" and "throttled" with the same meaning,
    and also

    * "undelivered": records of `partitions` were not delivered; `reason` contains their number and the error.
      The report is repeated at increasing intervals while records fail for the same reason;

    * "failed": the transactional producer can send no more records, and must be replaced;

    * "closed": the producer has been closed, or has ended because of `reason`.

    `at` is in milliseconds since 1970.
    """

    at: int
    kind: str
    member_id: str = ""
    generation: int = -1
    partitions: tuple[TopicPartition, ...] = ()
    owned: tuple[TopicPartition, ...] = ()
    reason: str = ""
    offset: int | None = None
    before: int | None = None

    def __str__(self) -> str:
        """Return a line such as "12:00:00.250 UTC assigned t-1; owns t-0, t-1; generation 3"."""
        time_of_day = time.strftime("%H:%M:%S", time.gmtime(self.at // 1000))
        partitions = f" {_partition_list(self.partitions)}" if self.partitions else ""
        facts = [
            *([f"owns {_partition_list(self.owned)}"] if self.kind == "assigned" else []),
            *([f"from offset {self.before}"] if self.before is not None else []),
            *([f"at offset {self.offset}"] if self.offset is not None else []),
            *([f"generation {self.generation}"] if self.generation >= 0 else []),
            *([self.reason] if self.reason else []),
        ]
        return "; ".join([f"{time_of_day}.{self.at % 1000:03} UTC {self.kind}{partitions}", *facts])


def _partition_list(partitions: tuple[TopicPartition, ...]) -> str:
    return brief_list([str(partition) for partition in partitions]) or "nothing"


class DeliveryStatus(msgspec.Struct, frozen=True):
    """What the next records of a partition wait for; see `Consumer.why`.

    `reason` is one of

    * "closed": the consumer is closed;

    * "not assigned": the partition is not assigned to this consumer;

    * "no topic": the topic does not exist, according to the metadata;

    * "rebalancing": the member has no assignment yet;

    * "callback": a rebalance callback, a deserializer, an interceptor or a callback of `events` is running,
      or the next poll will run a rebalance callback;

    * "revoking": the partition is being revoked;

    * "commit": the start offset is being committed before the first record is returned;

    * "paused": the application has paused the partition;

    * "error": poll raises an error until the application seeks or creates a new consumer;

    * "position": the committed offset, or the offset of the reset policy, is being looked up;

    * "validation": the leader is asked whether its log contains the position (KIP-320);

    * "poll": the application has not called poll for a second or more;

    * "buffered": the records are fetched, and the next polls return them;

    * "backoff": a failed fetch is retried at `until`;

    * "no leader": the metadata contains no leader for the partition;

    * "connection": the client is not connected to the leader;

    * "buffer full": fetched records of the broker's other partitions fill the buffer for this broker;

    * "transaction": with read_committed, the next records wait for the end of an open transaction;

    * "caught up": the position is the end of the log;

    * "fetching": a fetch is in flight.

    `detail` explains the reason. If a request for the partition keeps failing, `detail` includes its last
    failure.

    `since` and `until` are in milliseconds since 1970. `since` is the time when the wait began. `until` is
    the time when the wait ends by itself. Each is None if it is unknown.

    `lag` is the number of offsets from the position to the high watermark at the last fetch, or None if it is
    unknown.
    """

    partition: TopicPartition
    reason: str
    detail: str
    since: int | None = None
    until: int | None = None
    lag: int | None = None

    def __str__(self) -> str:
        """Return a line such as "flights-0: paused (lag 12): pause() was called for the partition"."""
        lag = "" if self.lag is None else f" (lag {self.lag})"
        return f"{self.partition}: {self.reason}{lag}: {self.detail}"


class GroupMetadata(msgspec.Struct, frozen=True):
    """The identity of a consumer in its group."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None


EventCallback = Callable[[GroupChange], None]
