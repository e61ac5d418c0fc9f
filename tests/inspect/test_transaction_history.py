"""The outcomes of transactions are derived from their requests and responses."""

from __future__ import annotations

from kproto.error_codes import ErrorCode
from kproto.inspect.transaction_history import TransactionHistory
from kproto.messages.end_txn import EndTxnRequest, EndTxnResponse
from kproto.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproto.messages.produce import ProduceRequest, ProduceResponse
from kproto.wire.message import Message
from tests.inspect.stage import draw_diagram, drawn_apis, exchange

PRODUCE = ProduceRequest(transactional_id="billing", acks=-1, timeout_ms=1, topic_data=[])
INIT = InitProducerIdRequest(transactional_id="billing", transaction_timeout_ms=1)
NEW = InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=1, producer_epoch=0)


def end_request(committed: bool) -> EndTxnRequest:
    return EndTxnRequest(transactional_id="billing", producer_id=1, producer_epoch=0, committed=committed)


def end_response(error: ErrorCode = ErrorCode.NONE) -> EndTxnResponse:
    return EndTxnResponse(throttle_time_ms=0, error_code=error)


def summary_of(*exchanges: tuple[Message, Message | None]) -> list[str]:
    """Return the summary line of the transactional id `billing` after these exchanges, one every 10 ms.

    Each response arrives 1 ms after its request.
    """
    history = TransactionHistory()
    for turn, (request, response) in enumerate(exchanges):
        history.add(exchange(10 * turn, request, response))
    return history.lines()[2].split() if history.lines() else []


PRODUCED = (PRODUCE, ProduceResponse(responses=[]))
COMMITTED, ABORTED = (end_request(True), end_response()), (end_request(False), end_response())


def test_commits_aborts_and_the_longest_transaction_are_reported() -> None:
    assert summary_of((INIT, NEW), PRODUCED, COMMITTED, PRODUCED, PRODUCED, ABORTED) == [
        "billing",
        "1",
        "1",
        "0",
        "21",
    ]


def test_a_failed_end_txn_ends_nothing() -> None:
    failed = (end_request(True), end_response(ErrorCode.CONCURRENT_TRANSACTIONS))
    assert summary_of(PRODUCED, failed) == ["billing", "0", "0", "1", "0"]
    assert summary_of(PRODUCED, failed, COMMITTED) == ["billing", "1", "0", "0", "21"]


def test_a_restarted_producer_aborts_its_open_transaction() -> None:
    assert summary_of(PRODUCED, (INIT, NEW)) == ["billing", "0", "1", "0", "11"]
    assert summary_of(PRODUCED, COMMITTED, PRODUCED, (INIT, NEW)) == ["billing", "1", "1", "0", "11"]


def test_an_end_txn_without_a_response_is_not_counted() -> None:
    assert summary_of(PRODUCED, (end_request(True), None), (INIT, NEW)) == ["billing", "0", "0", "0", "21"]


def test_a_producer_without_transactions_is_not_reported() -> None:
    write = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1, topic_data=[])
    assert summary_of((write, ProduceResponse(responses=[]))) == []


def test_one_commit_and_every_abort_are_drawn() -> None:
    end_txns = [COMMITTED, ABORTED] * 3
    diagram = draw_diagram(*(exchange(turn, *messages) for turn, messages in enumerate(end_txns)))
    assert drawn_apis(diagram) == ["EndTxn"] * 4
