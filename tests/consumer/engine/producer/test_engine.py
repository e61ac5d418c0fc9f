"""The producer engine stores each record once and in order, in virtual time, on the embedded broker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from consumer.delivery import Delivery
from consumer.engine.producer.batches import ProducerBatch
from consumer.engine.producer.produce_responses import ProduceResponses
from kproto.error_codes import ErrorCode
from kproto.errors import (
    AuthenticationFailed,
    BrokerError,
    CommitFailed,
    NotAuthorized,
    RequestTimedOut,
    UnknownTopic,
)
from kproto.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproto.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from kproto.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from kproto.records import batches, rows
from tests.consumer.engine.producer.stage import numbers, values_of
from tests.consumer.stage import Client, Producer, World, tp


def error_response(request: ProduceRequest, code: int) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=entry.index, error_code=code, base_offset=-1)
                    for entry in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def numbers_of(world: World, producer: Client) -> list[tuple[int, int, int]]:
    """Return the partition, epoch and first sequence number of each batch in the Produce requests."""
    return [
        (entry.index, batch.producer_epoch, batch.base_sequence)
        for request in world.requests_of(producer, ProduceRequest)
        for topic in request.topic_data
        for entry in topic.partition_data
        for batch in batches(entry.records or b"")
    ]


def test_a_batch_is_sent_whole_after_linger_ms() -> None:
    world = World({"t": 1})
    a = world.producer(linger_ms=100)
    first = a.must_send("t", "0")
    sent_at = world.now
    for number in range(1, 20):
        assert a.must_send("t", str(number)) is first
    a.tick()
    assert world.run(1000, until=lambda: first.done)
    assert 90 <= world.now - sent_at <= 130
    assert values_of(world, "t", 0) == numbers(0, 20)
    assert first.base_offset == 0
    assert len(world.requests_of(a, ProduceRequest)) == 1


def test_a_full_batch_is_sent_before_linger_ms() -> None:
    world = World({"t": 1})
    a = world.producer(linger_ms=60_000, delivery_timeout_ms=200_000, batch_size=1000)
    first = a.must_send("t", "x" * 600)
    second = a.must_send("t", "x" * 600)
    assert second is not first
    a.tick()
    assert world.run(100, until=lambda: first.done)
    assert not second.done


@pytest.mark.parametrize("idempotent", [True, False])
def test_batches_behind_an_in_flight_batch_set_no_earlier_deadline(idempotent: bool) -> None:
    world = World({"t": 2})
    a = world.producer(linger_ms=0, max_in_flight_requests_per_connection=1, enable_idempotence=idempotent)
    first = a.must_send("t", "0", partition=0)
    a.tick()
    assert world.run(1000, until=lambda: first.done)
    for partition in (0, 1):
        a.must_send("t", "1", partition=partition)
        a.tick()
    due = a.engine.due()
    assert due is not None
    assert due > world.now


def test_flush_sends_all_batches() -> None:
    world = World({"t": 1})
    a = world.producer(linger_ms=60_000, delivery_timeout_ms=200_000)
    batch = a.must_send("t", "x")
    a.engine.flush()
    a.tick()
    assert world.run(100, until=lambda: batch.done)
    assert a.engine.open_records == 0
    assert a.engine.buffered == 0


@pytest.mark.parametrize("code", [3, 6])
def test_the_first_batch_of_a_partition_is_sent_alone(code: int) -> None:
    """A leader accepts any sequence number of an unknown producer id.

    If two batches were in flight, the leader could reject the first and store the second. It would then also
    reject every retry of the first.
    """
    world = World({"t": 1})
    a = world.producer(linger_ms=0, batch_size=1)
    refused = [0]

    def tamper(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, ProduceRequest) and refused[0] == 0:
            refused[0] += 1
            return error_response(request, code)
        return None

    world.tamper = tamper
    sent = [a.must_send("t", str(number)) for number in range(20)]
    a.engine.flush()
    a.tick()
    assert world.run(120_000, until=lambda: a.engine.open_records == 0)
    assert [batch.error for batch in sent] == [None] * 20
    assert values_of(world, "t", 0) == numbers(0, 20)


@pytest.mark.parametrize(
    "code", [6, *(pytest.param(code, marks=pytest.mark.thorough) for code in (3, 5, 7, 13, 19, 20))]
)
def test_order_is_kept_through_retries_with_five_requests_in_flight(code: int) -> None:
    """When every third Produce fails, all batches in flight are retried in order."""
    world = World({"t": 1})
    a = world.producer(linger_ms=0, batch_size=1)
    turn = [0]

    def tamper(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, ProduceRequest):
            turn[0] += 1
            if turn[0] % 3 == 0:
                return error_response(request, code)
        return None

    world.tamper = tamper
    for number in range(200):
        a.must_send("t", str(number))
        if number % 10 == 9:
            a.tick()
            world.run(7)
    a.engine.flush()
    assert world.run(120_000, until=lambda: a.engine.open_records == 0)
    assert values_of(world, "t", 0) == numbers(0, 200)


def test_broken_connections_cause_no_loss_reordering_or_duplicates() -> None:
    world = World({"t": 2})
    a = world.producer(linger_ms=0, batch_size=50)
    for number in range(300):
        a.must_send("t", str(number), partition=number % 2)
        if number % 5 == 0:
            a.tick()
            world.run(3)
        if number % 40 == 20:
            world.cut(a)
    a.engine.flush()
    assert world.run(60_000, until=lambda: a.engine.open_records == 0)
    for partition in range(2):
        assert values_of(world, "t", partition) == numbers(partition, 300, 2)


def test_a_lost_response_causes_no_duplicate() -> None:
    """A batch whose response is lost is retried, and stored once.

    The broker recognizes the retried batch by its sequence number (KIP-98).
    """
    world = World({"t": 1})
    a = world.producer(linger_ms=0)
    batch = a.must_send("t", "once")
    a.tick()
    world.run(until=lambda: values_of(world, "t", 0) == ["once"])
    assert not batch.done
    world.cut(a)
    assert world.run(5000, until=lambda: batch.done)
    assert values_of(world, "t", 0) == ["once"]
    assert batch.error is None


def test_a_batch_that_is_too_large_is_split() -> None:
    world = World({"t": 1})
    a = world.producer(linger_ms=50, batch_size=10_000)

    def tamper(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, ProduceRequest):
            [batch] = batches(request.topic_data[0].partition_data[0].records or b"")
            if batch.size > 1500:
                return error_response(request, 10)
        return None

    world.tamper = tamper
    sent = [a.deliver("t", f"{number:0100}") for number in range(40)]
    a.engine.flush()
    a.tick()
    assert world.run(10_000, until=lambda: a.engine.open_records == 0)
    assert [int(value) for value in values_of(world, "t", 0)] == list(range(40))
    assert [delivery.result().offset for delivery in sent] == list(range(40))
    assert a.engine.records.buffered_bytes == 0
    after = a.must_send("t", "after")
    a.engine.flush()
    a.tick()
    assert world.run(1000, until=lambda: after.done)
    assert after.base_offset == 40


def test_a_single_record_that_is_too_large_is_an_error() -> None:
    world = World({"t": 1})
    a = world.producer()
    world.tamper = lambda client, request, version: (
        error_response(request, 10) if isinstance(request, ProduceRequest) else None
    )
    batch = a.must_send("t", "x")
    a.engine.flush()
    a.tick()
    assert world.run(1000, until=lambda: batch.done)
    assert isinstance(batch.error, BrokerError)
    assert batch.error.code == 10


def test_after_a_failed_batch_the_next_batches_use_the_next_epoch() -> None:
    world = World({"t": 1})
    a = world.producer(linger_ms=0, batch_size=1)
    bad = [True]

    def tamper(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, ProduceRequest) and bad.pop() if bad else False:
            return error_response(request, 87)
        return None

    world.tamper = tamper
    sent = [a.must_send("t", str(number)) for number in range(10)]
    a.tick()
    assert world.run(10_000, until=lambda: a.engine.open_records == 0)
    assert [batch.error is None for batch in sent] == [False] + [True] * 9
    assert values_of(world, "t", 0) == numbers(1, 10)
    assert len(world.requests_of(a, InitProducerIdRequest)) == 1
    assert [numbered[1:] for numbered in numbers_of(world, a)] == [(0, 0), *((1, at) for at in range(9))]


def test_the_buffer_is_bounded_and_released_after_delivery() -> None:
    world = World({"t": 1})
    a = world.producer(buffer_memory=10_000, batch_size=1000, linger_ms=5)
    a.must_send("t", "x" * 500)
    accepted = 0
    while a.send("t", "x" * 500) is not None:
        accepted += 1
    assert 10 < accepted < 20
    assert a.engine.buffered <= 10_000
    a.tick()
    world.run(100)
    assert a.engine.buffered == 0
    assert a.send("t", "x") is not None


def test_every_delivery_ends_within_delivery_timeout_ms() -> None:
    world = World({"t": 1})
    a = world.producer(delivery_timeout_ms=3000, request_timeout_ms=1000)
    batch = a.must_send("t", "x")
    sent_at = world.now
    world.down = True
    world.cut(a)
    a.tick()
    assert world.run(10_000, until=lambda: batch.done)
    assert isinstance(batch.error, RequestTimedOut)
    assert str(batch.error).startswith("Produce: no answer within 3000 ms (t-0, 1 records: ")
    assert 2900 <= world.now - sent_at <= 4001


def test_an_unknown_topic_raises_within_seconds() -> None:
    world = World({})
    a = world.producer()
    called_at = world.now
    with pytest.raises(UnknownTopic, match="nowhere"):
        a.must_send("nowhere", "x")
    assert world.now - called_at < 5000


def test_new_partitions_get_records_after_the_next_metadata_refresh() -> None:
    world = World({"t": 1})
    a = world.producer(metadata_max_age_ms=500, linger_ms=0)
    a.must_send("t", "x", key="a")
    world.grow("t", 8)
    world.run(1000)
    used = {a.must_send("t", "x", key=str(number)).partition for number in range(100)}
    assert used == {tp("t", index) for index in range(8)}


def test_with_acks_0_a_delivery_ends_when_the_batch_is_written() -> None:
    world = World({"t": 1})
    a = world.producer(acks=0, linger_ms=0)
    batch = a.must_send("t", "x")
    a.tick()
    world.run(10)
    assert batch.done
    assert batch.base_offset is None
    assert values_of(world, "t", 0) == ["x"]


def log_after_a_failed_batch_before_a_stored_one() -> list[str]:
    """Store two batches, but answer them with errors, and return the values in the log.

    The first batch fails with a timeout. After this failure, a retry of the second batch succeeds, because
    the broker recognizes it as a duplicate.
    """
    world = World({"t": 1})
    a = world.producer(linger_ms=0, batch_size=1, request_timeout_ms=400, delivery_timeout_ms=600)
    warm = a.must_send("t", "0")
    a.tick()
    world.run(100, until=lambda: warm.done)
    sent: list[ProducerBatch] = []

    def tamper(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, ProduceRequest) or client is not a or sent[0].done:
            return None
        for topic in request.topic_data:
            for entry in topic.partition_data:
                world.append("t", entry.index, entry.records or b"")
        return error_response(request, 7)

    world.tamper = tamper
    for number in (1, 2):
        sent.append(a.must_send("t", str(number)))
        a.tick()
        world.run(150)
    assert world.run(2_000, until=lambda: all(batch.done for batch in sent))
    assert isinstance(sent[0].error, RequestTimedOut)
    assert sent[1].error is None
    after = a.must_send("t", "3")
    a.tick()
    assert world.run(1_000, until=lambda: after.done)
    return values_of(world, "t", 0)


def test_a_batch_that_may_be_stored_keeps_its_sequence_number_when_an_earlier_one_fails() -> None:
    assert log_after_a_failed_batch_before_a_stored_one() == numbers(0, 4)


def test_renumbering_all_batches_after_a_failure_would_store_duplicates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    give_up = ProduceResponses.fail_batch

    def mutant(self: ProduceResponses, batch: ProducerBatch, error: Any) -> None:
        batch.queue.renumber_from, batch.queue.halted = (), True
        give_up(self, batch, error)

    monkeypatch.setattr(ProduceResponses, "fail_batch", mutant)
    assert log_after_a_failed_batch_before_a_stored_one() == ["0", "1", "2", "2", "3"]


def is_done_soon(world: World, batch: ProducerBatch) -> bool:
    return world.run(50, until=lambda: batch.done)


def test_a_leaderless_partition_and_an_unauthorized_topic_block_no_other_partition() -> None:
    world = World({"t": 2, "secret": 1})
    a = world.producer(linger_ms=0, delivery_timeout_ms=1_000, request_timeout_ms=500)
    for topic, partition in (("t", 0), ("t", 1), ("secret", 0)):
        warm = a.must_send(topic, "warm", partition=partition)
        a.tick()
        assert is_done_soon(world, warm)

    def tamper(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, ProduceRequest) and client is a:
            ids = {a.engine.core.view.topic_id(name): name for name in ("t", "secret")}
            if any((topic.name or ids[topic.topic_id]) == "secret" for topic in request.topic_data):
                return error_response(request, 29)
        return None

    world.tamper = tamper
    world.run(1)
    view = a.engine.core.view.partition(tp("t", 0))
    assert view is not None
    a.engine.metadata.look_up = lambda topic: None  # type: ignore[method-assign]
    view.leader = None
    stuck = a.must_send("t", "stuck", partition=0)
    refused = a.must_send("secret", "refused", partition=0)
    a.tick()
    at = world.now
    for number in range(20):
        fine = a.must_send("t", str(number), partition=1)
        a.tick()
        assert is_done_soon(world, fine)
    assert isinstance(refused.error, NotAuthorized)
    assert world.run(2_000, until=lambda: stuck.done)
    assert world.now - at <= 1_002
    assert "no leader" in str(stuck.error)
    assert values_of(world, "t", 1) == ["warm", *numbers(0, 20)]


def test_metadata_of_each_new_topic_is_requested_alone() -> None:
    world = World({f"t{number}": 1 for number in range(50)})
    a = world.producer(linger_ms=0)
    for number in range(50):
        a.must_send(f"t{number}", "x")
    assert max(len(request.topics or ()) for request in world.requests_of(a, MetadataRequest)) == 1


def test_idle_partitions_are_not_rescheduled() -> None:
    world = World({"t": 10_000})
    a = world.producer(linger_ms=0)
    for index in range(0, 10_000, 50):
        a.must_send("t", "x", partition=index)
    a.tick()
    assert world.run(5_000, until=lambda: a.engine.open_records == 0)
    rescheduled: list[Any] = []
    schedule = a.engine.schedule
    reschedule = schedule.reschedule
    schedule.reschedule = lambda lane: (rescheduled.append(lane), reschedule(lane))[1]  # type: ignore[method-assign, func-returns-value]
    batch = a.must_send("t", "one", partition=7)
    a.tick()
    assert world.run(1_000, until=lambda: batch.done)
    assert {lane.partition for lane in rescheduled} == {tp("t", 7)}


def test_a_blocked_partition_leaves_half_of_the_buffer_to_the_others() -> None:
    world = World({"t": 2})
    a = world.producer(linger_ms=0, batch_size=1_000, buffer_memory=20_000, delivery_timeout_ms=60_000)
    for index in range(2):
        a.must_send("t", "warm", partition=index)
    a.tick()
    world.run(200)
    view = a.engine.core.view.partition(tp("t", 0))
    assert view is not None
    a.engine.metadata.look_up = lambda topic: None  # type: ignore[method-assign]
    view.leader = None
    a.must_send("t", "x", partition=0)
    world.run(2_000)
    while a.send("t", "x" * 500, partition=0) is not None:
        a.tick()
    assert "t-0 has made no progress for" in a.engine.records.why_waiting
    assert a.engine.buffered <= 12_000
    for _ in range(50):
        fine = a.must_send("t", "x" * 500, partition=1)
        a.tick()
        assert is_done_soon(world, fine)


def test_a_batch_that_expires_before_the_connection_opens_is_left_out_of_the_request() -> None:
    """The request contains neither the expired batch nor its partition entry.

    If the entry stayed in the request with null records, Kafka would not respond to the request.
    """
    world = World({"t": 2}, brokers=2)
    a = world.producer(
        linger_ms=500,
        request_timeout_ms=2_000,
        delivery_timeout_ms=3_000,
        metadata_max_age_ms=300,
        retry_backoff_ms=10,
        reconnect_backoff_ms=10,
        reconnect_backoff_max_ms=20,
    )
    for index in (0, 1):
        world.elect("t", index, 2)
        a.must_send("t", "warm", partition=index)
        a.flush()
        assert world.run(5_000, until=lambda: a.engine.open_records == 0)
    world.fault("stall", a, 2)
    world.cut(a)
    old = a.must_send("t", "old", partition=0)
    world.run(400)
    new = a.must_send("t", "new", partition=1)
    a.flush()
    assert world.run(3_000, until=lambda: old.done)
    world.run(200)
    assert not new.done
    world.heal()
    assert world.run(2_000, until=lambda: new.done)
    assert new.error is None
    records = [
        entry.records
        for request in world.requests_of(a, ProduceRequest)
        for topic in request.topic_data
        for entry in topic.partition_data
    ]
    assert None not in records


def test_an_encoding_error_fails_only_its_own_batch() -> None:
    world = World({"t": 1})
    a = world.producer(linger_ms=0, batch_size=1)
    sent = [a.must_send("t", str(number)) for number in range(3)]
    sent[0].rows[0] = 5
    a.tick()
    assert world.run(1_000, until=lambda: all(batch.done for batch in sent))
    assert [batch.error is None for batch in sent] == [False, True, True]
    assert values_of(world, "t", 0) == ["1", "2"]


@pytest.mark.parametrize("keyed", [False, True])
def test_a_batch_waits_for_a_record_that_is_counted_but_not_added_yet(keyed: bool) -> None:
    """A send counts its record before it adds the record. Under a debugger or profiler the sender may run
    between these two steps.
    """
    world = World({"t": 1})
    a = world.producer(linger_ms=0)
    batch = a.must_send("t", "0", key="k") if keyed else a.must_send("t", "0")
    added = batch.rows[-4 if keyed else -1 :]
    batch.count += 1
    a.tick()
    assert not world.run(50, until=lambda: batch.done)
    assert batch.sealed
    batch.rows += added
    assert world.run(50, until=lambda: batch.done)
    assert batch.error is None
    assert values_of(world, "t", 0) == ["0", "0"]


def test_a_batch_with_a_record_that_is_never_added_fails_after_delivery_timeout_ms() -> None:
    world = World({"t": 1})
    a = world.producer(linger_ms=0, delivery_timeout_ms=3000, request_timeout_ms=1000)
    batch = a.must_send("t", "0")
    batch.count += 1
    a.tick()
    assert world.run(4000, until=lambda: batch.done)
    assert isinstance(batch.error, RequestTimedOut)


def test_a_request_has_at_most_max_request_size_bytes() -> None:
    world = World({"t": 5})
    a = world.producer(linger_ms=50, max_request_size=17_000)
    first = a.must_send("t", "x", partition=0)
    assert world.run(1_000, until=lambda: first.done)
    sent = [a.must_send("t", "x" * 5_000, partition=index) for index in range(5)]
    a.engine.flush()
    a.tick()
    assert world.run(1_000, until=lambda: all(batch.done for batch in sent))
    assert [batch.error for batch in sent] == [None] * 5
    requests = [
        [len(entry.records or b"") for topic in request.topic_data for entry in topic.partition_data]
        for request in world.requests_of(a, ProduceRequest)[1:]
    ]
    assert sorted(map(len, requests)) == [2, 3]
    assert max(map(sum, requests)) <= 17_000


def test_the_first_batch_of_a_re_created_topic_is_sent_alone() -> None:
    """The leader of the new topic does not know the producer id, so it would accept any sequence number.

    If two batches were in flight and the first failed, the leader would store the second without the first.
    """
    world = World({"t": 1}, latency=(20, 20))
    a = world.producer(linger_ms=0, batch_size=1, metadata_max_age_ms=500)
    first = a.must_send("t", "0")
    assert world.run(until=lambda: first.done)
    assert first.queue.epoch_accepted
    known = a.engine.core.view.topic_id("t")
    world.delete_topic("t")
    world.create("t", 1)
    assert world.run(5_000, until=lambda: a.engine.core.view.topic_id("t") not in (None, known))
    sent = [a.must_send("t", str(number)) for number in range(1, 4)]
    a.tick()
    assert first.queue.in_flight == sent[:1]
    assert world.run(5_000, until=lambda: all(batch.done for batch in sent))
    assert values_of(world, "t", 0) == ["1", "2", "3"]


def test_buffered_records_fail_if_their_topic_cannot_be_written_to() -> None:
    world = World({"t": 1})
    a = world.producer(linger_ms=200, metadata_max_age_ms=60_000)
    batch = a.must_send("t", "x")
    a.tick()
    a.engine.core.view.forget_leader(batch.partition)
    denied = MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name="t", partitions=[])

    def deny(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, MetadataRequest):
            return None
        host, port = a.engine.core.network.bootstrap[0]
        broker = MetadataResponseBroker(node_id=1, host=host, port=port)
        return MetadataResponse(brokers=[broker], topics=[denied])

    world.tamper = deny
    assert world.run(2_000, until=lambda: batch.done)
    assert isinstance(batch.error, NotAuthorized)


def test_after_a_long_freeze_received_responses_are_handled_before_timeouts() -> None:
    world = World({"t": 1})
    a = world.producer(linger_ms=0, request_timeout_ms=1_000, delivery_timeout_ms=1_500)
    warm = a.must_send("t", "warm")
    a.tick()
    assert world.run(1_000, until=lambda: warm.done)
    batch = a.must_send("t", "kept")
    a.tick()
    world.run(1)
    a.freeze(60_000)
    world.run(61_000)
    assert batch.error is None
    assert batch.base_offset == 1


def test_a_producer_id_of_minus_one_is_requested_again() -> None:
    world = World({"t": 1})
    a = world.producer(linger_ms=0)
    invalid = [
        InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=-1, producer_epoch=-1)
    ] * 2

    world.tamper = lambda client, request, version: (
        invalid.pop() if invalid and isinstance(request, InitProducerIdRequest) else None
    )
    batch = a.must_send("t", "x")
    a.tick()
    assert world.run(5_000, until=lambda: batch.done)
    assert numbers_of(world, a) == [(0, 0, 0)]


def answer_init_producer_id(world: World, code: int) -> None:
    """Answer each InitProducerId with an error code."""

    def tamper(client: Client, request: Any, version: int) -> InitProducerIdResponse | None:
        if not isinstance(request, InitProducerIdRequest):
            return None
        return InitProducerIdResponse(throttle_time_ms=0, error_code=code, producer_id=-1, producer_epoch=-1)

    world.tamper = tamper


def test_a_rejected_producer_id_fails_the_records_with_the_missing_permission() -> None:
    world = World({"t": 1})
    a = world.producer(linger_ms=0)
    answer_init_producer_id(world, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    batch = a.must_send("t", "x")
    assert world.run(5_000, until=lambda: batch.done)
    assert isinstance(batch.error, NotAuthorized)
    assert "InitProducerId" in str(batch.error)
    assert "IDEMPOTENT_WRITE on the cluster" in str(batch.error)


def test_a_producer_id_is_requested_again_after_a_retriable_error() -> None:
    world = World({"t": 1})
    a = world.producer(linger_ms=0)
    answer_init_producer_id(world, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    batch = a.must_send("t", "x")
    world.run(2_000)
    assert not batch.done
    assert len(world.requests_of(a, InitProducerIdRequest)) > 1
    world.tamper = None
    assert world.run(5_000, until=lambda: batch.done)
    assert batch.error is None


def test_a_huge_partition_index_allocates_no_memory() -> None:
    world = World({"t": 2})
    a = world.producer(linger_ms=0)
    a.must_send("t", "x")
    view = a.engine.core.view.topics["t"]
    view.partitions = {2**31 - 1: view.partitions[0], -7: view.partitions[1]}
    a.engine._metadata_changed(frozenset({"t"}))
    assert len(a.engine.records.routes["t"].queues) == 2


def test_metadata_of_a_missing_partition_is_requested_with_backoff() -> None:
    """While a record waits for a missing partition, the producer requests metadata with a backoff.

    The partition is missing because the topic was re-created with fewer partitions.
    """
    world = World({"t": 2})
    a = world.producer(linger_ms=0, request_timeout_ms=1_000, delivery_timeout_ms=20_000)
    warm = a.must_send("t", "warm", partition=1)
    a.tick()
    assert is_done_soon(world, warm)
    world.delete_topic("t")
    world.create("t", 1)
    stuck = a.must_send("t", "stuck", partition=1)
    a.tick()
    assert world.run(21_000, until=lambda: stuck.done)
    assert "the topic has 1 partitions now, without this one" in str(stuck.error)
    assert len(world.requests_of(a, MetadataRequest)) < 50
    fine = a.must_send("t", "fine", partition=0)
    a.tick()
    assert is_done_soon(world, fine)
    assert values_of(world, "t", 0) == ["fine"]


@pytest.mark.parametrize(
    "codes",
    [range(-1, 135, 9), pytest.param([*range(-1, 135), 9_999], marks=pytest.mark.thorough)],
    ids=["some", "all"],
)
@pytest.mark.parametrize("idempotent", [True, False])
def test_every_delivery_ends_whatever_the_error_code(codes: Any, idempotent: bool) -> None:
    for code in codes:
        world = World({"t": 1})
        a = world.producer(
            linger_ms=0, request_timeout_ms=400, delivery_timeout_ms=1_500, enable_idempotence=idempotent
        )
        refusing = [code != 0]

        def tamper(client: Client, request: Any, version: int, code: int = code, on: Any = refusing) -> Any:
            return error_response(request, code) if on[0] and isinstance(request, ProduceRequest) else None

        world.tamper = tamper
        sent = [a.deliver("t", str(number)) for number in range(3)]
        a.flush()
        assert world.run(2_000, until=lambda: all(request.done() for request in sent)), code  # noqa: B023
        stored = values_of(world, "t", 0)
        assert all(request.exception() for request in sent) or stored or code == 46, code
        refusing[0] = False
        world.run(200)
        after = a.deliver("t", "after")
        a.flush()
        assert world.run(2_000, until=lambda: after.done()), code  # noqa: B023
        assert after.exception() is None, code
        assert values_of(world, "t", 0) == [*stored, "after"], code
        assert (a.engine.buffered, a.engine.open_records) == (0, 0), code


@pytest.mark.parametrize(
    "code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS]
)
def test_a_group_error_of_a_produce_response_is_not_raised_as_commit_failed(code: ErrorCode) -> None:
    world = World({"t": 1})
    a = world.producer(linger_ms=0, delivery_timeout_ms=31_000)
    world.tamper = lambda client, request, version: (
        error_response(request, code) if isinstance(request, ProduceRequest) else None
    )
    sent = a.deliver("t", "x")
    a.flush()
    assert world.run(2_000, until=sent.done)
    error = sent.exception()
    assert isinstance(error, BrokerError)
    assert not isinstance(error, CommitFailed)
    assert (error.code, error.request) == (code, "Produce")


@pytest.mark.parametrize("change", ["fewer", "others", "nothing"])
def test_a_response_without_the_partition_is_not_a_success(change: str) -> None:
    world = World({"t": 2})
    a = world.producer(linger_ms=0, request_timeout_ms=400, delivery_timeout_ms=1_500)

    def tamper(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, ProduceRequest):
            return None
        answer = error_response(request, 0)
        for topic in answer.responses:
            for entry in topic.partition_responses:
                entry.index += 77 if change == "others" else 0
            if change == "fewer":
                del topic.partition_responses[-1]
        if change == "nothing":
            answer.responses = []
        return answer

    world.tamper = tamper
    sent = [a.must_send("t", "x", partition=index) for index in (0, 1)]
    a.flush()
    assert world.run(2_000, until=lambda: all(batch.done for batch in sent))
    assert isinstance(sent[1].error, RequestTimedOut)
    assert "does not contain the partition" in str(sent[1].error)
    assert (sent[0].error is None) == (change == "fewer")


@pytest.mark.parametrize("codes", [(19, 0), (0, 19), (0, 47), (47, 0)])
def test_a_response_with_two_results_for_a_partition_is_retried_with_the_same_sequence_number(
    codes: tuple[int, int],
) -> None:
    """A batch is retried if the response contains its partition twice, once with an error.

    The retry has the same sequence number, because the batch may be in the log.
    """
    world = World({"t": 1})
    a = world.producer(linger_ms=0, request_timeout_ms=400)

    def tamper(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, ProduceRequest):
            return None
        world.tamper = None
        answer = error_response(request, codes[0])
        answer.responses[0].partition_responses += (
            error_response(request, codes[1]).responses[0].partition_responses
        )
        return answer

    world.tamper = tamper
    sent = a.deliver("t", "x", partition=0)
    assert world.run(5_000, until=sent.done)
    assert sent.exception() is None
    assert len({*numbers_of(world, a)}) == 1
    assert values_of(world, "t", 0) == ["x"]


@pytest.mark.parametrize("later", [60_000, 63_000, 66_000, 69_000])
def test_an_earlier_topic_error_does_not_fail_a_later_send(later: int) -> None:
    """After a deleted topic is re-created, the earlier error of the topic does not fail a `send`.

    The `send` refreshes the metadata at once, although the backoff of the deleted topic has not ended.
    """
    world = World({"t": 1})
    producer = world.producer()
    producer.deliver("t", "0")
    world.run(1_000)
    world.delete_topic("t")
    stray = producer.deliver("t", "1")
    world.run(later)
    assert producer.engine.metadata.topic_errors["t"][1] > 3
    world.create("t", 1)
    sent = producer.deliver("t", "2")
    assert world.run(2_000, until=lambda: sent.done() and stray.done())
    assert [stray.result().offset, sent.result().offset] == [0, 1]


# ---- the broker keeps only the last batch of each producer after a crash


def send_after_a_crash(expected: int) -> tuple[World, Client, list[Any]]:
    """Send a batch, let the broker lose its producer state, and send three more batches.

    Until the producer increments its epoch, the broker answers OUT_OF_ORDER_SEQUENCE_NUMBER to each batch
    whose sequence number is below `expected`.
    """
    world = World({"t": 1})
    producer = world.producer(linger_ms=0)
    first = producer.deliver("t", "0", partition=0)
    assert world.run(until=first.done)

    def tamper(client: Any, request: Any, version: int) -> Any:
        if not isinstance(request, ProduceRequest):
            return None
        [batch] = batches(request.topic_data[0].partition_data[0].records or b"")
        if batch.producer_epoch or batch.base_sequence >= expected:
            return None if batch.producer_epoch else error_response(request, 0)
        return error_response(request, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)

    world.tamper = tamper
    sent = []
    for value in ("1", "2", "3"):
        sent.append(producer.deliver("t", value, partition=0))
        producer.flush()
    assert world.run(5_000, until=lambda: all(delivery.done() for delivery in sent))
    return world, producer, sent


@pytest.mark.parametrize("expected", [2, 3])
def test_an_out_of_order_batch_is_stored_if_a_later_batch_is(expected: int) -> None:
    world, producer, sent = send_after_a_crash(expected)
    assert [delivery.result().offset for delivery in sent[: expected - 1]] == [None] * (expected - 1)
    # No batch was sent again or renumbered.
    assert numbers_of(world, producer) == [(0, 0, number) for number in range(4)]
    producer.deliver("t", "4", partition=0)
    producer.flush()
    world.run(1_000)
    assert numbers_of(world, producer)[-1] == (0, 0, 4)  # Numbering continues.


def test_out_of_order_batches_are_renumbered_if_no_later_batch_is_stored() -> None:
    world, producer, sent = send_after_a_crash(9)
    assert values_of(world, "t", 0) == numbers(0, 4)
    assert numbers_of(world, producer)[-3:] == [(0, 1, 0), (0, 1, 1), (0, 1, 2)]
    assert [delivery.result().offset for delivery in sent] == [1, 2, 3]


# ---- batches that are stored although the response has an error


def answer_with_an_error_after_storing(world: World, times: int, *, too_large: int = 0) -> list[list[str]]:
    """Store the first `times` batches whose only value is "1", but answer NOT_ENOUGH_REPLICAS_AFTER_APPEND.

    If `too_large` is not 0, it is the error code for batches of several records.

    Return a list that grows by one item per Produce request: the values of the request's records.
    """
    produced: list[list[str]] = []

    def tamper(client: Any, request: Any, version: int) -> Any:
        if not isinstance(request, ProduceRequest):
            return None
        data = request.topic_data[0].partition_data[0].records or b""
        produced.append([(record.value or b"").decode() for record in rows(data)])
        if produced[-1] == ["1"] and produced.count(["1"]) <= times:
            world.append("t", 0, data)
            return error_response(request, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        return error_response(request, too_large) if too_large and len(produced[-1]) > 1 else None

    world.tamper = tamper
    return produced


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD])
def test_a_retried_batch_keeps_its_sequence_number_when_a_later_batch_is_split(code: ErrorCode) -> None:
    world = World({"t": 1})
    producer = world.producer(linger_ms=0)
    sent = [producer.deliver("t", "0", partition=0)]
    assert world.run(until=sent[0].done)
    answer_with_an_error_after_storing(world, 1, too_large=code)
    for values in ("1", "23", "4"):
        sent += [producer.deliver("t", value, partition=0) for value in values]
        producer.flush()
    assert world.run(5_000, until=lambda: all(delivery.done() for delivery in sent))
    assert values_of(world, "t", 0) == numbers(0, 5)
    assert [delivery.result().offset for delivery in sent] == list(range(5))


def test_no_new_batch_is_sent_behind_a_retried_one() -> None:
    """The producer sends no new batch before the retry of an earlier one.

    The broker remembers the last five batches of a producer. If it had stored five newer batches, it would
    reject the retry. The producer would then renumber the batch, and the broker would store it twice.
    """
    world = World({"t": 1})
    producer = world.producer(linger_ms=0, batch_size=1)
    sent = [producer.deliver("t", "0", partition=0)]
    assert world.run(until=sent[0].done)
    produced = answer_with_an_error_after_storing(world, 3)
    sent += [producer.deliver("t", str(number), partition=0) for number in range(1, 12)]
    assert world.run(5_000, until=lambda: all(delivery.done() for delivery in sent))
    assert values_of(world, "t", 0) == numbers(0, 12)
    assert [delivery.result().offset for delivery in sent] == list(range(12))
    assert produced[5:9] == [["1"], ["1"], ["1"], ["6"]]


def test_a_missing_topic_is_not_requested_again_after_its_error() -> None:
    world = World({"t": 1}, {"auto.create.topics.enable": "false"})
    a = world.producer()

    def requests() -> int:
        return len(
            [
                request
                for request in world.requests_of(a, MetadataRequest)
                if any(topic.name == "missing" for topic in request.topics or ())
            ]
        )

    assert a.send("missing", "x") is None
    a.tick()
    world.run(20_000)
    sent = requests()
    world.run(60_000)
    assert requests() == sent > 1


def test_the_producer_id_is_requested_together_with_the_metadata_of_the_first_topic() -> None:
    world = World({"t": 1})
    a = world.producer(linger_ms=0)
    world.fault("delay", ms=100)
    assert a.send("t", "x") is None
    assert world.run(until=lambda: bool(world.requests_of(a, InitProducerIdRequest)))
    assert not a.engine.core.view.topics


def test_a_batch_that_times_out_in_flight_says_that_the_broker_has_not_answered() -> None:
    world = World({"t": 1})
    a = world.producer(linger_ms=0, request_timeout_ms=10_000, delivery_timeout_ms=10_000)
    first = a.must_send("t", "x")
    assert world.run(until=lambda: first.done)
    world.fault("stall")
    second = a.must_send("t", "y")
    world.run(1_000)
    assert a.engine.open_reason(second) == "the broker has not answered yet"


def test_the_reason_of_an_open_batch_is_what_it_waits_for() -> None:
    world = World({"t": 1}, latency=(50, 50))
    answer_init_producer_id(world, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    a = world.producer(linger_ms=0, batch_size=1, request_timeout_ms=10_000)
    first = a.must_send("t", "0")
    world.run(1_000)
    assert a.engine.open_reason(first) == "this producer has no producer id yet"
    world.tamper = None
    second = a.must_send("t", "1")
    assert world.run(until=lambda: bool(first.queue.in_flight))
    assert a.engine.open_reason(first) == "the broker has not answered yet"
    assert a.engine.open_reason(second) == "it is queued behind other batches"
    second.why = "the broker answers X"
    assert a.engine.open_reason(second) == "the broker answers X"


def test_a_failed_authentication_fails_the_sends_and_batches_that_wait_for_metadata() -> None:
    world = World({"t": 2})
    a = world.producer(linger_ms=0)
    warm = a.must_send("t", "warm", partition=1)
    assert world.run(until=lambda: warm.done)
    assert a.send("u", "x") is None
    a.tick()
    error = AuthenticationFailed("h:1", "a wrong password")
    view = a.engine.core.view.partition(tp("t", 0))
    assert view is not None
    view.leader = None
    leaderless = a.must_send("t", "x", partition=0)
    ready = a.must_send("t", "x", partition=1)
    a.engine._handle_notifications()
    a.engine.core.errors["login"] = error
    a.tick()
    assert leaderless.error is error
    assert ready.error is None
    assert a.engine.core.errors == {}
    with pytest.raises(AuthenticationFailed, match="a wrong password"):
        a.send("u", "x")


def test_the_end_of_a_producer_fails_its_open_records_and_purges() -> None:
    world = World({"t": 1})
    a = world.producer(linger_ms=60_000, delivery_timeout_ms=100_000)
    batch = a.must_send("t", "x")
    purge = a.engine.start_purge()
    a.engine.fail("the producer was closed")
    assert purge.done
    assert str(batch.error) == "the producer was closed; this record was not acknowledged"
    assert (a.engine.open_records, a.engine.buffered) == (0, 0)


def test_purge_drops_what_was_not_sent_and_keeps_what_may_be_written() -> None:
    world = World({"t": 1}, latency=(50, 50))
    a = world.producer(linger_ms=0, batch_size=1, max_in_flight_requests_per_connection=1)
    first = a.must_send("t", "0")
    assert world.run(until=lambda: first.done)
    sent, unsent = a.must_send("t", "1"), a.must_send("t", "2")
    a.tick()
    assert sent in sent.queue.in_flight
    filling = a.must_send("t", "3")
    purge = a.engine.start_purge()
    a.tick()
    assert (purge.done, purge.count) == (True, 2)
    for batch in (unsent, filling):
        assert str(batch.error) == "t-0: purge() dropped this record before it was sent"
    # Records that the application has purged do not count as failures.
    assert a.engine.records.take_failures().count == 0
    assert world.run(until=lambda: sent.done)
    assert sent.error is None
    assert values_of(world, "t", 0) == ["0", "1"]


def test_purge_keeps_a_batch_without_a_sequence_number_that_was_sent_once() -> None:
    """The batch is sent again, because the broker may have written it despite REQUEST_TIMED_OUT."""
    world = World({"t": 1})
    a = world.producer(linger_ms=0, enable_idempotence=False, retry_backoff_ms=500, retry_backoff_max_ms=500)
    refused: list[Any] = []

    def refuse_once(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, ProduceRequest) and not refused:
            refused.append(request)
            return error_response(request, ErrorCode.REQUEST_TIMED_OUT)
        return None

    world.tamper = refuse_once
    batch = a.must_send("t", "0")
    a.tick()
    assert world.run(until=lambda: batch.failures == 1)
    purge = a.engine.start_purge()
    a.tick()
    assert (purge.done, purge.count) == (True, 0)
    assert world.run(until=lambda: batch.done)
    assert batch.error is None


@pytest.mark.parametrize("has_id", [True, False])
def test_a_topic_without_an_id_is_written_by_its_name(has_id: bool) -> None:
    """Produce identifies topics by id from v13 on. Brokers before Kafka 2.8 assign no topic ids."""
    world = World({"t": 1})
    versions: list[int] = []

    def tamper(client: Client, request: Any, version: int) -> None:
        if isinstance(request, ProduceRequest):
            versions.append(version)
            assert bool(request.topic_data[0].name) is not has_id

    a = world.producer(linger_ms=0)
    first = a.must_send("t", "0")
    assert world.run(until=lambda: first.done)
    world.tamper = tamper
    if not has_id:
        a.engine.core.view.topics["t"].id = None
    second = a.must_send("t", "1")
    a.tick()
    assert world.run(until=lambda: second.done)
    assert second.error is None
    assert (versions[0] >= 13) is has_id
    assert values_of(world, "t", 0) == ["0", "1"]


def in_racks(world: World, *racks: str | None) -> None:
    """Set the racks of brokers 1, 2, and so on."""
    for node, rack in zip(list(world.nodes.values()), racks, strict=True):
        world.nodes[node.id] = world.cluster.nodes[node.id] = replace(node, rack=rack)


def partitions_of_sends(world: World, producer: Producer, count: int) -> set[int]:
    """Send records of 17 kB without a key; return the partitions to which they are written."""
    sent: list[Delivery] = []
    for _ in range(count):
        sent.append(producer.deliver("t", b"x" * 17_000))
        assert world.run(until=sent[-1].done)
    return {delivery.result(0).partition for delivery in sent}


@pytest.mark.parametrize(
    ("options", "partitions"),
    [
        ({"partitioner_rack_aware": True, "client_rack": "b"}, {1, 4}),
        ({"partitioner_rack_aware": True, "client_rack": "B"}, {0, 1, 2, 3, 4, 5}),
        ({"client_rack": "b"}, {0, 1, 2, 3, 4, 5}),
    ],
    ids=["in the rack", "no broker in the rack", "not rack-aware"],
)
def test_records_without_a_key_go_to_leaders_in_the_rack(
    options: dict[str, Any], partitions: set[int]
) -> None:
    """A rack-aware producer sends to partitions whose leader is in its rack (KIP-1123).

    If no leader is in its rack, or the producer is not rack-aware, it sends to all partitions. Broker 2, in
    rack b, leads partitions 1 and 4. Broker 3 has no rack.
    """
    world = World({"t": 6}, brokers=3)
    in_racks(world, "a", "b", None)
    assert partitions_of_sends(world, world.producer(linger_ms=0, **options), 40) == partitions


def test_leaders_that_move_between_racks_are_followed_without_a_metadata_request() -> None:
    """The client learns of each new leader from a Produce response (KIP-951)."""
    world = World({"t": 3}, brokers=2)
    in_racks(world, "a", "b")
    producer = world.producer(linger_ms=0, partitioner_rack_aware=True, client_rack="b")
    assert partitions_of_sends(world, producer, 5) == {1}
    requests = len(world.requests_of(producer, MetadataRequest))
    world.elect("t", 1, 1)
    assert partitions_of_sends(world, producer, 20) == {0, 1, 2}
    world.elect("t", 0, 2)
    partitions_of_sends(world, producer, 10)
    assert partitions_of_sends(world, producer, 10) == {0}
    assert len(world.requests_of(producer, MetadataRequest)) == requests


def test_metadata_moves_records_without_a_key_to_the_new_leaders_in_the_rack() -> None:
    world = World({"t": 3}, brokers=2)
    in_racks(world, "a", "b")
    producer = world.producer(
        linger_ms=0, partitioner_rack_aware=True, client_rack="b", metadata_max_age_ms=1_000
    )
    assert partitions_of_sends(world, producer, 5) == {1}
    in_racks(world, "b", "a")
    world.run(2_000)
    partitions_of_sends(world, producer, 1)
    assert partitions_of_sends(world, producer, 15) == {0, 2}
