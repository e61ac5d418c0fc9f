"""Error responses have a code that the request's version allows, in the error fields."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.error_codes import ErrorCode
from kproto.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kproto.messages.describe_transactions import DescribeTransactionsRequest
from kproto.messages.end_txn import EndTxnRequest
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.transactions.responses import code_for_version, error_response
from kproto.wire.message import Message
from tests.rules import rule

END = EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, committed=True)
INIT = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1)


@rule("X1")
@pytest.mark.parametrize(
    ("request_", "version", "code"),
    [
        (INIT, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
        (INIT, 4, ErrorCode.PRODUCER_FENCED),
        (END, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (END, 2, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_older_clients_of_a_fenced_producer_receive_invalid_producer_epoch(
    request_: Message, version: int, code: ErrorCode
) -> None:
    assert code_for_version(request_, version, ErrorCode.PRODUCER_FENCED) is code


def test_a_rejected_request_to_add_partitions_has_the_error_at_every_partition() -> None:
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0, 2]) for name in "ab"]
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    results = [(name, [(0, code), (2, code)]) for name in "ab"]

    old = AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=topics)
    assert _codes(error_response(old, code, 3).results_by_topic_v3_and_below) == results

    transaction = AddPartitionsToTxnTransaction(
        transactional_id="x", producer_id=1, producer_epoch=0, topics=topics
    )
    batch = AddPartitionsToTxnRequest(transactions=[transaction])
    (by_transaction,) = error_response(batch, code, 4).results_by_transaction
    assert by_transaction.transactional_id == "x"
    assert _codes(by_transaction.topic_results) == results


def test_only_requests_of_producers_have_one_error_for_the_whole_request() -> None:
    request = DescribeTransactionsRequest(transactional_ids=["x"])
    with pytest.raises(TypeError, match="DescribeTransactionsRequest"):
        error_response(request, ErrorCode.NOT_COORDINATOR, 0)


def _codes(topics: list[Any]) -> list[Any]:
    return [
        (topic.name, [(p.partition_index, p.partition_error_code) for p in topic.results_by_partition])
        for topic in topics
    ]
