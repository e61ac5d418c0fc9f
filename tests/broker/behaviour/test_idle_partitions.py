"""Fetch sessions (KIP-227) skip idle partitions, which have nothing new, without affecting responses."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pytest

from kproto.broker.apis.fetch import DelayedFetch
from kproto.broker.fetch_sessions import FetchContext, FetchSession
from kproto.broker.machine import ElectLeader, TruncateLog
from kproto.broker.security.acls import Acl, Acls, Operation, PatternType, Permission, Resource
from kproto.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kproto.messages.delete_topics import DeleteTopicsRequest
from kproto.messages.fetch import FetchTopic, ForgottenTopic
from tests.broker.behaviour.stage import TransactionalProducer
from tests.broker.stage import Client, Stage, batch_of, fetch_request, fetch_topic
from tests.seeds import repeatable, seeds

PARTITIONS = 4
DENIED = Acl(Resource.TOPIC, "t", PatternType.LITERAL, "User:*", "*", Operation.READ, Permission.DENY)


class Reader:
    """A client that has a fetch session and tracks its own positions."""

    def __init__(self, stage: Stage) -> None:
        self.stage, self.client = stage, stage.client()
        self.session = self.epoch = 0
        self.ends: dict[int, int] = {}

    def take_answers(self) -> None:
        while self.client.answers:
            response = self.client.answer()
            self.session = response.session_id
            if response.error_code or not response.session_id:
                self.session = self.epoch = 0
            for data in (data for topic in response.responses for data in topic.partitions):
                self.ends[data.partition_index] = max(data.high_watermark, 0)

    def fetch(self, random: Random) -> None:
        if self.client._asked:  # The client still waits for the response to its previous fetch.
            return
        indexes = random.sample(range(PARTITIONS), random.choice([0, 0, 1, 2, PARTITIONS]))
        named: list[FetchTopic] = []
        for index in indexes if self.epoch else range(PARTITIONS):
            end = self.ends.get(index, 0)
            named.append(fetch_topic(random.choice([end, end, end, max(end - 1, 0), 0]), index))
        forget = random.sample(range(PARTITIONS), 1) if self.epoch and random.random() < 0.1 else []
        request = fetch_request(
            *named,
            wait=random.choice([0, 50, 500]),
            min_bytes=random.choice([1, 1, 200]),
            max_bytes=random.choice([1 << 20, 1 << 20, 80, 1]),
            isolation=random.choice([0, 0, 0, 1]),
            session=(self.session, self.epoch),
            forget=[ForgottenTopic(topic="t", partitions=forget)] if forget else [],
        )
        self.client.send(request, 12)
        self.epoch += 1


def responses_of(seed: int) -> list[bytes]:
    """Return all responses to two readers whose partitions change at random."""
    random = Random(seed)
    stage = Stage({"t": PARTITIONS})
    acls = Acls(allow_everyone=True)
    stage.broker.acls = acls  # type: ignore[misc]
    responses: list[bytes] = []
    writer, operator, readers = TransactionalProducer(stage), stage.client(), [Reader(stage), Reader(stage)]

    def delete_records() -> None:
        partition = DeleteRecordsPartition(partition_index=random.randrange(PARTITIONS), offset=-1)
        topics = [DeleteRecordsTopic(name="t", partitions=[partition])]
        operator.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)

    def truncate() -> None:
        at = random.randrange(PARTITIONS)
        log = stage.log("t", at)
        stage.step(TruncateLog("t", at, random.randint(log.start_offset, log.end_offset)))

    def write_in_transaction() -> None:
        at = random.randrange(PARTITIONS)
        writer.add(at)
        writer.write(partition=at)

    def recreate_topic() -> None:
        operator.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        stage.broker.create_topic("t", PARTITIONS, stage.random_id())

    def toggle_acl() -> None:
        if acls.allows("User:ANONYMOUS", "10.0.0.7", Operation.READ, Resource.TOPIC, "t"):
            acls.add(DENIED)
        else:
            acls.remove([DENIED])

    def read() -> None:
        random.choice(readers).fetch(random)

    happens: dict[Callable[[], Any], int] = {
        read: 40,
        lambda: operator.produce(batch_of(b"x" * random.randrange(200)), partition=random.randrange(2)): 10,
        lambda: stage.wait(random.choice([1, 60, 600])): 10,
        write_in_transaction: 3,
        lambda: writer.end(committed=random.random() < 0.5): 3,
        delete_records: 2,
        truncate: 1,
        lambda: stage.step(ElectLeader("t", random.randrange(PARTITIONS))): 1,
        recreate_topic: 1,
        toggle_acl: 1,
    }
    for event in random.choices([*happens], [*happens.values()], k=150):
        event()
        for reader in readers:
            responses += reader.client.answers
            reader.take_answers()
    return responses


def stay_awake(*_: Any) -> None:
    """Replace `on_read_to_end`: the broker then checks every partition of the session at each fetch."""


@pytest.mark.parametrize(
    "first", [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in range(10, 60, 10))]
)
def test_responses_are_the_same_as_without_idle_partitions(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = 0

    def sleep(session: FetchSession, *args: Any, really: Any = FetchSession.set_idle) -> None:
        nonlocal slept
        slept += 1
        really(session, *args)

    for seed in seeds(10, first):
        with repeatable(seed, ""):
            with monkeypatch.context() as patched:
                patched.setattr(FetchSession, "set_idle", sleep)
                passing_over = responses_of(seed)
            with monkeypatch.context() as patched:
                patched.setattr(FetchContext, "on_read_to_end", stay_awake)
                assert passing_over == responses_of(seed)
    assert slept > 50


def test_a_fetch_reads_only_changed_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage({"t": 1000})
    client, producer = stage.client(), stage.client()
    everything = [fetch_topic(partition=index) for index in range(1000)]
    session = client.fetch(fetch_request(*everything, session=(0, 0), wait=0)).session_id
    client.fetch(fetch_request(session=(session, 1), wait=0))
    looked: list[int] = []
    really: Any = DelayedFetch._find_in_partition

    def read(self: DelayedFetch, key: Any, topic: Any, requested: Any, *more: Any, **named: Any) -> Any:
        looked.append(requested.partition)
        return really(self, key, topic, requested, *more, **named)

    monkeypatch.setattr(DelayedFetch, "_find_in_partition", read)
    client.send(fetch_request(session=(session, 2)), 12)
    producer.produce(batch_of(b"a"), partition=7)
    assert indexes_answered(client) == [7]
    client.send(fetch_request(fetch_topic(1, partition=7), session=(session, 3)), 12)
    stage.wait(500)
    assert indexes_answered(client) == []
    assert looked == [7, 7]


def indexes_answered(client: Client) -> list[int]:
    return [data.partition_index for topic in client.answer().responses for data in topic.partitions]


@pytest.mark.parametrize("end", [(0, 0), (0, -1)], ids=["another one", "none"])
def test_a_closed_session_leaves_no_idle_partitions(end: tuple[int, int]) -> None:
    stage = Stage({"t": 3})
    client = stage.client()
    session = client.fetch(fetch_request(*fetch_topics(range(3)), session=(0, 0), wait=0)).session_id
    client.fetch(fetch_request(session=(session, 1), wait=0))
    assert len(stage.broker.fetch_sessions._idle_partitions) == 3
    client.send(fetch_request(session=(session, 2)), 12)
    forget = [ForgottenTopic(topic="t", partitions=[0])]
    stage.wait(500)
    client.answer()
    client.fetch(fetch_request(session=(session, 3), forget=forget, wait=0))
    assert len(stage.broker.fetch_sessions._idle_partitions) == 2
    client.fetch(fetch_request(*fetch_topics([1]), session=(session, end[1]), wait=0))
    assert stage.broker.fetch_sessions._idle_partitions == {}


def fetch_topics(partitions: Iterable[int]) -> list[FetchTopic]:
    return [fetch_topic(partition=partition) for partition in partitions]
