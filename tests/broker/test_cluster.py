"""Several brokers that share one cluster: who answers, and who says that another one does."""

from __future__ import annotations

from itertools import count
from uuid import UUID

import pytest

from kproto.broker.broker import Broker, Reply
from kproto.broker.call import Node
from kproto.broker.cluster import Cluster
from kproto.broker.handlers.index import served
from kproto.broker.machine import (
    Connected,
    CreateTopic,
    ElectLeader,
    Event,
    MoveCoordinator,
    Received,
    Tick,
    step,
)
from kproto.broker.settings import Settings
from kproto.error_codes import ErrorCode
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.headers import decode_response, encode_request
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.index import response_class
from kproto.messages.metadata import MetadataRequest
from kproto.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kproto.wire.message import Message
from tests.broker.stage import answered, batch_of, fetching, joining, wanted

IDS = count(1)


class Two:
    """Two brokers of one cluster, and a connection to each."""

    def __init__(self) -> None:
        settings = Settings.from_properties({"group.initial.rebalance.delay.ms": "0"})
        nodes = [Node(1, "one", 9092), Node(2, "two", 9092)]
        self.cluster = Cluster(settings, nodes)
        self.brokers = {node.id: Broker(settings, node, served(), cluster=self.cluster) for node in nodes}
        self.conns: dict[int, int] = {}
        self.answers: dict[int, Message] = {}
        self.asked: dict[int, tuple[int, int]] = {}
        self.now = 1000
        for node, broker in self.brokers.items():
            self.conns[node] = next(IDS)
            step(broker, Connected(self.conns[node], "client"), self.now)
        self.step(1, CreateTopic("t", 2, UUID(int=7)))

    def step(self, node: int, event: Event) -> None:
        for action in step(self.brokers[node], event, self.now):
            if isinstance(action, Reply):
                key, version = self.asked[action.conn]
                _, self.answers[action.conn] = decode_response(action.frame, response_class(key), version)

    def ask(self, node: int, request: Message, version: int) -> Message | None:
        """The answer; None while it is waited for."""
        conn = next(IDS)
        step(self.brokers[node], Connected(conn, "client"), self.now)
        key = type(request).__api_key__
        assert key is not None
        self.asked[conn] = (key, version)
        self.step(node, Received(conn, encode_request(request, version, 1, "c"), UUID(int=conn)))
        self.conns[node] = conn
        return self.answers.get(conn)


@pytest.fixture
def two() -> Two:
    return Two()


def test_both_brokers_tell_the_same_of_the_cluster(two: Two) -> None:
    told = [two.ask(node, MetadataRequest(topics=None), 12) for node in (1, 2)]
    assert told[0] == told[1]
    assert [(one.node_id, one.host) for one in told[0].brokers] == [(1, "one"), (2, "two")]  # type: ignore[union-attr]
    assert [one.leader_id for one in told[0].topics[0].partitions] == [1, 2]  # type: ignore[union-attr]


def test_only_the_leader_takes_records_and_gives_them(two: Two) -> None:
    data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch_of(b"a"))])
    codes = []
    for node in (2, 1):
        stored = two.ask(node, ProduceRequest(acks=-1, timeout_ms=1, topic_data=[data]), 9)
        codes.append(stored.responses[0].partition_responses[0].error_code)  # type: ignore[union-attr]
        fetched = two.ask(node, fetching(wanted(), wait=0), 12)
        codes.append(answered(fetched)[0].error_code)  # type: ignore[arg-type]
    assert codes == [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0, 0]


def test_a_fetch_that_waits_hears_that_the_leader_moved(two: Two) -> None:
    assert two.ask(1, fetching(wanted(epoch=0), wait=10_000), 12) is None
    two.step(1, ElectLeader("t", 0, 2))
    answer = two.answers[two.conns[1]]
    assert answered(answer)[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER  # type: ignore[arg-type]
    assert two.cluster.topics.named("t").partitions[0].log.leader_epoch == 1  # type: ignore[union-attr]


def test_a_group_is_looked_up_where_it_is_now(two: Two) -> None:
    def place() -> int:
        found = two.ask(2, FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        return found.coordinators[0].node_id  # type: ignore[union-attr]

    before = place()
    two.step(1, MoveCoordinator("g", 2))
    assert (before, place()) == (1, 2)


def test_a_broker_that_is_not_the_coordinator_says_so(two: Two) -> None:
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert two.ask(2, beat, 4).error_code == ErrorCode.NOT_COORDINATOR  # type: ignore[union-attr]


@pytest.mark.parametrize("version", [1, 5, 8])
def test_offsets_are_refused_by_who_is_not_the_coordinator(two: Two, version: int) -> None:
    """Empty offsets would be read as "never committed"."""
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    old, new = (
        OffsetFetchRequest(group_id="g", topics=topics),
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]),
    )
    answer = two.ask(2, old if version < 8 else new, version)
    code = ErrorCode.NOT_COORDINATOR
    if version == 1:
        assert answer.topics[0].partitions[0].error_code == code  # type: ignore[union-attr]
    elif version == 5:
        assert answer.error_code == code  # type: ignore[union-attr]
    else:
        assert answer.groups[0].error_code == code  # type: ignore[union-attr]


def test_a_new_coordinator_has_to_load_the_group_first(two: Two) -> None:
    two.step(1, MoveCoordinator("g", 2, 50))
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    assert two.ask(2, beat, 4).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # type: ignore[union-attr]
    two.now += 50
    assert two.ask(2, beat, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID  # type: ignore[union-attr]


def test_members_that_wait_hear_that_the_coordinator_moved(two: Two) -> None:
    assert two.ask(1, joining("", group="g"), 3) is None
    two.step(1, Tick())
    first = two.answers[two.conns[1]]
    assert two.ask(1, joining("", group="g"), 3) is None
    two.step(1, MoveCoordinator("g", 2))
    assert two.answers[two.conns[1]].error_code == ErrorCode.NOT_COORDINATOR  # type: ignore[attr-defined]
    again = joining(first.member_id, group="g")  # type: ignore[attr-defined]
    assert two.ask(2, again, 3) is None  # the one that waits is still a member
