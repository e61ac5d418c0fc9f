"""A producer recovers from brokers that answer with an error code or a wrong number, in any field.

Every delivery and every call completes, no broker is flooded with requests, and acknowledged records are in
the log after recovery.
"""

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
    check_producer_recovers,
    check_transactions_recover,
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
# Larger numbers are not tried. As throttle times, they would make the client wait for weeks, as in Java.
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
def test_any_error_code_in_any_field_is_waited_out_or_reported(
    place: str, late: bool, code: int, lies: bool
) -> None:
    check_producer(place, late, code, lies=lies)


@given(place=st.sampled_from(NUMBERS), late=st.booleans(), number=st.sampled_from(WILD))
@example("Metadata topics.partitions.partition_index", False, 7)
def test_a_producer_recovers_from_any_number_in_any_field(place: str, late: bool, number: int) -> None:
    check_producer(place, late, number, lies=True)


def check_producer(place: str, late: bool, code: int, *, lies: bool) -> None:
    world = Refusing(place, code)
    if lies:
        world.tamper = None
    app = check_producer_recovers(world, late, 6)
    if lies:
        return
    counts = world.values()
    assert all(counts[entry] == 1 for entry in app.delivered())
    assert max(counts.values()) == 1
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
def test_a_transaction_survives_any_error_code_in_any_field(
    place: str, late: bool, code: int, second: bool
) -> None:
    check_transactions(place, late, code, second)


@given(
    place=st.sampled_from(NUMBERS + NUMBERS_OF_TRANSACTIONS),
    late=st.booleans(),
    number=st.sampled_from(WILD),
    second=st.booleans(),
)
@example("TxnOffsetCommit topics.partitions.partition_index", False, 7, True)
@example("InitProducerId producer_id", False, -1, True)
def test_a_transaction_survives_any_number_in_any_field(
    place: str, late: bool, number: int, second: bool
) -> None:
    check_transactions(place, late, number, second)


def check_transactions(place: str, late: bool, code: int, second: bool) -> None:
    clerk = check_transactions_recover(Refusing(place, code, highest=None if second else FIRST), late, 4)
    if clerk.machine.state is not ProducerTransactionState.FATAL_ERROR:
        assert (clerk.producer.engine.open_records, clerk.producer.engine.buffered) == (0, 0)


def test_an_error_is_not_raised_by_a_send_long_after_it() -> None:
    """A `send` that timed out because the topic seemed to be missing does not make a later `send` fail."""
    world = Hostile("Metadata topics.error_code", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    producer = world.producer()
    world.bad = True
    assert producer.send("t", "x", partition=0) is None
    world.run(60_000)
    world.bad = False
    assert producer.deliver("t", "x", partition=0) is not None


def test_a_send_long_after_an_earlier_one_looks_up_the_partition_again() -> None:
    world = World({"t": 1})
    producer = world.producer(metadata_max_age_ms=60_000)
    producer.deliver("t", "x", partition=0)
    assert producer.send("t", "x", partition=1) is None
    world.run(200_000)
    world.grow("t", 2)
    assert producer.deliver("t", "x", partition=1) is not None
