"""Policies: behaviour that the protocol leaves open and in which Kafka clients differ."""

from __future__ import annotations

import msgspec


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Behaviour that a classic member can choose. The defaults are Java's, except for `fenced_join_again`."""

    # Whether to lose all partitions after session.timeout.ms without a successful response. If so,
    # max.poll.interval.ms also applies during a join. Java keeps the partitions, so two members may deliver
    # the same records. librdkafka loses the partitions, except during a join, and also drops its member id.
    lose_on_session_timeout: bool = False
    # Whether every member watches the topics of its own subscription, and rejoins if their partitions change
    # (librdkafka). By default only the leader watches topics, those of all members (Java, sarama, franz-go).
    every_member_watches: bool = False
    # Whether a member rejoins at the next poll after FENCED_INSTANCE_ID, and so fences the other process
    # (Java, sarama, franz-go). By default the fenced member never joins again (librdkafka).
    fenced_join_again: bool = False
    # Whether a static member rejoins after it was removed during a cooperative rebalance and accepted again
    # in the same generation. Partitions that it revoked in between have no owner until the next rebalance.
    # Java's member does not rejoin.
    finish_revocations: bool = False
    # Whether the member checks assignments that Java's member trusts. The docstring of `table` lists the
    # checks.
    check_inherited_plan: bool = False
    # Whether a member rejoins if it cannot decode its assignment, and whether an empty assignment field means
    # no partitions. In both cases Java raises an error from each poll, until the coordinator removes the
    # member.
    replaces_unreadable_assignment: bool = False
    # Whether a member rejoins after COORDINATOR_LOAD_IN_PROGRESS in a SyncGroup response. Java raises the
    # error, although the coordinator will soon have loaded the group.
    retry_loading: bool = False
    # Whether a member that raises an error to the application, and so loses its partitions, also forgets its
    # generation. Java's member reports the last generation in its next JoinGroup.
    forget_failed_generation: bool = False


JAVA = Policy()
# The policy that the consumer's option `policy="java"` selects.
AS_JAVA = Policy(fenced_join_again=True)
# The consumer's default policy. It prevents two members from reading a partition at the same time, and
# partitions from being left without an owner.
KPROTO = Policy(
    lose_on_session_timeout=True,
    finish_revocations=True,
    check_inherited_plan=True,
    replaces_unreadable_assignment=True,
    retry_loading=True,
    forget_failed_generation=True,
)
