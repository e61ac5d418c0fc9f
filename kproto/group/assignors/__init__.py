"""Assignors: functions with which the leader assigns partitions to members.

`ASSIGNORS` contains Kafka's assignors. Its keys are the names that JoinGroup contains, such as "range".

The `assign` of each assignor is a pure function of these arguments:

* `partitions`: topic -> number of partitions. A topic that does not exist has no entry.

* `members`: member id -> `Subscription`.

* `racks`: topic -> the racks of each partition's replicas, where the racks are known (KIP-881).

The result of `assign` maps each member id to its partitions (R186). It depends only on the arguments, not on
PYTHONHASHSEED or the order of mappings (R222).

Each partition of a subscribed topic that exists has exactly one owner, which subscribes to the topic (R218,
R219), whatever the members report as owned.

There is one exception: a cooperative assignor withholds a partition from its new owner while another member
reports the partition as owned. Until that member has revoked the partition and rejoined, no member owns it in
the result of `assign`.

If all members subscribe to the same topics, their numbers of partitions differ by at most one (R220). With
the range assignor, this holds only within each topic, and not for the sum over several topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ...errors import ConfigError
from ..subscription import (
    ReportedOwnership,
    Subscription,
    TopicPartition,
    cooperative_user_data,
    sticky_user_data,
)
from . import cooperative_sticky, range, roundrobin, sticky
from .subscribers import Racks

Assign = Callable[[Mapping[str, int], Mapping[str, Subscription], Racks], dict[str, list[TopicPartition]]]
UserData = Callable[[Sequence[TopicPartition] | None, int], bytes | None]


def _no_user_data(previous: Sequence[TopicPartition] | None, generation: int) -> bytes | None:
    return None


def _assignment_user_data(previous: Sequence[TopicPartition] | None, generation: int) -> bytes | None:
    """Return the previous assignment and its generation, or None before the first assignment."""
    return None if previous is None else sticky_user_data(previous, generation)


def _generation_user_data(previous: Sequence[TopicPartition] | None, generation: int) -> bytes | None:
    """Return only the generation: the subscription itself contains the owned partitions."""
    return cooperative_user_data(generation)


class Assignor(msgspec.Struct, frozen=True):
    """An assignor and its name in JoinGroup. Java: ConsumerPartitionAssignor.

    Raises ConfigError unless the name has 1 to 32,767 bytes in UTF-8, as JoinGroup requires.
    """

    name: str
    assign: Assign
    # `user_data(previous, generation)` returns the user data of the subscription. `previous` is the last
    # assignment, and `generation` is its generation. Before the first assignment, the arguments are None and
    # -1.
    user_data: UserData = _no_user_data
    # Whether the assignor supports the rebalance protocol COOPERATIVE, and whether it supports EAGER (M71).
    cooperative: bool = False
    eager: bool = True
    # A function that returns the partitions that a subscription reports as owned. None if the assignor
    # ignores previous owners.
    read_ownership: Callable[[Subscription], ReportedOwnership] | None = None
    # Whether the assignor balances each topic separately, and not the partitions of all topics together.
    balances_each_topic: bool = False
    # The name of Java's class, without its package. `partition.assignment.strategy` in a properties file may
    # contain the class instead of the assignor's name.
    java_class: str | None = None

    def __post_init__(self) -> None:
        try:
            size = len(self.name.encode())
        except (AttributeError, UnicodeEncodeError):
            size = 0
        if not 0 < size < 2**15:
            raise ConfigError(
                "name", self.name, "the name of an assignor: a str of 1 to 32767 bytes in UTF-8"
            )


ASSIGNORS: dict[str, Assignor] = {
    assignor.name: assignor
    for assignor in (
        Assignor("range", range.assign, balances_each_topic=True, java_class="RangeAssignor"),
        Assignor("roundrobin", roundrobin.assign, java_class="RoundRobinAssignor"),
        Assignor(
            "sticky",
            sticky.assign,
            _assignment_user_data,
            read_ownership=sticky.read_ownership,
            java_class="StickyAssignor",
        ),
        Assignor(
            "cooperative-sticky",
            cooperative_sticky.assign,
            _generation_user_data,
            cooperative=True,
            read_ownership=cooperative_sticky.read_ownership,
            java_class="CooperativeStickyAssignor",
        ),
    )
}


def resolve_assignors(strategy: Iterable[str | Assignor]) -> tuple[Assignor, ...]:
    """Return the assignors of `partition.assignment.strategy`, in order of preference (M72).

    Raises ConfigError if a name is unknown or appears twice, or if the list is empty.
    """
    assignors: list[Assignor] = []
    names = ", ".join(ASSIGNORS)
    for entry in strategy:
        assignor = entry if isinstance(entry, Assignor) else ASSIGNORS.get(entry)
        if assignor is None or any(assignor.name == earlier.name for earlier in assignors):
            raise ConfigError("partition.assignment.strategy", entry, f"each of {names} at most once")
        assignors.append(assignor)
    if not assignors:
        raise ConfigError("partition.assignment.strategy", (), f"at least one of {names}")
    return tuple(assignors)


def is_cooperative(assignors: Iterable[Assignor]) -> bool:
    """Return whether a member with these assignors rebalances cooperatively.

    As in Java, the member uses the newest rebalance protocol that all its assignors support (M71). Raises
    ConfigError if no protocol is supported by all of them.
    """
    assignors = tuple(assignors)
    if all(assignor.cooperative for assignor in assignors):
        return True
    if all(assignor.eager for assignor in assignors):
        return False
    names = ", ".join(assignor.name for assignor in assignors)
    raise ConfigError(
        "partition.assignment.strategy", names, "assignors that have a rebalance protocol in common"
    )
