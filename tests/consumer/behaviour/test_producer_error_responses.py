"""Brokers that answer a producer with any error, or any number, in any place: each delivery and each call
ends, nobody is asked all the time, and what was claimed is in the log when they are themselves again."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from consumer.engine.producer.transaction_states import ProducerTransactionState
from kproto.error_codes import ErrorCode
from tests.consumer.behaviour.hostile_brokers import (
    CODES,
    FIRST,
    WRITES,
    Hostile,
    Refusing,
    committed_once,
    outlived,
)
from tests.consumer.stage import World

PLACES = [
    "ApiVersions error_code",
    "FindCoordinator coordinators.error_code",
    "Metadata error_code",
    "Metadata topics.error_code",
    "Metadata topics.partitions.error_code",
    "InitProducerId error_code",
    WRITES,
    "AddPartitionsToTxn results_by_topic_v3_and_below.results_by_partition.partition_error_code",
    "AddOffsetsToTxn error_code",
    "TxnOffsetCommit topics.partitions.error_code",
    "EndTxn error_code",
]
NUMBERS = [
    "Metadata topics.partitions.leader_epoch",
    "Metadata topics.partitions.leader_id",
    "Metadata topics.partitions.partition_index",
    "Metadata brokers.node_id",
    "Metadata brokers.port",
    "InitProducerId throttle_time_ms",
    "Produce responses.partition_responses.base_offset",
    "Produce responses.partition_responses.log_append_time_ms",
    "Produce responses.partition_responses.index",
    "Produce throttle_time_ms",
]
NUMBERS_OF_TRANSACTIONS = [
    "FindCoordinator coordinators.node_id",
    "FindCoordinator coordinators.port",
    "InitProducerId producer_id",
    "InitProducerId producer_epoch",
    "EndTxn producer_id",
    "EndTxn producer_epoch",
    "TxnOffsetCommit topics.partitions.partition_index",
]
# No larger: who is told to be quiet for weeks is quiet for weeks, as in Java.
WILD = [0, -1, 1, 7, 2**15 - 1, -(2**15)]


@given(
    place=st.sampled_from(PLACES[2:7]),
    late=st.booleans(),
    code=st.sampled_from(CODES),
    lies=st.booleans(),
)
@example(WRITES, True, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False)
@example(WRITES, False, ErrorCode.INVALID_PRODUCER_EPOCH, False)
@example(WRITES, True, ErrorCode.MESSAGE_TOO_LARGE, False)
def test_any_error_in_any_place_is_waited_out_or_told(place: str, late: bool, code: int, lies: bool) -> None:
    check_writing(place, late, code, lies=lies)


@given(place=st.sampled_from(NUMBERS), late=st.booleans(), number=st.sampled_from(WILD))
@example("Metadata topics.partitions.partition_index", False, 7)
def test_any_number_in_any_place_is_outlived(place: str, late: bool, number: int) -> None:
    check_writing(place, late, number, lies=True)


def check_writing(place: str, late: bool, code: int, *, lies: bool) -> None:
    world = Refusing(place, code)
    if lies:
        world.tamper = None
    app = outlived(world, late, 6)
    if lies:
        return
    found = world.values()
    assert all(found[one] == 1 for one in app.delivered())
    assert max(found.values()) == 1
    assert (app.producer.engine.open_records, app.producer.engine.buffered) == (0, 0)


@given(
    place=st.sampled_from(PLACES),
    late=st.booleans(),
    code=st.sampled_from(CODES),
    second=st.booleans(),
)
@example("EndTxn error_code", False, ErrorCode.CONCURRENT_TRANSACTIONS, True)
@example("InitProducerId error_code", False, ErrorCode.CONCURRENT_TRANSACTIONS, True)
@example("TxnOffsetCommit topics.partitions.error_code", True, ErrorCode.CONCURRENT_TRANSACTIONS, False)
@example("AddPartitionsToTxn " + PLACES[7].split()[1], True, ErrorCode.CONCURRENT_TRANSACTIONS, False)
@example(WRITES, True, ErrorCode.TRANSACTION_ABORTABLE, True)
def test_a_transaction_meets_any_error_in_any_place(place: str, late: bool, code: int, second: bool) -> None:
    check_transactions(place, late, code, second)


@given(
    place=st.sampled_from(NUMBERS + NUMBERS_OF_TRANSACTIONS),
    late=st.booleans(),
    number=st.sampled_from(WILD),
    second=st.booleans(),
)
@example("TxnOffsetCommit topics.partitions.partition_index", False, 7, True)
@example("InitProducerId producer_id", False, -1, True)
def test_a_transaction_meets_any_number_in_any_place(
    place: str, late: bool, number: int, second: bool
) -> None:
    check_transactions(place, late, number, second)


def check_transactions(place: str, late: bool, code: int, second: bool) -> None:
    clerk = committed_once(Refusing(place, code, highest=None if second else FIRST), late, 4)
    if clerk.machine.state is not ProducerTransactionState.FATAL_ERROR:
        assert (clerk.producer.engine.open_records, clerk.producer.engine.buffered) == (0, 0)


def test_a_refusal_is_not_told_to_who_sends_long_after_it() -> None:
    """Who had waited for the topic gave up before brokers said often enough that it isn't there."""
    world = Hostile("Metadata topics.error_code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    producer = world.producer()
    world.bad = True
    assert producer.send("t", "x", partition=0) is None
    world.run(60_000)
    world.bad = False
    assert producer.deliver("t", "x", partition=0) is not None


def test_a_partition_is_looked_for_anew_by_who_comes_long_after_somebody_else() -> None:
    world = World({"t": 1})
    producer = world.producer(metadata_max_age_ms=60_000)
    producer.deliver("t", "x", partition=0)
    assert producer.send("t", "x", partition=1) is None
    world.run(200_000)
    world.grow("t", 2)
    assert producer.deliver("t", "x", partition=1) is not None
