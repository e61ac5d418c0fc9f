"""How a leader divides the partitions among the members: Kafka's four assignors, by the name in JoinGroup.

Every `assign` is a pure function of

* `partitions`: how many partitions each topic has; a topic that isn't there doesn't exist,
* `members`: member id -> `Subscription`,
* `racks`: topic -> the racks of each partition's replicas, where known (KIP-881),

and answers member id -> its partitions, for every member. Whatever members claim, each partition of a topic
that somebody wants has exactly one owner (cooperative: at most one, until who gave it up has joined again),
it is wanted by its owner, and the answer depends on the input alone: neither on PYTHONHASHSEED nor on the
order of the mappings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from ...errors import ConfigError
from ..subscription import Subscription, TopicPartition, cooperative_user_data, sticky_user_data
from .cooperative_sticky import assign as _cooperative_sticky
from .members import Racks
from .range import assign as _range
from .roundrobin import assign as _roundrobin
from .sticky import assign as _sticky

Assign = Callable[[Mapping[str, int], Mapping[str, Subscription], Racks], dict[str, list[TopicPartition]]]
UserData = Callable[[Sequence[TopicPartition] | None, int], bytes | None]


def _no_user_data(previous: Sequence[TopicPartition] | None, generation: int) -> bytes | None:
    return None


def _previous_assignment(previous: Sequence[TopicPartition] | None, generation: int) -> bytes | None:
    return None if previous is None else sticky_user_data(previous, generation)


def _previous_generation(previous: Sequence[TopicPartition] | None, generation: int) -> bytes | None:
    return cooperative_user_data(generation)


class Assignor(msgspec.Struct, frozen=True):
    """One way to divide. `user_data(previous, generation)` is what the subscription carries for it.

    `previous` is what the member was assigned last (None: nothing yet), `generation` when (-1: never). Raises
    ConfigError for a name that no JoinGroup can carry.
    """

    name: str
    assign: Assign
    user_data: UserData = _no_user_data
    cooperative: bool = False
    eager: bool = True

    def __post_init__(self) -> None:
        try:
            size = len(self.name.encode())
        except (AttributeError, UnicodeEncodeError):
            size = 0
        if not 0 < size < 2**15:
            raise ConfigError("name", self.name, "an assignor's name: a text of 1 to 32767 bytes of UTF-8")


ASSIGNORS: dict[str, Assignor] = {
    "range": Assignor("range", _range),
    "roundrobin": Assignor("roundrobin", _roundrobin),
    "sticky": Assignor("sticky", _sticky, _previous_assignment),
    "cooperative-sticky": Assignor("cooperative-sticky", _cooperative_sticky, _previous_generation, True),
}


def chosen(wanted: Iterable[str | Assignor]) -> tuple[Assignor, ...]:
    """The assignors by name, in order of preference. ConfigError: a name that is unknown or there twice."""
    found: list[Assignor] = []
    for one in wanted:
        assignor = one if isinstance(one, Assignor) else ASSIGNORS.get(one)
        if assignor is None or any(assignor.name == other.name for other in found):
            raise ConfigError(
                "partition.assignment.strategy", one, f"each of {', '.join(ASSIGNORS)} at most once"
            )
        found.append(assignor)
    if not found:
        raise ConfigError("partition.assignment.strategy", (), f"at least one of {', '.join(ASSIGNORS)}")
    return tuple(found)


def is_cooperative(assignors: Iterable[Assignor]) -> bool:
    """Whether members with these assignors rebalance cooperatively: only if all of them can.

    Java's rule: the highest protocol that all have in common. Raises ConfigError if there is none.
    """
    assignors = tuple(assignors)
    if all(assignor.cooperative for assignor in assignors):
        return True
    if all(assignor.eager for assignor in assignors):
        return False
    names = ", ".join(assignor.name for assignor in assignors)
    raise ConfigError("partition.assignment.strategy", names, "they have no rebalance protocol in common")
