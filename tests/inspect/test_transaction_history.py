"""The outcomes of transactions, derived from their exchanges."""

from __future__ import annotations

from kproto.error_codes import ErrorCode
from kproto.inspect.transaction_history import TransactionHistory
from kproto.messages.end_txn import EndTxnRequest, EndTxnResponse
from kproto.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproto.messages.produce import ProduceRequest, ProduceResponse
from kproto.wire.message import Message
from tests.inspect.stage import apis, exchange, picked

WRITE = ProduceRequest(transactional_id="billing", acks=-1, timeout_ms=1, topic_data=[])
INIT = InitProducerIdRequest(transactional_id="billing", transaction_timeout_ms=1)
NEW = InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=1, producer_epoch=0)


def end(committed: bool) -> EndTxnRequest:
    return EndTxnRequest(transactional_id="billing", producer_id=1, producer_epoch=0, committed=committed)


def ended(error: ErrorCode = ErrorCode.NONE) -> EndTxnResponse:
    return EndTxnResponse(throttle_time_ms=0, error_code=error)


def told(*asked: tuple[Message, Message | None]) -> list[str]:
    """Return the line of `billing`, for requests every 10 ms that are answered 1 ms later."""
    found = TransactionHistory()
    for turn, (request, response) in enumerate(asked):
        found.add(exchange(10 * turn, request, response))
    return found.lines()[2].split() if found.lines() else []


WROTE = (WRITE, ProduceResponse(responses=[]))
COMMITTED, ABORTED = (end(True), ended()), (end(False), ended())


def test_commits_aborts_and_the_longest_transaction_are_reported() -> None:
    assert told((INIT, NEW), WROTE, COMMITTED, WROTE, WROTE, ABORTED) == ["billing", "1", "1", "0", "21"]


def test_a_failed_end_txn_ends_nothing() -> None:
    refused = (end(True), ended(ErrorCode.CONCURRENT_TRANSACTIONS))
    assert told(WROTE, refused) == ["billing", "0", "0", "1", "0"]
    assert told(WROTE, refused, COMMITTED) == ["billing", "1", "0", "0", "21"]


def test_a_restarted_producer_aborts_its_open_transaction() -> None:
    assert told(WROTE, (INIT, NEW)) == ["billing", "0", "1", "0", "11"]


def test_an_end_txn_without_a_response_is_not_counted() -> None:
    assert told(WROTE, (end(True), None), (INIT, NEW)) == ["billing", "0", "0", "0", "21"]


def test_a_producer_without_transactions_is_not_reported() -> None:
    write = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1, topic_data=[])
    assert told((write, ProduceResponse(responses=[]))) == []


def test_one_commit_and_every_abort_are_drawn() -> None:
    both = [COMMITTED, ABORTED] * 3
    found = picked(*(exchange(turn, *asked) for turn, asked in enumerate(both)))
    assert apis(found) == ["EndTxn"] * 4
