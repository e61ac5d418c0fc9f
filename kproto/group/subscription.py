"""What members say in JoinGroup's `metadata`, and what leaders answer in SyncGroup's `assignment`."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic; sorts by topic, then by index."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
