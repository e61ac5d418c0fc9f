"""Messages of sarama's producers are checked before they are sent, and their errors are collected."""

from __future__ import annotations

from typing import Any

import pytest

from consumer import ProducerMessage
from consumer.sarama import messages
from consumer.sarama.messages import MessageFailures, ProducerError, ProducerErrors
from kproto.errors import ConfigError, RequestTimedOut, UnknownTopic


def test_an_error_names_the_topic_and_the_reason() -> None:
    message, reason = ProducerMessage(topic="t"), UnknownTopic(3, "Metadata", "t")
    error = ProducerError(message, reason)
    assert str(error) == f"a message to t was not sent: {reason}"
    assert (error.message, error.error, error.args) == (message, reason, (message, reason))


def test_the_errors_of_several_messages_are_raised_together() -> None:
    failures = MessageFailures()
    with failures.collect(ProducerMessage(topic="t")):
        pass
    failures.raise_errors()
    lost = [ProducerMessage(topic="a"), ProducerMessage(topic="b")]
    for number, message in enumerate(lost):
        with failures.collect(message):
            raise RequestTimedOut("Produce", number, "no answer")
    with pytest.raises(ProducerErrors, match=r"^2 messages were not sent; the first: Produce") as raised:
        failures.raise_errors()
    assert [error.message for error in raised.value.errors] == lost
    assert raised.value.args == (raised.value.errors,)


def test_only_errors_of_kproto_are_collected() -> None:
    failures = MessageFailures()
    with pytest.raises(ValueError, match="mine"), failures.collect(ProducerMessage(topic="t")):
        raise ValueError("mine")
    failures.raise_errors()


@pytest.mark.parametrize("invalid", ["t", b"t", 5, None])
def test_a_value_that_is_no_iterable_of_messages_is_rejected(invalid: Any) -> None:
    with pytest.raises(ConfigError, match=r"^messages=.* an iterable of ProducerMessage"):
        messages.check_messages(invalid)


def test_messages_are_taken_from_any_iterable() -> None:
    batch = [ProducerMessage(topic="a"), ProducerMessage(topic="b")]
    assert messages.check_messages(iter(batch)) == batch
    with pytest.raises(ConfigError, match=r"^message=3 "):
        messages.check_messages([*batch, 3])


@pytest.mark.parametrize("name", ["key_serializer", "value_deserializer"])
def test_a_serializer_that_is_none_is_accepted(name: str) -> None:
    messages.require_bytes({name: None})
    with pytest.raises(ConfigError, match=f"^{name}=.*contain bytes"):
        messages.require_bytes({name: str})


@pytest.mark.parametrize("invalid", [False, 1, None])
def test_a_sync_producer_returns_all_results(invalid: Any) -> None:
    messages.check_returns(return_successes=True, return_errors=True)
    with pytest.raises(ConfigError, match=r"^return_successes=.* must be True"):
        messages.check_returns(return_successes=invalid, return_errors=True)
    with pytest.raises(ConfigError, match=r"^return_errors=.* must be True"):
        messages.check_returns(return_successes=True, return_errors=invalid)


def test_the_timeout_of_close_is_checked_and_named_in_ms() -> None:
    assert messages.close_timeout(None) is None
    assert messages.close_timeout(0.5) == 0.5
    with pytest.raises(ConfigError, match=r"^timeout=-1 "):
        messages.close_timeout(-1)
    assert "close: no answer within 200 ms" in str(messages.still_closing(0.2))
    assert "close: no answer within 0 ms" in str(messages.still_closing(None))
