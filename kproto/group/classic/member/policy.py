"""Policies: behaviour that the protocol leaves open and in which Kafka clients differ."""

from __future__ import annotations

import msgspec


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The choices of a classic member. The defaults are Java's, except for `fenced_join_again`."""

    # Lose all partitions after session.timeout.ms without a response, as librdkafka does. The member id is
    # kept, because a coordinator that was only unreachable still knows it. Java keeps the partitions until
    # the coordinator answers again, so two members may deliver the same records. With this choice the session
    # timeout and max.poll.interval.ms also run while a JoinGroup is in flight. During that time a member that
    # keeps partitions sends heartbeats on another connection.
    lose_on_session_timeout: bool = False
    # Every member rejoins if the number of partitions of one of its topics changes (librdkafka). By default
    # only the leader does (Java, sarama, franz-go).
    every_member_watches: bool = False
    # A member whose group.instance.id another process has taken over rejoins at the next poll, and so fences
    # that process (Java, sarama, franz-go). By default the member never joins again (librdkafka).
    fenced_join_again: bool = False
    # A static member may be removed during a cooperative rebalance and accepted again in the same generation.
    # The partitions that it has revoked in the meantime have no owner until the next rebalance. With this
    # choice the member rejoins once more to start that rebalance. Java's member does not.
    finish_revocations: bool = False
    # The member checks what Java's member trusts. A static leader that has restarted keeps the group's
    # assignment (KIP-814). It sends DescribeGroups after its first heartbeat, and rejoins unless every
    # partition is assigned. This also works with JoinGroup below v9, where brokers do not say that the member
    # is the leader. (Java assumes that the assignment was made with the current metadata, and below v9 it
    # ignores changes of the metadata. In both cases new partitions have no owner until the next rebalance.) A
    # dynamic leader always assigns, even if its JoinGroup response has skipAssignment set. For itself, a
    # leader uses the subscription that it sent in JoinGroup, and not the one in the response. It rejoins if
    # its assignment in the SyncGroup response differs from the one that it sent. A follower that owns nothing
    # checks its empty assignment once, and rejoins if the coordinator knows a different assignment of this
    # member, or if no member owns any partition of the member's topics.
    check_inherited_plan: bool = False
    # After an assignment that cannot be decoded, the error is raised once, the partitions are lost, and the
    # next poll rejoins. An empty assignment, which the coordinator sends in the SyncGroup response to a
    # member that the leader has left out, means no partitions. In both cases Java raises an error from each
    # poll, keeps the previous partitions and sends heartbeats, until the coordinator removes the member.
    replaces_unreadable_assignment: bool = False
    # A member rejoins after COORDINATOR_LOAD_IN_PROGRESS in a SyncGroup response, because the coordinator
    # will soon have loaded the group. Java raises the error.
    retry_loading: bool = False
    # After an error that was raised to the application, the next JoinGroup reports no generation, because the
    # member has lost its partitions. Java reports the last generation.
    forget_failed_generation: bool = False


JAVA = Policy()
# The policy that `policy="java"` of the consumer selects.
AS_JAVA = Policy(fenced_join_again=True)
# The consumer's default policy. Its choices prevent that two members read a partition at the same time, and
# that a partition stays without an owner.
KPROTO = Policy(
    lose_on_session_timeout=True,
    finish_revocations=True,
    check_inherited_plan=True,
    replaces_unreadable_assignment=True,
    retry_loading=True,
    forget_failed_generation=True,
)
