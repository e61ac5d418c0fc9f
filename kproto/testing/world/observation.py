"""Observations: the events of clients and groups that a world records, for invariants to check."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...group.subscription import TopicPartition


class Observation(NamedTuple):
    """One event of a client, a group or the operator (the calls of the class `Operator`).

    `turn` is the number of the world's turn (event). `at` is the time in virtual ms.

    `source` is the name of the client, or "operator". For "stored", "settled", "generation" and "removed" it
    is the group id.

    The values of `kind`, and what `detail` contains:

    * "delivered": poll returned records of one partition. Detail: their offsets, in the order of the records;

    * "assigned": a callback begins. Detail: the whole assignment of a model's member, or None if the model
      does not report it;

    * "revoking", "losing": a callback begins. Detail of "losing": the reason for the loss, if the client is
      kproto's consumer;

    * "revoked", "lost": the callback has returned;

    * "committing": a commit was requested. Detail: the token and the offsets to commit;

    * "committed": the commit is complete. Detail: the token, the offsets, and the error, or None without an
      error;

    * "stored": the coordinator stored offsets of the group. Detail: partition -> offset;

    * "settled": a rebalance of the group is complete. Detail: the generation and the members;

    * "generation": a generation of the group begins. Detail: its number, and the coordinator's reasons for
      the rebalance;

    * "removed": the coordinator removed a member. Detail: the member id and the reason;

    * "sought": a seek. Detail: the offset, or a target such as "earliest";

    * "beyond": the log ends before the offset of the last seek;

    * "paused", "resumed", "subscribed", "unsubscribed", "closing", "closed", "killed";

    * "raised": poll raised an error. Detail: the error;

    * "reset": the client applied its reset policy. Detail: the offset and the reason;

    * "frozen": the process is suspended. Detail: the duration in ms;

    * "thawed": the process continues;

    * "fault", "healed": a network fault begins or ends. Detail: the `Fault`;

    * "moved": a coordinator moves, or a broker stops. Detail: a description;

    * "grown": the topic has new partitions;

    * "fenced": the client received an error that rejects its member id, generation or instance id. Detail:
      the error code.
    """

    turn: int
    at: int
    source: str
    kind: str
    partitions: tuple[TopicPartition, ...] = ()
    detail: Any = None
