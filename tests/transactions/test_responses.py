"""Responses with an error code that the client knows."""

from __future__ import annotations

import pytest

from kproto.error_codes import ErrorCode
from kproto.messages.end_txn import EndTxnRequest
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.transactions.responses import code_for_version
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
