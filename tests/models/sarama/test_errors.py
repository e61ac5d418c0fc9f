"""sarama's errors: the names and texts that its users see."""

from __future__ import annotations

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


def test_only_an_error_without_a_code_becomes_a_consumer_error() -> None:
    assert errors.as_consumer_error(errors.TIMED_OUT).name == "sarama.ConsumerError"
    assert errors.as_consumer_error(errors.OUT_OF_RANGE) == errors.OUT_OF_RANGE
