"""Policies: behaviour that the protocol leaves open and in which Kafka clients differ."""

from __future__ import annotations

import msgspec


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The choices of a classic member. The defaults are Java's, except for `fenced_join_again`."""

    # Whether to lose all partitions after session.timeout.ms without a response, as librdkafka does. The
    # member id is kept, because the coordinator may still know it. Java keeps the partitions until the
    # coordinator answers again, so two members may deliver the same records.
    #
    # With this choice, the session timeout and max.poll.interval.ms also run while a JoinGroup is in flight.
    # A member that keeps partitions then sends heartbeats on another connection.
    lose_on_session_timeout: bool = False
    # Whether every member rejoins if the number of partitions of one of its topics changes (librdkafka). By
    # default only the leader rejoins (Java, sarama, franz-go).
    every_member_watches: bool = False
    # Whether a member that was fenced by another process with its group.instance.id rejoins at the next poll,
    # and so fences that process (Java, sarama, franz-go). By default the member never joins again
    # (librdkafka).
    fenced_join_again: bool = False
    # Whether a static member rejoins after it was removed during a cooperative rebalance and accepted again
    # in the same generation. The partitions that it revoked in between have no owner, and the rejoin assigns
    # them. Java's member does not rejoin: these partitions have no owner until the next rebalance.
    finish_revocations: bool = False
    # Whether the member checks assignments that Java's member trusts.
    #
    # A restarted static leader keeps the group's assignment (KIP-814). With this choice, it sends
    # DescribeGroups after its first heartbeat, and rejoins unless every partition is assigned. It also does
    # so with JoinGroup below v9, where brokers do not report that the member is the leader. In Java, new
    # partitions have no owner until the next rebalance.
    #
    # A dynamic leader always assigns, even if its JoinGroup response has skipAssignment set. For itself, a
    # leader uses the subscription that it sent in JoinGroup. It rejoins if the SyncGroup response has another
    # assignment for it than the one that it sent.
    #
    # A follower without partitions checks its empty assignment once. It rejoins if the coordinator knows
    # another assignment of this member, or if no member owns a partition of the member's topics.
    check_inherited_plan: bool = False
    # Whether an assignment that cannot be decoded raises one error, after which the partitions are lost and
    # the next poll rejoins. An empty assignment, which the coordinator sends to a member that the leader has
    # left out, means no partitions. In both cases Java raises an error from each poll, keeps the previous
    # partitions and sends heartbeats until the coordinator removes the member.
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
