"""groupbalancer.go: members are sorted by their ids, partitions come as the broker named them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

# Member id -> topic -> partitions.
Plan = dict[str, dict[str, list[int]]]


def assign(name: str, members: Mapping[str, Sequence[str]], partitions: Mapping[str, Sequence[int]]) -> Plan:
    """Divide; `members` are topics by member id. Members of topics without partitions get an empty entry."""
    share = _SHARES[name]
    plan: Plan = {}
    by_topic: dict[str, list[str]] = {}
    for member, topics in members.items():
        for topic in topics:
            by_topic.setdefault(topic, []).append(member)
    for topic, wanting in by_topic.items():
        found = partitions.get(topic, ())
        for index, member in enumerate(sorted(wanting)):
            got = [one for at, one in enumerate(found) if share(at, index, len(found), len(wanting))]
            mine = plan.setdefault(member, {})
            if got:
                mine[topic] = got
    return plan


def _range(at: int, index: int, partitions: int, members: int) -> bool:
    """RangeGroupBalancer.AssignGroups. Unlike Java's, the longer parts are not at the front."""
    return index * partitions // members <= at < (index + 1) * partitions // members


def _roundrobin(at: int, index: int, partitions: int, members: int) -> bool:
    """RoundRobinGroupBalancer.AssignGroups: each topic begins with the first member."""
    return at % members == index


_SHARES: Mapping[str, Callable[[int, int, int, int], bool]] = {"range": _range, "roundrobin": _roundrobin}
