"""After the computer has slept, timestamps follow the wall clock, but deadlines do not."""

from __future__ import annotations

import time

import pytest

from kproto.broker.machine import CleanLogs, ClientConnected
from kproto.broker.server import running
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kproto.records import rows
from kproto.security.oauthbearer import OAuthBearerClient, unsecured, unsecured_token
from tests.broker.behaviour.stage import TransactionalProducer
from tests.broker.security.stage import LoginStage
from tests.broker.stage import Stage, batch_of, connected, fetch_request, fetch_topic, join_request

HOUR = 3_600_000
NIGHT = 9 * HOUR


@pytest.fixture
def stage() -> Stage:
    """Return a broker whose computer slept for a night: only the wall clock has advanced."""
    stage = Stage({"t": 1})
    stage.broker.cluster.wall_clock_offset = NIGHT
    return stage


def time_after_the_night(stage: Stage) -> int:
    return stage.now + NIGHT


def test_records_are_accepted_after_the_machine_slept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Records with current timestamps are accepted after the computer has slept.

    The broker compares timestamps with the wall clock, because time.monotonic stands still meanwhile.
    """
    day = time.time_ns
    with running({"t": 1}) as server, connected(server.bootstrap) as client:
        for hours in (0, 9, -9):
            with monkeypatch.context() as clock:
                clock.setattr("time.time_ns", lambda night=hours: day() + night * HOUR * 1_000_000)
                batch = batch_of(b"x", timestamps=[time.time_ns() // 1_000_000])
                part = [PartitionProduceData(index=0, records=batch)]
                data = [TopicProduceData(name="t", partition_data=part)]
                response = client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=data), 9)
                assert response.responses[0].partition_responses[0].error_code == 0


def test_a_timestamp_after_the_wall_clock_is_refused(stage: Stage) -> None:
    client = stage.client()
    assert client.produce(batch_of(b"a", timestamps=[time_after_the_night(stage) + HOUR])).error_code == 0
    assert (
        client.produce(batch_of(b"a", timestamps=[time_after_the_night(stage) + HOUR + 1])).error_code == 32
    )


def test_the_broker_stamps_records_with_the_wall_clock(stage: Stage) -> None:
    stage.topic("t").configs["message.timestamp.type"] = "LogAppendTime"
    producer = TransactionalProducer(stage)
    assert producer.write(b"a").log_append_time_ms == time_after_the_night(stage)
    assert producer.end() == 0
    data, marker = stage.log("t").all_batches()
    assert rows(data.data)[0].timestamp == time_after_the_night(stage)
    assert marker.max_timestamp == time_after_the_night(stage)


def test_records_age_while_the_machine_sleeps(stage: Stage) -> None:
    stage.topic("t").configs["retention.ms"] = str(8 * HOUR)
    assert stage.client().produce(batch_of(b"a", timestamps=[stage.now])).error_code == 0
    stage.broker.cluster.wall_clock_offset = 0
    stage.step(CleanLogs())
    assert stage.log("t").start_offset == 0
    stage.broker.cluster.wall_clock_offset = NIGHT
    stage.wait(HOUR)
    stage.client()
    assert stage.log("t").start_offset == 1


def test_deadlines_do_not_pass_while_the_machine_sleeps(stage: Stage) -> None:
    """While the computer sleeps, no deadline passes: no member, transaction or delayed fetch expires."""
    stage.broker.cluster.wall_clock_offset = 0
    producer, member = TransactionalProducer(stage), stage.client()
    assert producer.write(b"a").error_code == 0
    member_id = member.ask(join_request(session=10_000)).member_id
    member.send(join_request(member_id, session=10_000))
    reader = stage.client()
    reader.send(fetch_request(fetch_topic(1), wait=1_000), 12)
    stage.broker.cluster.wall_clock_offset = NIGHT
    stage.wait(500)
    assert not reader.answers
    assert producer.end() == 0
    stage.wait(5_000)
    assert member.answer().error_code == 0


def test_a_token_expires_by_the_wall_clock() -> None:
    login = LoginStage()
    login.broker.cluster.wall_clock_offset = NIGHT
    login.users.tokens = unsecured(lambda: login.now + NIGHT)
    login.step(ClientConnected(1, "10.0.0.7", "SASL_SSL"))
    token = unsecured_token("alice", login.now + NIGHT, 60_000)
    answer = login.log_in(OAuthBearerClient(token))
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 60_000)
    assert login.metadata().brokers
    login.now += 60_000
    assert login.metadata() is None
