"""Consumers of Kafka 0.8: each chooses its own partitions, and only the owner nodes prevent conflicts."""

from __future__ import annotations

from kproto.group.subscription import TopicPartition
from kproto.models import zookeeper as zk


def tp(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


class Group:
    """A group of Kafka 0.8 consumers in virtual time."""

    def __init__(self, partitions: int = 4) -> None:
        self.state = zk.start("g", {"t": partitions})
        self.now = 0
        self.said: list[tuple[int, zk.ZooKeeperAction]] = []

    def do(self, event: zk.ZooKeeperEvent) -> None:
        self.said += [(self.now, action) for action in zk.step(self.state, event, self.now)]

    def run(self, ms: int = 60_000) -> None:
        end = self.now + ms
        while (due := zk.next_deadline(self.state)) is not None and due <= end:
            self.now = max(due, self.now)
            self.do(zk.ZooKeeperTick())
        self.now = end

    def kinds(self, kind: type[object]) -> list[zk.ZooKeeperAction]:
        return [action for _, action in self.said if isinstance(action, kind)]

    def owners(self) -> list[str | None]:
        return [zk.owner_of(self.state, tp(topic)) for topic in range(self.state.topics["t"])]


def test_each_consumer_takes_the_range_at_its_position_among_the_ids() -> None:
    group = Group(5)
    for name in ("b", "a"):
        group.do(zk.ConsumerStarted(name))
    group.run()
    assert group.owners() == ["a", "a", "a", "b", "b"]


def test_a_consumer_that_is_notified_first_conflicts_with_the_present_owner() -> None:
    group = Group()
    group.do(zk.ConsumerStarted("b", delay_ms=500))
    group.run()
    group.do(zk.ConsumerStarted("a", delay_ms=5))
    group.run()
    conflicts = group.kinds(zk.OwnershipConflict)
    assert conflicts == [zk.OwnershipConflict("a", tp(partition), "b") for partition in (0, 1)]
    assert group.owners() == ["a", "a", "b", "b"]


def test_a_conflict_releases_all_partitions_again() -> None:
    group = Group()
    group.do(zk.ConsumerStarted("c", delay_ms=90_000))
    group.now = 90_000
    group.do(zk.ZooKeeperTick())
    group.do(zk.TopicGrown("t", 5))
    group.state.consumers["c"].owned = (tp(2), tp(3))
    for partition in (0, 1):
        del group.state.nodes[zk.owner_path("g", "t", partition)]
    group.do(zk.ConsumerStarted("a", delay_ms=5))
    group.run(100)
    assert group.kinds(zk.OwnershipConflict) == [zk.OwnershipConflict("a", tp(2), "c")]
    assert group.owners()[:2] == [None, None]


def test_after_four_tries_a_consumer_waits_for_the_next_change() -> None:
    group = Group()
    group.do(zk.ConsumerStarted("b", delay_ms=3_600_000))
    group.now = 3_600_000
    group.do(zk.ZooKeeperTick())
    group.do(zk.ConsumerStarted("a"))
    group.run(60_000)
    assert len(group.kinds(zk.OwnershipConflict)) == 4 * 2
    assert group.kinds(zk.RebalanceFailed) == [zk.RebalanceFailed("a")]
    group.do(zk.SessionEnded("b"))
    group.run()
    assert group.owners() == ["a"] * 4


def test_the_nodes_of_a_session_disappear_with_it() -> None:
    group = Group()
    for name in ("a", "b"):
        group.do(zk.ConsumerStarted(name))
    group.run()
    group.do(zk.SessionEnded("a"))
    assert group.owners() == [None, None, "b", "b"]
    group.run()
    assert group.owners() == ["b"] * 4


def test_new_partitions_make_every_consumer_rebalance() -> None:
    group = Group(2)
    for name in ("a", "b"):
        group.do(zk.ConsumerStarted(name))
    group.run()
    before = group.state.rebalances
    group.do(zk.TopicGrown("t", 4))
    group.run()
    assert group.state.rebalances >= before + 2
    assert None not in group.owners()


def test_a_committed_offset_is_a_node() -> None:
    group = Group()
    group.do(zk.OffsetCommitted("a", tp(3), 17))
    assert group.state.nodes["/consumers/g/offsets/t/3"] == "17"
