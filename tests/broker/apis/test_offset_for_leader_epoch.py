"""OffsetForLeaderEpoch returns the end offset of an epoch (KIP-320)."""

from __future__ import annotations

import pytest

from kproto.broker.machine import ElectLeader
from kproto.error_codes import ErrorCode
from kproto.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.stage import Client, Stage, batch_of


@pytest.fixture
def client(stage: Stage) -> Client:
    client = stage.client()
    client.produce(batch_of(b"a", b"b", timestamps=[100, 300]))
    client.produce(batch_of(b"c", b"d", timestamps=[200, 250], compression="gzip"))
    return client


def test_the_end_offset_of_an_epoch_is_returned(stage: Stage, client: Client) -> None:
    stage.step(ElectLeader("t", 0))
    client.produce(batch_of(b"e"))

    def end(epoch: int, current: int = -1, partition: int = 0) -> tuple[int, int, int]:
        requested = OffsetForLeaderPartition(
            partition=partition, leader_epoch=epoch, current_leader_epoch=current
        )
        request = OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic="t", partitions=[requested])]
        )
        [answer] = client.ask(request).topics[0].partitions
        return answer.error_code, answer.leader_epoch, answer.end_offset

    assert [end(0), end(1), end(2)] == [(0, 0, 4), (0, 1, 5), (0, -1, -1)]
    assert end(0, current=0) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1)
    assert end(0, partition=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)
