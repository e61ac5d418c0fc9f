"""Fetch sessions (KIP-227) of the client. The cases follow Kafka's FetchSessionHandlerTest."""

from __future__ import annotations

from uuid import UUID

from consumer.engine.fetch.sessions import FetchSessionHandler, FetchTarget
from kproto.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tests.consumer.stage import tp
from tests.rules import rule

A, B = UUID(int=1), UUID(int=2)
VERSION = 17


def new_target(offset: int = 0, topic_id: UUID = A) -> FetchTarget:
    return FetchTarget(topic_id, offset, 1000, None)


def next_request(
    session: FetchSessionHandler, targets: dict[int, FetchTarget], version: int = VERSION
) -> FetchRequest:
    """Return the session's next fetch request for these targets."""
    for partition in [partition for partition in session.targets if partition.partition not in targets]:
        session.forget(partition)
    for index, target in targets.items():
        session.set_target(tp("t", index), target)
    return session.plan().request(
        version,
        max_wait_ms=1,
        min_bytes=1,
        max_bytes=1,
        isolation_level=0,
        rack_id="",
    )


def response(*partitions: int, session_id: int = 9, error_code: int = 0, topic_id: UUID = A) -> FetchResponse:
    entries = [
        PartitionData(
            partition_index=index, error_code=0, high_watermark=0, aborted_transactions=None, records=b""
        )
        for index in partitions
    ]
    topics = [FetchableTopicResponse(topic_id=topic_id, partitions=entries)] if entries else []
    return FetchResponse(throttle_time_ms=0, error_code=error_code, session_id=session_id, responses=topics)


def requested_partitions(request: FetchRequest) -> list[tuple[int, int]]:
    return [(p.partition, p.fetch_offset) for topic in request.topics for p in topic.partitions]


def forgotten_partitions(request: FetchRequest) -> list[tuple[UUID, int]]:
    return [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]


def started_session(**wants: int) -> FetchSessionHandler:
    session = FetchSessionHandler()
    next_request(session, {0: new_target(), 1: new_target()})
    assert session.handle_response(response(0, 1), VERSION)
    return session


@rule("M160")
def test_the_first_request_starts_a_session_with_all_partitions() -> None:
    request = next_request(FetchSessionHandler(), {0: new_target(5), 1: new_target(7)})
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert requested_partitions(request) == [(0, 5), (1, 7)]


def test_later_requests_contain_only_changes() -> None:
    session = started_session()
    request = next_request(session, {0: new_target(), 1: new_target(3)})
    assert (request.session_id, request.session_epoch) == (9, 1)
    assert requested_partitions(request) == [(1, 3)]
    assert session.handle_response(response(), VERSION)
    assert next_request(session, {0: new_target(), 1: new_target(3)}).session_epoch == 2


def test_removed_partitions_are_forgotten() -> None:
    request = next_request(started_session(), {1: new_target()})
    assert requested_partitions(request) == []
    assert forgotten_partitions(request) == [(A, 0)]


def test_a_new_topic_id_forgets_the_old_one() -> None:
    request = next_request(started_session(), {0: new_target(), 1: new_target(0, B)})
    assert forgotten_partitions(request) == [(A, 1)]
    assert [(topic.topic_id, [p.partition for p in topic.partitions]) for topic in request.topics] == [
        (B, [1])
    ]


def test_a_response_to_a_full_request_must_contain_exactly_its_partitions() -> None:
    for partitions in ((0,), (0, 1, 2), ()):
        session = FetchSessionHandler()
        next_request(session, {0: new_target(), 1: new_target()})
        assert not session.handle_response(response(*partitions), VERSION)
        assert (session.id, session.epoch) == (0, 0)


def test_a_response_may_list_a_partition_twice() -> None:
    session = FetchSessionHandler()
    next_request(session, {0: new_target(), 1: new_target()})
    assert session.handle_response(response(0, 1, 1), VERSION)
    assert next_request(session, {0: new_target(), 1: new_target()}).session_epoch == 1


def test_a_partition_that_is_listed_twice_does_not_replace_a_missing_one() -> None:
    session = FetchSessionHandler()
    next_request(session, {0: new_target(), 1: new_target()})
    assert not session.handle_response(response(0, 0), VERSION)


def test_an_incremental_response_may_omit_but_not_add_partitions() -> None:
    session = started_session()
    next_request(session, {0: new_target(), 1: new_target()})
    assert not session.handle_response(response(5), VERSION)
    assert (session.id, session.epoch) == (9, 0)


@rule("M160")
def test_without_a_session_every_request_is_full() -> None:
    session = FetchSessionHandler()
    next_request(session, {0: new_target(), 1: new_target()})
    assert session.handle_response(response(0, 1, session_id=0), VERSION)
    assert requested_partitions(next_request(session, {0: new_target(), 1: new_target()})) == [(0, 0), (1, 0)]


def test_an_evicted_session_is_restarted_and_another_error_closes_the_old_one() -> None:
    session = started_session()
    assert not session.handle_response(response(error_code=70), VERSION)
    assert (session.id, session.epoch) == (0, 0)
    session = started_session()
    assert not session.handle_response(response(error_code=71), VERSION)
    request = next_request(session, {0: new_target(), 1: new_target()})
    assert (request.session_id, request.session_epoch) == (9, 0)
    assert len(requested_partitions(request)) == 2


@rule("M160")
def test_the_epoch_after_the_maximum_is_1() -> None:
    session = started_session()
    session.epoch = 2**31 - 1
    next_request(session, {0: new_target(), 1: new_target()})
    assert session.handle_response(response(), VERSION)
    assert session.epoch == 1


@rule("M163")
def test_a_failed_request_is_followed_by_a_full_one() -> None:
    session = started_session()
    session.on_failure()
    request = next_request(session, {0: new_target(), 1: new_target()})
    assert (request.session_id, request.session_epoch) == (9, 0)
    assert len(requested_partitions(request)) == 2


@rule("M160", "M164")
def test_close_ends_the_session_once() -> None:
    session = started_session()
    request = session.close()
    assert request is not None
    assert (request.session_id, request.session_epoch, request.topics) == (9, -1, [])
    assert session.close() is None


def test_a_sessionless_fetch_starts_no_session() -> None:
    session = FetchSessionHandler(sessionless=True)
    request = next_request(session, {0: new_target()})
    assert (request.session_id, request.session_epoch) == (0, -1)
    assert session.handle_response(response(0, session_id=0), VERSION)


def test_topics_are_named_up_to_version_12_and_have_ids_from_13() -> None:
    assert next_request(FetchSessionHandler(), {0: new_target()}, 12).topics[0].topic == "t"
    assert next_request(FetchSessionHandler(), {0: new_target()}, 13).topics[0].topic_id == A


def test_a_session_knows_when_the_ids_of_all_topics_are_known() -> None:
    session = FetchSessionHandler()
    session.set_target(tp("t", 0), FetchTarget(None, 0, 1000, None))
    session.set_target(tp("t", 1), new_target())
    assert session.has_unknown_ids
    session.set_target(tp("t", 0), new_target())
    assert not session.has_unknown_ids
