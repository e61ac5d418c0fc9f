"""What a transaction coordinator answers, request by request. A real Kafka is asked the same in
tests/conformance/test_transactions_like_kafka.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from kproto.error_codes import ErrorCode as E
from kproto.errors import ConfigError
from kproto.messages.metadata import MetadataRequest
from kproto.transactions import (
    EDGES,
    REQUESTS,
    TABLE,
    Kind,
    MarkersWritten,
    Received,
    Settings,
    Tick,
    TransactionState,
    step,
)
from kproto.transactions.state import LAST_EPOCH, S, Transaction, Turn, move, offsets_partition
from tests.transactions.stage import MINUTE, Stage, Who


@pytest.fixture
def stage() -> Stage:
    return Stage()


# The table.


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("state", TransactionState)
def test_everything_that_can_happen_has_a_place_in_every_state(kind: Kind, state: TransactionState) -> None:
    cell = TABLE[kind, state]
    assert cell.act.__doc__
    assert {*cell.to} <= EDGES[state]


def test_every_edge_is_led_to_by_a_cell() -> None:
    led = {(state, to) for (_, state), cell in TABLE.items() for to in cell.to}
    assert led == {(state, to) for state, afters in EDGES.items() for to in afters}


@pytest.mark.parametrize("before", TransactionState)
@pytest.mark.parametrize("after", TransactionState)
def test_a_transaction_goes_along_the_edges_only(
    stage: Stage, before: TransactionState, after: TransactionState
) -> None:
    txn = Transaction("x", state=before)
    if before is not S.DEAD:
        stage.coordinator.transactions["x"] = txn
    turn = Turn(stage.coordinator, 0)
    if after in EDGES[before]:
        move(turn, txn, after)
        assert txn.state is after
        assert ("x" in stage.coordinator.transactions) == (after is not S.DEAD)
    else:
        with pytest.raises(AssertionError):
            move(turn, txn, after)
        assert txn.state is before


@pytest.mark.parametrize("event", [MetadataRequest(topics=[]), "Tick", Tick, None])
def test_what_is_no_event_is_told(stage: Stage, event: Any) -> None:
    with pytest.raises(TypeError, match=r"event=.*: a coordinator hears Received"):
        step(stage.coordinator, event, 0)
    assert MetadataRequest not in REQUESTS
    with pytest.raises(TypeError, match="MetadataRequest"):
        step(stage.coordinator, Received(1, MetadataRequest(topics=[]), 1), 0)
    with pytest.raises(TypeError, match="now='0'"):
        step(stage.coordinator, Tick(), "0")  # type: ignore[arg-type]


def test_settings_are_kafkas_and_have_bounds() -> None:
    assert Settings.from_properties({"transaction.max.timeout.ms": "5"}).transaction_max_timeout_ms == 5
    for given in ({"transaction.max.timeout.ms": "0"}, {"transaction.max.timeout.ms": "x"}, {"no.such": 1}):
        with pytest.raises(ConfigError):
            Settings.from_properties(given)


# InitProducerId.


def test_an_id_begins_with_epoch_0_and_each_producer_has_the_next_one(stage: Stage) -> None:
    first = stage.named()
    assert first.epoch == 0
    assert [stage.named() for _ in range(2)] == [Who(first.producer_id, 1), Who(first.producer_id, 2)]
    assert stage.named(name="y").producer_id != first.producer_id
    assert stage.named(name=None).epoch == 0


@pytest.mark.parametrize(("timeout", "code"), [(0, 50), (-1, 50), (900_001, 50), (900_000, 0)])
def test_a_timeout_has_bounds(stage: Stage, timeout: int, code: int) -> None:
    assert stage.init(timeout=timeout).error_code == code


@pytest.mark.parametrize("who", [Who(-1, 5), Who(5, -1)])
def test_half_of_an_identity_is_invalid(stage: Stage, who: Who) -> None:
    assert stage.init(who).error_code == E.INVALID_REQUEST
    assert stage.init(name="").error_code == E.INVALID_REQUEST


def test_a_producer_goes_on_with_its_own_id_and_a_retry_hears_the_same(stage: Stage) -> None:
    first = stage.named()
    second = stage.named(who=first)
    assert second == Who(first.producer_id, 1)
    assert stage.named(who=first) == second
    assert stage.named(who=second) == Who(first.producer_id, 2)
    assert stage.init(first).error_code == E.PRODUCER_FENCED
    assert stage.init(first, version=3).error_code == E.INVALID_PRODUCER_EPOCH


def test_a_producer_whose_id_was_taken_cant_go_on(stage: Stage) -> None:
    first = stage.named()
    stage.named()
    assert stage.init(first).error_code == E.PRODUCER_FENCED
    assert stage.init(Who(first.producer_id + 9, 1)).error_code == E.PRODUCER_FENCED


def test_who_takes_an_id_with_an_open_transaction_has_it_aborted_and_asks_again(stage: Stage) -> None:
    first = stage.named()
    stage.add(first)
    assert stage.init().error_code == E.CONCURRENT_TRANSACTIONS
    (markers,) = stage.asked
    assert (markers.producer_epoch, markers.committed, markers.partitions) == (1, False, (("t", 0),))
    assert stage.named() == Who(first.producer_id, 2)
    assert stage.add(first) == [E.PRODUCER_FENCED]


def test_a_stranger_takes_no_id_away_that_is_in_use(stage: Stage) -> None:
    first = stage.named()
    stage.add(first)
    assert stage.init(Who(first.producer_id + 9, 0)).error_code == E.PRODUCER_FENCED
    assert stage.transaction().state is S.ONGOING


def test_nobody_gets_an_id_while_markers_are_on_their_way(stage: Stage) -> None:
    stage.held = True
    first = stage.named()
    stage.add(first)
    stage.ended(first)
    assert stage.init().error_code == E.CONCURRENT_TRANSACTIONS
    assert stage.init(Who(77, 0)).error_code == E.PRODUCER_FENCED
    assert stage.add(Who(first.producer_id, 1)) == [E.CONCURRENT_TRANSACTIONS]


def test_with_the_last_epoch_a_new_id_begins(stage: Stage) -> None:
    first = stage.named()
    stage.transaction().epoch = LAST_EPOCH
    second = stage.named()
    assert (second.epoch, second.producer_id != first.producer_id) == (0, True)
    stage.transaction().epoch = LAST_EPOCH
    third = stage.named(who=Who(second.producer_id, LAST_EPOCH))
    assert stage.named(who=Who(second.producer_id, LAST_EPOCH)) == third  # it did not hear of the third


# Adding.


def test_the_first_partition_begins_a_transaction(stage: Stage) -> None:
    who = stage.named()
    assert stage.add(who, ("t", 0)) == [E.NONE]
    assert stage.add(who, ("t", 0), ("t", 1)) == [E.NONE, E.NONE]
    state = stage.describe()
    assert (state.transaction_state, state.topics[0].partitions) == ("Ongoing", [0, 1])
    assert state.transaction_start_time_ms == stage.now


def test_a_groups_offsets_are_a_partition(stage: Stage) -> None:
    who = stage.named()
    assert stage.add_offsets(who, "g") is E.NONE
    assert stage.transaction().partitions == {("__consumer_offsets", ord("g") % 50): None}
    for group, java_hash in {"hello": 99162322, "polygenelubricants": 0}.items():
        assert (
            offsets_partition(group, Settings())[1] == java_hash % 50
        )  # "polygen..." is the one without an abs()


def test_a_partition_that_there_is_not_spoils_the_others(stage: Stage) -> None:
    who = stage.named()
    codes = stage.add(who, ("t", 0), ("t", 2), ("u", 0))
    assert codes == [
        E.OPERATION_NOT_ATTEMPTED,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert stage.transaction().state is S.EMPTY


def test_only_who_has_the_id_adds(stage: Stage) -> None:
    who = stage.named()
    assert stage.add(Who(who.producer_id, 1)) == [E.PRODUCER_FENCED]
    assert stage.add(Who(who.producer_id, 1), version=1) == [E.INVALID_PRODUCER_EPOCH]
    assert stage.add(Who(who.producer_id + 1, 0)) == [E.INVALID_PRODUCER_ID_MAPPING]
    assert stage.add(who, name="nobody's") == [E.INVALID_PRODUCER_ID_MAPPING]
    assert stage.add(who, name="") == [E.INVALID_REQUEST]
    assert stage.add_offsets(Who(who.producer_id, 1), version=1) is E.INVALID_PRODUCER_EPOCH
    assert stage.add_offsets(who, name="") is E.INVALID_REQUEST


def test_a_broker_asks_whether_a_partition_is_in(stage: Stage) -> None:
    who = stage.named()
    assert stage.add(who, version=4, verify=True) == [E.TRANSACTION_ABORTABLE]
    stage.add(who, ("t", 0))
    codes = stage.add(who, ("t", 0), ("t", 1), version=4, verify=True)
    assert codes == [E.NONE, E.TRANSACTION_ABORTABLE]
    assert stage.add(Who(who.producer_id, 1), version=5, verify=True) == [E.PRODUCER_FENCED]
    assert stage.add(who, name="nobody's", version=5, verify=True) == [E.INVALID_PRODUCER_ID_MAPPING]
    assert stage.add(who, ("t", 1), version=5) == [E.NONE]


# EndTxn.


@pytest.mark.parametrize("committed", [True, False])
def test_an_end_is_answered_when_it_is_decided_and_complete_with_its_markers(
    stage: Stage, committed: bool
) -> None:
    stage.held = True
    who = stage.named()
    stage.add(who, ("t", 1))
    after = stage.ended(who, committed=committed)
    assert after == Who(who.producer_id, 1)
    (markers,) = stage.asked
    assert (markers.producer_epoch, markers.committed, markers.partitions) == (1, committed, (("t", 1),))
    assert stage.describe().transaction_state == ("PrepareCommit" if committed else "PrepareAbort")
    assert stage.end(who, committed=committed).error_code == E.CONCURRENT_TRANSACTIONS
    assert stage.end(who, committed=not committed).error_code == E.INVALID_TXN_STATE
    assert stage.end(after, committed=committed).error_code == E.PRODUCER_FENCED
    assert stage.end(Who(77, 0)).error_code == E.INVALID_PRODUCER_ID_MAPPING


def test_an_end_may_be_asked_again_with_the_old_epoch(stage: Stage) -> None:
    who = stage.named()
    stage.add(who)
    after = stage.ended(who)
    assert stage.ended(who) == after
    assert stage.end(who, committed=False).error_code == E.INVALID_TXN_STATE
    assert stage.end(after).error_code == E.INVALID_TXN_STATE
    assert stage.end(Who(who.producer_id, 5)).error_code == E.PRODUCER_FENCED


def test_nothing_may_be_aborted_and_begins_an_epoch(stage: Stage) -> None:
    who = stage.named()
    assert stage.end(who).error_code == E.INVALID_TXN_STATE
    after = stage.ended(who, committed=False)
    assert after == Who(who.producer_id, 1)
    assert stage.ended(after, committed=False).epoch == 2
    assert stage.end(who, committed=False).error_code == E.PRODUCER_FENCED


@pytest.mark.parametrize("committed", [True, False])
def test_up_to_v4_the_epoch_stays(stage: Stage, committed: bool) -> None:
    who = stage.named()
    assert stage.end(who, committed=committed, version=4).error_code == E.INVALID_TXN_STATE
    stage.add(who)
    stage.held = True
    assert stage.end(Who(who.producer_id, 1), version=1).error_code == E.INVALID_PRODUCER_EPOCH
    assert stage.end(who, committed=committed, version=4).error_code == 0
    assert stage.end(who, committed=committed, version=4).error_code == E.CONCURRENT_TRANSACTIONS
    assert stage.end(who, committed=not committed, version=4).error_code == E.INVALID_TXN_STATE
    stage.held = False
    stage.step(MarkersWritten("x"))
    assert stage.end(who, committed=committed, version=4).error_code == 0
    assert stage.end(who, committed=not committed, version=4).error_code == E.INVALID_TXN_STATE
    assert stage.transaction().epoch == 0
    assert stage.asked[0].producer_epoch == 0


def test_an_end_without_a_name_or_of_an_unknown_one(stage: Stage) -> None:
    for version in (4, 5):
        assert stage.end(Who(1, 0), name="", version=version).error_code == E.INVALID_REQUEST
        answer = stage.end(Who(1, 0), name="nobody's", version=version)
        assert answer.error_code == E.INVALID_PRODUCER_ID_MAPPING


def test_the_last_epoch_ends_with_another_id(stage: Stage) -> None:
    who = Who(stage.named().producer_id, LAST_EPOCH)
    stage.transaction().epoch = LAST_EPOCH
    stage.add(who)
    after = stage.ended(who)
    assert (after.epoch, after.producer_id != who.producer_id) == (0, True)
    assert stage.asked[-1].producer_epoch == LAST_EPOCH + 1
    assert stage.ended(who) == after  # it did not hear the answer
    assert stage.add(after) == [E.NONE]


# Time.


def test_a_transaction_that_is_open_too_long_is_aborted_in_a_new_epoch(stage: Stage) -> None:
    who = stage.named(timeout=5_000)
    stage.add(who)
    stage.wait(3_000)
    stage.add(who, ("t", 1))
    stage.wait(2_000)
    assert stage.asked == []
    stage.wait(1)
    (markers,) = stage.asked
    assert (markers.producer_epoch, markers.committed) == (1, False)
    assert "5000 ms" in markers.reason
    assert stage.add(who) == [E.PRODUCER_FENCED]
    assert stage.end(who).error_code == E.INVALID_TXN_STATE
    assert stage.end(who, committed=False).producer_epoch == 1  # it is told that it is so already
    assert stage.end(who, version=4).error_code == E.PRODUCER_FENCED


def test_what_is_due_happens_before_what_comes(stage: Stage) -> None:
    stage.held = True
    who = stage.named(timeout=5_000)
    stage.add(who)
    stage.now += 5_001
    assert stage.end(who).error_code == E.INVALID_TXN_STATE
    assert stage.end(who, committed=False).error_code == E.CONCURRENT_TRANSACTIONS


def test_an_id_that_nobody_uses_is_forgotten(stage: Stage) -> None:
    week = Settings().transactional_id_expiration_ms
    who = stage.named()
    stage.wait(week - 1)
    stage.add(who)
    stage.ended(who)
    stage.wait(week - 1)
    assert stage.describe().error_code == 0
    stage.wait(1)
    assert stage.describe().error_code == E.TRANSACTIONAL_ID_NOT_FOUND
    assert stage.coordinator.transactions == {}
    assert stage.named().producer_id != who.producer_id


# Looking.


def test_transactions_are_described(stage: Stage) -> None:
    assert stage.describe("").error_code == E.INVALID_REQUEST
    who = stage.named(timeout=MINUTE)
    state = stage.describe()
    seen = (state.transaction_state, state.producer_id, state.producer_epoch, state.transaction_timeout_ms)
    assert seen == ("Empty", *who, MINUTE)
    assert state.transaction_start_time_ms == -1


def test_transactions_are_listed_by_state_producer_age_and_pattern(stage: Stage) -> None:
    x, y = stage.named(name="x"), stage.named(name="y")
    stage.add(x)
    stage.wait(5_000)

    def names(*states: str, **filters: Any) -> list[str]:
        return [one.transactional_id for one in stage.listed(*states, **filters).transaction_states]

    assert names() == ["x", "y"]
    assert names("Ongoing") == ["x"]
    assert names("Empty", "Ongoing", "none") == ["x", "y"]
    assert names("none") == []
    assert names(producer_id_filters=[y.producer_id]) == ["y"]
    assert names("Ongoing", duration_filter=4_999) == ["x"]
    assert names("Ongoing", duration_filter=5_000) == []
    assert names(transactional_id_pattern="[y-z]") == ["y"]
    assert names(transactional_id_pattern="") == ["x", "y"]
    assert stage.listed("none", "Dead", "PrepareEpochFence").unknown_state_filters == ["none"]
    assert stage.listed(transactional_id_pattern="(").error_code == E.INVALID_REGULAR_EXPRESSION
