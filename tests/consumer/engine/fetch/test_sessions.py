"""Fetch sessions (KIP-227), the client's half. After Kafka's FetchSessionHandlerTest, its cases by claim."""

from __future__ import annotations

from uuid import UUID

from consumer.engine.fetch.sessions import FetchSession, FetchTarget
from kproto.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tests.consumer.stage import tp

A, B = UUID(int=1), UUID(int=2)
VERSION = 17


def want(offset: int = 0, topic_id: UUID = A) -> FetchTarget:
    return FetchTarget(topic_id, offset, 1000, None)


def ask(session: FetchSession, wants: dict[int, FetchTarget], version: int = VERSION) -> FetchRequest:
    """The next fetch when these are wanted."""
    for partition in [partition for partition in session.targets if partition.partition not in wants]:
        session.forget(partition)
    for index, one in wants.items():
        session.set_target(tp("t", index), one)
    return session.plan().request(
        version,
        max_wait_ms=1,
        min_bytes=1,
        max_bytes=1,
        isolation_level=0,
        rack_id="",
    )


def answer(*partitions: int, session_id: int = 9, error_code: int = 0, topic_id: UUID = A) -> FetchResponse:
    entries = [
        PartitionData(
            partition_index=index, error_code=0, high_watermark=0, aborted_transactions=None, records=b""
        )
        for index in partitions
    ]
    topics = [FetchableTopicResponse(topic_id=topic_id, partitions=entries)] if entries else []
    return FetchResponse(throttle_time_ms=0, error_code=error_code, session_id=session_id, responses=topics)


def asked(request: FetchRequest) -> list[tuple[int, int]]:
    return [(p.partition, p.fetch_offset) for topic in request.topics for p in topic.partitions]


def forgotten(request: FetchRequest) -> list[tuple[UUID, int]]:
    return [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]


def started(**wants: int) -> FetchSession:
    session = FetchSession()
    ask(session, {0: want(), 1: want()})
    assert session.accepts(answer(0, 1), VERSION)
    return session


def test_the_first_request_asks_for_a_session_with_everything() -> None:
    request = ask(FetchSession(), {0: want(5), 1: want(7)})
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert asked(request) == [(0, 5), (1, 7)]


def test_then_only_changes_are_said() -> None:
    session = started()
    request = ask(session, {0: want(), 1: want(3)})
    assert (request.session_id, request.session_epoch) == (9, 1)
    assert asked(request) == [(1, 3)]
    assert session.accepts(answer(), VERSION)
    assert ask(session, {0: want(), 1: want(3)}).session_epoch == 2


def test_partitions_that_are_not_wanted_any_more_are_forgotten() -> None:
    request = ask(started(), {1: want()})
    assert asked(request) == []
    assert forgotten(request) == [(A, 0)]


def test_a_new_topic_id_forgets_the_old_one_and_sends_the_new() -> None:
    request = ask(started(), {0: want(), 1: want(0, B)})
    assert forgotten(request) == [(A, 1)]
    assert [(topic.topic_id, [p.partition for p in topic.partitions]) for topic in request.topics] == [
        (B, [1])
    ]


def test_an_answer_to_a_full_request_must_list_exactly_what_was_asked() -> None:
    for partitions in ((0,), (0, 1, 2), ()):
        session = FetchSession()
        ask(session, {0: want(), 1: want()})
        assert not session.accepts(answer(*partitions), VERSION)
        assert (session.id, session.epoch) == (0, 0)


def test_an_incremental_answer_may_leave_out_but_not_add() -> None:
    session = started()
    ask(session, {0: want(), 1: want()})
    assert not session.accepts(answer(5), VERSION)
    assert (session.id, session.epoch) == (9, 0)


def test_a_broker_without_room_for_sessions_is_asked_in_full_every_time() -> None:
    session = FetchSession()
    ask(session, {0: want(), 1: want()})
    assert session.accepts(answer(0, 1, session_id=0), VERSION)
    assert asked(ask(session, {0: want(), 1: want()})) == [(0, 0), (1, 0)]


def test_an_evicted_session_is_made_anew_and_any_other_error_closes_the_old_one() -> None:
    session = started()
    assert not session.accepts(answer(error_code=70), VERSION)
    assert (session.id, session.epoch) == (0, 0)
    session = started()
    assert not session.accepts(answer(error_code=71), VERSION)
    request = ask(session, {0: want(), 1: want()})
    assert (request.session_id, request.session_epoch) == (9, 0)
    assert len(asked(request)) == 2


def test_the_epoch_after_the_last_one_is_1() -> None:
    session = started()
    session.epoch = 2**31 - 1
    ask(session, {0: want(), 1: want()})
    assert session.accepts(answer(), VERSION)
    assert session.epoch == 1


def test_a_request_without_an_answer_leads_to_a_full_one() -> None:
    session = started()
    session.on_failure()
    request = ask(session, {0: want(), 1: want()})
    assert (request.session_id, request.session_epoch) == (9, 0)
    assert len(asked(request)) == 2


def test_closing_frees_the_session_once() -> None:
    session = started()
    request = session.close_request()
    assert request is not None
    assert (request.session_id, request.session_epoch, request.topics) == (9, -1, [])
    assert session.close_request() is None


def test_a_single_fetch_neither_has_nor_makes_a_session() -> None:
    session = FetchSession(sessionless=True)
    request = ask(session, {0: want()})
    assert (request.session_id, request.session_epoch) == (0, -1)
    assert session.accepts(answer(0, session_id=0), VERSION)


def test_names_are_used_up_to_version_12_and_ids_from_13() -> None:
    assert ask(FetchSession(), {0: want()}, 12).topics[0].topic == "t"
    assert ask(FetchSession(), {0: want()}, 13).topics[0].topic_id == A
