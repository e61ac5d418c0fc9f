"""A real Kafka and the embedded broker respond alike to random sequences of requests of two producers.

The producers have the same transactional id, and take turns. Some requests have an old epoch: the producer's
previous epoch, or an epoch that the other producer's InitProducerId has fenced.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import pytest

from consumer import Admin
from kproto.broker.server import running
from kproto.error_codes import ErrorCode
from kproto.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kproto.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kproto.messages.describe_producers import DescribeProducersRequest
from kproto.messages.describe_producers import TopicRequest as ProducersTopic
from kproto.messages.describe_transactions import DescribeTransactionsRequest
from kproto.messages.end_txn import EndTxnRequest
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kproto.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kproto.records import Record, encode_batch
from tests.broker.stage import Socket
from tests.conformance import judges
from tests.conformance.broker_pair import SETTINGS
from tests.conformance.client_scenarios import RUN_ALL, SEED

pytestmark = pytest.mark.kafka

TALKS: Final = 60 if RUN_ALL else 4
LINES: Final = 25
PATIENCE: Final = 15.0
# Temporary errors that Kafka returns while it writes markers or elects a leader. The embedded broker does not
# return them.
BUSY: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
VERBS: Final = ("init", "again", "write", "write", "write", "add", "offsets", "commit", "end", "end", "retry")
Identity = tuple[int, int]


class Side:
    """One broker, and the state of two producers."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.name = name
        self.sockets = [Socket(bootstrap), Socket(bootstrap)]
        self.ids: list[Identity] = [(-1, -1), (-1, -1)]
        self.old: list[Identity] = [(-1, -1), (-1, -1)]
        self.sequences: dict[tuple[Identity, int], int] = {}
        self.ended: dict[int, tuple[EndTxnRequest, int]] = {}
        self.known: list[int] = []

    def ask_until_ready(self, who: int, request: Any, version: int, codes: Any) -> tuple[Any, list[int]]:
        end = time.monotonic() + PATIENCE
        while True:
            answer = self.sockets[who].ask(request, version)
            error_codes = codes(answer)
            if not {*error_codes} & {*BUSY} or time.monotonic() > end:
                return answer, error_codes
            time.sleep(0.02)

    def label(self, identity: Identity) -> tuple[int, int]:
        """Return the identity (producer id, epoch), with the producer id replaced by its position in `known`.

        `known` lists the ids in the order in which this broker returned them. Two brokers return different
        ids, but the positions can be compared.
        """
        if identity[0] < 0:
            return identity
        if identity[0] not in self.known:
            self.known.append(identity[0])
        return self.known.index(identity[0]), identity[1]

    def set_identity(self, who: int, identity: Identity) -> None:
        self.old[who], self.ids[who] = self.ids[who], identity

    def send(self, who: int, verb: str, dice: Random) -> Any:
        """Send a request and return the comparable parts of the response."""
        old = dice.random() < 0.15
        mine = (self.old if old else self.ids)[who]
        if verb in ("init", "again"):
            known = mine if verb == "again" else (-1, -1)
            add_offsets = InitProducerIdRequest(
                transactional_id=self.name,
                transaction_timeout_ms=60_000,
                producer_id=known[0],
                producer_epoch=known[1],
            )
            answer, codes = self.ask_until_ready(who, add_offsets, 5, lambda response: [response.error_code])
            got = answer.producer_id, answer.producer_epoch
            if not codes[0]:
                self.set_identity(who, got)
            return codes, self.label(got)
        if verb == "write":
            return self.writes(who, mine, dice.randint(0, 1), dice.choice([11, 12]), dice.random() < 0.1)
        if verb == "add":
            index = dice.randint(0, 1)
            add_offsets = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.name,
                v3_and_below_producer_id=mine[0],
                v3_and_below_producer_epoch=mine[1],
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.name, partitions=[index])],
            )
            return self.ask_until_ready(who, add_offsets, 3, _of_partitions)[1]
        if verb == "offsets":
            add_offsets = AddOffsetsToTxnRequest(
                transactional_id=self.name, producer_id=mine[0], producer_epoch=mine[1], group_id=self.name
            )
            return self.ask_until_ready(who, add_offsets, 4, lambda response: [response.error_code])[1]
        if verb == "commit":
            return self.commits(who, mine, dice.choice([4, 5]))
        if verb == "end":
            request = EndTxnRequest(
                transactional_id=self.name,
                producer_id=mine[0],
                producer_epoch=mine[1],
                committed=dice.random() < 0.5,
            )
            self.ended[who] = request, dice.choice([4, 5])
        if who not in self.ended:
            return None
        return self.ends(who, *self.ended[who])

    def writes(self, who: int, mine: Identity, index: int, version: int, skips: bool) -> Any:
        at = self.sequences.get((mine, index), 0)
        records = encode_batch(
            [Record(0, 1_000, b"k", b"v")],
            producer_id=mine[0],
            producer_epoch=mine[1],
            base_sequence=at + skips,
            is_transactional=True,
        )
        part = PartitionProduceData(index=index, records=records)
        request = ProduceRequest(
            transactional_id=self.name,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[TopicProduceData(name=self.name, partition_data=[part])],
        )
        answer, codes = self.ask_until_ready(who, request, version, _of_produce)
        if not codes[0]:
            self.sequences[mine, index] = at + 1
        return codes, answer.responses[0].partition_responses[0].base_offset

    def commits(self, who: int, mine: Identity, version: int) -> Any:
        offset = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="")
        commit = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=self.name,
            producer_id=mine[0],
            producer_epoch=mine[1],
            topics=[TxnOffsetCommitRequestTopic(name=self.name, partitions=[offset])],
        )
        return self.ask_until_ready(who, commit, version, _of_commit)[1]

    def ends(self, who: int, request: EndTxnRequest, version: int) -> Any:
        answer, codes = self.ask_until_ready(who, request, version, lambda response: [response.error_code])
        if codes[0] or version < 5:
            return codes
        got = answer.producer_id, answer.producer_epoch
        self.set_identity(who, got)
        return codes, self.label(got)

    def state(self) -> Any:
        """Return the state of the coordinator and of the logs after all markers have been written."""
        end = time.monotonic() + PATIENCE
        while True:
            describe = DescribeTransactionsRequest(transactional_ids=[self.name])
            (transaction,) = self.sockets[0].ask(describe, 0).transaction_states
            if not transaction.transaction_state.startswith("Prepare") or time.monotonic() > end:
                break
            time.sleep(0.01)
        topics = [ProducersTopic(name=self.name, partition_indexes=[0, 1])]
        (producer_topic,) = self.sockets[0].ask(DescribeProducersRequest(topics=topics), 0).topics
        producers = [
            (
                part.partition_index,
                *self.label((each.producer_id, each.producer_epoch)),
                each.last_sequence,
                each.current_txn_start_offset,
            )
            for part in producer_topic.partitions
            for each in part.active_producers
        ]
        taking = sorted(index for topic in transaction.topics for index in topic.partitions)
        identity = self.label((transaction.producer_id, transaction.producer_epoch))
        return transaction.error_code, transaction.transaction_state, identity, taking, sorted(producers)


def _of_produce(response: Any) -> list[int]:
    return [response.responses[0].partition_responses[0].error_code]


def _of_commit(response: Any) -> list[int]:
    return [response.topics[0].partitions[0].error_code]


def _of_partitions(response: Any) -> list[int]:
    return [result.partition_error_code for topic in response.results_by_topic_v3_and_below
            for result in topic.results_by_partition]  # fmt: skip


@pytest.fixture(scope="module")
def two(real_kafka: judges.RealKafka) -> Iterator[tuple[str, str]]:
    with running(settings=SETTINGS) as ours:
        yield real_kafka.bootstrap, ours.bootstrap


@pytest.mark.parametrize("number", range(TALKS))
def test_both_brokers_answer_random_producers_alike(two: tuple[str, str], number: int) -> None:
    name = f"odd-txn-{time.time_ns()}-{number}"
    sides = [Side(where, name) for where in two]
    for side, where in zip(sides, two, strict=True):
        with Admin(where) as cluster:
            cluster.create_topics({name: 2})
        for kind in (0, 1):
            lookup = FindCoordinatorRequest(key_type=kind, coordinator_keys=[name])
            side.ask_until_ready(0, lookup, 4, lambda response: [response.coordinators[0].error_code])
    dice, lines = Random(f"{SEED}/transactions/{number}"), list[str]()
    for line in range(LINES):
        who = 0 if line == 0 else dice.randint(0, 1)
        verb = "init" if line == 0 else dice.choice(VERBS)
        seed = dice.random()
        kafka, ours = (side.send(who, verb, Random(seed)) for side in sides)
        lines.append(f"{who} {verb}: {ours}, of {sides[1].label(sides[1].ids[who])}")
        assert ours == kafka, "\n".join(lines)
        assert sides[1].state() == sides[0].state(), "\n".join(lines)
    for side in sides:
        for each in side.sockets:
            each.socket.close()
