"""Error codes are ints with a text, and have the properties of Kafka's errors, such as retriable.

tests/conformance/test_java_bytes.py compares the list with Kafka's list.
"""

from __future__ import annotations

from kproto.error_codes import REFRESH_METADATA, RETRIABLE, ErrorCode, describe
from kproto.errors import BrokerError


def test_codes_are_ints_that_compare_with_what_messages_carry() -> None:
    carried: int = 27
    assert carried == ErrorCode.REBALANCE_IN_PROGRESS
    assert 16 in RETRIABLE


def test_errors_that_need_new_metadata_are_retriable() -> None:
    assert REFRESH_METADATA < RETRIABLE


def test_the_properties_are_the_sets() -> None:
    assert {code for code in ErrorCode if code.retriable} == RETRIABLE
    assert {code for code in ErrorCode if code.refresh_metadata} == REFRESH_METADATA


def test_fencing_errors_are_not_retriable() -> None:
    assert not ErrorCode.FENCED_INSTANCE_ID.retriable


def test_any_code_can_be_described() -> None:
    assert describe(27) == "REBALANCE_IN_PROGRESS (27)"
    assert describe(9999) == "error code 9999"


def test_a_broker_error_names_the_code() -> None:
    assert str(BrokerError(27, "Heartbeat")) == "Heartbeat: REBALANCE_IN_PROGRESS (27)"
