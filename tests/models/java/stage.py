"""One Java consumer, whose requests the test answers one by one."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from kproto.group.subscription import Subscription, TopicPartition
from kproto.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kproto.messages.find_coordinator import FindCoordinatorResponse
from kproto.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kproto.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kproto.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kproto.models import contract as c
from kproto.models import java
from kproto.models.java import java_2_6
from kproto.models.java.state import (
    NOTHING,
    FetchStates,
    JavaGeneration,
    JavaMemberState,
    TopicPartitionState,
)
from kproto.records import Record, encode_batch
from kproto.wire.message import Message

BOTH = pytest.mark.parametrize("release", [java, java_2_6], ids=["4.3", "2.6"])
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
COORDINATOR = c.Address("broker", 9092, "coordinator")


class JavaStage:
    """A Java consumer. `said` lists all of its actions, and `open` lists its requests in flight."""

    def __init__(self, release: ModuleType, **conf: Any) -> None:
        options = {"client_id": "a", "group_id": "g", "assignors": ("range",), "auto_commit": False, **conf}
        self.release = release
        self.state = release.start(c.ModelConfig(**options))
        self.now = 10_000
        self.said: list[c.ModelAction] = []
        self.open: list[c.SendRequest] = []
        self.do(c.Started((("broker", 9092),), {}))

    def stable(self, *owned: TopicPartition) -> JavaStage:
        """Make the consumer a member of generation 3, with a position in each partition.

        Each position is 5. No request is open.
        """
        state = self.state
        self.do(c.SubscribeCalled(("t",)))
        state.cluster.update(metadata_of(t=2))
        state.metadata_refreshed_at, state.metadata_update_requested = self.now, False
        state.coordinator = COORDINATOR
        assignor = state.assignors[0].name
        state.state, state.generation = JavaMemberState.STABLE, JavaGeneration(3, "a-1", assignor)
        state.joined_topics, state.rejoin_needed = state.topics, False
        state.heartbeat_enabled, state.heartbeat_at = True, self.now + state.heartbeat_ms
        state.session_deadline = self.now + state.session_ms
        state.max_poll_deadline = self.now + state.max_poll_ms
        state.assigned = {tp: TopicPartitionState(FetchStates.FETCHING, 5, 0) for tp in owned or (T0, T1)}
        state.positions_settled = True
        return self

    def do(self, event: c.ModelEvent) -> list[c.ModelAction]:
        out = self.release.step(self.state, event, self.now)
        self.said += out
        assert len(self.said) < 5_000, "the consumer sends requests without end"
        self.open += [action for action in out if isinstance(action, c.SendRequest)]
        return out

    def wait(self, ms: int) -> None:
        """Advance the time without answering a request, and wake the consumer at each deadline."""
        end = self.now + ms
        while (due := self.release.next_deadline(self.state)) is not None and due <= end:
            self.now = max(self.now, due)
            self.do(c.DeadlineReached())
        self.now = end

    def request(self, api: str) -> c.SendRequest:
        """Remove the newest open request of an API from `open`, and return it."""
        sent = next(sent for sent in reversed(self.open) if type(sent.request).__name__ == f"{api}Request")
        self.open.remove(sent)
        return sent

    def answer(self, api: str, response: Message) -> list[c.ModelAction]:
        """Answer the newest open request of an API."""
        sent = self.request(api)
        return self.do(c.ResponseReceived(sent.request, response, sent.version))

    def fail(self, api: str) -> None:
        """Break the connection of the newest open request of an API."""
        self.do(c.RequestFailed(self.request(api).request, "connection reset by peer"))

    def requests_of(self, api: str) -> list[Any]:
        return [
            line.request
            for line in self.said
            if isinstance(line, c.SendRequest) and type(line.request).__name__ == f"{api}Request"
        ]

    def actions_of(self, kind: type[Any]) -> list[Any]:
        return [line for line in self.said if isinstance(line, kind)]

    def return_callbacks(self, out: list[c.ModelAction]) -> list[c.ModelAction]:
        """Return from callbacks until a step ends without `RunCallback`. Return that step's actions."""
        while out and isinstance(out[-1], c.RunCallback):
            out = self.do(c.CallbackReturned())
        return out

    def poll(self, ms: int = 0) -> list[c.ModelAction]:
        """Call poll, or continue a blocked poll of kafka-clients 2.6. Each callback returns immediately."""
        if self.state.thread.state is NOTHING:
            return self.return_callbacks(self.do(c.PollCalled(ms)))
        return self.return_callbacks(self.do(c.DeadlineReached()))

    def rebalance(self) -> None:
        """Request a rejoin, and poll until JoinGroup is sent."""
        self.do(c.RebalanceCalled())
        self.poll()


def metadata_of(leader: int = 1, epoch: int = 0, **topics: int) -> MetadataResponse:
    """Return the metadata of one broker, with the number of partitions of each topic."""
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="broker", port=9092)],
        topics=[
            MetadataResponseTopic(
                error_code=0,
                name=name,
                partitions=[
                    MetadataResponsePartition(
                        error_code=0,
                        partition_index=number,
                        leader_id=leader,
                        leader_epoch=epoch,
                        replica_nodes=[1],
                        isr_nodes=[1],
                    )
                    for number in range(count)
                ],
            )
            for name, count in topics.items()
        ],
    )


def found_coordinator() -> FindCoordinatorResponse:
    return FindCoordinatorResponse(error_code=0, node_id=1, host="broker", port=9092)


def joined(*topics: str, leader: str = "a-1", protocol: str = "range") -> JoinGroupResponse:
    """Return a JoinGroup response of generation 4. All members subscribe to `topics`."""
    subscription = Subscription(topics=topics or ("t",)).encode(1)
    members = [JoinGroupResponseMember(member_id=leader, metadata=subscription)] if leader == "a-1" else []
    return JoinGroupResponse(
        error_code=0,
        generation_id=4,
        protocol_type="consumer",
        protocol_name=protocol,
        leader=leader,
        member_id="a-1",
        members=members,
    )


def committed(code: int) -> OffsetCommitResponse:
    """Return an OffsetCommit response with this error code for t-0."""
    partition = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[partition])])


def fetched(
    *offsets: int, partition: int = 0, topic: str = "t", code: int = 0, session: int = 7
) -> FetchResponse:
    """Return a Fetch response with records of these offsets, or with an error code."""
    rows = [Record(offset, 0, None, b"%d" % offset) for offset in offsets]
    data = PartitionData(
        partition_index=partition,
        error_code=code,
        high_watermark=100,
        last_stable_offset=100,
        aborted_transactions=None,
        records=encode_batch(rows, base_offset=offsets[0]) if rows else b"",
    )
    topics = [FetchableTopicResponse(topic=topic, partitions=[data])]
    return FetchResponse(throttle_time_ms=0, session_id=session, responses=topics)
