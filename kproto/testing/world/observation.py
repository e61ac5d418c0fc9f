"""What a world writes down of its clients, for invariants to look at."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...group.subscription import TopicPartition


class Observation(NamedTuple):
    """One thing that an application saw or did. `at` is virtual ms, `turn` the world's turn.

    `what` and `detail` are

    * "delivered": records of one partition; detail: their offsets, in the order in which they came;
    * "assigned", "revoking", "losing": a callback begins; "revoked", "lost": it has returned;
    * "committing": a commit was asked for; detail: the token, and the offsets it means;
    * "committed": it is done; detail: the token, the offsets, and the error or None;
    * "stored": the coordinator took offsets; `who` is the group; detail: partition -> offset;
    * "sought": a seek; detail: the offset, or the words of where to;
    * "beyond": the log ended before the offset of the seek just now;
    * "paused", "resumed", "subscribed", "unsubscribed", "closing", "closed", "killed";
    * "raised": poll raised; detail: the error;
    * "reset": the client says that partitions start by policy; detail: the offset and the reason;
    * "grown": a topic has new partitions; `who` is "operator";
    * "fenced": the coordinator said that this is no member (any more); detail: the error's number.
    """

    turn: int
    at: int
    source: str
    kind: str
    partitions: tuple[TopicPartition, ...] = ()
    detail: Any = None
