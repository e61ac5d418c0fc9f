"""sarama's errors: the names and texts that its users see."""

from __future__ import annotations

from kproto.error_codes import ErrorCode
from kproto.group.subscription import TopicPartition
from kproto.models.sarama import errors


def test_an_error_code_has_saramas_name_and_text() -> None:
    assert errors.kafka(15) == ("KError(15)", "kafka server: The coordinator is not available", 15)


def test_an_unknown_error_code_names_the_code() -> None:
    error = errors.kafka(999)
    assert (error.name, error.code) == ("KError(999)", 999)
    assert error.text.endswith("Error code = 999")


def test_a_request_without_a_response_is_eof_or_an_operation_error() -> None:
    assert errors.network("", timed_out=False) == ("errors.errorString", "EOF", None)
    assert errors.network("", timed_out=True).name == "net.OpError"
    assert errors.network("connection refused", timed_out=False).name == "net.OpError"


def test_a_refused_connection_names_the_address() -> None:
    error = errors.network("connection refused", timed_out=False, address="b:9092")
    assert error.text == "dial tcp b:9092: connect: connection refused"
    assert errors.out_of_brokers([error]) == (
        "sarama.sentinelError",
        f"kafka: client has run out of available brokers to talk to: {error.text}",
        None,
    )


def test_only_an_error_without_a_code_becomes_a_consumer_error() -> None:
    partition = TopicPartition("t", 1)
    assert errors.as_consumer_error(errors.MESSAGE_TOO_LARGE, partition) == (
        "sarama.ConsumerError",
        "kafka: error while consuming t/1: kafka: message is larger than Consumer.Fetch.Max",
        None,
    )
    assert errors.as_consumer_error(errors.OUT_OF_RANGE, partition)[::2] == ("KError(1)", 1)


def test_the_errors_with_names_have_the_codes_of_kafka() -> None:
    named = {
        errors.OUT_OF_RANGE: ErrorCode.OFFSET_OUT_OF_RANGE,
        errors.UNKNOWN_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        errors.LEADER_NOT_AVAILABLE: ErrorCode.LEADER_NOT_AVAILABLE,
        errors.COORDINATOR_NOT_AVAILABLE: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        errors.REBALANCE_IN_PROGRESS: ErrorCode.REBALANCE_IN_PROGRESS,
        errors.FENCED: ErrorCode.FENCED_INSTANCE_ID,
    }
    for error, code in named.items():
        assert error == errors.kafka(code)
        assert error.code == code
        assert error.text.startswith("kafka server: ")


def test_sentinel_errors_have_a_text_of_their_own() -> None:
    sentinels = [
        error for name, error in vars(errors).items() if name.isupper() and isinstance(error, errors.GoError)
    ]
    without_code = [error for error in sentinels if error.code is None]
    assert len({error.text for error in without_code}) == len(without_code)
    assert errors.CANCELED in without_code
    assert {error.name for error in without_code} == {"errors.errorString"}
