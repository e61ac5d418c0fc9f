"""sarama's errors: the names and texts that its users see."""

from __future__ import annotations

from kproto.group.subscription import TopicPartition
from kproto.models.sarama import errors


def test_an_error_code_has_saramas_name_and_text() -> None:
    assert errors.kafka(15) == ("KError(15)", "kafka server: The coordinator is not available", 15)


def test_an_unknown_error_code_names_the_code() -> None:
    error = errors.kafka(999)
    assert (error.name, error.code) == ("KError(999)", 999)
    assert error.text.endswith("Error code = 999")


def test_a_request_without_a_response_is_eof_or_an_operation_error() -> None:
    assert errors.network("", late=False) == ("errors.errorString", "EOF", None)
    assert errors.network("", late=True).name == "net.OpError"
    assert errors.network("connection refused", late=False).name == "net.OpError"


def test_a_refused_connection_names_the_address() -> None:
    error = errors.network("connection refused", late=False, address="b:9092")
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
