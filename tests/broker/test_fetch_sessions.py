"""Fetch sessions (KIP-227): later requests and responses contain only changed partitions."""

from __future__ import annotations

import pytest

from kproto.broker.fetch_sessions import IDLE_MS
from kproto.broker.machine import CreateTopic, LogChanged, TruncateLog
from kproto.error_codes import ErrorCode
from kproto.messages.delete_topics import DeleteTopicsRequest
from kproto.messages.fetch import FetchResponse, ForgottenTopic
from tests.broker.stage import Client, Stage, batch_of, fetch_request, fetch_topic, partitions_of, values_of


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 3})


@pytest.fixture
def producer(stage: Stage) -> Client:
    return stage.client()


def open_session(client: Client, *partitions: int) -> int:
    """Open a session with these partitions from offset 0; return its id."""
    response = client.fetch(
        fetch_request(*[fetch_topic(partition=p) for p in partitions], session=(0, 0), wait=0)
    )
    assert (response.error_code, len(partitions_of(response))) == (0, len(partitions))
    assert response.session_id > 0
    return response.session_id


def indexes_of(response: FetchResponse) -> list[int]:
    return [data.partition_index for data in partitions_of(response)]


def test_a_fetch_without_a_session_opens_no_session(stage: Stage, client: Client) -> None:
    assert client.fetch(fetch_request(fetch_topic(), wait=0)).session_id == 0
    assert len(stage.broker.fetch_sessions) == 0


def test_the_first_response_of_a_session_has_every_partition(client: Client) -> None:
    assert indexes_of(
        client.fetch(
            fetch_request(fetch_topic(partition=0), fetch_topic(partition=1), session=(0, 0), wait=0)
        )
    ) == [
        0,
        1,
    ]


def test_later_requests_omit_the_partitions(client: Client, producer: Client) -> None:
    session = open_session(client, 0, 1)
    producer.produce(batch_of(b"a"), partition=1)
    response = client.fetch(fetch_request(session=(session, 1)))
    assert response.session_id == session
    assert [(data.partition_index, values_of(data)) for data in partitions_of(response)] == [(1, [b"a"])]


def test_unchanged_partitions_are_omitted(client: Client) -> None:
    session = open_session(client, 0, 1)
    assert indexes_of(client.fetch(fetch_request(session=(session, 1), wait=0))) == []


def test_a_new_position_is_remembered(client: Client, producer: Client) -> None:
    producer.produce(batch_of(b"a"))
    producer.produce(batch_of(b"b"))
    session = open_session(client, 0)
    [data] = partitions_of(client.fetch(fetch_request(fetch_topic(1), session=(session, 1))))
    assert values_of(data) == [b"b"]
    assert indexes_of(client.fetch(fetch_request(fetch_topic(2), session=(session, 2), wait=0))) == []


def test_records_are_returned_again_until_the_position_moves(client: Client, producer: Client) -> None:
    session = open_session(client, 0)
    producer.produce(batch_of(b"a"))
    for epoch in (1, 2):
        [data] = partitions_of(client.fetch(fetch_request(session=(session, epoch))))
        assert values_of(data) == [b"a"]


def test_a_truncated_position_is_answered_with_the_diverging_epoch(
    stage: Stage, client: Client, producer: Client
) -> None:
    """A fetch at a position that was truncated gets the diverging epoch (KIP-595).

    The broker compares the fetch position with the end of the last fetched epoch. It therefore returns the
    diverging epoch even if the log has grown back to its former length.
    """
    for _ in range(2):
        producer.produce(batch_of(b"a"))
    session = open_session(client, 0)
    known = [fetch_topic(2, fetched_epoch=0)]
    assert indexes_of(client.fetch(fetch_request(*known, session=(session, 1), wait=0))) == []
    stage.step(TruncateLog("t", 0, 1))
    producer.produce(batch_of(b"b"))
    for epoch in (2, 3):
        [data] = partitions_of(client.fetch(fetch_request(session=(session, epoch))))
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 1)


@pytest.mark.parametrize("session", [0, -1])
def test_a_session_remembers_the_name_of_a_deleted_topic_id(
    stage: Stage, client: Client, session: int
) -> None:
    """A fetch session keeps the name that a topic id had when it was first resolved.

    So after the topic's deletion the error is UNKNOWN_TOPIC_OR_PARTITION instead of UNKNOWN_TOPIC_ID, as in
    Kafka.
    """
    first = stage.topic("t").id
    named, beyond = fetch_topic(topic_id=first), fetch_topic(topic_id=first, partition=1)
    if session == 0:
        session = client.fetch(fetch_request(named, beyond, session=(0, 0), wait=0), 13).session_id
        client.send(fetch_request(session=(session, 1), wait=500), 13)
    else:
        client.send(fetch_request(named, wait=500), 13)
    operator = stage.client()
    operator.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
    unknown_topic = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert set(codes(client.answer())) == {unknown_topic}
    if session > 0:
        stage.step(CreateTopic("t", 1, stage.random_id()))
        anew = client.fetch(fetch_request(session=(session, 2)), 13)
        assert codes(anew) == [ErrorCode.INCONSISTENT_TOPIC_ID, unknown_topic]
    assert codes(client.fetch(fetch_request(named), 13)) == [ErrorCode.UNKNOWN_TOPIC_ID]


def codes(response: FetchResponse) -> list[int]:
    return [data.error_code for data in partitions_of(response)]


def test_a_partition_can_be_added_later(client: Client, producer: Client) -> None:
    session = open_session(client, 0)
    producer.produce(batch_of(b"a"), partition=2)
    assert indexes_of(client.fetch(fetch_request(fetch_topic(partition=2), session=(session, 1)))) == [2]


def test_an_added_empty_partition_is_answered_once(client: Client) -> None:
    session = open_session(client, 0)
    assert indexes_of(
        client.fetch(fetch_request(fetch_topic(partition=2), session=(session, 1), wait=0))
    ) == [2]
    assert indexes_of(client.fetch(fetch_request(session=(session, 2), wait=0))) == []


def test_a_removed_partition_is_not_read(client: Client, producer: Client) -> None:
    session = open_session(client, 0, 1)
    for partition in (0, 1):
        producer.produce(batch_of(b"a"), partition=partition)
    forget = [ForgottenTopic(topic="t", partitions=[0])]
    assert indexes_of(client.fetch(fetch_request(session=(session, 1), forget=forget))) == [1]


def test_a_delayed_fetch_omits_a_partition_that_was_removed_meanwhile(stage: Stage, client: Client) -> None:
    """A delayed fetch omits a partition that a later fetch has removed from the session.

    The client sends the later fetch on a second connection while the first fetch is still delayed.
    """
    session = open_session(client, 0, 1)
    client.send(fetch_request(session=(session, 1), wait=500), 12)
    forget = [ForgottenTopic(topic="t", partitions=[0])]
    second_response = stage.client().fetch(fetch_request(session=(session, 2), forget=forget, wait=0))
    assert second_response.error_code == ErrorCode.NONE
    stage.wait(500)
    assert indexes_of(client.answer()) == []


def test_a_session_without_partitions_is_closed(stage: Stage, client: Client) -> None:
    session = open_session(client, 0)
    forget = [ForgottenTopic(topic="t", partitions=[0])]
    response = client.fetch(fetch_request(session=(session, 1), forget=forget))
    assert (response.error_code, response.session_id, indexes_of(response)) == (0, 0, [])
    assert len(stage.broker.fetch_sessions) == 0


def test_a_changed_log_start_offset_is_returned(stage: Stage, client: Client, producer: Client) -> None:
    producer.produce(batch_of(b"a"))
    session = open_session(client, 0)
    client.fetch(fetch_request(fetch_topic(1), session=(session, 1), wait=0))
    stage.log("t").delete_before(1)
    stage.step(LogChanged("t", 0))
    [data] = partitions_of(client.fetch(fetch_request(session=(session, 2), wait=0)))
    assert data.log_start_offset == 1


def test_an_error_is_in_every_response(client: Client) -> None:
    session = open_session(client, 0)
    for epoch in (1, 2):
        request = fetch_request(fetch_topic(partition=9), session=(session, epoch), wait=10_000)
        [data] = partitions_of(client.fetch(request))
        assert data.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_unknown_session_is_not_found(client: Client) -> None:
    response = client.fetch(fetch_request(session=(77, 1)))
    assert (response.error_code, response.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


@pytest.mark.parametrize("epoch", [2, 7])
def test_an_unexpected_session_epoch_is_refused(client: Client, epoch: int) -> None:
    response = client.fetch(fetch_request(session=(open_session(client, 0), epoch)))
    assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_the_expected_epoch_is_accepted_after_a_refused_one(client: Client) -> None:
    session = open_session(client, 0)
    client.fetch(fetch_request(session=(session, 5)))
    assert client.fetch(fetch_request(session=(session, 1), wait=0)).error_code == 0


def test_the_final_epoch_closes_the_session(stage: Stage, client: Client) -> None:
    session = open_session(client, 0)
    assert client.fetch(fetch_request(session=(session, -1))).error_code == 0
    assert (
        client.fetch(fetch_request(session=(session, 1))).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    )


def test_epoch_0_replaces_the_session(stage: Stage, client: Client) -> None:
    first = open_session(client, 0)
    second = client.fetch(fetch_request(fetch_topic(), session=(first, 0), wait=0)).session_id
    assert second not in (0, first)
    assert len(stage.broker.fetch_sessions) == 1


def test_a_session_of_names_refuses_ids(client: Client) -> None:
    session = open_session(client, 0)
    response = client.fetch(fetch_request(session=(session, 1)), 13)
    assert response.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_of_ids_answers_with_ids(stage: Stage, client: Client, producer: Client) -> None:
    topic_id = stage.topic("t").id
    request = fetch_request(fetch_topic(topic_id=topic_id), session=(0, 0), wait=0)
    session = client.fetch(request, 18).session_id
    producer.produce(batch_of(b"a"))
    response = client.fetch(fetch_request(session=(session, 1)), 18)
    assert [topic.topic_id for topic in response.responses] == [topic_id]
    forget = [ForgottenTopic(topic_id=topic_id, partitions=[0])]
    assert client.fetch(fetch_request(session=(session, 2), forget=forget), 18).session_id == 0


def test_without_a_free_slot_a_fetch_has_no_session() -> None:
    stage = Stage({"t": 1}, max_incremental_fetch_session_cache_slots=1)
    client = stage.client()
    open_session(client, 0)
    response = client.fetch(fetch_request(fetch_topic(), session=(0, 0), wait=0))
    assert (response.error_code, response.session_id, indexes_of(response)) == (0, 0, [0])


def test_an_idle_session_is_evicted() -> None:
    stage = Stage({"t": 1}, max_incremental_fetch_session_cache_slots=1)
    client = stage.client()
    first = open_session(client, 0)
    stage.wait(IDLE_MS)
    open_session(client, 0)
    assert client.fetch(fetch_request(session=(first, 1))).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_partition_with_records_moves_to_the_end_of_the_order(client: Client, producer: Client) -> None:
    for partition in (0, 1, 0, 1):
        producer.produce(batch_of(b"a" * 100), partition=partition)
    size = len(batch_of(b"a" * 100))
    topics = [fetch_topic(partition=p) for p in (0, 1)]
    first = client.fetch(fetch_request(*topics, session=(0, 0), max_bytes=size))
    assert [bool(data.records) for data in partitions_of(first)] == [True, False]
    second = client.fetch(fetch_request(session=(first.session_id, 1), max_bytes=size))
    assert [data.partition_index for data in partitions_of(second) if data.records] == [1]
