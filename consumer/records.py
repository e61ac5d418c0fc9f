"""The types that a consumer returns: records, columns of records, and changes of the membership."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from kproto.errors import brief_list
from kproto.group.subscription import TopicPartition

if TYPE_CHECKING:
    from kproto.records.columns import Columns


class ConsumerRecord(msgspec.Struct, gc=False):
    """One record. `timestamp` is in ms since 1970, or -1 if the record has none. Key and value are bytes.

    `leader_epoch` is the epoch of the leader that appended the record, as in Java's ConsumerRecord. It is
    None for the message formats before Kafka 0.11.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
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
    """A change of this consumer's membership or state, for logs and timelines; see `Consumer.events`.

    `kind` is one of

    * "rejoining": the consumer sends JoinGroup because of `reason` ("" when it first joins);
    * "assigned": `partitions` were added; `owned` are all owned partitions;
    * "revoked": `partitions` are released, after the callback and the commit, and before another member gets
      them;
    * "lost": `partitions` may already belong to another member, and nothing could be committed;
    * "coordinator": a coordinator was found, or lost because of `reason`;
    * "reset": `partitions` start at `offset` because of `reason`, and not at a committed offset. If `before`
      is set, this position was not in the log, and the records between the two offsets are skipped or
      returned again;
    * "unsought": seeks that waited for `partitions` were dropped, because the group assigned them to another
      member;
    * "truncated": the log was truncated below the position `before` of `partitions`; reading continues at
      `offset`;
    * "uncommitted": `partitions` were released before their last offsets could be committed, or an automatic
      commit was rejected (`reason`);
    * "refused": a request that is retried indefinitely has failed for some seconds; `reason` has the request
      and the error. The report is repeated after growing intervals (30 s to 10 min) while the request keeps
      failing;
    * "throttled": a broker requires a pause of a second or more, as this client exceeds a quota (KIP-219).
      The report is repeated after growing intervals;
    * "unreachable": no broker responds. The report is repeated after growing intervals;
    * "reachable": a broker responds again;
    * "missing": a subscribed topic, or an assigned partition, does not exist;
    * "left": the member has left the group;
    * "closed": the consumer has been closed.

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
        clock = time.strftime("%H:%M:%S", time.gmtime(self.at // 1000))
        partitions = f" {_listed(self.partitions)}" if self.partitions else ""
        facts = [
            *([f"owns {_listed(self.owned)}"] if self.kind == "assigned" else []),
            *([f"from offset {self.before}"] if self.before is not None else []),
            *([f"at offset {self.offset}"] if self.offset is not None else []),
            *([f"generation {self.generation}"] if self.generation >= 0 else []),
            *([self.reason] if self.reason else []),
        ]
        return "; ".join([f"{clock}.{self.at % 1000:03} UTC {self.kind}{partitions}", *facts])


def _listed(partitions: tuple[TopicPartition, ...]) -> str:
    return brief_list([str(partition) for partition in partitions]) or "nothing"


class GroupMetadata(msgspec.Struct, frozen=True):
    """The identity of this consumer in its group."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None


EventCallback = Callable[[GroupChange], None]
