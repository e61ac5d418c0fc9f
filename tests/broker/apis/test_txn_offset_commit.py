"""From version 6 on, TxnOffsetCommit identifies topics by id (KIP-1319). The expected errors are from
Kafka 4.4.0.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproto.error_codes import ErrorCode
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kproto.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.stage import Stage
from tests.rules import rule

UNKNOWN = UUID(int=77)


class Committer:
    """A transactional producer that commits offsets of the topic "t", which has two partitions."""

    def __init__(self) -> None:
        self.stage = Stage({"t": 2}, group_initial_rebalance_delay_ms=0)
        self.client = self.stage.client()
        topic_id = self.stage.broker.topics.id("t")
        assert topic_id is not None
        self.topic_id = topic_id
        request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        self.producer = self.client.ask(request, 5)

    def commit(
        self, *topics: tuple[UUID, int], version: int = 6, **fields: Any
    ) -> list[tuple[Any, int, int]]:
        """Commit an offset for each partition. Return each partition's topic id, index and error code."""
        request = TxnOffsetCommitRequest(
            **{
                "transactional_id": "x",
                "group_id": "g",
                "producer_id": self.producer.producer_id,
                "producer_epoch": self.producer.producer_epoch,
                **fields,
            },
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="t" if version < 6 else "",
                    topic_id=topic_id,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=3, committed_metadata=""
                        )
                    ],
                )
                for topic_id, index in topics
            ],
        )
        return [
            (topic.topic_id, partition.partition_index, partition.error_code)
            for topic in self.client.ask(request, version).topics
            for partition in topic.partitions
        ]


@pytest.fixture
def committer() -> Committer:
    return Committer()


def test_topics_are_committed_by_id(committer: Committer) -> None:
    own = committer.topic_id
    assert committer.commit((own, 0), (own, 1)) == [(own, 0, 0), (own, 1, 0)]
    wanted = OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])
    fetch = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id="g", topics=[wanted])], require_stable=True
    )
    (topic,) = committer.client.ask(fetch, 9).groups[0].topics
    assert {partition.error_code for partition in topic.partitions} == {ErrorCode.UNSTABLE_OFFSET_COMMIT}


def test_an_unknown_id_rejects_only_its_own_topic(committer: Committer) -> None:
    own = committer.topic_id
    assert committer.commit((own, 0), (UNKNOWN, 0), (own, 5)) == [
        (UNKNOWN, 0, ErrorCode.UNKNOWN_TOPIC_ID),
        (own, 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (own, 0, ErrorCode.NONE),
    ]
    assert committer.commit((UNKNOWN, 0)) == [(UNKNOWN, 0, ErrorCode.UNKNOWN_TOPIC_ID)]


def test_a_fenced_producer_gets_the_ids_of_its_topics(committer: Committer) -> None:
    own = committer.topic_id
    assert committer.commit((own, 0), (UNKNOWN, 0), producer_epoch=9) == [
        (UNKNOWN, 0, ErrorCode.UNKNOWN_TOPIC_ID),
        (own, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
    ]


@rule("R109")
@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.ILLEGAL_GENERATION), (6, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_member_of_a_missing_group_is_rejected(committer: Committer, version: int, code: ErrorCode) -> None:
    own = committer.topic_id if version >= 6 else UUID(int=0)
    member = {"member_id": "m", "generation_id_or_member_epoch": 3}
    assert committer.commit((own, 0), version=version, **member) == [(own, 0, code)]
