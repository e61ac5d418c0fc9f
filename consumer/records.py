"""What a consumer hands out: single records, or a partition's records as columns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from kproto.group.subscription import TopicPartition

if TYPE_CHECKING:
    from kproto.records.columns import Columns


class ConsumerRecord(msgspec.Struct, gc=False):
    """One record. `timestamp` is in ms since 1970, -1 where the record has none; key and value are bytes."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def __str__(self) -> str:
        """One line, long keys and values cut: "flights-2 @ 17: 'UA' = 'departed'"."""
        from kproto.records.record import format_record

        return f"{self.topic_partition} @ {self.offset}: {format_record(self.key, self.value, self.headers)}"

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class ColumnBatch(msgspec.Struct):
    """Consecutive records of one partition as columns: see `kproto.records.columns`."""

    topic: str
    partition: int
    columns: Columns

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __len__(self) -> int:
        return len(self.columns.offset)


class GroupChange(msgspec.Struct, frozen=True):
    """One thing that happened to this consumer, for logs and timelines; see `Consumer.events`.

    `kind` is one of

    * "rejoining": a JoinGroup goes out, because of `reason` (empty at the very first);
    * "assigned": `partitions` were added, `owned` is everything now owned;
    * "revoked": `partitions` are given back, after the callback and the commit, before anyone else gets them;
    * "lost": `partitions` belong to somebody else already, nothing could be committed;
    * "coordinator": a coordinator was found (or lost: the reason says why);
    * "reset": `partitions` start at `offset` because of `reason`, not where somebody committed; with
      `before`, a position that the log lacks (now): what is between is passed over, or comes again;
    * "unsought": a seek waited for these `partitions`, and the group gave them to somebody else: it is over;
    * "truncated": the log was truncated below the position `before`; reading continues at `offset`;
    * "uncommitted": `partitions` were given back and their last offsets could not be committed, or an
      automatic commit was refused: `reason`;
    * "refused": brokers have refused something for seconds that is tried again without end: `reason` says
      what, with the broker's error; again after growing gaps (30 s to 10 min) as long as it lasts;
    * "throttled": a broker asks for a second of quiet or more, as this client exceeds a quota (KIP-219);
      again after growing gaps;
    * "unreachable": no broker answers; again after growing gaps. "reachable": one does again;
    * "missing": a subscribed topic, or an assigned partition, doesn't exist;
    * "left", "closed".

    `at` is milliseconds since 1970.
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
        """One line: "12:00:00.250 UTC assigned t-1; owns t-0, t-1; generation 3"."""
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
    return ", ".join(map(str, partitions)) or "nothing"


class GroupMetadata(msgspec.Struct, frozen=True):
    """Who this consumer is in its group."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None


EventCallback = Callable[[GroupChange], None]
