"""Behaviour in which Kafka clients differ, and which no broker notices."""

from __future__ import annotations

import msgspec


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Choices of a classic member. The defaults follow Java's consumer (`JAVA`)."""

    # Lose all partitions after session.timeout.ms without a response, as librdkafka does. The member id is
    # kept, because a coordinator that was only unreachable still knows it. Java waits until the coordinator
    # answers again: until then two members may deliver the same records. With this choice the session
    # timeout and max.poll.interval.ms also count while a JoinGroup is in flight, and a member that keeps
    # partitions during a rebalance sends heartbeats on another connection meanwhile.
    lose_on_session_timeout: bool = False
    # Every member whose topics change their number of partitions rejoins (librdkafka). By default only the
    # leader does (Java, sarama, franz-go).
    every_member_watches: bool = False
    # A member whose group.instance.id was taken over rejoins at the next poll, and so fences the other
    # process (Java, sarama, franz-go). By default it stops for good (librdkafka).
    fenced_join_again: bool = False
    # A static member may be removed during a cooperative rebalance and accepted again in the same generation.
    # With this choice it then rejoins once more: the partitions that it has revoked in between have no owner
    # until the next assignment. Java does not rejoin, and those partitions have no owner until the next
    # rebalance.
    finish_revocations: bool = False
    # A static leader that has restarted keeps the group's assignment (KIP-814). With this choice it asks
    # DescribeGroups after its first heartbeat whether every partition is assigned, and rejoins if not. It
    # does so also with JoinGroup below v9, where brokers do not say that it leads. Java takes the current
    # metadata for that of the assignment, and below v9 ignores changes: new partitions have no owner until
    # the next rebalance. A dynamic leader always assigns, also if the coordinator tells it to skip the
    # assignment; Java's does not.
    check_inherited_plan: bool = False


JAVA = Policy()
# What `policy="java"` of the consumer selects.
AS_JAVA = Policy(fenced_join_again=True)
# The consumer's default: no record is delivered by two members, and no partition is left without an owner.
KPROTO = Policy(lose_on_session_timeout=True, finish_revocations=True, check_inherited_plan=True)
