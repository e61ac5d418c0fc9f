"""Policies: behaviour that the protocol leaves open and in which Kafka clients differ."""

from __future__ import annotations

import msgspec


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The choices of a classic member. The defaults are Java's, except for `fenced_join_again`."""

    # Whether to lose all partitions after session.timeout.ms without a response, as librdkafka does; the
    # member id is kept. The session timeout and max.poll.interval.ms then also run during a join, in which
    # heartbeats use another connection. Java keeps the partitions until the coordinator answers again, so two
    # members may deliver the same records.
    lose_on_session_timeout: bool = False
    # Whether every member rejoins if the number of partitions of one of its topics changes (librdkafka). By
    # default only the leader rejoins (Java, sarama, franz-go).
    every_member_watches: bool = False
    # Whether a member that was fenced by its group.instance.id rejoins at the next poll, and so fences the
    # other process (Java, sarama, franz-go). By default it never joins again (librdkafka).
    fenced_join_again: bool = False
    # Whether a static member rejoins after it was removed during a cooperative rebalance and accepted again
    # in the same generation. Partitions that it revoked in between have no owner until the next rebalance.
    # Java's member does not rejoin.
    finish_revocations: bool = False
    # Whether the member checks assignments that Java's member trusts. A restarted static leader rejoins
    # unless DescribeGroups shows an owner for every partition (KIP-814). A leader also rejoins if its
    # assignment in the SyncGroup response is not the one that it sent. A follower without partitions rejoins
    # if DescribeGroups shows that its empty assignment is wrong. A dynamic leader always assigns, even with
    # skipAssignment, and for itself uses the subscription that it sent.
    check_inherited_plan: bool = False
    # Whether a member rejoins after an assignment that cannot be decoded. The error is raised once, and the
    # partitions are lost. An empty assignment means no partitions: the leader has left the member out. In
    # both cases Java raises an error from each poll, keeps the previous partitions and sends heartbeats until
    # the coordinator removes the member.
    replaces_unreadable_assignment: bool = False
    # Whether a member rejoins after COORDINATOR_LOAD_IN_PROGRESS in a SyncGroup response. Java raises the
    # error, although the coordinator will soon have loaded the group.
    retry_loading: bool = False
    # Whether the next JoinGroup after an error for the application reports no generation. The member has lost
    # its partitions then. Java reports the last generation.
    forget_failed_generation: bool = False


JAVA = Policy()
# The policy that `policy="java"` of the consumer selects.
AS_JAVA = Policy(fenced_join_again=True)
# The consumer's default policy. It prevents that two members read a partition at the same time, and that a
# partition stays without an owner.
KPROTO = Policy(
    lose_on_session_timeout=True,
    finish_revocations=True,
    check_inherited_plan=True,
    replaces_unreadable_assignment=True,
    retry_loading=True,
    forget_failed_generation=True,
)
